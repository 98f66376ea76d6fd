"""`daybell cron` and `daybell jobs backfill`: explain schedules, run jobs for past times."""

from __future__ import annotations

from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Json, group

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
