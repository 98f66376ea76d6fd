"""What runs have left to do after a transaction: the next part of it, in one of its own.

Whoever made the first transaction goes on for a while. If he is gone by then, what is left is seen
in the tables, and done by `advance_runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.run import Stopping
from daybell.errors import Unavailable
from daybell.store import driving
from daybell.store.driving import is_over
from daybell.store.postgres.listener import WORKERS
from daybell.store.postgres.pending import Pending

CANCELLED_MAX: Final = 1000  # nodes at a time
# The first part of what follows an end is small, so that work begins soon. Nobody waits for the
# others but the run's own ends, and fewer of them are less work.
LATER_PARTS: Final = 4
# True of a tenant that may have more unfinished executions.
HAS_ROOM: Final = """(t.queued_max IS NULL OR t.queued_max > (SELECT count(*) FROM (
                        SELECT FROM daybell.live l WHERE l.tenant = t.key LIMIT t.queued_max) u))"""


class Continuing(Pending):
    """Runs between two transactions."""

    async def after_commit(self, tenant: int | None) -> None:
        """Wake who waits for what this transaction has done, and go on with its runs: also with
        those of the tenant that have waited for room in its quota.
        """
        self.say_news()
        if tenant is not None:
            await self.unblock_runs(tenant)
        if not self.unfinished and not self.cancelled:
            return
        # What was asked for is done; what else there is to do can wait for upkeep.
        with suppress(Unavailable):
            for _ in range(driving.ADVANCE_ROUNDS):
                cancelled, self.cancelled = self.cancelled, {}
                unfinished, self.unfinished = self.unfinished, {}
                for tenant, run in cancelled:
                    await self.stop_run(tenant, run)
                for tenant, run in unfinished:
                    await self.advance_run(tenant, run)
                self.say_news()
                if not self.unfinished and not self.cancelled:
                    break

    # The count comes last: mostly there is no such run.
    UNBLOCKED = f"""
    SELECT r.id FROM (SELECT id FROM daybell.run WHERE tenant = $1 AND is_blocked
                       ORDER BY id LIMIT 1) r,
           LATERAL (SELECT FROM daybell.tenant t WHERE t.key = $1 AND r.id IS NOT NULL
                       AND {HAS_ROOM} OFFSET 0) t
    """

    async def unblock_runs(self, tenant: int) -> None:
        """Go on with runs that have waited for room in the tenant's quota, if there is some: an end
        makes room, and runs that others have driven meanwhile have not seen it.
        """
        advanced: set[UUID] = set()
        with suppress(Unavailable):  # then it is left to upkeep
            if (await self.quotas(tenant)).queued is None:
                return
            while True:
                async with self.db.link() as link:
                    run: UUID | None = await link.fetchval(self.UNBLOCKED, tenant)
                # One that waits still: others have the lock that it needs.
                if run is None or run in advanced:
                    return
                advanced.add(run)
                await self.advance_run(tenant, run, wait=False)

    async def advance_run(self, tenant: int, run: UUID, *, wait: bool = True) -> bool | None:
        """Do a part of what is left to do in a run; True: there is more. None: others are at it,
        and the caller did not want to wait.
        """
        return await self.db.settled(partial(self._advance, tenant, run, wait))

    async def _advance(self, tenant: int, run: UUID, wait: bool) -> bool | None:
        async with self.db.transaction() as link:
            if wait:
                held = await self.lock_links(link, tenant, (), (), [run])
            else:
                free, held = await self.lock_links_free(link, tenant, [(None, None, run)])
                if not free:
                    return None
            if run not in held or held[run].is_finished:
                return False
            await self.follow_up(link, tenant, (), held, {run: ()}, parts=LATER_PARTS)
        return (tenant, run) in self.unfinished

    async def stop_run(self, tenant: int, run: UUID) -> None:
        """Have nothing more started in a run, and cancel what was. The same in all runs inside it,
        however deep they are: each in transactions of its own, so that no lock is waited for while
        others are held.
        """
        runs = [run]
        while runs:
            one = runs.pop()
            await self.db.settled(partial(self._stop, tenant, one))
            while ids := await self._started(tenant, one):
                runs += await self.db.settled(partial(self._cancel_some, tenant, ids))

    async def _stop(self, tenant: int, run: UUID) -> None:
        async with self.db.transaction() as link:
            held = await self.lock_links(link, tenant, (), (), [run])
            one = held.get(run)
            if one is None or is_over(one.run):
                return
            stopped = replace(one.run, stopping=Stopping.CANCEL, is_todo=True)
            held[run] = replace(one, run=stopped, is_finished=False)
            await self.follow_up(link, tenant, (), held, {run: ()})

    # Nothing comes after these: a run that is stopped starts no more.
    STARTED = f"""
    SELECT id FROM daybell.live WHERE parent = $2 AND tenant + 0 = $1 AND node IS NOT NULL
       AND cancel_requested_at IS NULL ORDER BY id LIMIT {CANCELLED_MAX}
    """

    async def _started(self, tenant: int, run: UUID) -> list[UUID]:
        """Some executions of nodes that nobody has cancelled yet."""
        async with self.db.link() as link:
            return [row["id"] for row in await link.fetch(self.STARTED, tenant, run)]

    async def _cancel_some(self, tenant: int, ids: Sequence[UUID]) -> list[UUID]:
        """Cancel these executions; answers those that are runs, which are to be stopped."""
        async with self.db.transaction() as link:
            live, pending = await self.end_pending(link, tenant, ids, State.CANCELLED)
            inner = await self.ask_to_stop(link, tenant, live - pending)
        if live - pending:
            self.notifier.touch(tenant, [WORKERS])
        return inner
