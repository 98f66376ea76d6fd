"""Events: kept once, given to who waits for them, and found by who asks later.

Who publishes an event and who records a wait for one must not look for each other in the same
moment: neither would see what the other has not committed. So both first take a lock on the
event's name, the former one that they share, since they come one by one and from everywhere; the
latter come in groups.
"""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

from msgspec.structs import asdict

from daybell.core.event import (
    Event,
    Facts,
    NewEvent,
    Published,
    check_cursor,
    check_event,
    result_of,
)
from daybell.core.execution import State
from daybell.core.step import NodeWait
from daybell.core.view import Page, bytes_of, cut_page
from daybell.errors import ExecutionNotFound
from daybell.store import recording
from daybell.store.checks import check_limit
from daybell.store.codes import STATE_CODES
from daybell.store.driving import fitting_waits
from daybell.store.postgres.columns import IN_HISTORY, within_page
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.waits import Waiting

EVENT: Final = "e.number, e.id, e.source, e.name, e.data, e.execution, e.time, e.received_at"
EXPANDED: Final = STATE_CODES[State.RUNNING]  # a run that has begun
NUMBER_MAX: Final = 2**63 - 1
BEFORE_ALL: Final = UUID(int=0), -1  # an execution and its step, before any that waits


class Publishing(Waiting):
    """Events, of `protocol.Steps`."""

    IS_KNOWN = f"""
    SELECT EXISTS (SELECT FROM daybell.live WHERE tenant = $1 AND id = $2)
        OR EXISTS (SELECT FROM daybell.dead WHERE tenant = $1 AND id = $2)
        OR EXISTS (SELECT FROM unnest(ARRAY[$2::uuid]) u(id), {IN_HISTORY})
    """
    SHARE_NAME = "SELECT pg_advisory_xact_lock_shared($1)"
    LOCK_NAME = "SELECT pg_advisory_xact_lock($1)"
    KEEP_EVENT = """
    WITH e AS (
      INSERT INTO daybell.event (received_at, tenant, id, source, name, data, execution, time)
      VALUES (daybell.now(), $1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
      RETURNING number, received_at, tenant, name),
    k AS (
      INSERT INTO daybell.event_key (received_at, number, tenant, name, key)
      SELECT e.received_at, e.number, e.tenant, e.name, u.key FROM e, unnest($8::text[]) u(key))
    SELECT number, received_at FROM e
    """
    # The keys are probed one by one, however many waits the planner believes there to be.
    WAITS_BY_KEY = """
    SELECT w.execution, w.match FROM unnest($3::text[]) u(key),
           LATERAL (SELECT * FROM daybell.wait w
                     WHERE w.tenant = $1 AND w.event = $2 AND w.key = u.key OFFSET 0) w
    """

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        check_event(event)
        facts = Facts(event.data)
        return await self.db.settled(lambda: self._publish(tenant, event, facts))

    async def _publish(self, tenant: str, new: NewEvent, facts: Facts) -> Published:
        resumed, queues = 0, list[str]()
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            if new.execution is not None and not await link.fetchval(
                self.IS_KNOWN, owner, new.execution
            ):
                raise ExecutionNotFound(f"no execution {new.execution}")
            await link.execute(self.SHARE_NAME, name_lock(owner, new.name))
            fields = (new.id, new.source, new.name, new.data, new.execution, new.time)
            filed = facts.filed(new.execution)
            kept = await link.fetchrow(self.KEEP_EVENT, owner, *fields, filed)
            if kept is None:
                recording.idle(self.db)
                return Published(created=False)
            ids = await self._candidates(link, owner, new, facts)
            if ids:
                event = Event(received_at=kept["received_at"], **asdict(new))
                resumed, queues = await self.end_waits(
                    link,
                    owner,
                    ids,
                    lambda wait: (
                        wait["event"] == new.name
                        and (wait["timeout_at"] is None or wait["timeout_at"] >= event.received_at)
                        and facts.meet(wait["match"])
                    ),
                    result=result_of(event),
                    event=kept["number"],
                )
        if queues:
            self.notifier.touch(owner, queues)
        return Published(True, resumed)

    # From the run down, each looked up by itself: of all that wait there may be many, and of its
    # nodes there are few.
    NODE_WAITS = f"""
    WITH RECURSIVE inside (id, root) AS (
      SELECT $2::uuid, NULL::text COLLATE "C"
       UNION ALL
      SELECT v.id, coalesce(i.root, v.node) FROM inside i, LATERAL (
        SELECT v.id, v.node FROM daybell.live v WHERE v.parent = i.id AND v.tenant + 0 = $1
           AND v.node IS NOT NULL AND v.state + 0 = {EXPANDED} OFFSET 0) v)
    SELECT v.id, v.node, coalesce(i.root, v.node), w.event, w.match, w.timeout_at, w.n
      FROM inside i,
           LATERAL (SELECT v.id, v.node FROM daybell.live v WHERE v.parent = i.id
                       AND v.tenant + 0 = $1 AND v.node IS NOT NULL OFFSET 0) v,
           LATERAL (SELECT * FROM daybell.wait w
                     WHERE w.execution = v.id AND w.tenant = $1 OFFSET 0) w
     WHERE (w.timeout_at IS NULL OR w.timeout_at >= daybell.now())
       AND ($3::text IS NULL OR (w.event = $3 AND w.key = ANY($4::text[])))
       AND (v.id, w.n) > ($6::uuid, $7::int)
     ORDER BY v.id, w.n LIMIT $5
    """

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        check_limit(limit)
        facts = None if event is None else Facts(event.data)
        keys = None if facts is None else facts.keys
        name = None if event is None else event.name
        found: list[NodeWait] = []
        last = BEFORE_ALL
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            while True:  # of what a page brings, who knows how many it fits
                rows = await link.fetch(self.NODE_WAITS, owner, run, name, keys, limit, *last)
                found += fitting_waits((tuple(row)[:-1] for row in rows), facts, limit)
                if len(found) >= limit or len(rows) < limit:
                    return found[:limit]
                last = rows[-1]["id"], rows[-1]["n"]

    async def _candidates(
        self, link: Link, owner: int, event: NewEvent, facts: Facts
    ) -> list[UUID]:
        if event.execution is not None:
            return [event.execution]
        rows = await link.fetch(self.WAITS_BY_KEY, owner, event.name, facts.keys)
        return list({row["execution"] for row in rows if facts.meet(row["match"])})

    LIST_EVENTS = within_page(
        f"""SELECT {EVENT} FROM daybell.event e WHERE e.tenant = $1 AND e.number < $2
         ORDER BY e.number DESC LIMIT $3""",
        "octet_length(data)",
        "number DESC",
    )

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        check_limit(limit)
        before = check_cursor(cursor)
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            last = NUMBER_MAX if before is None else before
            rows = await link.fetch(self.LIST_EVENTS, owner, last, limit + 1)
        page = cut_page(
            rows,
            limit,
            size=lambda row: bytes_of(row["data"]),
            cursor=lambda row: str(row["number"]),
        )
        return Page(items=tuple(map(event_of, page.items)), next_cursor=page.next_cursor)


def name_lock(owner: int, name: str) -> int:
    """The number under which an event's name is locked. Two that have the same only wait."""
    digest = hashlib.blake2b(f"daybell.event:{owner}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def event_of(row: Row) -> Event:
    return Event(
        id=row["id"],
        source=row["source"],
        name=row["name"],
        data=row["data"],
        execution=row["execution"],
        time=row["time"],
        received_at=row["received_at"],
    )
