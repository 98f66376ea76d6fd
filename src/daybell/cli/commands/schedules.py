"""`daybell cron` and `daybell jobs backfill`: explain schedules, run jobs for past times."""

from __future__ import annotations

from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, group, run
from daybell.cli.runtime import DONE
from daybell.errors import InvalidSchedule

if TYPE_CHECKING:
    from datetime import datetime

    from daybell.client.schedules import Backfill
    from daybell.core.units import Instant
    from daybell.core.when import Schedule
    from daybell.settings import Settings


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
    from daybell.cli import output
    from daybell.cli.runtime import print_stderr
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
    """The schedule that was typed: a cron expression, a recurrence rule, or JSON."""
    from typing import cast

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
    from daybell.core.when.zone import parse_moment
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


# `daybell jobs backfill`: what the past should have run, shown first and asked about.

SHOWN_MAX = 10  # ticks that are listed before somebody is asked


def backfill_job(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")],
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="From then: 2d ago, a date, or ISO 8601.",
            show_default=False,
        ),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="To before then. Default: now.", show_default=False
        ),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="WORD", help="missing, failed or all.")
    ] = "missing",
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1000, help="How many of them run at a time.")
    ] = 1,
    order: Annotated[
        str, typer.Option("--order", metavar="WORD", help="oldest or newest first.")
    ] = "oldest",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Run a job for times of its schedules that have passed.

    It shows what it would do, and asks, unless --yes is given.
    """
    asked = {"only": only, "concurrency": concurrency, "order": order}
    command = partial(
        _backfill,
        name=name,
        since=since,
        until=until,
        asked=asked,
        dry_run=dry_run,
        yes=yes,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


async def _backfill(
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
    from daybell.cli import output
    from daybell.cli.commands.selection import read_moment
    from daybell.cli.connection import client_for
    from daybell.cli.terminal import confirm

    async with client_for(settings, tenant=tenant) as client:
        begin = await read_moment(client, since, "since")
        end = (
            (await client.health()).now
            if until is None
            else await read_moment(client, until, "until")
        )
        span = begin, end
        plan = await client.backfill(name, *span, dry_run=True, **asked)
        if dry_run or not plan.ticks:
            _tell(plan, as_json=as_json)
            return DONE
        if not as_json:
            _list(plan)
        at_a_time = f"{asked['concurrency']} at a time"
        what = output.format_count(len(plan.ticks), "execution")
        confirm(f"run {what} of {name}, {at_a_time}?", yes=yes)
        _tell(await client.backfill(name, *span, **asked), as_json=as_json)
    return DONE


def _tell(answer: Backfill, *, as_json: bool) -> None:
    from daybell.cli import output
    from daybell.client import wire

    if as_json:
        output.echo_json(wire.backfill(answer))
    elif answer.is_dry_run or not answer.ticks:
        _list(answer)
        seen = output.format_count(answer.looked_at, "tick")
        typer.echo(f"{len(answer.ticks):,} of {seen} would be run")
    else:
        held = len(answer.ticks) - answer.created
        kept = f"; {held:,} were in another backfill's hands" if held else ""
        typer.echo(f"{output.format_count(answer.created, 'execution')} created{kept}")


def _list(answer: Backfill) -> None:
    from daybell.cli import output

    for one in answer.ticks[:SHOWN_MAX]:
        name = f" of schedule {one.name}" if one.name else ""
        typer.echo(output.printable(f"  {output.format_moment(one.at)}{name}"))
    if len(answer.ticks) > SHOWN_MAX:
        last = output.format_moment(answer.ticks[-1].at)
        typer.echo(f"  … and {len(answer.ticks) - SHOWN_MAX:,} more, the last at {last}")
