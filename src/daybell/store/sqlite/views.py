"""What people look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.execution import Attempt, Execution, ExecutionDetail, State
from daybell.core.instant import Instant
from daybell.core.limits import SCAN_ITEMS_MAX
from daybell.core.search import Candidate, Content
from daybell.core.standing import Look
from daybell.core.view import (
    Activity,
    ExecutionFilter,
    Found,
    Page,
    Queue,
    cut_page,
    execution_bytes,
    scan,
)
from daybell.errors import ExecutionNotFound
from daybell.store.checks import check_countable, check_cursor, check_limit, check_names
from daybell.store.codes import OUTCOMES, STATE_CODES, STATES
from daybell.store.sqlite.activity import activity
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.looks import job_ids, look_at_jobs
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.rows import EXECUTION_COLUMNS, LIST_COLUMNS, execution, uuid_or_none


class SqliteViews(Part):
    """See `protocol.Views`."""

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        return await self._read(lambda tx: get_execution(tx, tenant, id))

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        check_limit(limit)
        after = check_cursor(cursor)
        return await self._read(lambda tx: list_executions(tx, tenant, where, limit, after))

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> dict[State, int]:
        return await self._read(lambda tx: count_executions(tx, tenant, where))

    async def look_at_jobs(self, tenant: str, names: Sequence[str]) -> dict[str, Look]:
        check_names(names)
        return await self._read(lambda tx: look_at_jobs(tx, tenant, names))

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        check_names(names)
        return await self._read(lambda tx: job_ids(tx, tenant, names))

    async def list_queues(self, tenant: str) -> list[Queue]:
        return await self._read(lambda tx: list_queues(tx, tenant))

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        return await self._read(lambda tx: activity(tx, tenant, since))


_GET: Final = f"SELECT n, {EXECUTION_COLUMNS} FROM execution WHERE tenant = ? AND id = ?"
_ATTEMPTS: Final = """
SELECT attempt, outcome, worker, started_at, ended_at, error FROM attempt
 WHERE execution = ? ORDER BY attempt
"""


def get_execution(tx: Transaction, tenant: str, id: UUID) -> ExecutionDetail:
    row = tx.execute(_GET, (tx.names.tenant(tx, tenant), id.bytes)).fetchone()
    if row is None:
        raise ExecutionNotFound(f"no execution {id}")
    n, *columns = row
    attempts = [read_attempt(entry) for entry in tx.execute(_ATTEMPTS, (n,))]
    shown = execution(tx, tenant, tuple(columns))
    if shown.outcome is not None and shown.finished_at is not None:
        attempts.append(
            Attempt(
                attempt=shown.attempt,
                outcome=shown.outcome,
                worker=shown.worker,
                started_at=shown.started_at,
                ended_at=shown.finished_at,
                error=shown.error,
            )
        )
    return ExecutionDetail(execution=shown, attempts=tuple(attempts))


def read_attempt(row: Any) -> Attempt:
    attempt, outcome, worker, started_at, ended_at, error = row
    return Attempt(
        attempt=attempt,
        outcome=OUTCOMES[outcome],
        worker=uuid_or_none(worker),
        started_at=started_at,
        ended_at=ended_at,
        error=error,
    )


def list_executions(
    tx: Transaction, tenant: str, where: ExecutionFilter, limit: int, after: UUID | None
) -> Page[Execution]:
    more = None
    if where.content is not None:
        ids, more = search(tx, tenant, where, where.content, limit, after)
        where, after = where.without_content(ids), None
    rows = newest(tx, tenant, where, LIST_COLUMNS, limit + 1, after)
    found = (execution(tx, tenant, row) for row in rows)
    return cut_page(found, limit, size=execution_bytes, cursor=lambda one: str(one.id), more=more)


def search(
    tx: Transaction,
    tenant: str,
    where: ExecutionFilter,
    content: Content,
    limit: int,
    after: UUID | None,
) -> Found:
    """Scan what the other conditions let through. Rows are read as far as the scan goes."""
    needed = content.columns
    columns = [one if one == "id" or one in needed else "NULL" for one in Candidate._fields]
    begin = where.without_content()
    rows = newest(tx, tenant, begin, ", ".join(columns), SCAN_ITEMS_MAX + 1, after)
    candidates = (
        Candidate(UUID(bytes=id), args, key, error, end, uuid_or_none(worker))
        for id, args, key, error, end, worker in rows
    )
    return scan(candidates, content, limit)


def newest(
    tx: Transaction,
    tenant: str,
    where: ExecutionFilter,
    columns: str,
    limit: int,
    after: UUID | None,
) -> Iterable[Any]:
    """Read columns of what a filter lets through, newest first."""
    conditions, values = matching(tx, tenant, where)
    if after is not None:
        conditions.append("id < ?")
        values.append(after.bytes)
    return tx.execute(
        f"SELECT {columns} FROM execution WHERE {' AND '.join(conditions)}"
        " ORDER BY id DESC LIMIT ?",
        (*values, limit),
    )


# By which index executions of some states are found.
_PLACES: Final = {
    "state <= 3": {State.QUEUED, State.SCHEDULED, State.RETRYING},
    "state = 4": {State.WAITING},
    "state = 5": {State.RUNNING},
    "state >= 7": {State.DEAD, State.CANCELLED, State.SKIPPED},
}
_SHOWN_STATE: Final = "CASE WHEN state IN (2, 3) AND run_at <= ? THEN 1 ELSE state END"


def count_executions(tx: Transaction, tenant: str, where: ExecutionFilter) -> dict[State, int]:
    check_countable(where)
    wanted = frozenset(State) if where.states is None else where.states
    if msgspec.structs.replace(where, states=None) == ExecutionFilter():
        counts = count_states(tx, tx.names.tenant(tx, tenant), wanted)
    else:
        conditions, values = matching(tx, tenant, where)
        counts = dict(
            tx.execute(
                f"SELECT {_SHOWN_STATE}, count(*) FROM execution"
                f" WHERE {' AND '.join(conditions)} GROUP BY 1",
                (tx.now, *values),
            )
        )
    return {STATES[code]: n for code, n in counts.items() if n and STATES[code] in wanted}


_COUNT_PENDING: Final = f"""
SELECT {_SHOWN_STATE}, count(*) FROM execution
 WHERE state <= 3 AND node IS NULL AND lane IN (SELECT l.n FROM lane l WHERE l.tenant = ?)
 GROUP BY 1
"""
_COUNT_OTHERS: Final = """
SELECT 4, count(*) FROM execution WHERE state = 4 AND node IS NULL AND +tenant = ?
UNION ALL
SELECT 5, count(*) FROM execution WHERE state = 5 AND node IS NULL AND +tenant = ?
UNION ALL
SELECT state, count(*) FROM execution WHERE state >= 7 AND node IS NULL AND tenant = ?
 GROUP BY state
"""
# By their jobs: nodes are not in that index.
_COUNT: Final = """
SELECT count(*) FROM execution
 WHERE node IS NULL AND job IN (SELECT j.n FROM job j WHERE j.tenant = ?)
"""


def count_states(tx: Transaction, owner: int, wanted: frozenset[State]) -> dict[int, int]:
    """How many are in each state, from indexes alone: what is in none of the others succeeded."""
    counts = dict(tx.execute(_COUNT_OTHERS, (owner, owner, owner)))
    if wanted & _PLACES["state <= 3"] or State.SUCCEEDED in wanted:
        counts |= dict(tx.execute(_COUNT_PENDING, (tx.now, owner)))
    if State.SUCCEEDED in wanted:
        (total,) = tx.execute(_COUNT, (owner,)).fetchone()
        counts[STATE_CODES[State.SUCCEEDED]] = total - sum(counts.values())
    return counts


def matching(tx: Transaction, tenant: str, where: ExecutionFilter) -> tuple[list[str], list[Any]]:
    """A filter as conditions, and the values in them."""
    owner = tx.names.tenant(tx, tenant)
    conditions, values = ["tenant = ?"], list[Any]([owner])

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if where.job is not None:
        add("job = (SELECT j.n FROM job j WHERE j.tenant = ? AND j.name = ?)", owner, where.job)
    if where.queue is not None:
        add(
            "lane IN (SELECT l.n FROM lane l WHERE l.tenant = ? AND l.queue = ?)",
            owner,
            where.queue,
        )
    if not where.shows_nodes:
        add("node IS NULL")
    if where.ids is not None:
        places = ", ".join("?" * len(where.ids))
        add(f"id IN ({places})", *(id.bytes for id in sorted(where.ids)))
    if where.worker is not None:
        add("worker = ?", where.worker.bytes)
    if where.schedule is not None:
        add("schedule = ?", where.schedule.bytes)
    if where.parent is not None:
        add("parent = ?", where.parent.bytes)
    if where.since is not None:
        add("created_at >= ?", where.since)
    if where.until is not None:
        add("created_at < ?", where.until)
    if where.dead_letters:
        add("state = 7 AND is_discarded = 0")
    states = where.states
    if states is not None:
        codes = ", ".join(str(STATE_CODES[state]) for state in states)
        add(f"{_SHOWN_STATE} IN ({codes})", tx.now)
    if where.dead_letters:
        states = frozenset({State.DEAD})
    if states:
        narrow(tx, conditions, states)
    return conditions, values


FEW: Final = 20_000


def narrow(tx: Transaction, conditions: list[str], states: frozenset[State]) -> None:
    """Let a search for rare states begin with those, instead of walking through all that has
    succeeded. Where they are not rare the walk finds them soon enough.
    """
    if State.SUCCEEDED in states:
        return
    places = [place for place, found_there in _PLACES.items() if found_there & states]
    rare = " UNION ALL ".join(f"SELECT n FROM execution WHERE {place}" for place in places)
    (count,) = tx.execute(f"SELECT count(*) FROM ({rare} LIMIT {FEW})").fetchone()
    if count < FEW:
        conditions[0] = "+tenant = ?"  # the plus keeps SQLite from searching by tenant
        conditions.append(f"n IN ({rare})")


_PENDING: Final = """
SELECT lane, state = 1 OR run_at <= ? AS is_due, state = 3, count(*), min(run_at) FROM execution
 WHERE state <= 3 AND lane IN (SELECT l.n FROM lane l WHERE l.tenant = ?) GROUP BY 1, 2, 3
"""
_WAITING: Final = """
SELECT lane, count(*) FROM execution WHERE state = 4 AND +tenant = ? GROUP BY lane
"""
_RUNNING: Final = """
SELECT lane, count(*) FROM execution WHERE state = 5 AND +tenant = ? GROUP BY lane
"""
_PAUSED: Final = "SELECT name FROM paused_queue WHERE tenant = ?"
_JOBS: Final = "SELECT version FROM job WHERE tenant = ? AND is_deleted = 0"


class Tally:
    """The counts of one queue, which may have several lanes."""

    def __init__(self) -> None:
        self.queued = self.scheduled = self.retrying = self.running = self.waiting = 0
        self.oldest: Instant | None = None


def list_queues(tx: Transaction, tenant: str) -> list[Queue]:
    owner = tx.names.tenant(tx, tenant)
    paused = {name for (name,) in tx.execute(_PAUSED, (owner,))}
    jobs = tx.execute(_JOBS, (owner,)).fetchall()
    names = paused | {tx.names.version(tx, version).queue for (version,) in jobs}
    tallies = {name: Tally() for name in names}

    def tally(lane: int) -> Tally:
        return tallies.setdefault(tx.names.lane_row(tx, lane).queue, Tally())

    for lane, is_due, has_failed, count, oldest in tx.execute(_PENDING, (tx.now, owner)).fetchall():
        found = tally(lane)
        if is_due:
            found.queued += count
            found.oldest = oldest if found.oldest is None else min(oldest, found.oldest)
        else:
            found.scheduled += count
            found.retrying += count * has_failed
    for lane, count in tx.execute(_WAITING, (owner,)).fetchall():
        tally(lane).waiting += count
    for lane, count in tx.execute(_RUNNING, (owner,)).fetchall():
        tally(lane).running += count
    return [
        Queue(
            name=name,
            is_paused=name in paused,
            queued=found.queued,
            scheduled=found.scheduled,
            retrying=found.retrying,
            running=found.running,
            waiting=found.waiting,
            oldest_run_at=found.oldest,
        )
        for name, found in sorted(tallies.items())
    ]
