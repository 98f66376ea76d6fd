"""`daybell top`, `bench` and `chaos`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.options import DatabaseUrl, Json, Tenant, database_flag, run
from daybell.cli.runtime import DONE, FAILED

if TYPE_CHECKING:
    from daybell.chaos.run import Restart, Summary
    from daybell.settings import Settings


def top(
    context: typer.Context,
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="DURATION", help="How long from one look to the next."),
    ] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Watch queues, workers and rates; q or Ctrl-C quits."""
    from daybell.cli.views.dashboard import watch

    command = partial(watch, interval=interval, once=once, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


# `daybell bench`: how fast the store at hand is on this machine.


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
    """Measure the store at hand with jobs that do nothing."""
    asked = {"jobs": jobs, "concurrency": concurrency, "keep": keep}
    flag = database_flag(context, database_url)
    run(context, partial(_bench, asked=asked, flag=flag, as_json=as_json), database_url)


async def _bench(
    settings: Settings, *, asked: dict[str, Any], flag: str | None, as_json: bool
) -> int:
    from daybell.cli import output
    from daybell.cli.benchmark import LeftoverWork, measure
    from daybell.cli.roles import logs
    from daybell.cli.runtime import with_flag
    from daybell.cli.terminal import StartInterrupted, StopSignals
    from daybell.errors import Conflict
    from daybell.settings import masked_url

    logs.configure()
    with StopSignals() as stop:
        try:
            measured = await measure(settings.database_url, stop=stop, **asked)
        except StartInterrupted:
            return stop.code
        except LeftoverWork as error:
            raise Conflict(with_flag(str(error), flag)) from error
    jobs, concurrency = asked["jobs"], asked["concurrency"]
    if as_json:
        output.echo_json(measured.as_json())
    else:
        output.echo_fields(
            {
                "store": masked_url(settings.database_url),
                "enqueue": f"{measured.enqueue_rate:,.0f} jobs a second",
                "run": f"{measured.run_rate:,.0f} jobs a second, {concurrency} at a time,"
                " one process",
                "finished": f"{measured.finished:,} of {jobs:,}",
                "left behind": measured.left_behind,
            }
        )
    return DONE if measured.finished == jobs else FAILED


# `daybell chaos`: whether promises are kept on the store at hand while everything dies.

SHOWN_MAX = 20


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
    asked = {"seed": seed, "workers": workers, "schedulers": schedulers, "rate": rate}
    asked["seconds"] = 60 * minutes if minutes is not None else seconds or 60.0
    command = partial(_chaos, asked=asked, lease=lease, restart=restart, as_json=as_json)
    run(context, command, database_url)


async def _chaos(
    settings: Settings,
    *,
    asked: dict[str, Any],
    lease: str,
    restart: str | None,
    as_json: bool,
) -> int:
    from daybell.chaos.run import Options, chaos
    from daybell.cli.roles import logs
    from daybell.cli.runtime import print_stderr
    from daybell.cli.terminal import StartInterrupted, StopSignals
    from daybell.errors import UsageError
    from daybell.settings import Settings

    logs.configure()
    if restart is not None and settings.database_url.startswith("sqlite"):
        raise UsageError("--restart is for a database server, and a file has none; leave it out")
    # Checked as the workers will check it, and before they are started.
    options = Options(**asked, lease=Settings.load({"lease": lease}).lease)
    with StopSignals() as stop:
        try:
            with stop.heeding():
                summary = await chaos(
                    settings.database_url,
                    options,
                    restart=None if restart is None else _restarting(restart),
                    tell=print_stderr,
                )
        except StartInterrupted:
            return stop.code
    _show(summary, settings.database_url, as_json=as_json)
    return DONE if summary.is_ok else FAILED


def _restarting(command: str) -> Restart:
    import asyncio
    import shlex

    from daybell.errors import UsageError

    words = shlex.split(command)
    if not words:
        raise UsageError("--restart is empty; give a command, or leave it out")

    async def restart() -> None:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        if code := await process.wait():
            raise UsageError(f"--restart: {words[0]} ended with exit code {code}")

    return restart


def _show(summary: Summary, url: str, *, as_json: bool) -> None:
    from daybell.cli import output
    from daybell.settings import masked_url

    if as_json:
        output.echo_json(summary.as_json())
        return
    output.echo_fields({"store": masked_url(url), **summary.fields()})
    for violation in summary.violations[:SHOWN_MAX]:
        typer.echo(output.printable(f"{violation.rule}: {violation.what}"))
    if len(summary.violations) > SHOWN_MAX:
        typer.echo(f"and {len(summary.violations) - SHOWN_MAX} more; --json has all")
