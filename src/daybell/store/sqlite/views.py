"""Reading views: executions, counts, queues, job activity, and rates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.checks import check_countable, check_cursor, check_limit, check_names
from daybell.core.execution import LEFT_OUT, AttemptRecord, Execution, ExecutionDetail, State
from daybell.core.ids import LATE_SECONDS, first_id_at, first_id_since
from daybell.core.job import DECLARED_MAX, LOOKED_AT_MAX, JobActivity, cut_next
from daybell.core.limits import (
    COUNT_ITEMS_MAX,
    MESSAGE_PREFIXES,
    NEXT_SCHEDULES_MAX,
    SCAN_ITEMS_MAX,
)
from daybell.core.schedule import Schedule
from daybell.core.units import Instant
from daybell.core.views import (
    HOLDERS_MAX,
    QUEUE_NUMBERS,
    Activity,
    Backlog,
    Candidate,
    Content,
    Counts,
    ExecutionFilter,
    Found,
    Page,
    Position,
    Queue,
    Total,
    bounded_total,
    cut_page,
    execution_bytes,
    join_backlogs,
    scan,
    total_of,
)
from daybell.errors import ExecutionNotFound
from daybell.store.codec import OUTCOMES, PRIORITIES, STATE_CODES, STATES
from daybell.store.sorting import in_order, sort_page
from daybell.store.sqlite.schedules import BY_NEXT, SCHEDULE_SQL, read_schedule
from daybell.store.sqlite.transaction import (
    LIST_COLUMNS,
    SHOWN_COLUMNS,
    Transaction,
    read_execution,
    shorten_column,
    uuid_or_none,
)

# How jobs stand: a few statements for a page of them, however many executions they have.

FEW: Final = 20_000

_NAMED_JOBS: Final = """
SELECT n, name FROM job WHERE tenant = ? AND name IN (SELECT value FROM json_each(?))
"""


def job_activity(tx: Transaction, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
    check_names(names)
    owner = tx.names.tenant(tx, tenant)
    jobs = dict(tx.execute(_NAMED_JOBS, (owner, json.dumps(list(names)))).fetchall())
    keys = json.dumps(list(jobs))
    unfinished = unfinished_states(tx, jobs, keys)
    last = last_executions(tx, tenant, keys)
    found: dict[str, JobActivity] = {}
    for n, name in jobs.items():
        schedules, has_more = cut_next(next_schedules(tx, n))
        found[name] = JobActivity(
            unfinished=frozenset(unfinished.get(n, ())),
            last=last.get(n),
            schedules=schedules,
            has_more_schedules=has_more,
        )
    return found


_JOB_IDS: Final = """
SELECT name, id FROM job WHERE tenant = ? AND name IN (SELECT value FROM json_each(?))
"""


def job_ids(tx: Transaction, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
    check_names(names)
    wanted = (tx.names.tenant(tx, tenant), json.dumps(list(names)))
    return {name: UUID(bytes=id) for name, id in tx.execute(_JOB_IDS, wanted)}


_SHOWN: Final = "CASE WHEN state IN (2, 3) AND run_at <= ? THEN 1 ELSE state END"
# Each of these conditions has an index of its own.
_UNFINISHED: Final = " UNION ALL ".join(
    f"SELECT n FROM execution WHERE {place} AND node IS NULL"
    for place in ("state <= 3", "state = 4", "state = 5")
)
_COUNT_UNFINISHED: Final = f"SELECT count(*) FROM ({_UNFINISHED} LIMIT {FEW})"
_ALL_STATES: Final = f"""
SELECT DISTINCT job, {_SHOWN} FROM execution
 WHERE n IN ({_UNFINISHED}) AND job IN (SELECT value FROM json_each(?))
"""
_RUNNING_JOBS: Final = """
SELECT DISTINCT job, 5 FROM execution
 WHERE state = 5 AND node IS NULL AND +job IN (SELECT value FROM json_each(?))
"""
_NEWEST_STATES: Final = f"""
SELECT DISTINCT job, {_SHOWN} FROM (
    SELECT job, state, run_at FROM execution WHERE job = ? AND node IS NULL
     ORDER BY id DESC LIMIT {LOOKED_AT_MAX})
 WHERE state < 5
"""


def unfinished_states(tx: Transaction, jobs: Iterable[int], keys: str) -> dict[int, set[State]]:
    """Return the states of unfinished executions, by job. If there are very many, the newest of
    each job stand for all; running executions are few, and all of them are read.
    """
    found: dict[int, set[State]] = {}
    (count,) = tx.execute(_COUNT_UNFINISHED).fetchone()
    if count < FEW:
        rows = tx.execute(_ALL_STATES, (tx.now, keys)).fetchall()
    else:
        rows = tx.execute(_RUNNING_JOBS, (keys,)).fetchall()
        for job in jobs:
            rows += tx.execute(_NEWEST_STATES, (tx.now, job)).fetchall()
    for job, state in rows:
        found.setdefault(job, set()).add(STATES[state])
    return found


_LAST_EXECUTIONS: Final = f"""
SELECT job, {LIST_COLUMNS} FROM execution WHERE n IN (
    SELECT (SELECT e.n FROM execution e WHERE e.job = k.value AND e.node IS NULL
             ORDER BY e.id DESC LIMIT 1)
      FROM json_each(?) k)
"""


def last_executions(tx: Transaction, tenant: str, keys: str) -> dict[int, Execution]:
    """Return the newest execution of each job; ids are made in the order of time."""
    rows = tx.execute(_LAST_EXECUTIONS, (keys,)).fetchall()
    return {row[0]: read_execution(tx, tenant, row[1:]) for row in rows}


_LIST_ARGS: Final = shorten_column("s.args", f"'{LEFT_OUT}'")
_SCHEDULES: Final = f"""
{SCHEDULE_SQL.replace("s.args", _LIST_ARGS).replace("FROM schedule s", BY_NEXT)}
 WHERE s.job = ? AND s.is_declared = ? ORDER BY ifnull(s.next_at, 9e999), s.id LIMIT ?
"""


def next_schedules(tx: Transaction, job: int) -> list[Schedule]:
    """Read the schedules that a job is shown with, and one more if there are more."""
    rows = tx.execute(_SCHEDULES, (job, 1, DECLARED_MAX)).fetchall()
    rows += tx.execute(_SCHEDULES, (job, 0, NEXT_SCHEDULES_MAX + 1)).fetchall()
    return [read_schedule(tx, row) for row in rows]


# Recent activity, for rates.

_ENQUEUED: Final = "SELECT count(*) FROM execution WHERE tenant = ? AND id >= ?"
# Begun with the attempts: nearly all executions of a tenant have had no such attempt.
_FAILED: Final = """
SELECT count(*) FROM attempt a CROSS JOIN execution e ON e.n = a.execution
 WHERE a.ended_at > ? AND a.outcome IN (2, 3, 4) AND e.tenant = ?
"""
_DIED: Final = """
SELECT count(*) FROM execution
 WHERE tenant = ? AND finished_at > ? AND state = 7 AND is_discarded = 0
"""


def activity(tx: Transaction, tenant: str, *, since: Activity | None = None) -> Activity:
    owner = tx.names.tenant(tx, tenant)

    def count(statement: str, *values: object) -> int:
        return tx.execute(statement, values).fetchone()[0]

    recent = count(_ENQUEUED, owner, first_id_at(tx.now - LATE_SECONDS).bytes)
    if since is None:
        return Activity(now=tx.now, recent=recent)
    seen = count(_ENQUEUED, owner, first_id_at(since.now - LATE_SECONDS).bytes)
    failed = count(_FAILED, since.now, owner) + count(_DIED, owner, since.now)
    return Activity(now=tx.now, enqueued=max(0, seen - since.recent), failed=failed, recent=recent)


_GET: Final = f"SELECT n, {SHOWN_COLUMNS} FROM execution WHERE tenant = ? AND id = ?"
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
    shown = read_execution(tx, tenant, tuple(columns))
    if shown.outcome is not None and shown.finished_at is not None:
        attempts.append(
            AttemptRecord(
                attempt=shown.attempt,
                outcome=shown.outcome,
                worker=shown.worker,
                started_at=shown.started_at,
                ended_at=shown.finished_at,
                error=shown.error,
            )
        )
    return ExecutionDetail(execution=shown, attempts=tuple(attempts))


def read_attempt(row: Any) -> AttemptRecord:
    attempt, outcome, worker, started_at, ended_at, error = row
    return AttemptRecord(
        attempt=attempt,
        outcome=OUTCOMES[outcome],
        worker=uuid_or_none(worker),
        started_at=started_at,
        ended_at=ended_at,
        error=error,
    )


def list_executions(
    tx: Transaction,
    tenant: str,
    where: ExecutionFilter,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Execution]:
    check_limit(limit)
    more = None
    if where.order is not None:
        return list_sorted(tx, tenant, where, limit, cursor)
    after = check_cursor(cursor)
    if where.content is not None:
        ids, more = search(tx, tenant, where, where.content, limit, after)
        if not ids:
            return Page(items=(), next_cursor=more)
        where, after = where.without_content(ids), None
    rows, end = newest(tx, tenant, where, LIST_COLUMNS, limit + 1, after)
    found = (read_execution(tx, tenant, row) for row in rows)
    return cut_page(
        found, limit, size=execution_bytes, cursor=lambda one: str(one.id), more=more or end
    )


# The column of a candidate, where it has another name.
_CANDIDATE: Final = {"job": "version"}


def search(
    tx: Transaction,
    tenant: str,
    where: ExecutionFilter,
    content: Content,
    limit: int,
    after: UUID | None,
) -> Found:
    """Scan executions that meet the other conditions. Rows are read as far as the scan goes."""
    candidates, end = read_candidates(tx, tenant, where, content.columns, after)
    found = scan(candidates, content, limit)
    return Found(found.ids, found.next_cursor or end)


def list_sorted(
    tx: Transaction, tenant: str, where: ExecutionFilter, limit: int, cursor: str | None
) -> Page[Execution]:
    """Sort the executions that match, and read a page of them."""
    candidates, end = read_candidates(tx, tenant, where, where.sort_columns, None)
    has_more = end is not None
    ids, more = sort_page(candidates, where, limit, cursor, now=tx.now, has_more=has_more)
    if not ids:
        return Page(items=())
    rows, _ = newest(tx, tenant, where.without_content(ids), LIST_COLUMNS, limit, None)
    found = in_order((read_execution(tx, tenant, row) for row in rows), ids)
    return Page(items=tuple(found), next_cursor=more)


def read_candidates(
    tx: Transaction,
    tenant: str,
    where: ExecutionFilter,
    needed: frozenset[str],
    after: UUID | None,
) -> tuple[Iterator[Candidate], str | None]:
    """Read columns of the newest executions that indexes find, and the cursor to go on with."""
    columns = [
        _CANDIDATE.get(one, one) if one == "id" or one in needed else "NULL"
        for one in Candidate._fields
    ]
    begin = where.without_content()
    rows, end = newest(tx, tenant, begin, ", ".join(columns), SCAN_ITEMS_MAX + 1, after)
    candidates = (
        Candidate(
            UUID(bytes=id),
            *(args, key, error, end),
            uuid_or_none(worker),
            None if version is None else tx.names.version(tx, version).name,
            *times,
        )
        for id, args, key, error, end, worker, version, *times in rows
    )
    return candidates, end


def newest(
    tx: Transaction,
    tenant: str,
    where: ExecutionFilter,
    columns: str,
    limit: int,
    after: UUID | None,
) -> tuple[Iterable[Any], str | None]:
    """Read columns of executions that meet a filter, newest first, and the cursor to go on with, if
    there is more than one page may read.
    """
    found = matching(tx, tenant, where)
    if after is not None:
        found.add("id < ?", after.bytes)
    end = bound(tx, found, SCAN_ITEMS_MAX, after)
    rows = tx.execute(
        f"SELECT {columns} FROM execution WHERE {found.text} ORDER BY id DESC LIMIT ?",
        (*found.values, limit),
    )
    return rows, None if end is None else str(UUID(int=end.int + 1))


# By which index executions of some states are found, of a tenant.
_CLAIMABLE: Final = frozenset({State.QUEUED, State.SCHEDULED, State.RETRYING})
_PLACES: Final = {
    "state <= 3 AND lane IN (SELECT l.n FROM lane l WHERE l.tenant = ?)": _CLAIMABLE,
    "state = 4 AND tenant = ?": {State.WAITING},
    "state = 5 AND +tenant = ?": {State.RUNNING},
    "state >= 7 AND tenant = ?": {State.DEAD, State.CANCELLED, State.SKIPPED},
}
# States with an index of their executions in the order of ids, by tenant.
_WALKS: Final = {
    State.WAITING: "state = 4 AND tenant = ?",
    State.DEAD: "state >= 7 AND state = 7 AND tenant = ?",
    State.CANCELLED: "state >= 7 AND state = 8 AND tenant = ?",
    State.SKIPPED: "state >= 7 AND state = 9 AND tenant = ?",
}
_SHOWN_STATE: Final = "CASE WHEN state IN (2, 3) AND run_at <= ? THEN 1 ELSE state END"


def count_executions(tx: Transaction, tenant: str, where: ExecutionFilter) -> Counts:
    check_countable(where)
    wanted = frozenset(State) if where.states is None else where.states
    if where.dead_letters:
        wanted &= {State.DEAD}
    owner = tx.names.tenant(tx, tenant)
    plain = msgspec.structs.replace(where, states=None, hides_messages=False)
    if plain == ExecutionFilter() and not message_jobs(tx, owner, where):
        counts = count_states(tx, owner, wanted)
    else:
        counts = count_matching(tx, tenant, where, wanted)
        if counts.at_least and (where.since is not None or where.hides_messages):
            # One walk does not reach all: states apart, so that none hides others.
            apart = [_CLAIMABLE & wanted, *(frozenset({state}) for state in wanted - _CLAIMABLE)]
            parts = [
                count_matching(tx, tenant, msgspec.structs.replace(where, states=states), states)
                for states in apart
                if states
            ]
            numbers = {state: n for part in parts for state, n in part.items()}
            counts = Counts(
                numbers, at_least=frozenset[State]().union(*(p.at_least for p in parts))
            )
    return Counts(
        {state: n for state, n in counts.items() if state in wanted},
        at_least=counts.at_least & wanted,
    )


def count_matching(
    tx: Transaction, tenant: str, where: ExecutionFilter, states: frozenset[State]
) -> Counts:
    """Count the newest that a filter lets through. If there are more, all of `states` may have."""
    found = matching(tx, tenant, where)
    is_exact = bound(tx, found, COUNT_ITEMS_MAX) is None
    rows = tx.execute(
        f"SELECT {_SHOWN_STATE}, count(*) FROM execution WHERE {found.text} GROUP BY 1",
        (tx.now, *found.values),
    )
    return Counts({STATES[code]: n for code, n in rows}, at_least=() if is_exact else states)


# Each reads up to a bound, and one row more to know that there is more.
_WAITING: Final = "SELECT lane, node FROM execution WHERE state = 4 AND tenant = ?1 LIMIT ?2"
# Runs that have begun, and all that workers hold, which is no more than they can run.
_RUNNING: Final = """
SELECT lane, node FROM (
  SELECT lane, node FROM execution INDEXED BY execution_begun_of
   WHERE state = 5 AND worker IS NULL AND tenant = ?1 LIMIT ?2)
UNION ALL
SELECT lane, node FROM execution WHERE state = 5 AND worker IS NOT NULL AND +tenant = ?1
"""
_UNCLAIMABLE: Final = {State.WAITING: _WAITING, State.RUNNING: _RUNNING}
_COUNT_UNCLAIMABLE: Final = "SELECT count(*), coalesce(sum(node IS NULL), 0) FROM ({})"
_COUNT_ENDED: Final = """
SELECT count(*), coalesce(sum(node IS NULL), 0)
  FROM (SELECT node FROM execution WHERE state >= 7 AND tenant = ? AND state = {} LIMIT ?)
"""
# By their jobs: nodes are not in that index.
_COUNT: Final = """
SELECT count(*) FROM (
  SELECT 1 FROM execution
   WHERE node IS NULL AND job IN (SELECT j.n FROM job j WHERE j.tenant = ?) LIMIT ?)
"""
_COUNT_OLDEST: Final = """
SELECT count(*) FROM (SELECT state, node FROM execution WHERE tenant = ? ORDER BY id LIMIT ?)
 WHERE state = 6 AND node IS NULL
"""
_STATES_APART: Final = (
    (State.WAITING, _COUNT_UNCLAIMABLE.format(_WAITING)),
    (State.RUNNING, _COUNT_UNCLAIMABLE.format(_RUNNING)),
    (State.DEAD, _COUNT_ENDED),
    (State.CANCELLED, _COUNT_ENDED),
    (State.SKIPPED, _COUNT_ENDED),
)


def count_states(tx: Transaction, owner: int, wanted: frozenset[State]) -> Counts:
    """Count executions in each state, from indexes: those in no other state have succeeded."""
    counts, more, most = Counter[State](), set[State](), COUNT_ITEMS_MAX
    has_succeeded = State.SUCCEEDED in wanted
    for state, statement in _STATES_APART:
        if state in wanted or has_succeeded:
            code = STATE_CODES[state]
            read, own = tx.execute(statement.format(code), (owner, most + 1)).fetchone()
            counts[state] = min(own, most)
            more |= {state} if read > most else set()
    if wanted & _CLAIMABLE or has_succeeded:
        for pending in count_pending(tx, owner, most, nodes=False).values():
            counts.update(pending.numbers)
            more |= pending.more
    if has_succeeded and more:
        # The rest is not known. Of the oldest, most have succeeded.
        (counts[State.SUCCEEDED],) = tx.execute(_COUNT_OLDEST, (owner, most)).fetchone()
        more.add(State.SUCCEEDED)
    elif has_succeeded:
        others = counts.total()
        (total,) = tx.execute(_COUNT, (owner, others + most + 1)).fetchone()
        counts[State.SUCCEEDED] = min(total - others, most)
        more |= {State.SUCCEEDED} if total - others > most else set()
    return Counts(counts, at_least=more)


# Numbers of rows are given in turn. Steps of the golden ratio meet no period of what is enqueued.
_SPAN: Final = "SELECT (SELECT min(n) FROM execution), (SELECT max(n) FROM execution)"  # no scan
_GOLDEN: Final = 0.6180339887498949
SAMPLE_ROWS: Final = 2_000


def estimate_executions(tx: Transaction, tenant: str, where: ExecutionFilter) -> int:
    check_countable(where)
    found = matching(tx, tenant, where)
    first, last = tx.execute(_SPAN).fetchone()
    if first is None:
        return 0
    size = last - first + 1
    sample = (
        range(first, last + 1)
        if size <= SAMPLE_ROWS
        else {first + int(at * _GOLDEN % 1 * size) for at in range(SAMPLE_ROWS)}
    )
    (count,) = tx.execute(
        "SELECT count(*) FROM execution NOT INDEXED"
        f" WHERE n IN (SELECT value FROM json_each(?)) AND {found.text}",
        (json.dumps(list(sample)), *found.values),
    ).fetchone()
    return round(count * size / len(sample))


class Matching:
    """A filter as conditions, and the values in them."""

    def __init__(self, owner: int) -> None:
        self.values: list[Any] = [owner]
        self._conditions = ["tenant = ?"]
        # The condition with an index in the order of ids; None: few rows are read, by others.
        self.place: tuple[str, Any] | None = ("tenant = ?", owner)
        self.first = UUID(int=0)  # the least id of interest

    @property
    def text(self) -> str:
        return " AND ".join(self._conditions)

    def add(self, condition: str, *given: Any) -> None:
        self._conditions.append(condition)
        self.values.extend(given)

    @property
    def is_of_tenant(self) -> bool:
        """True if the index of the tenant is read."""
        return self._conditions[0] == "tenant = ?"

    def read_by(self, place: tuple[str, Any] | None) -> None:
        """Read another index than that of the tenant."""
        self._conditions[0] = "+tenant = ?"  # the plus keeps SQLite from searching by tenant
        self.place = place


_LAST: Final = UUID(int=(1 << 128) - 1)


def bound(tx: Transaction, found: Matching, most: int, after: UUID | None = None) -> UUID | None:
    """Restrict a filter to the newest rows of the index that it reads; return the first row that
    is left out, unless it is older than all that the filter asks for.
    """
    if found.place is None:
        return None
    condition, value = found.place
    # With bounds of ids, SQLite also takes the state from the index: it reads no other one.
    row = tx.execute(
        f"SELECT id FROM execution WHERE {condition} AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?",
        (value, (after or _LAST).bytes, most),
    ).fetchone()
    found.add("id > ?", bytes(16) if row is None else row[0])
    if row is None:
        return None
    end = UUID(bytes=row[0])
    return end if end >= found.first else None


_JOB: Final = "SELECT n FROM job WHERE tenant = ? AND name = ?"


# The conditions of filters that are one value each.
_CONDITIONS: Final[tuple[tuple[str, Callable[[ExecutionFilter], Any]], ...]] = (
    ("worker = ?", lambda where: where.worker and where.worker.bytes),
    ("created_at >= ?", lambda where: where.since),
    ("created_at < ?", lambda where: where.until),
)
# Filters that have an index of their own.
_INDEXED: Final[tuple[tuple[str, Callable[[ExecutionFilter], UUID | None]], ...]] = (
    ("schedule = ?", lambda where: where.schedule),
    ("parent = ?", lambda where: where.parent),
)
_IN_QUEUE: Final = "lane IN (SELECT l.n FROM lane l WHERE l.tenant = ? AND l.queue = ?)"


def matching(tx: Transaction, tenant: str, where: ExecutionFilter) -> Matching:
    """Return a filter as conditions."""
    owner = tx.names.tenant(tx, tenant)
    found = Matching(owner)
    match_job(tx, owner, found, where)
    if messages := message_jobs(tx, owner, where):
        found.add(f"(state = 7 OR job NOT IN ({', '.join(map(str, messages))}))")
    if where.queue is not None:
        found.add(_IN_QUEUE, owner, where.queue)
    if where.ids is not None:
        places = ", ".join("?" * len(where.ids))
        found.add(f"id IN ({places})", *(id.bytes for id in sorted(where.ids)))
        found.place = None
    for condition, value_of in _CONDITIONS:
        if (value := value_of(where)) is not None:
            found.add(condition, value)
    for condition, id_of in _INDEXED:
        if (id := id_of(where)) is not None:
            found.add(condition, id.bytes)
            found.read_by((condition, id.bytes))
    if where.since is not None:
        found.first = first_id_since(where.since)
    match_states(tx, found, where)
    return found


_MESSAGE_JOBS: Final = " UNION ALL ".join(
    f"SELECT n FROM job WHERE tenant = ?1 AND name >= '{one}' AND name < '{one[:-1]};'"
    for one in MESSAGE_PREFIXES
)


def message_jobs(tx: Transaction, owner: int, where: ExecutionFilter) -> list[int]:
    """Return the jobs of which a filter hides the executions."""
    if not where.hides_messages:
        return []
    return [n for (n,) in tx.execute(_MESSAGE_JOBS, (owner,))]


def match_job(tx: Transaction, owner: int, found: Matching, where: ExecutionFilter) -> None:
    """Add the conditions about the job, and about nodes of workflow runs."""
    if where.job is not None:
        job = (tx.execute(_JOB, (owner, where.job)).fetchone() or [None])[0]
        found.add("job = ?", job)
        if not where.shows_nodes:  # nodes are in no index of a job
            found.read_by(("node IS NULL AND job = ?", job))
    if not where.shows_nodes:
        found.add("node IS NULL")


def match_states(tx: Transaction, found: Matching, where: ExecutionFilter) -> None:
    """Add the conditions about states, and read by them where they are rare."""
    if where.dead_letters:
        found.add("state = 7 AND is_discarded = 0")
    if where.states is not None:
        codes = ", ".join(str(STATE_CODES[state]) for state in where.states)
        found.add(f"{_SHOWN_STATE} IN ({codes})", tx.now)
    states = frozenset({State.DEAD}) if where.dead_letters else where.states
    if states and where.ids is None:
        narrow(tx, found, states)


def narrow(tx: Transaction, found: Matching, states: frozenset[State]) -> None:
    """Start a search for rare states with those, instead of a walk through all successes. Where
    they are not rare, the walk finds them soon enough.
    """
    if State.SUCCEEDED in states:
        return
    owner = found.values[0]
    walk = next((_WALKS[state] for state in states if state in _WALKS), None)
    if walk is not None and len(states) == 1 and found.is_of_tenant:
        found.read_by((walk, owner))
        found.add(walk, owner)
        return
    places = [place for place, found_there in _PLACES.items() if found_there & states]
    rare = " UNION ALL ".join(f"SELECT n FROM execution WHERE {place}" for place in places)
    owners = [owner] * len(places)
    (count,) = tx.execute(f"SELECT count(*) FROM ({rare} LIMIT {FEW})", owners).fetchone()
    if count < FEW:
        found.read_by(None)
        found.add(f"n IN ({rare})", *owners)


_DUE: Final = """
SELECT count(*), min(run_at) FROM (
  SELECT run_at FROM execution
   WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ?{} LIMIT ?)
"""
_LATER: Final = """
SELECT state, count(*) FROM (
  SELECT state FROM execution
   WHERE state <= 3 AND lane = ? AND priority = ? AND run_at > ?{} LIMIT ?)
 GROUP BY state
"""


class Pending:
    """Claimable executions of a lane, now or later, by state; of some states there may be more."""

    def __init__(self) -> None:
        self.numbers = Counter[State]()
        self.more = set[State]()
        self.oldest: Instant | None = None


def count_pending(
    tx: Transaction, owner: int, most: int, *, nodes: bool = True
) -> dict[int, Pending]:
    """Count claimable executions, by lane. Reads up to a bound of each lane and priority."""
    found: dict[int, Pending] = {}
    more = "" if nodes else " AND node IS NULL"
    for (lane,) in tx.execute("SELECT n FROM lane WHERE tenant = ?", (owner,)).fetchall():
        pending = Pending()
        for priority in PRIORITIES:
            given = (lane, priority, tx.now, most + 1)
            due, oldest = tx.execute(_DUE.format(more), given).fetchone()
            pending.numbers[State.QUEUED] += min(due, most)
            pending.more |= {State.QUEUED} if due > most else set()
            if oldest is not None:
                pending.oldest = min(oldest, pending.oldest or oldest)
            later = dict(tx.execute(_LATER.format(more), given).fetchall())
            pending.numbers.update({STATES[code]: number for code, number in later.items()})
            if sum(later.values()) > most:
                pending.more |= {State.SCHEDULED, State.RETRYING}
        if pending.numbers.total():
            found[lane] = pending
    return found


_IN_LINE: Final = """
SELECT e.state, e.slot, e.gate, e.priority, e.run_at, l.queue
  FROM execution e JOIN lane l ON l.n = e.lane
 WHERE e.tenant = ? AND e.id = ? AND e.state <= 5
"""
_CAPACITY: Final = "SELECT capacity FROM gate WHERE n = ?"
_INSIDE: Final = (
    "SELECT id FROM execution WHERE slot = 1 AND gate = ? AND id <> ? ORDER BY id LIMIT ?"
)
_LANES: Final = "SELECT n, kind FROM lane WHERE tenant = ? AND queue = ? ORDER BY kind"
_AT_GATE: Final = "state = 4 AND slot = 0 AND gate = ?"
_IN_LANE: Final = "state <= 3 AND lane = ?"
_COUNT_BEFORE: Final = """
SELECT count(*) FROM (SELECT 1 FROM execution WHERE {} AND priority = ? AND {} LIMIT ?)
"""


def get_position(tx: Transaction, tenant: str, id: UUID) -> Position:
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_IN_LINE, (owner, id.bytes)).fetchone()
    if row is None:
        return Position()
    state, slot, gate, priority, run_at, queue = row
    capacity, holders = None, ()
    if gate is not None:
        ((capacity,),) = tx.execute(_CAPACITY, (gate,)).fetchall() or [(None,)]
        found = tx.execute(_INSIDE, (gate, id.bytes, HOLDERS_MAX)).fetchall()
        holders = tuple(UUID(bytes=one) for (one,) in found)
    if state == STATE_CODES[State.RUNNING]:
        return Position(holders=holders, capacity=capacity)
    if state == STATE_CODES[State.WAITING] and slot == 0:
        lines = [(_AT_GATE, gate)]
    else:
        lanes = tx.execute(_LANES, (owner, queue)).fetchall()
        lines = [(_IN_LANE, lane) for lane, _ in lanes]
    counts: list[Total] = []
    for line, number in lines:
        for other in PRIORITIES:
            if other > priority:
                continue
            before, values = "run_at <= ?", [tx.now]
            if other == priority:
                before, values = "(run_at, id) < (?, ?)", [min(run_at, tx.now), id.bytes]
            asked = (number, other, *values, COUNT_ITEMS_MAX + 1)
            (count,) = tx.execute(_COUNT_BEFORE.format(line, before), asked).fetchone()
            counts.append(bounded_total(count))
    return Position(ahead=total_of(counts), holders=holders, capacity=capacity)


def list_backlogs(tx: Transaction, tenant: str, queue: str) -> list[Backlog]:
    owner = tx.names.tenant(tx, tenant)
    found: list[Backlog] = []
    for lane, needs in tx.execute(_LANES, (owner, queue)).fetchall():
        rows = [
            tx.execute(_DUE.format(""), (lane, priority, tx.now, COUNT_ITEMS_MAX + 1)).fetchone()
            for priority in PRIORITIES
        ]
        times = [oldest for _, oldest in rows if oldest is not None]
        if times:
            due = total_of(bounded_total(count) for count, _ in rows)
            found.append(Backlog(needs=needs, due=due, oldest_run_at=min(times)))
    return join_backlogs(found)


_PAUSED: Final = "SELECT name FROM paused_queue WHERE tenant = ?"
_JOBS: Final = "SELECT version FROM job WHERE tenant = ? AND is_deleted = 0"


def list_queues(tx: Transaction, tenant: str) -> list[Queue]:
    owner = tx.names.tenant(tx, tenant)
    paused = {name for (name,) in tx.execute(_PAUSED, (owner,))}
    jobs = tx.execute(_JOBS, (owner,)).fetchall()
    names = paused | {tx.names.version(tx, version).queue for (version,) in jobs}
    found = {name: Pending() for name in names}

    def of(lane: int) -> Pending:
        return found.setdefault(tx.names.lane_row(tx, lane).queue, Pending())

    for lane, pending in count_pending(tx, owner, COUNT_ITEMS_MAX).items():
        one = of(lane)
        one.numbers.update(pending.numbers)
        one.more |= pending.more
        if pending.oldest is not None:
            one.oldest = min(pending.oldest, one.oldest or pending.oldest)
    everywhere = set[State]()
    for state, source in _UNCLAIMABLE.items():
        statement = f"SELECT lane, count(*) FROM ({source}) GROUP BY lane"
        rows = tx.execute(statement, (owner, COUNT_ITEMS_MAX + 1)).fetchall()
        for lane, count in rows:
            of(lane).numbers[state] += count
        everywhere |= {state} if sum(count for _, count in rows) > COUNT_ITEMS_MAX else set()
    return [_queue(name, found[name], everywhere, name in paused) for name in sorted(found)]


def _queue(name: str, found: Pending, everywhere: set[State], is_paused: bool) -> Queue:
    numbers, more = found.numbers, found.more | everywhere
    return Queue(
        name=name,
        is_paused=is_paused,
        queued=numbers[State.QUEUED],
        scheduled=numbers[State.SCHEDULED] + numbers[State.RETRYING],
        retrying=numbers[State.RETRYING],
        running=numbers[State.RUNNING],
        waiting=numbers[State.WAITING],
        oldest_run_at=found.oldest,
        at_least=tuple(number for number in QUEUE_NUMBERS if State(number) in more),
    )
