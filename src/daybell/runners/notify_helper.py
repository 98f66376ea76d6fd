"""A process that sends messages through apprise: `python -m daybell.runners.notify_helper`.

apprise blocks while it sends, takes long to import, and has some hundred authors. So it runs in a
process of its own, which is confined to the public internet and ends with its worker. Orders come
from standard input and answers go to the original standard output, a line of JSON each.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import resource
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from typing import Any, Final, TextIO
from urllib.parse import unquote

import msgspec

from daybell.core.kinds.settings import why_not_public

# Confines a process with foreign code to the public internet. An audit hook (`sys.addaudithook`)
# sees the actions of Python before they happen, and cannot be removed. It is no sandbox against
# malicious code; it stops code that an address sends to a forbidden place.

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
# Files that are equal everywhere. An address can name any file as a template or a key, and its text
# is then sent: so no folder of code is among them, and only `import` reads code. C libraries read
# certificates and names of hosts without this hook.
_READABLE: Final = (
    "/dev/null", "/dev/urandom", "/etc/localtime", "/etc/mime.types", "/usr/share/zoneinfo/"
)  # fmt: skip
_PACKAGES: Final = ("apprise", "certifi", "tzdata")  # files that may be read
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
    """The action is not allowed. An OSError, because libraries handle those of the network."""


class Confinement:
    """The allowed actions of a process, and the refused ones."""

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
        """Return the reason of the last refusal since the last call."""
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
        # a link may lead outside
        if not os.path.realpath(os.fsdecode(path)).startswith(self._readable):
            self._refuse("files of this machine are not read from here")

    def _refuse(self, why: str) -> None:
        self._refused.append(why)
        raise Refused(why)


ALLOW_PRIVATE: Final = "--allow-private"
LINE_CHARS_MAX: Final = 2_000
PART_CHARS_MIN: Final = 4  # parts of an address to hide
MASK: Final = "***"
# Audit events that reveal the user of this machine, or its devices.
LOCAL_SCHEMES: Final = frozenset(
    {"blink1", "dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"}
)


# apprise logs the cause of a failed connection only at the debug level, among other messages.
EXCEPTION: Final = re.compile(r"[\w ]*Exception: ")
CAUSE: Final = re.compile(
    r"\[Errno -?\d+\] ([\w -]+)|((?:\w+ )?timed out|certificate verify failed[\w: -]*)"
)


class Notification(msgspec.Struct, frozen=True):
    """A message, and its addresses by their position in the job's list."""

    to: dict[int, str]
    title: str
    body: str
    format: str


class NotifyAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of: a line for the log, an address that was reached or not, the end of a message."""

    line: tuple[str, str] | None = None  # a level and a text
    told: int | None = None
    failed: int | None = None
    why: str = ""
    is_lasting: bool = False
    missing: str | None = None  # apprise is not installed
    is_done: bool = False


class UnusableAddress(Exception):
    """An address that can never work, with the reason. It does not show the address."""


class Sender:
    """Sends messages, one address after the other."""

    def __init__(self, output: TextIO, confinement: Confinement) -> None:
        self._output = output
        self._confinement = confinement
        self._apprise: Any = import_module("apprise")
        self._plugins: Any = import_module("apprise.plugins")
        self._plugins.N_MGR.load_modules()  # all plugins, before this process is confined
        asset = {"secure_logging": True, "async_mode": False}
        self._asset: Any = self._apprise.AppriseAsset(**asset)
        self._hide = _AddressMask()
        self._complaint = self._cause = ""  # of the present address
        logger = logging.getLogger("apprise")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(_LogRelay(self))

    def send(self, message: Notification) -> None:
        for number, url in message.to.items():
            self._hide.parts_of(url, message)
            self._complaint = self._cause = ""
            self._confinement.take_refused()
            try:
                is_told = self._tell(url, message)
            except UnusableAddress as error:
                self.answer(NotifyAnswer(failed=number, why=str(error), is_lasting=True))
                continue
            except Exception as error:
                is_told, why = False, self._hide(f"{type(error).__name__}: {error}")
            else:
                why = f"{_scheme(url)} did not take it{self._hide(self._reason())}"
            refused = self._confinement.take_refused()
            if is_told:
                self.answer(NotifyAnswer(told=number))
            elif refused is not None:
                self.answer(NotifyAnswer(failed=number, why=refused, is_lasting=True))
            else:
                self.answer(NotifyAnswer(failed=number, why=_cut(why)))
        self._hide.forget()
        self.answer(NotifyAnswer(is_done=True))

    def say(self, level: str, text: str) -> None:
        self.answer(NotifyAnswer(line=(level, _cut(self._hide(text)))))

    def complain(self, text: str) -> None:
        """Store the reason of a failure, as far as apprise reports it."""
        self._complaint = text

    def explain(self, text: str) -> None:
        """Look for the cause in debug messages, but not in the sent text."""
        found = CAUSE.search(text) if EXCEPTION.match(text) else None
        if found is not None:
            self._cause = (found[1] or found[2]).strip()

    def _reason(self) -> str:
        reason = self._complaint.strip().rstrip(".")
        cause = f" ({self._cause})" if self._cause else ""
        return f": {reason}{cause}" if reason or cause else ""

    def answer(self, answer: NotifyAnswer) -> None:
        self._output.write(msgspec.json.encode(answer).decode() + "\n")
        self._output.flush()

    def _tell(self, url: str, message: Notification) -> bool:
        place = self._place(url)
        return bool(
            place.notify(body=message.body, title=message.title, body_format=message.format)
        )

    def _place(self, url: str) -> Any:
        """Return the plugin of an address. Raises Unusable."""
        scheme = _scheme(url)
        if not scheme:
            raise UnusableAddress(
                "an address without a scheme; write mailto://…, slack://…, json://…"
            )
        parsed = self._plugins.url_to_dict(url, secure_logging=True)
        if parsed is None:
            raise UnusableAddress(f"an address of {scheme} that apprise cannot read")
        if {scheme, str(parsed.get("schema", "")).lower()} & LOCAL_SCHEMES:
            raise UnusableAddress(
                f"{scheme} stays on the worker's own machine; use one of the network"
            )
        try:
            place = self._apprise.Apprise.instantiate(
                parsed, asset=self._asset, suppress_exceptions=False
            )
        except Exception as error:
            raise UnusableAddress(
                f"{scheme} refuses the address ({type(error).__name__})"
            ) from None
        if place is None:
            raise UnusableAddress(
                f"apprise cannot use {scheme} here; does it need another package?"
            )
        return place


class _AddressMask:
    """Removes the parts of an address from a text: any of them may be a token."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def parts_of(self, url: str, message: Notification) -> None:
        parts = {url, *re.split(r"[/?&=@:#]+", url.partition("://")[2])}
        parts |= {unquote(part) for part in parts}
        # Text of callers in the message must not be recognisable as a part of an address.
        parts = {part for part in parts if part not in f"{message.title}\n{message.body}"}
        self._parts = sorted(
            {part for part in (*self._parts, *parts) if len(part) >= PART_CHARS_MIN},
            key=len,
            reverse=True,
        )

    def forget(self) -> None:
        self._parts = []

    def __call__(self, text: str) -> str:
        for part in self._parts:
            text = text.replace(part, MASK)
        return text


class _LogRelay(logging.Handler):
    """Forwards log messages of apprise."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(logging.DEBUG)
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno < logging.INFO:
            self._sender.explain(text)
            return
        if record.levelno >= logging.WARNING:
            self._sender.complain(text)
        self._sender.say("warning" if record.levelno >= logging.WARNING else "info", text)


def _cut(text: str) -> str:
    # All or nothing: the worker masks the line, and would not find half a secret.
    return text if len(text) <= LINE_CHARS_MAX else f"({len(text):,} characters are left out)"


def _scheme(url: str) -> str:
    scheme, mark, _ = url.partition("://")
    return scheme.strip().lower() if mark and re.fullmatch(r"\s*[\w.+\-]{1,30}", scheme) else ""


def _read_orders() -> queue.Queue[bytes]:
    """Read the orders. At the end of the input nothing needs the answers any more."""
    orders: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            orders.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return orders


def _take_output() -> TextIO:
    """Take standard output for answers; other output of the process is dropped."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return output


def main() -> None:
    """Send ordered messages until standard input ends."""
    sys.dont_write_bytecode = True
    orders = _read_orders()
    output = _take_output()
    warnings.simplefilter("ignore")  # for a traceback Python would read the code
    confinement = Confinement(allow_private=ALLOW_PRIVATE in sys.argv[1:])
    try:
        sender = Sender(output, confinement)
    except ImportError as error:
        output.write(msgspec.json.encode(NotifyAnswer(missing=str(error))).decode() + "\n")
        output.flush()
        return
    confinement.begin()
    decoder = msgspec.json.Decoder(Notification)
    while True:
        sender.send(decoder.decode(orders.get()))


if __name__ == "__main__":
    main()
