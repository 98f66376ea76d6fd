"""`daybell cron` and `daybell jobs backfill`: explain schedules, run jobs for past times."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, group, run

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
    actions.schedules.explain(
        expression, tz=tz, count=count, start=start, dialect=dialect, as_json=as_json
    )


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
        actions.schedules.backfill_job,
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
