"""Keeps a process that runs others' code in its place: the public internet, and nothing here.

It hears of what Python does before it is done (`sys.addaudithook`), which cannot be undone later.
It is no sandbox against code that is out to break it; it stops code that was told to go where it
should not, by an address that somebody has typed.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from typing import Any, Final

from daybell.runners.addresses import why_not_public

MEMORY_BYTES_MAX: Final = 1024**3  # an answer may be unpacked without end

_CONNECTS: Final = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_STARTS: Final = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn",
     "os.spawn", "os.startfile", "pty.spawn"}
)  # fmt: skip
_CHANGES: Final = frozenset(
    {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
     "os.symlink", "os.truncate"}
)  # fmt: skip
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
# Files that are the same everywhere. An address can name any file as a template or a key, and its
# text is then sent: so no folder of code is among them, and only `import` reads code. Certificates
# and names of hosts are read by C libraries, which are not asked here.
_READABLE: Final = (
    "/dev/null", "/dev/urandom", "/etc/localtime", "/etc/mime.types", "/usr/share/zoneinfo/"
)  # fmt: skip
_PACKAGES: Final = ("apprise", "certifi", "tzdata")  # whose data may be read
_IMPORTER: Final = "<frozen importlib._bootstrap_external>"
_ZIP_IMPORTER: Final = "<frozen zipimport>"
_CODE: Final = tuple({*all_suffixes(), ".pyc"})


def _is_import(path: Any) -> bool:
    """True if `import` opens code: the caller of the hook's caller. Loaders also read other files,
    with `get_data`.
    """
    opener = sys._getframe(2).f_code.co_filename  # pyright: ignore[reportPrivateUsage]
    if opener == _IMPORTER:
        return str(path).endswith(_CODE)
    return opener == _ZIP_IMPORTER and path in sys.path


class Refused(PermissionError):
    """Not from here. An OSError, because libraries take those for the network's."""


class Confinement:
    """What a process may do, and what it was refused."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        specs = [spec for spec in map(find_spec, _PACKAGES) if spec is not None]
        paths = [path for spec in specs for path in spec.submodule_search_locations or ()]
        folders = (os.path.join(os.path.realpath(path), "") for path in paths)
        self._readable = (*_READABLE, *folders)
        self._refused: list[str] = []

    def begin(self) -> None:
        """Confine this process from now on."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with suppress(ValueError):  # there is a lower limit already
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        sys.addaudithook(self._look)

    def take_refused(self) -> str | None:
        """Why something was refused since this was last asked."""
        first = self._refused[0] if self._refused else None
        self._refused.clear()
        return first

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _CONNECTS:
            self._check_address(args[1])
        elif event == "open" and not _is_import(args[0]):
            self._check_file(*args)
        elif event in _STARTS:
            self._refuse("no other program is started from here")
        elif event in _CHANGES:
            self._refuse("files are not changed from here")

    def _check_address(self, address: Any) -> None:
        if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
            self._refuse("messages go over the network, not to this machine")
            return
        why = None if self._allow_private else why_not_public(address[0])
        if why is not None:
            self._refuse(
                f"{address[0]} is not on the public internet ({why}); only a worker started with"
                " --allow-private-http sends messages there"
            )

    def _check_file(self, path: Any, _: Any, flags: Any) -> None:
        if isinstance(path, int):
            return  # it is open already
        if isinstance(flags, int) and flags & _WRITING:
            self._refuse("files are not changed from here")
        # A link may lead out.
        if not os.path.realpath(os.fsdecode(path)).startswith(self._readable):
            self._refuse("files of this machine are not read from here")

    def _refuse(self, why: str) -> None:
        self._refused.append(why)
        raise Refused(why)
