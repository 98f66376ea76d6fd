"""Wake-ups of the SQLite store: listeners of this process, and a watch for other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from daybell.errors import Unavailable
from daybell.store.sqlite import schedules
from daybell.store.sqlite.connection import Bell, CommitProbe, Database
from daybell.store.sqlite.transaction import Transaction
from daybell.store.wakeups import Listeners, Signal, Wake

WATCH_SECONDS: Final = 0.05  # the latency between processes where no bell is heard

StopListening = Callable[[], Awaitable[None]]


class Wakeups:
    """Listeners, and a task that watches the file as long as there is one."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._listeners = Listeners()
        self._schedule_listeners = Listeners()
        self._watch: asyncio.Task[None] | None = None
        self._bell = Bell(db.path)

    def listen(self, wake: Wake, ask: Wake | None) -> StopListening:
        return self._hear(self._listeners.add(wake, ask))

    def listen_schedules(self, wake: Wake) -> StopListening:
        return self._hear(self._schedule_listeners.add(wake))

    def _hear(self, stop_hearing: StopListening) -> StopListening:
        """Watch the file as long as there is a listener."""
        is_watched = self._watch is not None and not self._watch.done()
        if not is_watched and not self._db.is_in_memory:
            self._watch = asyncio.get_running_loop().create_task(self._watch_file())

        async def stop() -> None:
            await stop_hearing()
            if not len(self._listeners) and not len(self._schedule_listeners):
                await self._stop_watching()

        return stop

    async def _watch_file(self) -> None:
        """Watch for commits of other processes to the file."""
        log, seen, cursor = CommitProbe(self._db.path), 0, None
        self._bell.open()
        while True:
            try:
                if log.is_worth_a_look():
                    version = await self._db.read(_data_version)
                    if version != seen:
                        # Of a schedule only the first cursor counts, whichever way it was moved.
                        before, cursor = cursor, await self._db.read(schedules.next_cursor)
                        if cursor != before:
                            self._schedule_listeners.wake()
                        self._listeners.wake()
                    log.looked(is_new=version != seen)
                    seen = version
            except Unavailable:
                pass  # the next look may go well
            await self._bell.wait(WATCH_SECONDS)

    def give(self, signal: Signal) -> None:
        """Pass on a signal of a transaction that is committed."""
        if signal is Signal.ASK:
            self.ask()
        elif signal is Signal.CLAIM:
            self.wake()
        else:
            self._schedule_listeners.wake()
            self._ring()

    def ask(self) -> None:
        """Have the workers of this process ask for news."""
        self._listeners.ask()

    def wake(self) -> None:
        """Wake all listeners, those of other processes included: work is committed."""
        self._listeners.wake()
        self._ring()

    def _ring(self) -> None:
        if not self._db.is_in_memory:
            self._bell.ring()

    async def close(self) -> None:
        await self._stop_watching()
        self._bell.flush()

    async def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._bell.close()


def _data_version(tx: Transaction) -> int:
    return tx.execute("PRAGMA data_version").fetchone()[0]
