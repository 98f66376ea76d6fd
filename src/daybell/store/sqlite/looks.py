"""How jobs stand: a few statements for a page of them, however many executions they have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from daybell.core.execution import LEFT_OUT, Execution, State
from daybell.core.schedule import Schedule
from daybell.core.standing import LOOKED_AT_MAX, Look
from daybell.store.codes import STATES
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.rows import LIST_COLUMNS, execution, short
from daybell.store.sqlite.schedules import SCHEDULE_SQL, read_schedule

FEW: Final = 20_000

_JOBS: Final = """
SELECT n, name FROM job WHERE tenant = ? AND name IN (SELECT value FROM json_each(?))
"""


def look_at_jobs(tx: Transaction, tenant: str, names: Sequence[str]) -> dict[str, Look]:
    owner = tx.names.tenant(tx, tenant)
    jobs = dict(tx.execute(_JOBS, (owner, json.dumps(list(names)))).fetchall())
    keys = json.dumps(list(jobs))
    unfinished = unfinished_states(tx, jobs, keys)
    last = last_executions(tx, tenant, keys)
    schedules = schedules_of(tx, keys)
    return {
        name: Look(
            unfinished=frozenset(unfinished.get(n, ())),
            last=last.get(n),
            schedules=tuple(schedules.get(name, ())),
        )
        for n, name in jobs.items()
    }


_JOB_IDS: Final = """
SELECT name, id FROM job WHERE tenant = ? AND name IN (SELECT value FROM json_each(?))
"""


def job_ids(tx: Transaction, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
    wanted = (tx.names.tenant(tx, tenant), json.dumps(list(names)))
    return {name: UUID(bytes=id) for name, id in tx.execute(_JOB_IDS, wanted)}


_SHOWN: Final = "CASE WHEN state IN (2, 3) AND run_at <= ? THEN 1 ELSE state END"
# Each of these conditions has an index of its own.
_UNFINISHED: Final = " UNION ALL ".join(
    f"SELECT n FROM execution WHERE {place} AND node IS NULL"
    for place in ("state <= 3", "state = 4", "state = 5")
)
_COUNT: Final = f"SELECT count(*) FROM ({_UNFINISHED} LIMIT {FEW})"
_ALL_STATES: Final = f"""
SELECT DISTINCT job, {_SHOWN} FROM execution
 WHERE n IN ({_UNFINISHED}) AND job IN (SELECT value FROM json_each(?))
"""
_RUNNING: Final = """
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
    """The states of unfinished executions, by job. Where there are very many, the newest of each
    job speak for all; those that run are few, and all of them are seen.
    """
    found: dict[int, set[State]] = {}
    (count,) = tx.execute(_COUNT).fetchone()
    if count < FEW:
        rows = tx.execute(_ALL_STATES, (tx.now, keys)).fetchall()
    else:
        rows = tx.execute(_RUNNING, (keys,)).fetchall()
        for job in jobs:
            rows += tx.execute(_NEWEST_STATES, (tx.now, job)).fetchall()
    for job, state in rows:
        found.setdefault(job, set()).add(STATES[state])
    return found


_LAST: Final = f"""
SELECT job, {LIST_COLUMNS} FROM execution WHERE n IN (
    SELECT (SELECT e.n FROM execution e WHERE e.job = k.value AND e.node IS NULL
             ORDER BY e.id DESC LIMIT 1)
      FROM json_each(?) k)
"""


def last_executions(tx: Transaction, tenant: str, keys: str) -> dict[int, Execution]:
    """The newest execution of each job; ids are made in the order of time."""
    rows = tx.execute(_LAST, (keys,)).fetchall()
    return {row[0]: execution(tx, tenant, row[1:]) for row in rows}


_LIST_ARGS: Final = short("s.args", f"'{LEFT_OUT}'")
_SCHEDULES: Final = f"""
{SCHEDULE_SQL.replace("s.args", _LIST_ARGS)}
 WHERE s.job IN (SELECT value FROM json_each(?)) ORDER BY s.id
"""


def schedules_of(tx: Transaction, keys: str) -> dict[str, list[Schedule]]:
    """The schedules of several jobs, by job."""
    found: dict[str, list[Schedule]] = {}
    for row in tx.execute(_SCHEDULES, (keys,)).fetchall():
        one = read_schedule(tx, row)
        found.setdefault(one.job, []).append(one)
    return found
