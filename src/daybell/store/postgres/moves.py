"""The statements that move running executions, each fenced by what the worker holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from daybell.core.execution import Claimed, State
from daybell.core.lifecycle import Transition
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.log import NewLogPart
from daybell.core.step import NewStep
from daybell.core.worker import Report
from daybell.errors import UsageError
from daybell.store import checks
from daybell.store.codes import OUTCOME_CODES, STATE_CODES
from daybell.store.postgres import node_moves
from daybell.store.postgres.claim import Claiming, Fence
from daybell.store.postgres.columns import ENDED, KEPT
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.progressing import HAS_RUN, TOLD, Ends, node_ends, together
from daybell.store.postgres.run_rows import Seen, given

# What the worker holds under the leases it names ($2 worker, $3 leases), and of what it says it
# moves ($4 ids, $5 attempts, $6 which of the leases) that which it really holds so: the guard of
# every move. `IS TRUE` keeps these hashed lookups; as joins they would follow what the planner
# believes of the table's size at the time.
HELD: Final = """
    h AS MATERIALIZED (
      SELECT x.id, x.attempt, array_position($3::uuid[], l.id) AS place
        FROM daybell.lease l, unnest(l.ids, l.attempts) x(id, attempt)
       WHERE l.id = ANY($3::uuid[]) AND l.worker = $2 AND l.tenant = $1),
    m AS MATERIALIZED (
      SELECT u.id, u.attempt FROM unnest($4::uuid[], $5::int[], $6::int[]) u(id, attempt, place)
       WHERE ((u.id, u.attempt, u.place) IN (SELECT id, attempt, place FROM h)) IS TRUE)"""
# A run that has begun (state 5) is in nobody's hands, although a lease may still name it.
IS_HELD: Final = "((v.id, v.attempt) IN (SELECT id, attempt FROM m)) IS TRUE AND v.state <> 5"
# Not to be looked up in an index: others have nodes of the same run.
IS_NODE_OF_THESE: Final = "v.node IS NOT NULL AND (v.parent = ANY($11::uuid[])) IS TRUE"
IS_UNLINKED: Final = "v.gate IS NULL AND v.schedule IS NULL AND v.node IS NULL"
OVER: Final = "o AS (DELETE FROM daybell.lease WHERE id = ANY($7::uuid[]) AND worker = $2)"

# Who waits for work looks for it so often by itself.
SOON_SECONDS: Final = 1.0

_by_id: Final = attrgetter("id.int")


class Batch:
    """Moves of one worker that go together."""

    def __init__(self, tenant: str, worker: UUID, moves: list[Transition]) -> None:
        self.tenant = tenant
        self.worker = worker
        self.moves = moves
        self.leases = by_lease(moves)

    def only(self, moves: list[Transition]) -> Batch:
        return Batch(self.tenant, self.worker, moves)

    def guard(self, tenant: int) -> tuple[object, ...]:
        """The first six parameters of every statement here."""
        return (tenant, self.worker, list(self.leases), *fences(self.moves, self.leases))


class Moving(Claiming):
    """Ends, ways back, and what a running task shows of itself."""

    # FULL JOIN, because it can only be hashed or merged: a nested loop over two lists of 500 would
    # be 250,000 comparisons, and the planner takes both lists to be short.
    TAKEN_OUT = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    d AS (
      DELETE FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
         AND v.cancel_requested_at IS NULL AND {IS_UNLINKED}
      RETURNING v.*),
    {OVER}"""
    PUT_AWAY = f"""
    INSERT INTO daybell.history ({KEPT}, failures, crashes, checkpoint, state, outcome, finished_at,
                                 started_at, worker, result, log)
    SELECT {KEPT}, failures, crashes, checkpoint, 6, 1, (SELECT now FROM t),
           (SELECT now FROM t) - u.ran, $2, u.result, u.log
      FROM d FULL JOIN unnest($4::uuid[], $5::int[], $8::text[], $9::float8[], $10::text[])
                       u(id, attempt, result, ran, log) USING (id, attempt)
     WHERE coalesce(d.job, 0) > 0
    """

    SUCCEED = f"{TAKEN_OUT} {PUT_AWAY}"

    # The same where gates and schedules are locked; and for nodes of runs that there are.
    SUCCEED_LINKED = f"""
    {TAKEN_OUT.replace(IS_UNLINKED, "v.node IS NULL")} {PUT_AWAY} RETURNING {TOLD}
    """
    SUCCEED_NODES = f"""
    {TAKEN_OUT.replace(IS_UNLINKED, IS_NODE_OF_THESE)},
    i AS ({PUT_AWAY} RETURNING {node_moves.TOLD}),
    {node_moves.MOVED}
    """

    async def succeed(
        self, link: Link, tenant: int, batch: Batch, *, over: list[UUID] | None = None
    ) -> bool:
        """The plain way. False: not all were made here, and each has to be looked at."""
        done = self.done_leases[:] if over is None else over
        answer = await link.execute(self.SUCCEED, *_succeeding(tenant, batch, done))
        self.forget_leases(done)
        return int(answer.rpartition(" ")[2]) == len(batch.moves)

    async def _succeed_linked(
        self, link: Link, query: str, tenant: int, batch: Batch, over: list[UUID] | None, *more: Any
    ) -> list[Row]:
        """The same for what means something to others, as far as it succeeded."""
        moves = [move for move in batch.moves if move.target is State.SUCCEEDED]
        if not moves:
            return []
        done = self.done_leases[:] if over is None else over
        rows = await link.fetch(query, *_succeeding(tenant, batch.only(moves), done), *more)
        self.forget_leases(done)
        return rows

    # Where cancelling was asked for, that is what it ends as. A dead one goes where people look; of
    # a node's, that is the run.
    END = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    d AS (
      DELETE FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
         AND ($18 OR (v.gate IS NULL AND v.schedule IS NULL))
         AND (v.node IS NULL OR (v.parent = ANY($19::uuid[])) IS TRUE)
      RETURNING v.*),
    e AS MATERIALIZED (
      SELECT {KEPT}, u.failures, u.crashes,
             CASE WHEN cancel_requested_at IS NULL THEN u.state ELSE 8 END AS state,
             CASE WHEN cancel_requested_at IS NULL THEN u.outcome ELSE 5 END AS outcome,
             (SELECT now FROM t) AS finished_at,
             coalesce((SELECT now FROM t) - u.ran, d.started_at) AS started_at, $2::uuid AS worker,
             CASE WHEN cancel_requested_at IS NULL THEN u.result END AS result,
             CASE WHEN u.state <> 6 OR cancel_requested_at IS NOT NULL
                  THEN coalesce(u.error, d.error) END AS error,
             CASE WHEN cancel_requested_at IS NULL THEN u.reason END AS reason,
             coalesce(u.checkpoint, d.checkpoint) AS checkpoint, u.log
        FROM d FULL JOIN unnest($4::uuid[], $5::int[], $8::smallint[], $9::smallint[], $10::int[],
                                $11::int[], $12::text[], $13::text[], $14::text[], $15::float8[],
                                $16::text[], $17::text[])
             u(id, attempt, state, outcome, failures, crashes, result, error, reason, ran,
               checkpoint, log)
             USING (id, attempt)
       WHERE coalesce(d.job, 0) > 0),
    {OVER},
    x AS (
      INSERT INTO daybell.dead ({ENDED}) SELECT {ENDED} FROM e WHERE state = 7 AND node IS NULL),
    y AS (
      INSERT INTO daybell.history ({ENDED})
      SELECT {ENDED} FROM e WHERE state <> 7 OR node IS NOT NULL)
    SELECT {TOLD}, {HAS_RUN} FROM e
    """

    async def end(
        self,
        link: Link,
        tenant: int,
        batch: Batch,
        *,
        over: list[UUID] | None = None,
        is_linked: bool = False,
        runs: Iterable[UUID] = (),
    ) -> dict[Fence, Row]:
        """Ends. What a gate or a schedule waits for is left out, unless they are locked, and nodes
        of runs that are not among these, which are.
        """
        moves, done = batch.moves, self.done_leases[:] if over is None else over
        rows = await link.fetch(
            self.END,
            *batch.guard(tenant),
            done,
            [STATE_CODES[move.target] for move in moves],
            [OUTCOME_CODES[move.outcome] for move in moves],
            [move.failures for move in moves],
            [move.crashes for move in moves],
            _kept_results(moves),
            [move.error for move in moves],
            [move.reason for move in moves],
            [move.ran for move in moves],
            [move.checkpoint for move in moves],
            [move.log for move in moves],
            is_linked,
            list(runs),
        )
        self.forget_leases(done)
        self.cancelled |= {(tenant, row["id"]): None for row in rows if row["has_run"]}
        return {(row["id"], row["attempt"]): row for row in rows}

    async def end_linked(
        self, link: Link, tenant: int, batch: Batch, *, over: list[UUID] | None = None
    ) -> dict[Fence, Row]:
        """Ends that mean something to a gate, a schedule or a run. Those of nodes come before the
        locks, for which others of the same run may be waiting; see `progressing.py`.
        """
        nodes = [move for move in batch.moves if move.run is not None]
        others = [move for move in batch.moves if move.run is None]
        runs = {move.run for move in nodes if move.run is not None}
        known = [row["id"] for row in await self.around(link, tenant, runs)]
        made, ends, seen = await self._move_nodes(link, tenant, batch.only(nodes), known, over)
        gates = {move.gate for move in others if move.gate is not None}
        schedules = {move.schedule for move in others if move.schedule is not None}
        held = await self.lock_links(link, tenant, schedules, gates, runs)
        rows = await self._move_others(link, tenant, batch.only(others), over) if others else {}
        await self.follow_up(link, tenant, rows.values(), held, ends, seen=seen)
        return made | rows if rows else made

    async def _move_nodes(
        self, link: Link, tenant: int, batch: Batch, runs: Collection[UUID], over: list[UUID] | None
    ) -> tuple[dict[Fence, Row], Ends, Seen]:
        """Also answers what runs hear of it, and the nodes as they are."""
        succeeded = [move for move in batch.moves if move.target is State.SUCCEEDED]
        if len(succeeded) < len(batch.moves):  # two statements, and one order of locks
            await link.execute(self.LOCK_NODES, tenant, [move.id for move in batch.moves])
        rows = await self._succeed_linked(link, self.SUCCEED_NODES, tenant, batch, over, runs)
        made, ends, seen = node_moves.read(rows, succeeded)
        rest = [move for move in batch.moves if (move.id, move.attempt) not in made]
        if rest:
            some = batch.only(rest)
            others = await self.end(link, tenant, some, over=over, is_linked=True, runs=runs)
            made |= others
            ends = together(ends, node_ends(others.values()))
        return made, ends, seen

    async def _move_others(
        self, link: Link, tenant: int, batch: Batch, over: list[UUID] | None
    ) -> dict[Fence, Row]:
        rows = await self._succeed_linked(link, self.SUCCEED_LINKED, tenant, batch, over)
        made = {(row["id"], row["attempt"]): row for row in rows}
        rest = [move for move in batch.moves if (move.id, move.attempt) not in made]
        if rest:
            made |= await self.end(link, tenant, batch.only(rest), over=over, is_linked=True)
        return made

    # Each row is found and locked by itself, then changed where it lies.
    BACK = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    u AS MATERIALIZED (
      SELECT u.*, x.place, coalesce((SELECT now FROM t) - u.ran, x.started_at) AS started_at,
             greatest((SELECT now FROM t), coalesce(u.at, (SELECT now FROM t) + u.delay)) AS run_at
        FROM unnest($4::uuid[], $5::int[], $8::smallint[], $9::smallint[], $10::int[], $11::int[],
                    $12::float8[], $13::float8[], $14::text[], $15::text[], $16::float8[],
                    $17::text[], $18::text[])
             u(id, attempt, state, outcome, failures, crashes, delay, at, error, reason, ran,
               checkpoint, log),
             LATERAL (SELECT v.ctid AS place, v.started_at FROM daybell.live v
                       WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt
                         AND v.cancel_requested_at IS NULL
                         AND {IS_HELD}
                       LIMIT 1 FOR UPDATE) x),
    v AS (
      UPDATE daybell.live v
         SET attempt = v.attempt + 1, failures = u.failures, crashes = u.crashes, run_at = u.run_at,
             state = CASE WHEN u.state = 1 AND u.run_at > (SELECT now FROM t) THEN 2
                          ELSE u.state END,
             error = coalesce(u.error, v.error), started_at = NULL,
             reason = CASE WHEN u.state IN (2, 4) THEN u.reason END,
             progress = NULL, note = NULL, checkpoint = coalesce(u.checkpoint, v.checkpoint)
        FROM u WHERE v.ctid = u.place
      RETURNING v.id, v.run_at, v.lane, v.priority, v.state, u.attempt, u.outcome,
                u.started_at AS began, u.error AS said, u.log),
    l AS (
      INSERT INTO daybell.attempt
             (tenant, id, attempt, outcome, worker, started_at, ended_at, error, log)
      SELECT $1, id, attempt, outcome, $2, began, (SELECT now FROM t), said, log
        FROM v),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v WHERE state <> 4),
    {OVER}
    SELECT id, attempt, state,
           CASE WHEN state <> 4 AND run_at < (SELECT now FROM t) + {SOON_SECONDS} THEN lane END
             AS filled
      FROM v
    """

    async def back(self, link: Link, tenant: int, batch: Batch) -> dict[Fence, Row]:
        moves, done = batch.moves, self.done_leases[:]
        rows = await link.fetch(
            self.BACK,
            *batch.guard(tenant),
            done,
            [STATE_CODES[move.target] for move in moves],
            [OUTCOME_CODES[move.outcome] for move in moves],
            [move.failures for move in moves],
            [move.crashes for move in moves],
            [move.delay for move in moves],
            [move.at for move in moves],
            [move.error for move in moves],
            [move.reason for move in moves],
            [move.ran for move in moves],
            [move.checkpoint for move in moves],
            [move.log for move in moves],
        )
        self.forget_leases(done)
        filled = {row["filled"] for row in rows if row["filled"] is not None}
        if filled:
            await self.fill_lanes(link, tenant, filled)
        return {(row["id"], row["attempt"]): row for row in rows}

    REPORT = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    u AS MATERIALIZED (
      SELECT u.*, x.place
        FROM unnest($4::uuid[], $5::int[], $7::float8[], $8::float8[], $9::text[], $10::text[])
             u(id, attempt, ran, progress, note, checkpoint),
             LATERAL (SELECT v.ctid AS place FROM daybell.live v
                       WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt
                         AND {IS_HELD}
                       LIMIT 1 FOR UPDATE) x)
    UPDATE daybell.live v
       SET started_at = (SELECT now FROM t) - u.ran,
           progress = coalesce(u.progress, v.progress), note = coalesce(u.note, v.note),
           checkpoint = coalesce(u.checkpoint, v.checkpoint)
      FROM u WHERE v.ctid = u.place RETURNING v.id, v.attempt
    """

    async def report(self, tenant: str, *, worker: UUID, reports: Sequence[Report]) -> list[Fence]:
        for position, report in enumerate(reports):
            checks.check_report(report, position)
        if not reports:
            async with self.db.link() as link:
                await self.names.tenant(link, tenant)
            return []
        ordered = sorted(reports, key=_by_id)
        leases = by_lease(ordered)
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            rows = await link.fetch(
                self.REPORT,
                key,
                worker,
                list(leases),
                *fences(ordered, leases),
                [report.ran for report in ordered],
                [report.progress for report in ordered],
                [report.note for report in ordered],
                [report.checkpoint for report in ordered],
            )
        written = {(row["id"], row["attempt"]) for row in rows}
        named = [(report.id, report.attempt) for report in reports]
        return [fence for fence in named if fence not in written]


def _succeeding(tenant: int, batch: Batch, done: list[UUID]) -> tuple[object, ...]:
    """What SUCCEED takes."""
    moves = batch.moves
    return (
        *batch.guard(tenant),
        done,
        given(_kept_results(moves)),
        [move.ran for move in moves],
        given([move.log for move in moves]),
    )


def _kept_results(moves: Sequence[Transition]) -> list[str | None]:
    results = [move.result for move in moves]
    # Most are far too short to need counting in bytes.
    if any(result is not None and len(result) > RESULT_BYTES_MAX // 4 for result in results):
        for result in results:
            if result is not None and (fault := checks.size_fault(result, RESULT_BYTES_MAX)):
                raise UsageError(f"its result {fault}")
    return results


def fences(
    moves: Sequence[Claimed | Transition | Report | NewLogPart | NewStep], leases: Iterable[UUID]
) -> tuple[list[UUID], list[int], list[int]]:
    """Ids, attempts, and the places of their leases in the list of leases, from 1."""
    places = {lease: place for place, lease in enumerate(leases, 1)}
    one = len(places) == 1
    which = [1] * len(moves) if one else [places[move.lease] for move in moves]
    return [move.id for move in moves], [move.attempt for move in moves], which


def by_lease(
    moves: Sequence[Claimed | Transition | Report | NewLogPart | NewStep],
) -> dict[UUID, int]:
    """How many moves there are of each lease. They come in runs that share the very same object."""
    counts: dict[UUID, int] = {}
    start = 0
    for end in range(1, len(moves) + 1):
        lease = moves[start].lease
        if end == len(moves) or moves[end].lease is not lease:
            counts[lease] = counts.get(lease, 0) + end - start
            start = end
    return counts
