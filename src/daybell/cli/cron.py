"""`daybell cron`: what an expression means, and when it fires."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.options import Json, group
from daybell.errors import InvalidSchedule

if TYPE_CHECKING:
    from datetime import datetime

    from daybell.core.instant import Instant
    from daybell.core.when import Schedule

app = group("Schedules: what they mean, and when they fire.")


def dialects(incomplete: str) -> list[str]:
    """What `--dialect` may be, for completion."""
    return [word for word in ("unix", "quartz", "aws") if word.startswith(incomplete)]


@app.command("explain")
def explain(
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPR", help='A cron expression, "@daily", "FREQ=…", or a schedule as JSON.'
        ),
    ],
    tz: Annotated[
        str | None,
        typer.Option(
            "--tz", metavar="ZONE", help="Whose clock it is, such as Europe/Berlin. Default: UTC."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=1, max=1000, help="How many times to show.")
    ] = 5,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Show times from here on, such as 2026-03-28 or 2026-03-28T12:00:00+01:00."
            " Default: now.",
            show_default=False,
        ),
    ] = None,
    dialect: Annotated[
        str, typer.Option("--dialect", help="unix, quartz or aws.", autocompletion=dialects)
    ] = "unix",
    as_json: Json = False,
) -> None:
    """Say what an expression means, and list its next times."""
    from daybell.cli import show
    from daybell.cli.edge import complain
    from daybell.core.when import Manual, Reboot
    from daybell.core.when.recurrence import way_out
    from daybell.core.when.zone import just_before, local

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
        show.echo_json(found | ({"warnings": warnings} if warnings else {}))
        return
    for warning in warnings:
        complain(f"warning: {show.printable(warning)}")
    typer.echo(schedule.describe())
    if times:
        typer.echo()
        rows = [
            (f"{one:%a}", f"{one:%Y-%m-%d %H:%M:%S}", _offset(one), _remark(one)) for one in times
        ]
        show.echo_table(["day", "time", "offset", "remark"], rows, empty="")


def _read(expression: str, tz: str | None, dialect: str) -> Schedule:
    """The schedule that was typed: a cron expression, a recurrence rule, or JSON."""
    from typing import Any, cast

    from daybell.core.when import Schedule, cron, rrule

    if expression.lstrip().startswith("{"):
        return Schedule.from_json(expression)
    options: Any = {} if tz is None else {"tz": tz}
    if "FREQ=" in expression.upper():
        return rrule(expression, **options)
    if expression.strip().casefold() == "manual":
        return Schedule.parse(expression)
    return cron(expression, dialect=cast("Any", dialect), **options)


def _first(start: str | None, schedule: Schedule) -> Instant:
    """Where to begin; a time without an offset is what the schedule's clock shows."""
    from daybell.core.when.checks import parse_moment
    from daybell.engine.clock import SystemClock

    if start is None:
        return SystemClock().now()
    return parse_moment(start, what="--from", tz=schedule.tz)


def _offset(time: datetime) -> str:
    return f"{time:%z}"[:3] + ":" + f"{time:%z}"[3:5]


def _remark(time: datetime) -> str:
    """What a change of the clocks has to do with a time."""
    from datetime import timedelta

    if time.replace(fold=0).utcoffset() != time.replace(fold=1).utcoffset():
        return "second of two" if time.fold else "first of two"
    before = (time.astimezone(UTC) - timedelta(seconds=1)).astimezone(time.tzinfo)
    if before.utcoffset() != time.utcoffset():
        return "clocks have just changed"
    return ""
