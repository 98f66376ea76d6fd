"""Size: the bytes of an execution on disk and in the log, and the memory of a bulk load."""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.executions import TENANT, prepared, sliced, stream
from benchmarks.finding import Finding
from benchmarks.loops import run
from benchmarks.places import Ground, Kind, Place, open_ground
from benchmarks.progress import say
from benchmarks.sides import StoreSide
from tests.stores import connect

LIVES: Final = 50_000
SINGLE_LIVES: Final = 1_000
ENQUEUE_BATCH: Final = 1_000
CLAIM_BATCH: Final = 500
BULK: Final = 1_000_000
MEMORY_MB_MAX: Final = 200.0


async def measure(kind: Kind, *, scale: float) -> list[Finding]:
    """All sizes of one kind of store."""
    with open_ground(kind) as ground:
        place = await ground.place("size")
        count = int(LIVES * scale)
        measure_lives = postgres_lives if kind == "postgres" else sqlite_lives
        findings = await measure_lives(place, count)
        for finding in findings:
            say(finding.line)
        findings.append(await memory(ground, kind, int(BULK * scale)))
        say(findings[-1].line)
    return findings


async def enqueue(side: StoreSide, count: int, *, batch: int) -> None:
    for some in sliced(prepared(count), batch):
        await side.enqueue(some)


async def drain(side: StoreSide, *, batch: int) -> None:
    while await side.cycle(batch):
        pass


def bytes_of(kind: Kind, what: str, value: float, detail: str) -> Finding:
    return Finding(kind, f"bytes per execution, {what}", value, "B", detail)


class Pages(NamedTuple):
    """Bytes of tables and of their indexes."""

    heap: int
    index: int


async def postgres_lives(place: Place, count: int) -> list[Finding]:
    side = StoreSide("postgres", place.url)
    await side.open()
    # The first change of a page after a checkpoint logs all of it; a small share of all pages.
    await place.run("CHECKPOINT", "SELECT 1")
    log = [await wal_position(place)]
    await enqueue(side, count, batch=ENQUEUE_BATCH)
    log.append(await wal_position(place))
    queued = await pages(place, "live|agenda")
    await drain(side, batch=CLAIM_BATCH)
    log.append(await wal_position(place))
    history = await pages(place, "history")
    for some in sliced(prepared(int(SINGLE_LIVES)), 1):
        await side.enqueue(some)
        await side.cycle(1)
    log.append(await wal_position(place))
    await side.close()
    made, ended, single = (after - before for before, after in pairwise(log))
    return [
        bytes_of("postgres", "queued, on disk", sum(queued) / count, share(queued, count)),
        bytes_of("postgres", "in history, on disk", sum(history) / count, share(history, count)),
        bytes_of(
            "postgres",
            "log of a lifecycle in batches",
            (made + ended) / count,
            f"enqueue {made / count:,.0f} in batches of {ENQUEUE_BATCH:,},"
            f" claim and finish {ended / count:,.0f} in batches of {CLAIM_BATCH}",
        ),
        bytes_of(
            "postgres", "log of a lifecycle alone", single / SINGLE_LIVES, "everything in ones"
        ),
    ]


async def wal_position(place: Place) -> int:
    return int(await place.run("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


async def pages(place: Place, tables: str) -> Pages:
    """Return the bytes of tables with this prefix, with their partitions."""
    sums = (
        f"SELECT coalesce(sum(pg_{what}_size(oid)), 0)::bigint FROM pg_class"
        f" WHERE relnamespace = 'daybell'::regnamespace AND relkind = 'r'"
        f" AND relname ~ '^({tables})'"
        for what in ("table", "indexes")
    )
    return Pages(*[await place.run(statement) for statement in sums])


def share(taken: Pages, count: int) -> str:
    return f"tables {taken.heap / count:,.0f}, indexes {taken.index / count:,.0f}"


async def sqlite_lives(place: Place, count: int) -> list[Finding]:
    side = StoreSide("sqlite", place.url)
    await side.open()
    empty = file_size(place)
    made = await logged(place, enqueue(side, count, batch=ENQUEUE_BATCH))
    queued = file_size(place) - empty
    ended = await logged(place, drain(side, batch=CLAIM_BATCH))
    kept = file_size(place) - empty

    async def singles() -> None:
        for some in sliced(prepared(SINGLE_LIVES), 1):
            await side.enqueue(some)
            await side.cycle(1)

    single = await logged(place, singles())
    await side.close()
    return [
        bytes_of("sqlite", "queued, on disk", queued / count, "table and indexes in one file"),
        bytes_of("sqlite", "finished, on disk", kept / count, "table and indexes in one file"),
        bytes_of(
            "sqlite",
            "log of a lifecycle in batches",
            (made + ended) / count,
            f"enqueue {made / count:,.0f} in batches of {ENQUEUE_BATCH:,},"
            f" claim and finish {ended / count:,.0f} in batches of {CLAIM_BATCH}",
        ),
        bytes_of("sqlite", "log of a lifecycle alone", single / SINGLE_LIVES, "everything in ones"),
    ]


async def logged(place: Place, work: Any) -> int:
    """Return the bytes that some work writes to the log. An open reader keeps the log from starting
    over, so that its length is the sum of all writes.
    """
    file_size(place)  # empties the log
    with closing(sqlite3.connect(place.url, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tenant").fetchone()
        before = size_of(f"{place.url}-wal")
        await work
        return size_of(f"{place.url}-wal") - before


def file_size(place: Place) -> int:
    """Return the bytes of the file, with the log written into it."""
    with closing(sqlite3.connect(place.url, timeout=60)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return size_of(place.url)


def size_of(file: str) -> int:
    return Path(file).stat().st_size


async def memory(ground: Ground, kind: Kind, count: int) -> Finding:
    """Return the growth of a process that loads a million executions from a generator."""
    place = await ground.place("bulk")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=load, args=(theirs, kind, place.url, count), daemon=True)
    process.start()
    theirs.close()
    grown, peak, seconds = ours.recv()
    process.join()
    ground.drop("bulk")
    return Finding(
        kind,
        f"memory that loading {count:,} takes",
        grown,
        "MB",
        f"peak {peak:,.0f} MB; {count / seconds:,.0f}/s with the making of the executions",
        MEMORY_MB_MAX,
    )


def load(line: Connection, kind: Kind, url: str, count: int) -> None:
    line.send(run(loaded(kind, url, count)))


async def loaded(kind: Kind, url: str, count: int) -> tuple[float, float, float]:
    store = connect(kind, url)
    await store.open()
    before = resident_mb("VmRSS")
    started_at = time.perf_counter()
    assert await store.queue.load(TENANT, stream(count)) == count
    seconds = time.perf_counter() - started_at
    peak = resident_mb("VmHWM")
    await store.close()
    return peak - before, peak, seconds


def resident_mb(field: str) -> float:
    """Return the memory of this process in MB. Not ru_maxrss: it is inherited from the parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    raise LookupError(field)
