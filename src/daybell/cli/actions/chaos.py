"""The work of `daybell chaos`: run the faults, report broken promises."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

import typer

from daybell.chaos.run import ChaosOptions, Restart, Summary, chaos
from daybell.cli import output
from daybell.cli.roles import logs
from daybell.cli.runtime import DONE, FAILED, print_stderr
from daybell.cli.terminal import StartInterrupted, StopSignals
from daybell.errors import UsageError
from daybell.settings import Settings, masked_url

SHOWN_MAX = 20


async def run_chaos(
    settings: Settings,
    *,
    asked: dict[str, Any],
    lease: str,
    restart: str | None,
    as_json: bool,
) -> int:
    logs.configure()
    if restart is not None and settings.database_url.startswith("sqlite"):
        raise UsageError("--restart is for a database server, and a file has none; leave it out")
    # Checked as the workers will check it, and before they are started.
    options = ChaosOptions(**asked, lease=Settings.load({"lease": lease}).lease)
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
    if as_json:
        output.echo_json(summary.as_json())
        return
    output.echo_fields({"store": masked_url(url), **summary.fields()})
    for violation in summary.violations[:SHOWN_MAX]:
        typer.echo(output.printable(f"{violation.rule}: {violation.what}"))
    if len(summary.violations) > SHOWN_MAX:
        typer.echo(f"and {len(summary.violations) - SHOWN_MAX} more; --json has all")
