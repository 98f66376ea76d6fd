"""The language of schedules: the time to find the next tick, beside cronsim and croniter.

Each library computes the same times, one after the other from the same moment, in turns. Zone
changes are known from the first round on, which is not counted. Processor time is measured, because
nothing here waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from itertools import islice
from statistics import median
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from benchmarks.finding import Finding
from benchmarks.progress import say
from daybell.core.when import Schedule, cron
from daybell.core.when.calendar import public_holidays
from daybell.errors import UsageError
from tests.core.when.hostile import HOSTILE

COMMON: Final = ("*/5 * * * *", "0 3 * * *", "0 9 * * mon-fri", "0 0 L * *", "0 0 29 2 *")
ZONES: Final = ("UTC", "Europe/Berlin")
START: Final = datetime(2026, 11, 15, 12, 34, tzinfo=UTC)
TIMES: Final = 10
REPEATS: Final = 40
BARS: Final = {"cronsim": 1.0, "croniter": 5.0}  # they take so many times as long, or more

Ask = Callable[[], list[float]]


def measure(*, rounds: int, scale: float) -> list[Finding]:
    """For each expression and zone, the microseconds of a call and the ratios to the others."""
    findings: list[Finding] = []
    for zone in ZONES:
        for expression in COMMON:
            say(f"language: {expression} in {zone}")
            findings += compare(
                expression, zone, rounds=rounds, repeats=max(2, int(REPEATS * scale))
            )
    return [*findings, worst_of_hostile()]


def worst_of_hostile() -> Finding:
    """Return the largest time to read, search or describe any of the hostile schedules."""
    public_holidays("DE", None, 2026)  # the package is loaded once in a process
    spent: dict[str, float] = {}
    for given in HOSTILE:
        say(f"language: {str(given)[:60]}")
        spent[str(given)[:60]] = min(hostile_seconds(given) for _ in range(3))
    slowest = max(spent, key=spent.__getitem__)
    return Finding(
        "any",
        "read, ask and describe the worst of the hostile schedules",
        spent[slowest] * 1000,
        "ms",
        f"of {len(spent)}; it is {slowest}",
        bar=10,
    )


def hostile_seconds(given: object) -> float:
    began = time.process_time()
    with suppress(UsageError):
        Schedule.parse(given, now=START.timestamp()).describe()
    return time.process_time() - began


def compare(expression: str, zone: str, *, rounds: int, repeats: int) -> list[Finding]:
    moment = START.astimezone(UTC if zone == "UTC" else ZoneInfo(zone))
    asks = {
        "daybell": ask_daybell(expression, moment, zone),
        "cronsim": ask_cronsim(expression, moment),
        "croniter": ask_croniter(expression, moment),
    }
    answers = {name: ask() for name, ask in asks.items()}
    assert len({tuple(found) for found in answers.values()}) == 1, answers
    spent: dict[str, list[float]] = {name: [] for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            began = time.process_time()
            for _ in range(repeats):
                ask()
            spent[name].append((time.process_time() - began) / repeats / TIMES)
    detail = ", ".join(f"{name} {median(took) * 1e6:.1f} us" for name, took in spent.items())
    return [
        Finding.at_least(
            zone,
            f"next time of {expression}, {name} to ours",
            median(theirs / own for theirs, own in zip(spent[name], spent["daybell"], strict=True)),
            bar,
            detail,
        )
        for name, bar in BARS.items()
    ]


# Parsing is not part of it: each library parses once, and is then reset to the start.


def ask_daybell(expression: str, moment: datetime, zone: str) -> Ask:
    schedule = cron(expression, tz=zone)
    return lambda: list(islice(schedule.ticks(moment.timestamp()), TIMES))


def ask_cronsim(expression: str, moment: datetime) -> Ask:
    read = CronSim(expression, moment)
    return lambda: [one.timestamp() for one in islice(copy(read), TIMES)]


def ask_croniter(expression: str, moment: datetime) -> Ask:
    read = croniter(expression, moment)

    def ask() -> list[float]:
        read.set_current(moment, force=True)
        return [read.get_next(float) for _ in range(TIMES)]

    return ask
