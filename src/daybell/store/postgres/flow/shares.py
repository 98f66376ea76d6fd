"""Fair shares: the leaves at which executions wait for their turn, and the turns.

A leaf has a lane of its own, from which no worker claims. When it is the turn of its key, the first
execution goes on to the ordered lane, or is admitted if its job has no limits.

An enqueue finds the leaves of its executions, and holds them until it commits. Other executions
come to the entry lane first: those with a delay, those that come back, and those that SQL has
enqueued.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from daybell.core.execution import NewExecution
from daybell.core.flow import Policy, base_needs, policy_of
from daybell.core.flow.shares import (
    LATE_SECONDS,
    PARKED_MAX,
    ROOT,
    TURN_SECONDS,
    ShareNode,
    SharePath,
    Turns,
)
from daybell.store.codec import PRIORITIES
from daybell.store.postgres.connection import READ_COMMITTED, Link, Row
from daybell.store.postgres.context import AfterCommit, StoreContext, Tx
from daybell.store.postgres.gates import mark_lanes_claimable
from daybell.store.postgres.names import Specs

DEFINITIONS: Final = """
    SELECT v.job, v.version, v.definition
      FROM unnest($1::int[], $2::int[]) u(job, version)
      JOIN daybell.job_version v ON v.job = u.job AND v.version = u.version
    """


async def read_policies(
    pg: StoreContext, link: Link | Tx, wanted: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], Policy]:
    """Return the limits and shares of all versions of jobs that are known, these included."""
    known = pg.flow.policies
    missing = [one for one in set(wanted) if one not in known]
    if missing:
        jobs, versions = [job for job, _ in missing], [version for _, version in missing]
        for row in await link.fetch(DEFINITIONS, jobs, versions):
            known[row["job"], row["version"]] = policy_of(row["definition"])
    return known


# Leaves, and the nodes above them.

NODES: Final = """
    SELECT s.entry, s.path, s.weight, s.lane FROM daybell.share s
     WHERE s.entry = $1 AND s.path = ANY($2::text[])
    """
ADD_ROOT: Final = f"""
    INSERT INTO daybell.share (entry, parent, used, weight, path) VALUES ($1, 0, 0, 1, '{ROOT}')
    ON CONFLICT DO NOTHING
    """
LOCK_TREE: Final = f"""
    SELECT FROM daybell.share WHERE entry = $1 AND path = '{ROOT}' FOR NO KEY UPDATE
    """
ADD_NODES: Final = """
    INSERT INTO daybell.share AS s (entry, parent, used, weight, path)
    SELECT $1, p.key, p.clock, u.weight, u.path
      FROM unnest($2::text[], $3::text[], $4::float8[]) u(path, above, weight)
      JOIN daybell.share p ON p.entry = $1 AND p.path = u.above
    ON CONFLICT (entry, path) DO UPDATE SET weight = excluded.weight
     WHERE s.weight <> excluded.weight
    """
NEW_LEAVES: Final = """
    SELECT key FROM daybell.share
     WHERE entry = $1 AND path = ANY($2::text[]) AND lane IS NULL ORDER BY key
    """
TAKE_SLOTS: Final = """
    DELETE FROM daybell.share_slot WHERE lane = ANY(ARRAY(
      SELECT lane FROM daybell.share_slot WHERE entry = $1 LIMIT $2)) RETURNING lane
    """
ENTRY: Final = "SELECT needs FROM daybell.lane WHERE key = $1"
# Numbered like the nodes, which are never numbered twice.
ADD_SLOTS: Final = """
    INSERT INTO daybell.lane (tenant, queue, needs, entry, admitted)
    SELECT l.tenant, l.queue, 'shares:' || u.number || ':' || $3, l.key, l.admitted
      FROM daybell.lane l, unnest($2::bigint[]) u(number) WHERE l.key = $1
    RETURNING key
    """
SET_LANES: Final = """
    UPDATE daybell.share s SET lane = u.lane FROM unnest($1::bigint[], $2::int[]) u(key, lane)
     WHERE s.key = u.key
    """


async def add_leaves(link: Link | Tx, entry: int, paths: Collection[SharePath]) -> None:
    """Create missing leaves of one tree and the nodes above them, and set their weights."""
    levels: dict[int, dict[str, tuple[str, float]]] = {}
    for path in paths:
        for level, (name, above, weight) in enumerate(path.nodes):
            levels.setdefault(level, {})[name] = above, weight
    await link.execute(ADD_ROOT, entry)
    await link.execute(LOCK_TREE, entry)
    for nodes in levels.values():
        above, weights = [one for one, _ in nodes.values()], [one for _, one in nodes.values()]
        await link.execute(ADD_NODES, entry, list(nodes), above, weights)
    rows = await link.fetch(NEW_LEAVES, entry, list({path.leaf for path in paths}))
    keys = [row["key"] for row in rows]
    lanes = [row["lane"] for row in await link.fetch(TAKE_SLOTS, entry, len(keys))]
    if len(lanes) < len(keys):
        needs = base_needs(await link.fetchval(ENTRY, entry))
        made = await link.fetch(ADD_SLOTS, entry, keys[len(lanes) :], needs)
        lanes += [row["key"] for row in made]
    await link.execute(SET_LANES, keys, lanes)


def _is_complete(path: SharePath, nodes: Mapping[str, Row]) -> bool:
    return all(
        (node := nodes.get(name)) is not None and node["weight"] == weight
        for name, _, weight in path.nodes
    )


async def _missing(link: Link, entry: int, paths: Collection[SharePath]) -> list[SharePath]:
    names = {name for path in paths for name, *_ in path.nodes}
    rows = await link.fetch(NODES, entry, list(names))
    nodes = {row["path"]: row for row in rows}
    return [path for path in paths if not _is_complete(path, nodes)]


def _paths(
    pg: StoreContext, specs: Specs, executions: Iterable[NewExecution]
) -> dict[int, dict[str, tuple[SharePath, list[UUID]]]]:
    """Return the leaves of executions by entry lane and text, each with its executions."""
    found: dict[int, dict[str, tuple[SharePath, list[UUID]]]] = {}
    for new in executions:
        spec = specs.of(new)
        if spec.job.is_shared:
            path = pg.flow.policies[spec.job.key, spec.job.version].path(new.args)
            known = found.setdefault(spec.lane, {})
            known.setdefault(path.leaf, (path, []))[1].append(new.id)
    return found


async def open_leaves(
    pg: StoreContext,
    specs: Specs,
    executions: Sequence[NewExecution],
    *,
    is_held: bool = False,
) -> None:
    """Create the leaves of executions that take turns. This is committed before they are created:
    another enqueue must not wait for the transaction that they are in. With `is_held`, the caller
    has a connection.
    """
    jobs = [spec.job for spec in specs.found.values()]
    shared = {(job.key, job.version) for job in jobs if job.is_shared}
    if not shared:
        return
    async with pg.db.apart() if is_held else pg.db.link() as link:
        await read_policies(pg, link, shared)
        wanted = {
            entry: missing
            for entry, leaves in _paths(pg, specs, executions).items()
            if (missing := await _missing(link, entry, [path for path, _ in leaves.values()]))
        }
    for entry in sorted(wanted):
        async with pg.db.apart() if is_held else pg.db.transaction(READ_COMMITTED) as link:
            await add_leaves(link, entry, wanted[entry])


HOLD: Final = """
    SELECT s.path, s.lane FROM daybell.share s
     WHERE s.entry = $1 AND s.path = ANY($2::text[]) AND s.lane IS NOT NULL
     ORDER BY s.key FOR KEY SHARE
    """


async def hold_leaves(tx: Tx, specs: Specs, executions: Sequence[NewExecution]) -> None:
    """Find the lanes of executions that take turns. Those without one enter by the entry lane."""
    jobs = {spec.job.key: spec.job for spec in specs.found.values() if spec.job.is_shared}
    if not jobs:
        return
    await read_policies(tx.pg, tx, [(job.key, job.version) for job in jobs.values()])
    for entry, leaves in sorted(_paths(tx.pg, specs, executions).items()):
        for row in await tx.fetch(HOLD, entry, list(leaves)):
            specs.leaves.update({id: row["lane"] for id in leaves[row["path"]][1]})


SORTED_MAX: Final = 2_000
ENTERED: Final = """
    WITH e AS MATERIALIZED (
      SELECT l.entry AS lane, p.priority
        FROM unnest($3::smallint[]) p(priority), daybell.lane l WHERE l.key = ANY($2::int[])),
    a AS MATERIALIZED (
      SELECT x.id FROM e, LATERAL (
        SELECT a.id FROM daybell.agenda a
         WHERE a.lane = e.lane AND a.priority = e.priority
           AND a.run_at <= (SELECT daybell.now())
         ORDER BY a.run_at, a.id LIMIT $4 FOR UPDATE SKIP LOCKED) x LIMIT $4)
    SELECT v.id, v.job, v.version, v.lane, v.args
      FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM a))
    """
LOCK_LIVE: Final = """
    SELECT v.id FROM daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND v.state < 4
     ORDER BY v.id FOR UPDATE SKIP LOCKED
    """
MOVE: Final = """
    WITH u AS MATERIALIZED (
      SELECT * FROM unnest($2::uuid[], $3::int[], $4::float8[]) u(id, lane, run_at)),
    d AS (
      DELETE FROM daybell.agenda a USING daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND a.lane = v.lane
         AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id),
    v AS (
      UPDATE daybell.live v
         SET lane = (SELECT u.lane FROM u WHERE u.id = v.id),
             run_at = coalesce((SELECT u.run_at FROM u WHERE u.id = v.id), v.run_at)
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[])
      RETURNING v.run_at, v.lane, v.priority, v.id)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v
    """


async def _lock(tx: Tx, tenant: int, ids: Sequence[UUID]) -> set[UUID]:
    """Lock executions, without those that another transaction changes."""
    return {row["id"] for row in await tx.fetch(LOCK_LIVE, tenant, ids)}


async def sort_due(pg: StoreContext, tenant: int, admitted: Sequence[int]) -> None:
    """Move executions that have come to the entry lanes, and take turns, to their leaves."""
    await pg.db.settled(partial(_sort_due, pg, tenant, admitted))


async def _sort_due(pg: StoreContext, tenant: int, admitted: Sequence[int]) -> None:
    async with pg.transaction() as tx:
        rows = await tx.fetch(ENTERED, tenant, list(admitted), list(PRIORITIES), SORTED_MAX)
        policies = await read_policies(pg, tx, {(row["job"], row["version"]) for row in rows})
        rows = [row for row in rows if policies[row["job"], row["version"]].share]
        if rows:
            await _sort(tx, tenant, rows)


async def _sort(tx: Tx, tenant: int, rows: Sequence[Row]) -> None:
    locked = await _lock(tx, tenant, [row["id"] for row in rows])
    leaves: dict[int, dict[str, SharePath]] = {}
    of: dict[UUID, tuple[int, str]] = {}
    for row in rows:
        if row["id"] in locked:
            path = tx.pg.flow.policies[row["job"], row["version"]].path(row["args"])
            leaves.setdefault(row["lane"], {})[path.leaf] = path
            of[row["id"]] = row["lane"], path.leaf
    lanes: dict[tuple[int, str], int] = {}
    for entry, paths in sorted(leaves.items()):
        await add_leaves(tx, entry, paths.values())
        found = await tx.fetch(HOLD, entry, list(paths))
        lanes |= {(entry, row["path"]): row["lane"] for row in found}
    await tx.execute(MOVE, tenant, list(of), [lanes[one] for one in of.values()], [])


# Turns.

# A queue that is paused takes none. `late` are those whose turn was before, and which no worker has
# claimed.
ROOTS: Final = f"""
    SELECT s.key, s.parent, s.used, s.clock, s.weight, s.lane, s.entry, l.ordered, l.admitted,
           daybell.now() AS now, (SELECT count(*) FROM (
              SELECT FROM unnest($2::smallint[]) p(priority),
                     unnest(ARRAY[l.ordered, l.admitted]) x(lane), LATERAL (
                SELECT FROM daybell.agenda a
                 WHERE a.lane = x.lane AND a.priority = p.priority
                   AND a.run_at < (SELECT daybell.now()) - {LATE_SECONDS} LIMIT $3) a
               LIMIT $3) n)::int AS late
      FROM daybell.lane l JOIN daybell.share s ON s.entry = l.key AND s.path = '{ROOT}'
     WHERE l.key = ANY(ARRAY(SELECT entry FROM daybell.lane WHERE key = ANY($1::int[])))
       AND NOT EXISTS (SELECT FROM daybell.paused_queue q
                        WHERE q.tenant = l.tenant AND q.queue = l.queue)
     ORDER BY s.entry FOR NO KEY UPDATE OF s
    """
CHILDREN: Final = """
    SELECT c.* FROM unnest($1::bigint[], $2::int[]) q(parent, turns), LATERAL (
      SELECT s.key, s.parent, s.used, s.clock, s.weight, s.lane FROM daybell.share s
       WHERE s.parent = q.parent AND NOT s.is_full AND s.key <> ALL($3::bigint[])
       ORDER BY s.used, s.key LIMIT q.turns) c
    """
HEADS: Final = """
    SELECT q.lane, a.id FROM unnest($1::int[], $2::int[]) q(lane, turns), LATERAL (
      SELECT a.id FROM unnest($3::smallint[]) p(priority), LATERAL (
        SELECT a.id FROM daybell.agenda a
         WHERE a.lane = q.lane AND a.priority = p.priority
           AND a.run_at <= (SELECT daybell.now())
         ORDER BY a.run_at, a.id LIMIT q.turns FOR UPDATE SKIP LOCKED) a
       LIMIT q.turns) a
    """
LOCK_HEADS: Final = """
    SELECT v.id, v.job, v.version FROM daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND v.state < 4
     ORDER BY v.id FOR UPDATE SKIP LOCKED
    """
KEEP: Final = """
    UPDATE daybell.share s SET used = u.used, clock = u.clock
      FROM unnest($1::bigint[], $2::float8[], $3::float8[]) u(key, used, clock) WHERE s.key = u.key
    """
RAISE: Final = """
    UPDATE daybell.share s SET used = greatest(s.used, p.clock) FROM daybell.share p
     WHERE s.key = ANY($1::bigint[]) AND p.key = s.parent
    """
# In two statements: the second sees the work of an enqueue that has released its leaf.
LOCK_IDLE: Final = """
    SELECT key FROM daybell.share WHERE key = ANY($1::bigint[]) FOR UPDATE SKIP LOCKED
    """
REMOVE: Final = """
    WITH d AS (
      DELETE FROM daybell.share s
       WHERE s.key = ANY($1::bigint[])
         AND NOT EXISTS (SELECT FROM daybell.share c WHERE c.parent = s.key)
         AND NOT EXISTS (SELECT FROM daybell.agenda a WHERE a.lane = s.lane)
      RETURNING s.lane, s.entry)
    INSERT INTO daybell.share_slot (lane, entry) SELECT lane, entry FROM d WHERE lane IS NOT NULL
    """


async def take_turns(pg: StoreContext, tenant: int, admitted: Sequence[int], wanted: int) -> bool:
    """Let the next executions go on, as many as a worker wants to claim. Return True if there are
    some that need limits now.
    """
    after = AfterCommit()
    return await pg.db.settled(partial(_take_turns, pg, after, tenant, admitted, wanted))


async def _take_turns(
    pg: StoreContext, after: AfterCommit, tenant: int, admitted: Sequence[int], wanted: int
) -> bool:
    is_any_ordered = False
    async with pg.transaction(after=after) as tx:
        for root in await tx.fetch(ROOTS, list(admitted), list(PRIORITIES), wanted):
            tree = ShareRound(tx, tenant, root)
            await tree.take(wanted - root["late"])
            is_any_ordered |= tree.has_ordered
    return is_any_ordered


class ShareRound:
    """The next turns of one tree, whose root is locked."""

    def __init__(self, tx: Tx, tenant: int, root: Row) -> None:
        self._tx = tx
        self._tenant = tenant
        self._row = root
        self._root = _node(root)
        self._idle: list[int] = []  # nodes that have no work
        self._removable: list[int] = []
        self.has_ordered = False

    async def take(self, wanted: int) -> None:
        """Let so many executions go on."""
        while wanted > 0:
            turns = Turns(self._root, wanted)
            while turns.frontier:
                parents = [node.key for node in turns.frontier]
                counts = [node.turns for node in turns.frontier]
                rows = await self._tx.fetch(CHILDREN, parents, counts, self._idle)
                turns.descend(map(_node, rows))
            work = await self._find(turns)
            await self._move(turns.sequence(work))
            changed, empty = turns.finish({lane: len(some) for lane, some in work.items()})
            columns = [(node.key, node.used, node.clock) for node in changed]
            if columns:
                await self._tx.execute(KEEP, *map(list, zip(*columns, strict=True)))
            self._removable += [node.key for node in empty if not node.taken]
            self._idle += [node.key for node in empty]
            wanted -= sum(map(len, work.values()))
            if not empty:
                break
        if self._removable:
            rows = await self._tx.fetch(LOCK_IDLE, self._removable)
            await self._tx.execute(REMOVE, [row["key"] for row in rows])
        if self._idle:
            await self._tx.execute(RAISE, self._idle)

    async def _find(self, turns: Turns) -> dict[int, list[Row]]:
        """Lock the first executions of the leaves, by lane. All of a leaf have the same limits, or
        none. With limits they are few, because they may have to wait.
        """
        if not turns.leaves:
            return {}
        lanes, counts = [leaf.lane for leaf in turns.leaves], [leaf.turns for leaf in turns.leaves]
        heads = await self._tx.fetch(HEADS, lanes, counts, list(PRIORITIES))
        ids = [row["id"] for row in heads]
        locked = {row["id"]: row for row in await self._tx.fetch(LOCK_HEADS, self._tenant, ids)}
        jobs = {(row["job"], row["version"]) for row in locked.values()}
        await read_policies(self._tx.pg, self._tx, jobs)
        found: dict[int, list[Row]] = {}
        for head in heads:
            row = locked.get(head["id"])
            if row is not None:
                some = found.setdefault(head["lane"], [])
                if len(some) < PARKED_MAX or not self._is_limited(row):
                    some.append(row)
        return found

    def _is_limited(self, row: Row) -> bool:
        return bool(self._tx.pg.flow.policies[row["job"], row["version"]].rules)

    async def _move(self, going: Sequence[Row]) -> None:
        if not going:
            return
        now, lanes, times = self._row["now"], list[int](), list[float]()
        for place, row in enumerate(going, -len(going)):
            is_limited = self._is_limited(row)
            lanes.append(self._row["ordered"] if is_limited else self._row["admitted"])
            times.append(now + place * TURN_SECONDS if is_limited else now)
        ids = [row["id"] for row in going]
        await self._tx.execute(MOVE, self._tenant, ids, lanes, times)
        self.has_ordered |= self._row["ordered"] in lanes
        if self._row["admitted"] in lanes:
            await mark_lanes_claimable(self._tx, self._tenant, [self._row["admitted"]])


def _node(row: Row) -> ShareNode:
    return ShareNode(
        row["key"], row["parent"], row["used"], row["clock"], row["weight"], row["lane"]
    )


LEAF_KEYS: Final = """
    SELECT s.entry, s.path, s.key FROM unnest($1::int[], $2::text[]) u(entry, path)
      JOIN daybell.share s ON s.entry = u.entry AND s.path = u.path
    """


async def find_leaves(tx: Tx, rows: Iterable[Row]) -> dict[UUID, int]:
    """Return the leaves of executions whose turn it was, as far as they still exist."""
    policies = tx.pg.flow.policies
    of = {
        row["id"]: (row["entry"], policies[row["job"], row["version"]].path(row["args"]).leaf)
        for row in rows if policies[row["job"], row["version"]].share
    }  # fmt: skip
    if not of:
        return {}
    entries, paths = [entry for entry, _ in of.values()], [path for _, path in of.values()]
    found = await tx.fetch(LEAF_KEYS, entries, paths)
    keys = {(row["entry"], row["path"]): row["key"] for row in found}
    return {id: keys[leaf] for id, leaf in of.items() if leaf in keys}


LOCK_TREES: Final = f"""
    SELECT FROM daybell.share r
     WHERE r.path = '{ROOT}' AND r.entry = ANY(ARRAY(
       SELECT s.entry FROM daybell.share s WHERE s.key = ANY($1::bigint[])))
     ORDER BY r.entry FOR NO KEY UPDATE
    """
MARK: Final = f"""
    UPDATE daybell.share s
       SET is_full = (SELECT count(*) FROM (SELECT FROM daybell.waiter w WHERE w.share = s.key
                                             LIMIT {PARKED_MAX}) w) >= {PARKED_MAX}
     WHERE s.key = ANY($1::bigint[])
    """


async def mark_full(tx: Tx, leaves: Collection[int]) -> None:
    """Note of leaves whether as many of their executions wait for limits as may."""
    if leaves:
        await tx.execute(LOCK_TREES, list(leaves))
        await tx.execute(MARK, list(leaves))
