"""The processes under test: start, signal and replace them; find tracebacks in their logs."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from daybell.chaos.tasks import EXITS, FOLDER, QUEUE
from daybell.core.units import Seconds
from daybell.engine.loop import Clock

APP: Final = "daybell.chaos.tasks:app"
WORKER: Final = "worker"
SCHEDULER: Final = "scheduler"
SERVER: Final = "server"
FLEET: Final = "fleet"  # several workers under a supervisor; only its own tasks end its processes
ROLES: Final = (WORKER, SCHEDULER, SERVER, FLEET)
FLEET_PROCESSES: Final = 2
FLEET_CONCURRENCY: Final = 10
LISTENING: Final = re.compile(r"listening: (http://\S+)/api/v1")
DRAIN_SECONDS: Final = 1.0
ENDING_SECONDS: Final = 15.0  # for a process to end on request, without waits for a processor
START_AGAIN_SECONDS: Final = 0.3
POLL_SECONDS: Final = 0.1
PR_SET_PDEATHSIG: Final = 1


class FleetEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a process, or of the way to the database (then it has no pid)."""

    at: Seconds  # monotonic
    what: str
    pid: int = 0
    role: str = ""
    length: Seconds = 0.0  # its duration, if known


class Member:
    """One process."""

    def __init__(self, role: str, name: str, process: subprocess.Popen[bytes]) -> None:
        self.role = role
        self.name = name
        self.process = process
        self.is_frozen = False
        self.is_leaving = False  # a signal to end was sent
        self.address = ""  # address of a server that has reported it

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)


class Fleet:
    """All processes, and the events of each."""

    def __init__(
        self,
        folder: Path,
        *,
        environment: Callable[[str], Mapping[str, str]],  # of a role
        concurrency: int,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._concurrency = concurrency
        self._clock = clock
        self._members: list[Member] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0
        self.happenings: list[FleetEvent] = []
        self.faults: list[str] = []  # forbidden behaviour of processes

    def start(self, role: str) -> None:
        self._count += 1
        name = f"{role}-{self._count}"
        with (self._folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "daybell", *self._words(role, name)],
                env={**self._environment(role), FOLDER: str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C of a terminal is for this process only
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self._members.append(Member(role, name, process))
        self._note("started", self._members[-1])

    def _words(self, role: str, name: str) -> list[str]:
        if role == SCHEDULER:
            return [role]
        if role == SERVER:
            return [role, "--port", "0"]
        words = [WORKER, APP, "--name", name, "--drain-timeout", f"{DRAIN_SECONDS}s"]
        if url := self._environment(role).get("DAYBELL_API_URL"):
            words += ["--api-url", url]  # without the database
        if role == FLEET:
            words += ["--processes", str(FLEET_PROCESSES), "--queues", f"{QUEUE},{EXITS}"]
            return [*words, "--concurrency", str(FLEET_CONCURRENCY)]
        return [*words, "--queues", QUEUE, "--concurrency", str(self._concurrency)]

    def workers(self) -> Iterator[str]:
        """The names of all expected workers."""
        for member in self._members:
            if member.role == WORKER and not member.is_leaving:
                yield member.name
            elif member.role == FLEET:
                yield from (f"{member.name}-{slot + 1}" for slot in range(FLEET_PROCESSES))

    def servers(self) -> list[tuple[int, str]]:
        """Return process and address of each server that is up and not leaving."""
        found: list[tuple[int, str]] = []
        for member in self._members:
            if member.role != SERVER or member.is_leaving:
                continue
            if not member.address:
                said = (self._folder / f"{member.name}.log").read_text(errors="replace")
                if match := LISTENING.search(said):
                    member.address = match[1]
            if member.address:
                found.append((member.pid, member.address))
        return found

    def kill(self, role: str, pick: float) -> bool:
        """Kill a process and start another one; False if there is none."""
        member = self._pick(role, pick, least=1)
        if member is not None:
            self._end(member)
            self.start(role)
        return member is not None

    def drain(self, role: str, pick: float) -> bool:
        """Ask a process to end, and start another one at once."""
        member = self._pick(role, pick, least=1, frozen=False)
        if member is None:
            return False
        member.is_leaving = True
        self._note("drained", member)
        member.signal(signal.SIGTERM)
        self.start(role)
        self._later(self._see_off(member))
        return True

    def freeze(self, role: str, pick: float, seconds: Seconds) -> bool:
        """Stop a process for a while, if another one continues meanwhile."""
        member = self._pick(role, pick, least=2, frozen=False)
        if member is None:
            return False
        member.is_frozen = True
        self._note("frozen", member)
        member.signal(signal.SIGSTOP)
        self._later(self._thaw(member, seconds))
        return True

    async def watch(self) -> None:
        """Restart processes that end by themselves, until cancelled."""
        while True:
            await self._clock.sleep(POLL_SECONDS)
            for member in list(self._members):
                if member.process.poll() is not None and not member.is_leaving:
                    self._members.remove(member)
                    self._note(f"ended by itself ({member.process.returncode})", member)
                    await self._clock.sleep(START_AGAIN_SECONDS)
                    self.start(member.role)

    async def calm(self) -> None:
        """Continue all processes, and wait for unfinished faults."""
        for member in self._members:
            self._resume(member)
        await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """Ask all processes to end, and make sure that they do."""
        leaving = list(self._members)
        for member in leaving:
            member.is_leaving = True
            member.signal(signal.SIGTERM)
        await asyncio.gather(*map(self._see_off, leaving))

    def kill_all(self) -> None:
        """Kill all processes."""
        for task in self._tasks:
            task.cancel()
        for member in list(self._members):
            self._end(member)

    def _pick(self, role: str, pick: float, *, least: int, frozen: bool = True) -> Member | None:
        """Choose a process that is not leaving, if enough of them are at work."""
        there = [m for m in self._members if m.role == role and not m.is_leaving]
        at_work = [member for member in there if not member.is_frozen]
        if len(at_work) < least:
            return None
        could_be = there if frozen else at_work
        return could_be[int(pick * len(could_be))]

    def _end(self, member: Member, number: signal.Signals = signal.SIGKILL) -> None:
        member.is_leaving = True
        self._note("killed", member)
        member.signal(number)
        member.process.wait()
        self._members.remove(member)

    async def _see_off(self, member: Member) -> None:
        since, starvation = self._clock.monotonic(), Starvation(member.pid)
        while member.process.poll() is None:
            waited = self._clock.monotonic() - since
            if waited - starvation.seconds() > ENDING_SECONDS:
                self.faults.append(f"{member.name} did not end within {waited:.1f} s of SIGTERM")
                self._end(member, signal.SIGABRT)  # its log has all stacks
                return
            await self._clock.sleep(POLL_SECONDS)
        self._note("ended", member)
        if member in self._members:
            self._members.remove(member)

    async def _thaw(self, member: Member, seconds: Seconds) -> None:
        await self._clock.sleep(seconds)
        self._resume(member)

    def _resume(self, member: Member) -> None:
        if member.is_frozen:
            member.is_frozen = False
            self._note("resumed", member)
            member.signal(signal.SIGCONT)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note(self, what: str, member: Member) -> None:
        self.happenings.append(FleetEvent(self._clock.monotonic(), what, member.pid, member.role))


def _die_with_parent() -> None:
    """In the child, before exec: even a frozen process ends when this one is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def environment(*, lease: Seconds, **settings: str) -> dict[str, str]:
    """Return the environment of the processes, with settings by their names without prefix."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DAYBELL_")}
    named = {f"DAYBELL_{name}": value for name, value in settings.items()}
    return (
        inherited
        | named
        | {
            "DAYBELL_LEASE": f"{lease:g}s",
            "PYTHONFAULTHANDLER": "1",
        }
    )


class Starvation:
    """The time for which a process and its children have waited for a busy processor, from now on.
    Children that have ended count with the last value that was read.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = dict(waits_for_processor(pid))
        self._waits = dict(self._before)

    def seconds(self) -> Seconds:
        self._waits.update(waits_for_processor(self._pid))
        return sum(self._waits.values()) - sum(self._before.values())


def waits_for_processor(pid: int) -> Iterator[tuple[int, Seconds]]:
    """Return how long a process and its children have waited so far, by their ids."""
    with suppress(OSError):
        one = Path(f"/proc/{pid}")
        yield pid, int((one / "schedstat").read_text().split()[1]) / 1e9
        for child in (one / f"task/{pid}/children").read_text().split():
            yield from waits_for_processor(int(child))


# Unexpected errors in the logs. A store that is away is logged in one line; an error with a
# traceback is a bug.

BEGINS: Final = "Traceback (most recent call last):"


def find_tracebacks(folder: Path) -> Iterator[str]:
    """Return one line for each traceback in the logs: the process, and the final error."""
    for file in sorted(folder.glob("*.log")):
        lines = iter(file.read_text(errors="replace").splitlines())
        for line in lines:
            if line.startswith(BEGINS):
                # Indented lines are frames; the first other line is the error itself.
                error = next((one for one in lines if one and not one[0].isspace()), "")
                yield f"{file.stem}: {error}"
