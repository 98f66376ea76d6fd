"""From rows to what the domain calls them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from sqlite3 import sqlite_version_info
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from daybell.core.execution import LEFT_OUT, Claimed, Execution, reason_in
from daybell.core.instant import Instant
from daybell.core.limits import LIST_VALUE_BYTES_MAX
from daybell.store.codes import OUTCOMES, PRIORITIES, STATES
from daybell.store.sqlite.names import Transaction

Row: TypeAlias = tuple[Any, ...]

_UUIDS: Final = list[UUID]


def uuids(values: list[bytes]) -> list[UUID]:
    """Ids from their bytes, ten times as fast as UUID(bytes=…) one by one."""
    return msgspec.convert(values, _UUIDS)


@lru_cache(maxsize=256)
def parent_id(value: bytes) -> UUID:
    """What many executions have in common: the nodes of a run."""
    return UUID(bytes=value)


def uuid_or_none(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


# What `claimed` reads: n first, for whoever has to write the row, then id. Only what comes from a
# schedule pays for looking at it; a node runs for the tick of its run.
CLAIMED_COLUMNS: Final = """
n, id, attempt, version, lane, priority, args, failures, crashes, created_at, run_at, expires_at,
scheduled_for, retries, timeout, checkpoint, gate, cancel_requested_at, schedule,
CASE WHEN schedule IS NOT NULL
     THEN (SELECT s.succeeded_for FROM schedule s
            WHERE s.tenant = execution.tenant AND s.id = execution.schedule)
     WHEN node IS NOT NULL AND scheduled_for IS NOT NULL
     THEN (SELECT s.succeeded_for FROM execution r CROSS JOIN schedule s
            WHERE r.tenant = execution.tenant AND r.id = execution.parent
              AND s.tenant = r.tenant AND s.id = r.schedule)
END,
node, parent
"""


def claimed(
    tx: Transaction, tenant: str, leases: Sequence[UUID], rows: Sequence[Row]
) -> list[Claimed]:
    """Executions in a worker's hands, each with its lease."""
    ids = uuids([row[1] for row in rows])
    return [
        a_claimed(tx, tenant, id, lease, row)
        for id, lease, row in zip(ids, leases, rows, strict=True)
    ]


def a_claimed(tx: Transaction, tenant: str, id: UUID, lease: UUID, row: Row) -> Claimed:
    names = tx.names
    version, lane = names.version(tx, row[3]), names.lane_row(tx, row[4])
    gate, schedule, node, parent = row[16], row[18], row[20], row[21]
    return Claimed(
        id=id,
        attempt=row[2],
        lease=lease,
        tenant=tenant,
        job=version.name,
        version=version.version,
        kind=version.needs if node is None else lane.needs,
        queue=lane.queue,
        priority=PRIORITIES[row[5]],
        args=row[6],
        failures=row[7],
        crashes=row[8],
        created_at=row[9],
        run_at=row[10],
        expires_at=row[11],
        scheduled_for=row[12],
        retries=row[13],
        timeout=row[14],
        checkpoint=row[15],
        gate=None if gate is None else names.gate_name(tx, gate),
        cancel_requested=row[17] is not None,
        schedule=None if schedule is None else UUID(bytes=schedule),
        previous_success=row[19],
        node=node,
        parent=None if parent is None else parent_id(parent),
    )


EXECUTION_COLUMNS: Final = """
id, version, state, lane, priority, args, attempt, failures, crashes, created_at, run_at,
scheduled_for, expires_at, started_at, finished_at, worker, unique_key, retries, timeout, gate,
schedule, parent, outcome, result, error, reason, progress, note, checkpoint, cancel_requested_at,
is_discarded, node
"""
# SQLite knows the size of a text without reading it since 3.43.
_SIZE: Final = "octet_length({})" if sqlite_version_info >= (3, 43) else "length(CAST({} AS BLOB))"


def short(column: str, left_out: str = "NULL") -> str:
    """A column of a list: large values are left out."""
    size = _SIZE.format(column)
    return f"CASE WHEN {size} > {LIST_VALUE_BYTES_MAX} THEN {left_out} ELSE {column} END"


_CUT: Final = {
    "args": short("args", f"'{LEFT_OUT}'"),
    "result": short("result"),
    "checkpoint": short("checkpoint"),
}
# What `execution` reads in a list.
LIST_COLUMNS: Final = ", ".join(
    [
        *(
            _CUT.get(name, name)
            for name in EXECUTION_COLUMNS.replace("\n", " ").strip().split(", ")
        ),
        " OR ".join(f"{_SIZE.format(name)} > {LIST_VALUE_BYTES_MAX}" for name in _CUT),
    ]
)


def shown_state(state: int, run_at: Instant, now: Instant) -> int:
    """The state as people see it: what waits only for its time is queued once that has come."""
    return 1 if state in (2, 3) and run_at <= now else state


def execution(tx: Transaction, tenant: str, row: Row) -> Execution:
    """An execution as people see it."""
    version = tx.names.version(tx, row[1])
    state = STATES[shown_state(row[2], row[10], tx.now)]
    return Execution(
        id=UUID(bytes=row[0]),
        tenant=tenant,
        job=version.name,
        version=version.version,
        state=state,
        queue=tx.names.lane_row(tx, row[3]).queue,
        priority=PRIORITIES[row[4]],
        args=row[5],
        attempt=row[6],
        failures=row[7],
        crashes=row[8],
        created_at=row[9],
        run_at=row[10],
        scheduled_for=row[11],
        expires_at=row[12],
        started_at=row[13],
        finished_at=row[14],
        worker=uuid_or_none(row[15]),
        unique_key=row[16],
        retries=row[17],
        timeout=row[18],
        gate=tx.names.gate_name(tx, row[19]),
        schedule=uuid_or_none(row[20]),
        parent=uuid_or_none(row[21]),
        outcome=None if row[22] is None else OUTCOMES[row[22]],
        result=row[23],
        error=row[24],
        reason=reason_in(state, row[25]),
        progress=row[26],
        note=row[27],
        checkpoint=row[28],
        cancel_requested_at=row[29],
        is_discarded=bool(row[30]),
        node=row[31],
        truncated=len(row) > 32 and bool(row[32]),
    )
