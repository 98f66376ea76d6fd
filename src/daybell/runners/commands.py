"""The commands of one worker: started, heard, and ended with all that they have started."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import resource
import signal
import stat
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import msgspec

from daybell.core.instant import Seconds
from daybell.runners.program import Order, Program
from daybell.runners.streams import ProgressPipe, Said, Stream
from daybell.runners.trees import Known, Process, Sight, Tree, known, look, send
from daybell.runners.waiting import first_of
from daybell.runners.warden import remove
from daybell.runners.warding import Warden

logger = logging.getLogger("daybell.worker")

STARTERS: Final = 4  # programs started at a time: a slow disk must not hold up all others
SLOTS_MAX: Final = 100_000
FILES_EACH: Final = 5  # that a command holds open
FILES_SPARE: Final = 128  # for all else that a worker does
ROUND_SECONDS_MIN: Final = 0.01
ROUND_SECONDS_MAX: Final = 0.25
QUIET_ROUNDS: Final = 2  # in which nothing is found, until nothing is taken to be left
KILLS_MAX: Final = 40  # rounds of SIGKILL: what is left after these is not ours to end
LEFTOVERS_SECONDS: Final = 1.0  # for what outlives its command, between SIGTERM and SIGKILL
MOMENT_SECONDS: Final = 0.2  # for what outlives its command to end by itself
LAST_WORDS_SECONDS: Final = 1.0  # for what was printed to be read, whoever holds the pipes


PROGRESS: Final = "DAYBELL_PROGRESS"  # the variable that has the path of the pipe


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a command while it runs."""

    print: Callable[[str, str], None]  # a stream and a text
    progress: Callable[[float, str | None], None] = lambda percent, note: None
    malformed: Callable[[], None] = lambda: None  # a line of progress cannot be read


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int | None  # below 0: by this signal; None: nobody knows
    stdout: Said
    stderr: Said
    leftovers: int = 0  # processes that had outlived it
    is_stopped: bool = False  # it was ended from outside


class Commands:
    """All commands of an event loop, and the warden that ends them if the worker cannot."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_slots())
        self._starters = ThreadPoolExecutor(STARTERS, thread_name_prefix="daybell-command")
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="daybell-look")
        self._is_warned = False
        self._looking: asyncio.Task[Sight | None] | None = None
        self._next_look: asyncio.Task[Sight | None] | None = None
        self._trees: set[Tree] = set()
        self._warden = Warden(self._trees, self._starters)
        self._folder: str | None = None  # of the pipes for progress
        self._is_without_pipe = False  # the last command, which has been logged
        self._number = itertools.count(1)
        self._making = threading.Lock()

    async def run(
        self,
        order: Order,
        listener: Listener,
        patience: Callable[[], Seconds],
    ) -> Ended:
        """Run a command to its end, and end what it leaves behind. Raises OSError or ValueError if
        it cannot be started.

        Cancelling this ends it: SIGTERM to the processes that it has then, SIGKILL to all when
        `patience` is over, which is asked again and again. How that went is then answered in place
        of the cancellation, unless it was not started. When this returns, or raises, nothing is
        left.
        """
        if self._slots.locked() and not self._is_warned:
            self._is_warned = True
            logger.warning("commands wait: more cannot run with so few open files (ulimit -n)")
        async with self._slots:
            loop = asyncio.get_running_loop()
            is_unwanted = asyncio.Event()
            life = loop.create_task(self._live(order, listener, patience, is_unwanted))
            try:
                return await asyncio.shield(life)
            except asyncio.CancelledError:
                is_unwanted.set()
                while not life.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([life])
                if life.cancelled():
                    raise
                return msgspec.structs.replace(life.result(), is_stopped=True)

    async def close(self) -> None:
        """End the warden. Commands must have ended before."""
        await self._warden.close()
        if self._folder is not None:
            self._starters.submit(remove, self._folder)
        self._starters.shutdown(wait=False)
        self._looker.shutdown(wait=False)

    async def _live(
        self,
        order: Order,
        listener: Listener,
        patience: Callable[[], Seconds],
        is_unwanted: asyncio.Event,
    ) -> Ended:
        loop = asyncio.get_running_loop()
        pipe = await self._pipe(listener)
        if pipe is not None:
            order = msgspec.structs.replace(order, env={**order.env, PROGRESS: pipe.path})
        tree = Tree(order.mark)
        program = Program(order, tree)
        streams: list[Stream] = []
        self._trees.add(tree)
        try:
            for name in ("stdout", "stderr"):
                streams.append(Stream(name, listener.print, chars_max=order.chars_max))
            out, err = streams
            await self._warden.expect(tree)
            if is_unwanted.is_set():
                raise asyncio.CancelledError
            await loop.run_in_executor(self._starters, program.start, out.writer, err.writer)
            self._warden.begun(tree)
            for stream in streams:
                stream.start()
            if pipe is not None:
                pipe.start()
            program.watch()
            await first_of(program.exited.wait(), is_unwanted.wait())
            leftovers = await self._end(program, patience, is_unwanted)
            await asyncio.wait([one.ended for one in streams], timeout=LAST_WORDS_SECONDS)
            code = program.bury()
        finally:
            program.close()
            for stream in streams:
                stream.close()
            if pipe is not None:
                pipe.close()
                with suppress(RuntimeError):  # closed: then the folder is removed, and it in there
                    self._starters.submit(pipe.remove)
            self._trees.discard(tree)
            if not program.is_abandoned:  # else the warden will see to the rest
                self._warden.forget(tree)
        return Ended(code=code, stdout=out.said, stderr=err.said, leftovers=leftovers)

    async def _pipe(self, listener: Listener) -> ProgressPipe | None:
        """Where a command reports its progress; None: there is no place for that now."""
        loop = asyncio.get_running_loop()
        try:
            pipe = await loop.run_in_executor(self._starters, self._new_pipe, listener)
            self._is_without_pipe = False
            return pipe
        except OSError as error:
            if not self._is_without_pipe:
                self._is_without_pipe = True
                logger.warning("commands cannot report progress here: %s; is TMPDIR right?", error)
            return None
        finally:
            if self._folder is not None:
                self._warden.keep(self._folder)

    def _new_pipe(self, listener: Listener) -> ProgressPipe:
        with self._making:
            if self._folder is None or not _is_own_folder(self._folder):
                # The first one, or what cleans TMPDIR up has removed the last one.
                self._folder = tempfile.mkdtemp(prefix="daybell-")
            path = os.path.join(self._folder, str(next(self._number)))
        return ProgressPipe(path, listener.progress, listener.malformed)

    async def _end(
        self, program: Program, patience: Callable[[], Seconds], is_unwanted: asyncio.Event
    ) -> int:
        """End all that is left of a command; answers how many processes had outlived it."""
        tree = program.tree
        sight = await self._look()
        if sight is None:
            return await _end_unseen(program, patience)
        outlived = 0
        if program.exited.is_set():
            outlived = len(tree.members(sight))
            if not outlived:
                return 0
            # Something may be about to end: the rest of a pipe, a program that writes the log.
            with suppress(TimeoutError):
                await asyncio.wait_for(is_unwanted.wait(), MOMENT_SECONDS)
            outlived = len(tree.members(await self._look() or sight))
        await self._end_members(program, patience)
        return outlived

    async def _end_members(self, program: Program, patience: Callable[[], Seconds]) -> None:
        """SIGTERM to all that there are, once, and SIGKILL when patience is over, until nothing is
        left.
        """
        loop, tree = asyncio.get_running_loop(), program.tree
        began, pause, kills, quiet = loop.time(), ROUND_SECONDS_MIN, 0, 0
        told: set[Known] = set()
        while sight := await self._look():
            members = tree.members(sight)
            left = began + patience() - loop.time()
            if not members:
                # What was signalled may have started something in its last moment.
                quiet += 1
                if quiet == QUIET_ROUNDS or not (told or kills):
                    return
                await _pause(program, ROUND_SECONDS_MIN)
                continue
            quiet = 0
            if left > 0:
                _ask_to_end(program, members, told)
                await _pause(program, min(pause, left))
                pause = min(2 * pause, ROUND_SECONDS_MAX)
                continue
            tree.signal_group(signal.SIGKILL)
            send(members, signal.SIGKILL)
            kills += 1
            if kills == KILLS_MAX:
                numbers = ", ".join(str(one.pid) for one in members)
                logger.error("processes %s of %s cannot be killed", numbers, tree.mark)
                program.is_abandoned = True
                return
            await _pause(program, ROUND_SECONDS_MIN if kills < 10 else ROUND_SECONDS_MAX)

    async def _look(self) -> Sight | None:
        """All processes, as they are at some moment from now on. Many may ask at once, and one look
        is for all who have asked before it began.
        """
        if self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.create_task(self._look_next())
        return await asyncio.shield(self._next_look)

    async def _look_next(self) -> Sight | None:
        if self._looking is not None:
            await asyncio.wait([self._looking])
        self._looking, self._next_look = self._next_look, None
        since = min((tree.start or 0 for tree in self._trees if tree.pid is not None), default=0)
        return await asyncio.get_running_loop().run_in_executor(self._looker, look, since)


async def _end_unseen(program: Program, patience: Callable[[], Seconds]) -> int:
    """End a command where the system does not show its processes: its group, that is."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    if not program.exited.is_set():
        program.tree.signal_group(signal.SIGTERM)
    while not program.exited.is_set() and began + patience() > loop.time():
        await _pause(program, ROUND_SECONDS_MAX)
    program.tree.signal_group(signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(program.exited.wait(), LAST_WORDS_SECONDS)
    return 0


def _ask_to_end(program: Program, members: list[Process], told: set[Known]) -> None:
    """SIGTERM to those who are to get it now; they are added to `told`.

    What is started by one that was told is its way to clean up, and gets none. What is left of it
    when the command has ended, and nobody who belongs to it could wait for, gets one all the same.
    """
    if not told:
        # All at once, so that a script does not go on with its next line before it hears of this.
        program.tree.signal_group(signal.SIGTERM)
        fresh = [one for one in members if one.group != program.tree.pid]
        told.update(known(one) for one in members)
    elif program.exited.is_set():
        alive = {one.pid for one in members}
        fresh = [one for one in members if known(one) not in told and one.parent not in alive]
        told.update(known(one) for one in fresh)
    else:
        return
    send(sorted(fresh, key=lambda one: one.start), signal.SIGTERM)  # parents first


async def _pause(program: Program, seconds: Seconds) -> None:
    """Wait for so long, or until the command itself has ended."""
    if program.exited.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), seconds)
    else:
        with suppress(TimeoutError):
            await asyncio.wait_for(program.exited.wait(), seconds)


def _is_own_folder(path: str) -> bool:
    """Whether it is there, and no other user has put it there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _slots() -> int:
    """How many commands can run at a time with the files that a process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return SLOTS_MAX
    return min(max(1, (limit - FILES_SPARE) // FILES_EACH), SLOTS_MAX)
