"""Cached results for nodes of workflows that are jobs with `cache_for`.

The transaction that starts nodes holds locks that come after those of keys. So it reads cached
results without a lock, and its executions become the latest of their keys after its commit. If the
process ends in between, the next execution of the key does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.collapse import CollapseRule
from daybell.core.workflow.run import Start
from daybell.store.postgres.context import StoreContext, Tx
from daybell.store.postgres.names import CurrentJob

# In the order of keys, so that two batches lock them in the same order.
COLLAPSE: Final = """
    SELECT u.id, c.verb, c.holder
      FROM (SELECT u.*, u.rule::json AS law,
                   daybell.collapse_key(u.rule::json, u.args, u.unique_key) AS key
              FROM unnest($2::int[], $3::int[], $4::text[], $5::uuid[], $6::text[], $7::text[],
                          $8::float8[], $9::float8[], $10::float8[], $11::boolean[])
                     WITH ORDINALITY
                     u(job, version, rule, id, args, unique_key, at, delay, expires, is_forced,
                       place)
             ORDER BY u.job, key, u.place) u,
           LATERAL daybell.collapse($1, u.job, u.version, u.law, u.key, u.id, u.args, u.at, u.delay,
                                    u.expires, u.is_forced, $12) c
    """
# One probe for each of the two indexes.
FIND: Final = """
    SELECT u.id, h.id AS holder, h.result
      FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[]) u(id, job, rule, args),
           LATERAL (SELECT c.execution FROM daybell.collapsed c
                     WHERE c.job = u.job AND c.tenant = $1
                       AND c.key = daybell.collapse_key(u.rule::json, u.args, NULL) LIMIT 1) c,
           LATERAL (SELECT (u.rule::json ->> 'keep')::float8 AS keep) k,
           LATERAL (SELECT h.id, h.result FROM daybell.history h
                     WHERE h.tenant = $1 AND h.state = 6 AND h.id = c.execution AND h.node IS NULL
                       AND h.finished_at > daybell.now() - k.keep
                    UNION ALL
                    SELECT h.id, h.result FROM daybell.history h
                     WHERE h.tenant = $1 AND h.state = 6 AND h.id = c.execution
                       AND h.node IS NOT NULL AND h.finished_at > daybell.now() - k.keep
                    LIMIT 1) h
    """


class CachedResult(NamedTuple):
    """A result, and the execution that it is of."""

    holder: UUID
    result: str | None


class CacheFill(NamedTuple):
    """An execution of a node that may become the latest of its key."""

    tenant: int
    job: int
    version: int
    rule: str
    id: UUID
    args: str


async def find_cached(
    tx: Tx, tenant: int, starts: Iterable[tuple[Start, CurrentJob]]
) -> dict[UUID, CachedResult]:
    """Return cached results of the jobs of nodes, by the execution that would start. The others
    fill the cache after the commit.
    """
    fills = [
        CacheFill(tenant, job.key, job.version, _write(job.collapse), start.id, start.args)
        for start, job in starts
        if job.collapse is not None and job.collapse.kind == "cache"
    ]
    if not fills:
        return {}
    rows = await tx.fetch(
        FIND,
        tenant,
        [one.id for one in fills],
        [one.job for one in fills],
        [one.rule for one in fills],
        [one.args for one in fills],
    )
    found = {id: CachedResult(holder, result) for id, holder, result in rows}
    tx.after.fill_cache |= {one.id: one for one in fills if one.id not in found}
    return found


async def fill_cache(pg: StoreContext, fills: Sequence[CacheFill]) -> None:
    """Make executions the latest of their keys, but for keys with a result or an unfinished one."""
    for tenant in sorted({one.tenant for one in fills}):
        some = [one for one in fills if one.tenant == tenant]
        nothing = [None] * len(some)
        async with pg.transaction() as tx:
            await tx.fetch(
                COLLAPSE,
                tenant,
                [one.job for one in some],
                [one.version for one in some],
                [one.rule for one in some],
                [one.id for one in some],
                [one.args for one in some],
                nothing,
                nothing,
                nothing,
                nothing,
                [False] * len(some),
                [],
            )


def _write(rule: CollapseRule) -> str:
    return msgspec.json.encode(rule).decode()
