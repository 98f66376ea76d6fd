"""`daybell top`: queues, workers and rates, looked at again and again."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli.options import DatabaseUrl, Json, Tenant, run


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
    from daybell.cli.watching import watch

    command = partial(watch, interval=interval, once=once, tenant=tenant, as_json=as_json)
    run(context, command, database_url)
