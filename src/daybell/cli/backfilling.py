"""`daybell jobs backfill`: what the past should have run, shown first and asked about."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, run

if TYPE_CHECKING:
    from daybell.client.backfills import Backfill
    from daybell.settings import Settings

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
    from daybell.cli import show
    from daybell.cli.asking import confirm
    from daybell.cli.choosing import moment
    from daybell.cli.connecting import client_for

    async with client_for(settings, tenant=tenant) as client:
        begin = await moment(client, since, "since")
        end = (await client.health()).now if until is None else await moment(client, until, "until")
        span = begin, end
        plan = await client.backfill(name, *span, dry_run=True, **asked)
        if dry_run or not plan.ticks:
            _tell(plan, as_json=as_json)
            return DONE
        if not as_json:
            _list(plan)
        at_a_time = f"{asked['concurrency']} at a time"
        what = show.count(len(plan.ticks), "execution")
        confirm(f"run {what} of {name}, {at_a_time}?", yes=yes)
        _tell(await client.backfill(name, *span, **asked), as_json=as_json)
    return DONE


def _tell(answer: Backfill, *, as_json: bool) -> None:
    from daybell.cli import show
    from daybell.client import wire

    if as_json:
        show.echo_json(wire.backfill(answer))
    elif answer.is_dry_run or not answer.ticks:
        _list(answer)
        seen = show.count(answer.looked_at, "tick")
        typer.echo(f"{len(answer.ticks):,} of {seen} would be run")
    else:
        held = len(answer.ticks) - answer.created
        kept = f"; {held:,} were in another backfill's hands" if held else ""
        typer.echo(f"{show.count(answer.created, 'execution')} created{kept}")


def _list(answer: Backfill) -> None:
    from daybell.cli import show

    for one in answer.ticks[:SHOWN_MAX]:
        name = f" of schedule {one.name}" if one.name else ""
        typer.echo(show.printable(f"  {show.moment(one.at)}{name}"))
    if len(answer.ticks) > SHOWN_MAX:
        last = show.moment(answer.ticks[-1].at)
        typer.echo(f"  … and {len(answer.ticks) - SHOWN_MAX:,} more, the last at {last}")
