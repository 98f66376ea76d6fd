"""In: executions are created, one by one or very many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from daybell.core.audit import NewEntry
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.limits import ARGS_BYTES_MAX, ENQUEUE_BATCH_MAX
from daybell.core.overlap import Overlap
from daybell.errors import DuplicateKey
from daybell.store import checks
from daybell.store.sqlite.bulk import ROWS_MAX, Bulk
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.creation import Creation, insert
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.quotas import Meter
from daybell.store.sqlite.recorded import record

LOAD_CHUNK: Final = 4 * ROWS_MAX


class SqliteEnqueue(Part):
    """The first half of `protocol.Executions`."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewEntry] = (),
    ) -> list[Enqueued]:
        # Finished ids are recognised anyway: they are in the same table.
        del repeat
        for entry in entries:
            checks.check_entry(entry)

        def operation(tx: Transaction) -> list[Enqueued]:
            owner = tx.names.tenant(tx, tenant)
            if len(executions) > ENQUEUE_BATCH_MAX:
                checks.check_batch(executions)
            meter = Meter(tx, owner)
            answers = create(tx, owner, executions)
            meter.charge(tenant)
            if entries:
                record(tx, tenant, entries)
            return answers

        return await self._write(operation)

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        """See the protocol. The iterable is read by the store's thread, not by the event loop.

        Everybody else who wants to write waits until it is done, in other processes too: those
        give up after a minute. Split what takes longer.
        """
        return await self._write(lambda tx: load(tx, tenant, executions), is_alone=True)


# Nothing but uniqueness is forgiven: an `INSERT OR IGNORE` would swallow a NULL as well.
_PLAIN: Final = Bulk(
    """
INSERT INTO execution
       (tenant, id, job, version, lane, priority, state, created_at, run_at, args)
VALUES""",
    "(?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
    "ON CONFLICT DO NOTHING",
)


def create(tx: Transaction, owner: int, executions: Sequence[NewExecution]) -> list[Enqueued]:
    """Create these executions, and answer for each."""
    plain, others = sort_out(tx, owner, executions, checks.check_execution)
    # Without a unique key only an id that exists is not created, and is answered as created.
    _PLAIN.run(tx, plain)
    if not others:
        return [Enqueued(new.id) for new in executions]
    creation = Creation(tx, owner)
    creation.find_gates(others)
    for new in others:
        creation.add(new)
    answers = creation.finish()
    minded = creation.minded
    return [answers.get(new.id) or Enqueued(new.id, at_gate=new.id in minded) for new in executions]


def sort_out(
    tx: Transaction,
    owner: int,
    executions: Sequence[NewExecution],
    check: Callable[[NewExecution, int], None],
    first: int = 0,
) -> tuple[list[Any], list[NewExecution]]:
    """The rows of plain executions, one after another, and the executions that are not plain.

    This runs for every execution there is, hence its form: what is plainly in order is told by a
    few comparisons, and only the rest is checked. `first` is the position of the first one.
    """
    plain: list[Any] = []
    others: list[NewExecution] = []
    now = tx.now
    known: dict[tuple[str, str | None], tuple[int, int, int, int]] = {}
    for position, new in enumerate(executions, first):
        args, way = new.args, known.get((new.job, new.queue))
        if way is None:
            check(new, position)
            way = known[new.job, new.queue] = find_way(tx, owner, new)
        job, version, lane, priority = way
        if (
            job
            and new.is_plain
            and len(args) <= ARGS_BYTES_MAX
            and args.isascii()
            and "\0" not in args
        ):
            if new.priority is not None:
                priority = int(new.priority)
            plain += (owner, new.id.bytes, job, version, lane, priority, now, now, args)
        else:
            check(new, position)
            others.append(new)
    return plain, others


def find_way(tx: Transaction, owner: int, new: NewExecution) -> tuple[int, int, int, int]:
    """The job, version, lane and priority of a plain execution; job 0 if it cannot be plain."""
    job = tx.names.current(tx, owner, new.job)
    lane = tx.names.lane(tx, owner, new.queue or job.queue, job.needs)
    is_plain = job.expires is None and job.overlap is Overlap.ALLOW
    return job.job if is_plain else 0, job.n, lane, job.priority


def load(tx: Transaction, tenant: str, executions: Iterable[NewExecution]) -> int:
    """Create very many, a chunk in memory at a time."""
    owner = tx.names.tenant(tx, tenant)
    meter = Meter(tx, owner)
    rest = iter(executions)
    count = 0

    def check(new: NewExecution, position: int) -> None:
        rule = tx.names.current(tx, owner, new.job).rule(new)
        checks.check_loadable(new, position, overlap=rule)

    while chunk := list(islice(rest, LOAD_CHUNK)):
        plain, others = sort_out(tx, owner, chunk, check, count)
        created = _PLAIN.run(tx, plain) + insert(tx, owner, others)
        if created < len(chunk):
            raise DuplicateKey(
                f"an id among executions[{count}] to [{count + len(chunk) - 1}] exists;"
                " an earlier load with it was committed"
            )
        count += created
    meter.charge(tenant)
    return count
