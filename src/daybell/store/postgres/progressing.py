"""How runs of workflows go on: in the transaction that has ended one of their nodes.

`core.progress.advance` decides, one run at a time; here several are driven side by side, so that a
batch of ends takes as many statements as a single one. Nothing of a run or its nodes is read
without the run's lock, but nodes whose executions this transaction has ended: from its start on,
nothing but its end changes a node.

Locks are taken in one order: executions of nodes, schedules, gates, runs, all other executions.
Nodes that end together so do most of their work beside each other, and wait for their run with the
rest. The lock of an inner run comes before those of the runs around it: the end of a node may be
the end of all of them. The lock of a tenant with a quota is taken last, if it is free.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.progress import advance, note
from daybell.core.run import (
    PROGRESS_BATCH,
    Advance,
    Alike,
    AnyAsk,
    Ask,
    NodeEnd,
    Room,
    RunEnd,
)
from daybell.store.codes import OUTCOME_CODES, STATE_CODES, STATES
from daybell.store.driving import OUTCOMES, minting
from daybell.store.postgres.columns import BEGAN, ENDED, KEPT
from daybell.store.postgres.connection import Database, Link, Row
from daybell.store.postgres.gates import Admission
from daybell.store.postgres.quotas import Metering
from daybell.store.postgres.run_rows import (
    RUN_COLUMNS,
    Held,
    Seen,
    columns,
    read_run,
)
from daybell.store.postgres.starting import Starting, marked

Ends = Mapping[UUID, Sequence[NodeEnd]]  # by run
# What one transaction may do for many runs, and the least that it does for each.
BATCH_MAX: Final = 4 * PROGRESS_BATCH
BATCH_MIN: Final = 20
KNOWN_MAX: Final = 1000  # runs that are remembered

# What an end tells to others: its gate, its schedule, its run. Results only where somebody asks.
TOLD_COLUMNS: Final = (
    "id", "attempt", "state", "gate", "schedule", "scheduled_for", "node", "parent", BEGAN,
    "finished_at",
    "CASE WHEN node IS NOT NULL THEN result END AS result",
    "CASE WHEN node IS NOT NULL THEN reason END AS reason",
    "CASE WHEN node IS NOT NULL AND state = 7 THEN error END AS error",
)  # fmt: skip
TOLD: Final = ", ".join(TOLD_COLUMNS)

# A run that was put back, and ends before it has begun again, has nodes that did not.
HAS_RUN: Final = (
    "CASE WHEN state IN (8, 9) THEN (SELECT true FROM daybell.run r WHERE r.id = e.id"
    " AND r.tenant = $1) END AS has_run"
)


class Progressing(Admission, Starting, Metering):
    """Runs whose locks this transaction has."""

    def __init__(self, db: Database, *, listen_url: str | None = None) -> None:
        super().__init__(db, listen_url=listen_url)
        # Runs with more to do after the commit, and those to be stopped then.
        self.unfinished: dict[tuple[int, UUID], None] = {}
        self.cancelled: dict[tuple[int, UUID], None] = {}
        self._fixed: dict[tuple[int, UUID], Row] = {}  # what never changes about runs

    # These columns never change, so that it is known what to lock before anything is locked.
    AROUND = """
    WITH RECURSIVE c AS (
      SELECT r.id, r.gate, r.schedule, r.parent FROM daybell.run r
       WHERE r.tenant + 0 = $1 AND r.id = ANY($2::uuid[])
      UNION
      SELECT r.* FROM c, LATERAL (
        SELECT r.id, r.gate, r.schedule, r.parent FROM daybell.run r
         WHERE r.id = c.parent AND r.tenant = $1 LIMIT 1) r)
    SELECT id, gate, schedule, parent FROM c
    """

    async def around(self, link: Link, tenant: int, runs: Collection[UUID]) -> list[Row]:
        """These runs and those around them, with what their ends would concern."""
        found: dict[UUID, Row] = {}
        missing = set(runs)
        while missing and all((tenant, run) in self._fixed for run in missing):
            some = [self._fixed[tenant, run] for run in missing]
            found |= {row["id"]: row for row in some}
            missing = {row["parent"] for row in some} - {None}
        if missing:
            rows = await link.fetch(self.AROUND, tenant, list(missing))
            if len(self._fixed) > KNOWN_MAX:
                self._fixed.clear()
            self._fixed |= {(tenant, row["id"]): row for row in rows}
            found |= {row["id"]: row for row in rows}
        return list(found.values())

    LOCK_RUNS = f"""
    SELECT {RUN_COLUMNS}, daybell.now() AS now,
           (SELECT v.scheduled_for FROM daybell.live v
             WHERE v.id = r.id AND v.tenant = r.tenant) AS scheduled_for
      FROM daybell.run r
     WHERE r.tenant + 0 = $1 AND r.id = ANY($2::uuid[])
     ORDER BY r.depth DESC, r.id FOR UPDATE
    """

    async def lock_runs(
        self, link: Link, tenant: int, runs: Collection[UUID], *, wait: bool = True
    ) -> dict[UUID, Held]:
        """Lock runs. Their gates and schedules, and the runs around them, are locked, too."""
        if not runs:
            return {}
        query = self.LOCK_RUNS if wait else f"{self.LOCK_RUNS} SKIP LOCKED"
        return {row["id"]: _held(row) for row in await link.fetch(query, tenant, list(runs))}

    async def go_on(
        self,
        link: Link,
        tenant: int,
        held: Mapping[UUID, Held],
        ended: Ends,
        parts: int = 1,
        seen: Seen | None = None,
    ) -> list[Row]:
        """Let runs go on, whose locks this transaction has, after the ends of nodes. Answers what
        is to be told of those that ended with it. `parts`: so many times what is usual at once.
        `seen`: what is known of their rows.
        """
        runs = dict(held)
        waiting = {run: list(ends) for run, ends in ended.items() if run in runs}
        over: list[Row] = []
        noting: set[UUID] = set()  # runs with nodes that could not be started
        moved = {} if seen is None else seen.moved
        while waiting:
            depth = max(runs[run].depth for run in waiting)
            some = {run: ends for run, ends in waiting.items() if runs[run].depth == depth}
            for run in some:
                del waiting[run]
            known, seen = seen or Seen(), None
            known.moved = {run: moved.pop(run) for run in some if run in moved}
            steps = await self._drive(link, tenant, runs, some, parts, noting, known)
            if not steps:
                continue
            rows_of = {run: marked(step) for run, step in steps.items()}
            await self.write(link, tenant, runs, steps, rows_of, known)
            starts = [
                (runs[run], start, rows_of[run].get(start.label))
                for run, step in steps.items()
                for start in step.starts
            ]
            gone = await self.start_nodes(link, tenant, starts, known) if starts else {}
            for run, step in steps.items():
                for many in step.many:
                    await self.start_many(link, tenant, runs[run], many)
            noting |= gone.keys()
            rows = await self._end_runs(link, tenant, steps)
            over += rows
            for run, step in steps.items():
                runs[run] = replace(runs[run], run=step.run, is_finished=step.end is not None)
                if step.run.is_todo:
                    self.unfinished[tenant, run] = None
            for run, ends in (*gone.items(), *node_ends(rows).items()):
                if run in runs:
                    waiting.setdefault(run, []).extend(ends)
        return over

    async def _drive(
        self,
        link: Link,
        tenant: int,
        runs: dict[UUID, Held],
        ended: Ends,
        parts: int,
        noting: Collection[UUID],
        seen: Seen,
    ) -> dict[UUID, Advance]:
        """Ask what each of these runs comes to, and answer what is asked on the way."""
        going: dict[UUID, Generator[AnyAsk, Any, Advance]] = {}
        limit = min(parts * PROGRESS_BATCH, max(BATCH_MIN, BATCH_MAX // len(ended)))
        for run, ends in ended.items():
            if runs[run].is_finished:
                continue
            moved = seen.moved.get(run, ())
            times = [one.finished_at or 0.0 for one in (*ends, *moved)]
            runs[run] = replace(runs[run], now=max([runs[run].now, *times]))
            if run in noting:
                going[run] = note(runs[run].run, ends, mint=minting())
            else:
                same = [one.same for one in moved]
                going[run] = advance(runs[run].run, ends, same, mint=minting(), limit=limit)
        steps: dict[UUID, Advance] = {}
        answers: dict[UUID, Any] = dict.fromkeys(going)
        room: float | None = None  # of the tenant, for all of them
        while answers:
            asks: dict[UUID, Ask | Alike] = {}
            starting: list[UUID] = []
            for run, answer in answers.items():
                try:
                    ask = going[run].send(answer)
                except StopIteration as stop:
                    steps[run] = stop.value
                    continue
                if isinstance(ask, Room):
                    starting.append(run)
                else:
                    asks[run] = ask
            answers = await self.answers(link, tenant, asks, seen) if asks else {}
            if starting:
                if room is None:
                    room = await self.node_room(link, tenant)
                shares = share(room, len(starting))
                answers |= dict(zip(starting, shares, strict=True))
                room = room if room == inf else room - sum(shares)
        return steps

    # An expanded run is in nobody's hands, and its row is changed under the run's lock only.
    END_RUNS = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    d AS (
      DELETE FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND v.state + 0 = 5 RETURNING v.*),
    e AS MATERIALIZED (
      SELECT {KEPT}, failures, crashes, u.state, u.outcome, (SELECT now FROM t) AS finished_at,
             d.started_at, NULL::uuid AS worker, u.result, u.error, u.reason, checkpoint,
             NULL::text AS log
        FROM d FULL JOIN unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::text[], $6::text[],
                                $7::text[])
             u(id, state, outcome, result, error, reason) USING (id)
       WHERE coalesce(d.job, 0) > 0),
    x AS (
      INSERT INTO daybell.dead ({ENDED}) SELECT {ENDED} FROM e WHERE state = 7 AND node IS NULL),
    y AS (
      INSERT INTO daybell.history ({ENDED})
      SELECT {ENDED} FROM e WHERE state <> 7 OR node IS NOT NULL)
    SELECT {TOLD} FROM e
    """

    async def _end_runs(self, link: Link, tenant: int, steps: Mapping[UUID, Advance]) -> list[Row]:
        ends = [(run, step.end) for run, step in steps.items() if step.end is not None]
        if not ends:
            return []
        return await link.fetch(
            self.END_RUNS, tenant, *columns([_end(run, end) for run, end in ends])
        )


def share(room: float, count: int) -> list[float]:
    """Divide room among so many runs."""
    if room == inf:
        return [inf] * count
    least, more = divmod(int(room), count)
    return [least + (place < more) for place in range(count)]


def node_ends(rows: Iterable[Row]) -> dict[UUID, list[NodeEnd]]:
    """The ends of nodes among these, by run."""
    ends: dict[UUID, list[NodeEnd]] = {}
    for row in rows:
        if row["node"] is not None:
            ends.setdefault(row["parent"], []).append(
                NodeEnd(
                    row["node"],
                    row["id"],
                    STATES[row["state"]],
                    row["result"],
                    row["reason"],
                    row["started_at"],
                    row["finished_at"],
                    row["error"],
                )
            )
    return ends


def together(*ends: Ends) -> dict[UUID, list[NodeEnd]]:
    """All ends by run."""
    merged: dict[UUID, list[NodeEnd]] = {}
    for some in ends:
        for run, told in some.items():
            merged.setdefault(run, []).extend(told)
    return merged


def _held(row: Row) -> Held:
    return Held(
        run=read_run(row),
        job=row["job"],
        version=row["version"],
        lane=row["lane"],
        priority=row["priority"],
        depth=row["depth"],
        now=row["now"],
        is_finished=row["finished_at"] is not None,
        scheduled_for=row["scheduled_for"],
    )


def _end(run: UUID, end: RunEnd) -> tuple[Any, ...]:
    """The end of a run as END_RUNS takes it."""
    return (
        run,
        STATE_CODES[end.state],
        OUTCOME_CODES[OUTCOMES[end.state]],
        end.result,
        end.error,
        end.reason,
    )
