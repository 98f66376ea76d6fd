"""Wake-ups: NOTIFY after something became claimable, LISTEN while there is nothing to do.

Only a matter of latency. A notification is a statement of its own after the commit, at most one in
three milliseconds: within the transaction it would make commits queue behind each other. It can be
lost, and then the next poll finds what it was about.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from daybell.core.units import Seconds
from daybell.errors import DaybellError, UsageError
from daybell.store.postgres.connection import (
    Database,
    Lineage,
    connect,
    translate_errors,
    watch_peer,
)
from daybell.store.postgres.timeouts import Pace, Timeouts
from daybell.store.shares import set_holder
from daybell.store.wakeups import pause

logger = logging.getLogger("daybell.store")

CHANNEL: Final = "daybell"
WORKERS: Final = "!"  # in the place of a queue, which cannot be called so
SCHEDULES: Final = "@"
ALL_TENANTS: Final = 0  # in the place of one
GAP_SECONDS: Final = 0.003
RECONNECT_SECONDS: Final = 1.0


class Notifier:
    """Says which queues have something new."""

    SAY = f"SELECT pg_notify('{CHANNEL}', said) FROM unnest($1::text[]) said"

    def __init__(self, db: Database) -> None:
        self._db = db
        self._touched: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self.near: list[Mapping[str, Callable[[], None]]] = []  # who listens in this process

    def touch(self, tenant: int, queues: Iterable[str], *, here: bool = False) -> None:
        """Something in these queues may be claimed. `here`: who listens in this process hears it at
        once, and not by way of the server.
        """
        said = {f"{tenant}:{queue}" for queue in queues}
        self._touched |= said
        if here:
            for wake in {wanted[word] for wanted in self.near for word in said & wanted.keys()}:
                wake()
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Send what is left to say."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send(self) -> None:
        set_holder(None)  # it speaks for all tenants, whichever was the first
        try:
            while self._touched:
                said, self._touched = sorted(self._touched), set()
                # Whoever touched a queue may be at work at another pace.
                async with self._db.link(Pace.SHORT) as link:
                    await link.execute(self.SAY, said)
                await pause(GAP_SECONDS)
        except DaybellError:
            pass  # whoever listens polls, too
        finally:
            self._sender = None


class Listener:
    """A connection that waits for notifications; it comes back when it breaks or goes deaf."""

    def __init__(
        self,
        url: str,
        wanted: Mapping[str, Callable[[], None]],
        *,
        lineage: Lineage,
        timeouts: Timeouts,
        interval: Seconds,
        takes_settings: bool = True,
    ) -> None:
        self._url = url
        self._lineage = lineage
        self._timeouts = timeouts
        self._interval = interval  # between two checks of a connection that is silent
        self._settings = timeouts.peer if takes_settings else {}
        self._wanted = dict(wanted)
        self._task: asyncio.Task[None] | None = None
        self._is_warned = False

    async def start(self) -> None:
        """Listen from now on, or as soon as the server can be reached."""
        is_tried = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._listen(is_tried))
        await is_tried.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self, is_tried: asyncio.Event) -> None:
        while True:
            try:
                with translate_errors():
                    link = await connect(
                        self._url,
                        lineage=self._lineage,
                        timeout=self._timeouts.connect,
                        command_timeout=self._timeouts.command,
                        statement_cache_size=0,
                        server_settings=self._settings,
                    )
                    try:
                        await watch_peer(link, timeouts=self._timeouts)
                        ended = asyncio.Event()
                        link.add_termination_listener(partial(_set, ended))
                        await link.add_listener(CHANNEL, self._hear)
                        is_tried.set()
                        for wake in set(self._wanted.values()):
                            wake()  # what was said before we listened
                        await self._watch(link, ended)
                    finally:
                        link.terminate()
            except DaybellError as error:
                self._warn(error)  # the poll goes on meanwhile
            is_tried.set()
            await pause(RECONNECT_SECONDS)

    def _warn(self, error: DaybellError) -> None:
        """Log once what will not pass by itself; without wake-ups, work only starts later."""
        is_lasting = isinstance(error, UsageError) or getattr(error, "is_lasting", False)
        if is_lasting and not self._is_warned:
            self._is_warned = True
            logger.warning("no wake-ups, work waits for the next poll: %s", error)

    async def _watch(self, link: Any, ended: asyncio.Event) -> None:
        """Return when the connection has ended. Raises TimeoutError when it has gone deaf."""
        while not ended.is_set():
            try:
                async with asyncio.timeout(self._interval):
                    await ended.wait()
            except TimeoutError:
                await link.execute("SELECT 1")

    def _hear(self, _link: object, _pid: int, _channel: str, said: str) -> None:
        if said in self._wanted:
            self._wanted[said]()


def _set(ended: asyncio.Event, _link: object) -> None:
    ended.set()
