"""`daybell migrate`, `doctor`, `top`, `bench` and `chaos`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from daybell.cli import actions
from daybell.cli.options import (
    Action,
    Cursor,
    DatabaseUrl,
    Json,
    Tenant,
    Text,
    database_flag,
    run,
    shared,
)
from daybell.errors import UsageError


def migrate(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if a step is pending.")
    ] = False,
    grant: Annotated[
        str | None,
        typer.Option(
            "--grant",
            metavar="ROLE",
            help="PostgreSQL: give this role what running needs, without rights on the schema.",
            show_default=False,
        ),
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Bring the store's schema up to date."""
    flag = database_flag(context, database_url)
    command = partial(actions.migration.migrate, check=check, grant=grant, flag=flag)
    run(context, command, database_url)


def doctor(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="An app to compare with the store: module:app, or a file.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Look for problems, and say what to do."""
    flag = database_flag(context, database_url)
    try:
        command = partial(actions.doctor.doctor, as_json=as_json, flag=flag, spec=app)
        run(context, command, database_url)
    except UsageError as error:
        if as_json:
            actions.doctor.refuse(error)
        raise


@shared()
def top(
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="DURATION", help="How long from one look to the next."),
    ] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> Action:
    """Watch queues, workers and rates; q or Ctrl-C quits."""
    watch = actions.dashboard.watch
    return partial(watch, interval=interval, once=once)


def bench(
    context: typer.Context,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=10_000_000, help="How many.")] = 20_000,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=100_000, help="At a time.")
    ] = 100,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the job behind.")] = False,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Measure the store with jobs that do nothing."""
    asked = {"jobs": jobs, "concurrency": concurrency, "keep": keep}
    flag = database_flag(context, database_url)
    command = partial(actions.benchmark.bench, asked=asked, flag=flag, as_json=as_json)
    run(context, command, database_url)


def export(
    context: typer.Context,
    since: Annotated[
        Text,
        typer.Option("--since", metavar="TIME", help="Ended then or later: 1d for ago, or a date."),
    ] = None,
    until: Annotated[
        Text, typer.Option("--until", metavar="TIME", help="Ended before then. Default: now.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl or parquet.")
    ] = "jsonl",
    what: Annotated[
        str,
        typer.Option("--what", metavar="KINDS", help="executions, attempts, logs, ticks."),
    ] = "executions",
    file: Annotated[
        Text, typer.Option("--output", metavar="FILE", help="A new file. Default: standard output.")
    ] = None,
    cursor: Cursor = None,
    policy: Annotated[
        Text,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Continue a repeated export. Retention keeps what it has not written yet.",
        ),
    ] = None,
    release: Annotated[
        Text,
        typer.Option("--release", metavar="NAME", help="Forget a repeated export; write nothing."),
    ] = None,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write ended executions, logs and ticks."""
    command = partial(
        actions.export.export,
        since=since,
        until=until,
        format=format,
        what=what,
        file=file,
        cursor=cursor,
        policy=policy,
        tenant=tenant,
    )
    if release is not None:
        command = partial(actions.export.release, name=release, tenant=tenant)
    run(context, command, database_url)


def chaos(
    context: typer.Context,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0.1, help="How long.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="The same in seconds. Default: 60.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="What the faults are drawn from.")] = 1,
    workers: Annotated[int, typer.Option("--workers", min=2, max=100, help="Processes.")] = 3,
    schedulers: Annotated[int, typer.Option("--schedulers", min=0, max=100, help="Processes.")] = 2,
    rate: Annotated[
        float, typer.Option("--rate", min=1, max=100_000, help="Enqueues a second.")
    ] = 300,
    lease: Annotated[
        str,
        typer.Option("--lease", metavar="DURATION", help="Of the workers; short, to see many end."),
    ] = "2s",
    remote: Annotated[
        bool,
        typer.Option("--remote", help="Workers work by way of the servers, without the database."),
    ] = False,
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart",
            metavar="COMMAND",
            help="What crashes the database server and brings it back, such as"
            " 'pg_ctl restart -m immediate -D /data'. Default: it is left alone.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Kill and freeze workers under load, and see what is lost."""
    if minutes is not None and seconds is not None:
        raise typer.BadParameter("--minutes and --seconds are two ways to say the same; give one")
    asked: dict[str, Any] = {
        "seed": seed,
        "workers": workers,
        "schedulers": schedulers,
        "rate": rate,
    }
    asked["remote"] = remote
    asked["seconds"] = 60 * minutes if minutes is not None else seconds or 60.0
    command = partial(
        actions.chaos.run_chaos, asked=asked, lease=lease, restart=restart, as_json=as_json
    )
    run(context, command, database_url)
