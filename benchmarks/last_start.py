"""The last start of very many schedules that are due at one moment, end to end: one `daybell
scheduler`, one `daybell worker` and PostgreSQL share the machine.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Final

from benchmarks.engine.idle import command, cpu_seconds
from benchmarks.finding import Finding
from benchmarks.places import Ground, Place
from benchmarks.progress import say
from daybell.core.when import at, every
from daybell.sdk.app import App

COUNT: Final = 100_000
PUT: Final = 10_000
SECONDS_MAX: Final = 5.0
REWIND_SECONDS_MAX: Final = 8.0
SETTLE_SECONDS: Final = 8.0  # from the start of both processes to the moment
WAIT_SECONDS_MAX: Final = 180.0
APP: Final = "benchmarks.last_start:app"


async def nothing() -> None:
    pass


def make_app(url: str | None = None) -> App:
    """Make an app with a task of the default overlap rule, and one with concurrent executions."""
    app = App(url)
    app.task(name="report")(nothing)
    app.task(name="ping", overlap="allow")(nothing)
    return app


app = make_app()  # for `daybell worker`; its URL is in the environment
TASKS: Final = {"report": "default overlap", "ping": "overlap allowed"}


@dataclass(frozen=True)
class Wave:
    """One round: all schedules fired once, and all executions ended."""

    last_start: float  # seconds after the moment
    fired: float  # when the last tick was committed, about
    scheduler: float  # processor seconds
    worker: float
    server: float

    @property
    def detail(self) -> str:
        cpu = f"{self.scheduler:.1f}, {self.worker:.1f}, {self.server:.1f}"
        return f"last tick {self.fired:.1f} s; CPU seconds of scheduler, worker, server: {cpu}"


async def measure(ground: Ground, *, rounds: int, scale: float) -> list[Finding]:
    """For each overlap rule, the seconds from the moment to the last start."""
    count = int(COUNT * scale)
    findings: list[Finding] = []
    for task, rule in TASKS.items():
        place = await ground.place("waves")
        await schedule(place, task, count)
        waves: list[Wave] = []
        for turn in range(rounds + 1):  # the first one is dropped: its tables are cold
            wave = await run_wave(place, count)
            say(f"postgres  {rule}: last start {wave.last_start:.2f} s; {wave.detail}")
            if turn:
                waves.append(wave)
        ground.drop("waves")
        middle = sorted(waves, key=lambda wave: wave.last_start)[len(waves) // 2]
        findings.append(
            Finding(
                "postgres",
                f"last start of {count:,} schedules due at once ({rule})",
                median(wave.last_start for wave in waves),
                "s",
                middle.detail,
                bar=SECONDS_MAX,
            )
        )
    return findings


async def schedule(place: Place, task: str, count: int) -> None:
    """Make so many schedules of one task at run time, all for a day that is far away."""
    own = make_app(place.database_url)
    await own.open()
    try:
        when = at(datetime(2100, 1, 1, tzinfo=UTC))
        for start in range(0, count, PUT):
            numbers = range(start, min(count, start + PUT))
            await own.schedules.put_many(
                {"job": own.tasks[task], "when": when, "name": f"customer-{n}"} for n in numbers
            )
    finally:
        await own.close()


async def run_wave(place: Place, count: int) -> Wave:
    """Let all schedules be due at one moment, and wait until their executions have ended."""
    moment = float(int(time.time() + REWIND_SECONDS_MAX + SETTLE_SECONDS))
    await rewind(place, moment)
    with command(place, "worker", APP) as worker, command(place, "scheduler") as scheduler:
        await asyncio.sleep(moment - 1.0 - time.time())
        assert time.time() < moment - 0.5, "the moment came too early"
        server = place.server_cpu()
        cpu = cpu_seconds(scheduler.pid), cpu_seconds(worker.pid)
        await asyncio.sleep(moment + 2.0 - time.time())
        await until_ended(place, count, moment)
        used = place.server_cpu().since(server)
        return Wave(
            last_start=await place.ask("SELECT max(started_at) FROM history") - moment,
            fired=await place.ask("SELECT max(moved_at) FROM schedule") - moment,
            scheduler=cpu_seconds(scheduler.pid) - cpu[0],
            worker=cpu_seconds(worker.pid) - cpu[1],
            server=used,
        )


async def rewind(place: Place, moment: float) -> None:
    """Reset to the time before the first tick, with all schedules due at the moment."""
    await place.run(
        "TRUNCATE daybell.live, daybell.agenda, daybell.lease, daybell.history, daybell.tick",
        f"""UPDATE daybell.schedule SET rule = '{every("1d", anchor=moment).to_json()}',
                   next_at = {moment}, moved_at = NULL, last_at = NULL, succeeded_for = NULL,
                   fired = 0""",
        "VACUUM (FULL, ANALYZE) daybell.schedule",
        "VACUUM (FULL, ANALYZE) daybell.gate",
        "VACUUM (ANALYZE) daybell.live",
        "CHECKPOINT",
    )


async def until_ended(place: Place, count: int, moment: float) -> None:
    while await place.ask("SELECT count(*) FROM history") < count:
        assert time.time() < moment + WAIT_SECONDS_MAX, "not all executions have ended"
        await asyncio.sleep(1.0)
    ticks = await place.ask("SELECT count(*) FROM tick")
    starts = await place.ask("SELECT count(DISTINCT schedule) FROM history WHERE state = 6")
    assert (ticks, starts) == (count, count), f"{ticks} ticks, {starts} schedules ran"
