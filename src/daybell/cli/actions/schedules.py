"""The work of `daybell cron explain` and `daybell jobs backfill`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import typer

from daybell.cli import output
from daybell.cli.actions.selection import read_moment
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE, print_stderr
from daybell.cli.terminal import confirm
from daybell.client import wire
from daybell.core.units import Instant
from daybell.core.when import Manual, Reboot, Schedule, cron, rrule
from daybell.core.when.recurrence import way_out
from daybell.core.when.zone import just_before, local, parse_moment
from daybell.engine.loop import SystemClock
from daybell.errors import InvalidSchedule
from daybell.settings import Settings


def explain(
    expression: str, *, tz: str | None, count: int, start: str | None, dialect: str, as_json: bool
) -> None:
    """Print the meaning of an expression and its next times."""
    schedule = _read(expression, tz, dialect)
    first = _first(start, schedule)
    times = schedule.preview(count, just_before(first))
    if not times and not isinstance(schedule, Manual | Reboot):
        since = local(first, schedule.tz).isoformat(timespec="seconds")
        fact = f"{schedule.describe()}: it never fires from {since} on"
        raise InvalidSchedule(f"{fact}{way_out(schedule)}")
    warnings = schedule.warnings()
    if as_json:
        found = {"description": schedule.describe(), "next": [one.isoformat() for one in times]}
        output.echo_json(found | ({"warnings": warnings} if warnings else {}))
        return
    for warning in warnings:
        print_stderr(f"warning: {output.printable(warning)}")
    typer.echo(schedule.describe())
    if times:
        typer.echo()
        rows = [
            (f"{one:%a}", f"{one:%Y-%m-%d %H:%M:%S}", _offset(one), _remark(one)) for one in times
        ]
        output.echo_table(["day", "time", "offset", "remark"], rows, empty="")


def _read(expression: str, tz: str | None, dialect: str) -> Schedule:
    """Return the typed schedule: a cron expression, a recurrence rule, or JSON."""
    if expression.lstrip().startswith("{"):
        return Schedule.from_json(expression)
    options: Any = {} if tz is None else {"tz": tz}
    if "FREQ=" in expression.upper():
        return rrule(expression, **options)
    if expression.strip().casefold() == "manual":
        return Schedule.parse(expression)
    return cron(expression, dialect=cast("Any", dialect), **options)


def _first(start: str | None, schedule: Schedule) -> Instant:
    """Return the time to begin at; a time without an offset is in the schedule's time zone."""
    if start is None:
        return SystemClock().now()
    return parse_moment(start, what="--from", tz=schedule.tz)


def _offset(time: datetime) -> str:
    return f"{time:%z}"[:3] + ":" + f"{time:%z}"[3:5]


def _remark(time: datetime) -> str:
    """Describe the effect of a change of the clocks on a time."""
    if time.replace(fold=0).utcoffset() != time.replace(fold=1).utcoffset():
        return "second of two" if time.fold else "first of two"
    before = (time.astimezone(UTC) - timedelta(seconds=1)).astimezone(time.tzinfo)
    if before.utcoffset() != time.utcoffset():
        return "clocks have just changed"
    return ""


# `daybell jobs backfill`: list the ticks of the past, ask the user, then run them.

SHOWN_MAX = 10  # ticks that are listed before the user is asked


async def backfill_job(
    settings: Settings,
    *,
    name: str,
    since: str,
    until: str | None,
    asked: dict[str, Any],
    dry_run: bool,
    yes: bool,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        begin = await read_moment(client, since, "since")
        end = (
            (await client.health()).now
            if until is None
            else await read_moment(client, until, "until")
        )
        span = begin, end
        plan = await client.backfill(name, *span, dry_run=True, **asked)
        if dry_run or not plan.items:
            _tell(plan, as_json=as_json)
            return DONE
        if not as_json:
            _list(plan)
        at_a_time = f"{asked['concurrency']} at a time"
        what = output.format_count(len(plan.items), "execution")
        confirm(f"run {what} of {name}, {at_a_time}?", yes=yes)
        _tell(await client.backfill(name, *span, **asked), as_json=as_json)
    return DONE


def _tell(answer: wire.Backfill, *, as_json: bool) -> None:
    if as_json:
        output.echo_json(answer)
    elif answer.dry_run or not answer.items:
        _list(answer)
        seen = output.format_count(answer.ticks, "tick")
        typer.echo(f"{len(answer.items):,} of {seen} would be run")
    else:
        held = len(answer.items) - answer.created
        kept = f"; {held:,} were in another backfill's hands" if held else ""
        typer.echo(f"{output.format_count(answer.created, 'execution')} created{kept}")


def _list(answer: wire.Backfill) -> None:
    for one in answer.items[:SHOWN_MAX]:
        name = f" of schedule {one.schedule}" if one.schedule else ""
        typer.echo(output.printable(f"  {output.format_moment(one.scheduled_for)}{name}"))
    if len(answer.items) > SHOWN_MAX:
        last = output.format_moment(answer.items[-1].scheduled_for)
        typer.echo(f"  … and {len(answer.items) - SHOWN_MAX:,} more, the last at {last}")
