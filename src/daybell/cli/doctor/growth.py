"""Checks of `daybell doctor` on the growth of the store, and on repeated exports."""

from __future__ import annotations

import os
import shutil
from typing import Final

from daybell.cli.apps import tenant_names
from daybell.core.execution import TERMINAL
from daybell.core.monitoring.exports import EXPORTS
from daybell.core.monitoring.stats import HOUR, StatQuery, total_of
from daybell.core.units import Instant, Seconds, format_duration
from daybell.core.views import Check
from daybell.store.protocol import Store

DAY: Final[Seconds] = 86400.0
DAYS: Final = 7  # the growth is that of the last week, the retention time is usually longer
ROOM_DAYS_LEAST: Final = 7.0
LAG_SECONDS_MOST: Final = 7 * DAY


async def check_growth(store: Store) -> list[Check]:
    """Report how fast the store grows, and which exports keep retention from removing."""
    now = (await store.health()).now
    tenants = await tenant_names(store)
    per_day = await _ends_per_day(store, tenants, now)
    size = (await store.figures()).get("bytes", 0.0)
    checks = [check_size(size, per_day, _room(store))]
    for tenant in tenants:
        for one in (await store.admin.list_records(tenant, EXPORTS, limit=EXPORTS.most or 1)).items:
            checks.append(check_export(one.policy.name, now - one.policy.until))
    return checks


async def _ends_per_day(store: Store, tenants: list[str], now: Instant) -> tuple[float, float]:
    """Return how many executions ended a day in the last week, and in the week before."""
    weeks = [0.0, 0.0]
    for tenant in tenants:
        for place in range(2):
            until = now // HOUR * HOUR + HOUR - place * DAYS * DAY
            query = StatQuery(since=until - DAYS * DAY, until=until, step=HOUR)
            tally = total_of(await store.catalog.read_stats(tenant, query, with_unfinished=False))
            weeks[place] += sum(int(tally.value(state) or 0) for state in TERMINAL)
    return weeks[0] / DAYS, weeks[1] / DAYS


def _room(store: Store) -> float | None:
    """Return the free bytes of the disk, if the store is a file on it."""
    path = getattr(getattr(store, "db", None), "path", None)
    folder = None if path is None else os.path.dirname(os.path.abspath(path))
    return None if folder is None or not os.path.isdir(folder) else shutil.disk_usage(folder).free


def check_size(size: float, per_day: tuple[float, float], room: float | None) -> Check:
    """Judge the growth: what a week more of such days takes must fit on the disk. An execution is
    assumed to take what those of the last two weeks take on average.
    """
    now, before = per_day
    found = f"{size / 1e6:,.1f} MB; {now:,.0f} executions ended a day in the last week"
    if before:
        found += f", {before:,.0f} in the week before"
    ended = (now + before) * DAYS
    growth = now * size / ended if ended else 0.0
    if ended:
        found += f"; about {growth / 1e6:,.1f} MB a day"
    is_ok = room is None or not growth or room / growth >= ROOM_DAYS_LEAST
    days = "" if room is None or not growth else f" for {room / growth:,.1f} days"
    advice = f"the disk has room{days}; set DAYBELL_KEEP to a shorter time, or make room"
    return Check(name="growth", is_ok=is_ok, found=found, advice=advice)


def check_export(name: str, lag: Seconds) -> Check:
    """Judge how far an export has come: retention waits for it."""
    return Check(
        name=f"export {name}",
        is_ok=lag <= LAG_SECONDS_MOST,
        found=f"has written all but the last {format_duration(max(0, round(lag)))}"
        if lag < 10_000 * DAY
        else "has written nothing yet",
        advice=f"retention removes nothing later; run daybell export --policy {name}, or daybell"
        f" export --release {name}",
    )
