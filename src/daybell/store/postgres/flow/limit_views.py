"""Limits as people see and change them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import flow
from daybell.core.flow import Bucket, LimitChange, LimitState, LimitTerms, LimitWait
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import StoreContext, Tx
from daybell.store.postgres.flow.limits import read_log
from daybell.store.timeouts import Pace

COUNT_OF: Final = f"""
           (SELECT count(*) FROM (SELECT FROM {{}} WHERE b.tenant = l.tenant AND b.name = l.name
                                   LIMIT {flow.COUNTED} + 1) x)"""
LIMITS: Final = f"""
    SELECT l.name, l.declared, l.changed, l.paused_until, daybell.now() AS now,
           {COUNT_OF.format("daybell.bucket b JOIN daybell.holder h ON h.bucket = b.key")}
             AS held,
           {COUNT_OF.format("daybell.bucket b JOIN daybell.waiter w ON w.bucket = b.key")}
             AS waiting,
           {COUNT_OF.format("daybell.bucket b")} AS items,
           (SELECT min(b.wake_at) FROM daybell.bucket b
             WHERE b.tenant = l.tenant AND b.name = l.name) AS next_at
      FROM daybell.flow_limit l WHERE l.tenant = $1 AND ($2::text IS NULL OR l.name = $2)
     ORDER BY l.name LIMIT $3
    """
BUCKETS: Final = f"""
    SELECT b.key, b.name, b.item, b.log, b.wake_at, l.declared, l.changed, daybell.now() AS now,
           greatest(b.paused_until, l.paused_until) AS paused_until,
           (SELECT count(*) FROM daybell.holder h WHERE h.bucket = b.key) AS held,
           (SELECT coalesce(sum(h.cost), 0) FROM daybell.holder h
             WHERE h.bucket = b.key AND NOT h.is_logged) AS unstarted,
           (SELECT count(*) FROM (SELECT FROM daybell.waiter w WHERE w.bucket = b.key
                                   LIMIT {flow.COUNTED}) x) AS waiting,
           ARRAY(SELECT h.id FROM daybell.holder h WHERE h.bucket = b.key
                  ORDER BY h.since, h.id LIMIT {flow.SHOWN_HOLDERS}) AS holders
      FROM daybell.bucket b JOIN daybell.flow_limit l USING (tenant, name)
     WHERE b.tenant = $1 AND {{}}
     ORDER BY waiting DESC, held DESC, b.item LIMIT {flow.SHOWN_BUCKETS}
    """
BUCKETS_OF_LIMIT: Final = BUCKETS.format("b.name = $2::text")
BUCKET: Final = BUCKETS.format("b.key = $2::bigint")


async def list_limits(
    pg: StoreContext, tenant: str, name: str | None = None, *, most: int | None = None
) -> list[LimitState]:
    async with pg.db.link(Pace.VIEW) as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(LIMITS, key, name, most)
        buckets = [] if name is None else await link.fetch(BUCKETS_OF_LIMIT, key, name)
    return [
        flow.limit_state(
            row["name"],
            LimitTerms.from_json(row["declared"]),
            LimitTerms.from_json(row["changed"]),
            paused_until=row["paused_until"],
            counts=(row["held"], row["waiting"], row["items"]),
            next_at=row["next_at"],
            now=row["now"],
            buckets=[_bucket_state(one) for one in buckets],
        )
        for row in rows
    ]


def _read_bucket(row: Row) -> Bucket:
    declared = LimitTerms.from_json(row["declared"])
    return Bucket(
        row["key"], row["name"], row["item"],
        declared.override(LimitTerms.from_json(row["changed"])), row["held"], row["unstarted"],
        read_log(row["log"]), row["paused_until"],
    )  # fmt: skip


def _bucket_state(row: Row) -> flow.BucketState:
    return flow.bucket_state(
        _read_bucket(row), waiting=row["waiting"], holders=row["holders"], now=row["now"]
    )


LOCK_LIMIT: Final = """
    SELECT changed, daybell.now() AS now FROM daybell.flow_limit
     WHERE tenant = $1 AND name = $2 FOR UPDATE
    """
ITEM_OF: Final = """
    SELECT b.item FROM daybell.holder h JOIN daybell.bucket b ON b.key = h.bucket
     WHERE b.tenant = $1 AND b.name = $2 AND h.id = $3
    """
CHANGE: Final = "UPDATE daybell.flow_limit SET changed = $3 WHERE tenant = $1 AND name = $2"
PAUSE: Final = "UPDATE daybell.flow_limit SET paused_until = $3 WHERE tenant = $1 AND name = $2"
PAUSE_ITEM: Final = """
    INSERT INTO daybell.bucket (tenant, name, item, paused_until, quiet_at)
    VALUES ($1, $2, $3, $4, $4)
    ON CONFLICT (tenant, name, item) DO UPDATE SET paused_until = excluded.paused_until
    """
# In the order of locks.
WAKE: Final = """
    UPDATE daybell.bucket b
       SET wake_at = daybell.now(), paused_until = CASE WHEN $3 THEN 0 ELSE b.paused_until END
      FROM (SELECT key FROM daybell.bucket WHERE tenant = $1 AND name = $2
             ORDER BY item FOR UPDATE) x
     WHERE b.key = x.key
    """


async def change_limit(pg: StoreContext, tenant: str, name: str, change: LimitChange) -> bool:
    async def work() -> int | None:
        async with pg.transaction() as tx:
            key = await pg.names.tenant(tx, tenant)
            row = await tx.fetchrow(LOCK_LIMIT, key, name)
            if row is None:
                pg.db.skip_entry()
                return None
            one = change
            if one.of is not None:
                item = await tx.fetchval(ITEM_OF, key, name, one.of)
                if item is None:
                    return None
                one = replace(one, item=item, of=None)
            await _change(tx, key, name, one, row)
            return key

    key = await pg.db.settled(work)
    if key is not None:
        queues = {queue for one, queue in pg.names.limited_queues() if one == key}
        pg.notifier.touch(key, queues, here=True)
    return key is not None


async def _change(tx: Tx, key: int, name: str, change: LimitChange, row: Row) -> None:
    known = LimitTerms.from_json(row["changed"])
    terms = change.apply(known)
    if terms != known:
        await tx.execute(CHANGE, key, name, None if terms == LimitTerms() else terms.to_json())
    is_resumed = change.pause is None and change.item is None
    if change.pause is not msgspec.UNSET:
        until = 0.0 if change.pause is None else row["now"] + change.pause
        if change.item is None:
            await tx.execute(PAUSE, key, name, until)
        else:
            await tx.execute(PAUSE_ITEM, key, name, change.item, until)
    await tx.execute(WAKE, key, name, is_resumed)


WAITS_AT: Final = f"""
    SELECT w.bucket, (SELECT count(*) FROM (
             SELECT FROM daybell.waiter x WHERE x.bucket = w.bucket
                AND (x.priority, x.run_at, x.id) < (w.priority, w.run_at, w.id)
              LIMIT {flow.COUNTED}) y) AS ahead
      FROM daybell.waiter w JOIN daybell.live v ON v.id = w.id AND v.tenant = w.tenant
     WHERE w.tenant = $1 AND w.id = $2 AND v.attempt = w.attempt AND v.state = 4
    """


async def limit_wait(pg: StoreContext, tenant: str, id: UUID) -> LimitWait | None:
    async with pg.db.link(Pace.VIEW) as link:
        key = await pg.names.tenant(link, tenant)
        wait = await link.fetchrow(WAITS_AT, key, id)
        row = None if wait is None else await link.fetchrow(BUCKET, key, wait["bucket"])
    if wait is None or row is None:
        return None
    bucket, shown = _read_bucket(row), _bucket_state(row)
    return LimitWait(
        name=bucket.name, item=bucket.item, terms=bucket.terms, ahead=wait["ahead"],
        held=shown.held, holders=shown.holders, room_at=shown.room_at,
        paused_until=shown.paused_until,
    )  # fmt: skip
