"""Growth: the speed of a claim with a large backlog, future or history.

Two states that are compared have a database each and are measured in turns.
"""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from statistics import median
from typing import Final

import asyncpg

from benchmarks.claimers import Crew
from benchmarks.executions import TENANT, prepared, stream
from benchmarks.finding import Finding
from benchmarks.places import Ground, Kind, Place, open_ground
from benchmarks.progress import say
from benchmarks.sides import StoreSide

MILLION: Final = 1_000_000
FEW: Final = 10_000
CLAIM: Final = 100
CLAIMS: Final = 41
WARM_CLAIMS: Final = 8
DRAIN: Final = 500_000
DRAIN_BATCH: Final = 500
DRAIN_CLAIMERS: Final = 2
SLICES: Final = 10
PASSING: Final = 200_000
WAVE: Final = 1_000  # executions that are queued at a time while a snapshot is held
FUTURE_SECONDS: Final = 86_400.0


async def measure(kind: Kind, *, scale: float) -> list[Finding]:
    """Measure all promises of one kind of store."""
    with open_ground(kind) as ground:
        findings = [await backlog(ground, kind, scale), await future(ground, kind, scale)]
        if kind == "postgres":
            findings.append(await drain(ground, scale))
            findings += await held_snapshot(ground, scale)
    return findings


async def backlog(ground: Ground, kind: Kind, scale: float) -> Finding:
    """A claim of 100 with a million queued, and with ten thousand."""
    many = int(MILLION * scale)
    few, much = await ground.place("few"), await ground.place("many")
    await quieten(few, much)
    seconds = [await fill(few, FEW), await fill(much, many)]
    say(f"{kind:9} loaded {many:,} in {seconds[1]:.1f} s ({many / seconds[1]:,.0f}/s)")
    short, long = await alternate(few, much, expect=CLAIM)
    ground.drop("few")
    ground.drop("many")
    return found(
        Finding.at_most(
            kind, f"claim of {CLAIM}: {many:,} queued against {FEW:,}", long / short, 2.0,
            f"{long * 1e3:.2f} ms against {short * 1e3:.2f} ms, medians of {CLAIMS}",
        )
    )  # fmt: skip


async def future(ground: Ground, kind: Kind, scale: float) -> Finding:
    """A claim that finds nothing, with a million executions whose time has not come, and with
    none at all."""
    many = int(MILLION * scale)
    none, later = await ground.place("none"), await ground.place("later")
    await quieten(none, later)
    await fill(later, many, delay=FUTURE_SECONDS)
    short, long = await alternate(none, later, expect=0)
    ground.drop("none")
    ground.drop("later")
    return found(
        Finding.at_most(
            kind, f"claim that finds nothing: {many:,} in the future against none",
            long / short, 2.0,
            f"{long * 1e3:.2f} ms against {short * 1e3:.2f} ms, medians of {CLAIMS}",
        )
    )  # fmt: skip


async def drain(ground: Ground, scale: float) -> Finding:
    """Drain right after a load, before any vacuum or analyze, and after them.

    In slices, taken in turns: the two drains see the same minutes of the machine.
    """
    count = int(DRAIN * scale)
    names = ("analyzed", "fresh")
    places = {name: await ground.place(name) for name in names}
    await quieten(*places.values())
    for name in names:
        await fill(places[name], count + DRAIN_BATCH * SLICES)
        if name == "analyzed":
            await places[name].run("VACUUM (ANALYZE)")
    done, seconds = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    with ExitStack() as stack:
        crews = {
            n: stack.enter_context(Crew(p, "store", DRAIN_CLAIMERS)) for n, p in places.items()
        }
        for _ in range(SLICES):
            for name, crew in crews.items():
                quota = count / SLICES / DRAIN_CLAIMERS
                drained = crew.drain(DRAIN_CLAIMERS, DRAIN_BATCH, quota=quota)
                done[name] += drained.done
                seconds[name] += drained.seconds
    assert min(done.values()) >= count, f"{done} instead of {count} each"
    fresh, analyzed = (done[name] / seconds[name] for name in ("fresh", "analyzed"))
    for name in names:
        ground.drop(name)
    return found(
        Finding.at_least(
            "postgres", f"drain of {count:,} just loaded, against after VACUUM ANALYZE",
            fresh / analyzed, 0.8,
            f"{fresh:,.0f}/s against {analyzed:,.0f}/s, {DRAIN_CLAIMERS} claimers,"
            f" batches of {DRAIN_BATCH}, autovacuum off",
        )
    )  # fmt: skip


async def held_snapshot(ground: Ground, scale: float) -> list[Finding]:
    """Measure with a snapshot of another session: no dead row can be removed.

    Once with a backlog, so that every claim is full; once with workers that keep up, so that every
    claim returns less than its limit.
    """
    count = int(PASSING * scale)
    findings = list[Finding]()
    for name, limit, how in (
        ("backlog", CLAIM, "with a backlog"),
        ("keeping_up", 2 * CLAIM, "by workers that keep up"),
    ):
        place = await ground.place(name)
        reader = await asyncpg.connect(place.url)
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await reader.fetch("SELECT count(*) FROM daybell.live")
        claims = await pass_through(place, count, limit=limit)
        await reader.close()
        part = len(claims) // 10
        first, last = median(claims[:part]), median(claims[-part:])
        findings.append(
            found(
                Finding.at_most(
                    "postgres", f"claim under a held snapshot after {count:,} passed, {how}",
                    last / first, 3.0,
                    f"{last * 1e3:.2f} ms against {first * 1e3:.2f} ms,"
                    f" medians of {part}; slowest {max(claims) * 1e3:.0f} ms",
                )
            )
        )  # fmt: skip
        ground.drop(name)
    return findings


async def pass_through(place: Place, count: int, *, limit: int) -> list[float]:
    """Enqueue, claim and finish so many; return the seconds of each claim that found something.

    A full claim leaves some for the next. A claim for more than there is never does.
    """
    side = StoreSide("postgres", place.url)
    await side.open()
    seconds: list[float] = []
    wave = WAVE if limit == CLAIM else CLAIM
    for number in range(0, count, wave):
        await side.enqueue(prepared(wave))
        for _ in range(wave // CLAIM):
            started_at = time.perf_counter()
            claimed = await side.claim(limit)
            seconds.append(time.perf_counter() - started_at)
            assert len(claimed) == CLAIM, f"{len(claimed)} instead of {CLAIM} at {number}"
            await side.finish(claimed)
    await side.close()
    return seconds[WARM_CLAIMS:]


async def fill(place: Place, count: int, **options: float) -> float:
    """Load so many; return the seconds."""
    store = place.store()
    await store.open()
    started_at = time.perf_counter()
    await store.queue.load(TENANT, stream(count, **options))
    seconds = time.perf_counter() - started_at
    await store.close()
    return seconds


async def alternate(first: Place, second: Place, *, expect: int) -> tuple[float, float]:
    """Claim from the two in turns; return the median seconds of each."""
    sides = [StoreSide(place.kind, place.url) for place in (first, second)]
    seconds: list[list[float]] = [[], []]
    for side in sides:
        await side.open()
    gc.collect()
    for _ in range(WARM_CLAIMS + CLAIMS):
        for side, taken in zip(sides, seconds, strict=True):
            started_at = time.perf_counter()
            claimed = await side.claim(CLAIM)
            taken.append(time.perf_counter() - started_at)
            assert len(claimed) == expect, f"{len(claimed)} instead of {expect}"
    for side in sides:
        await side.close()
    short, long = (median(taken[WARM_CLAIMS:]) for taken in seconds)
    return short, long


async def quieten(*places: Place) -> None:
    """Switch autovacuum off: it would disturb one side, and help the planner."""
    for place in places:
        if place.kind == "postgres":
            await place.run(
                *(
                    f"ALTER TABLE daybell.{table} SET (autovacuum_enabled = off)"
                    for table in ("live", "agenda", "lease")
                ),
                "SELECT count(*) FROM (SELECT FROM daybell.live LIMIT 1) live",
            )


def found(finding: Finding) -> Finding:
    say(finding.line)
    return finding
