"""`daybell bench`: how fast the store at hand is on this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE, FAILED
from daybell.cli.options import DatabaseUrl, Json, chosen, run

if TYPE_CHECKING:
    from daybell.settings import Settings


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
    flag = chosen(context, database_url)
    run(context, partial(_bench, asked=asked, flag=flag, as_json=as_json), database_url)


async def _bench(
    settings: Settings, *, asked: dict[str, Any], flag: str | None, as_json: bool
) -> int:
    from daybell.cli import logs, show
    from daybell.cli.edge import with_flag
    from daybell.cli.measuring import LeftOver, measure
    from daybell.cli.stopping import BrokenOff, Stop
    from daybell.errors import Conflict
    from daybell.settings import masked_url

    logs.configure()
    with Stop() as stop:
        try:
            measured = await measure(settings.database_url, stop=stop, **asked)
        except BrokenOff:
            return stop.code
        except LeftOver as error:
            raise Conflict(with_flag(str(error), flag)) from error
    jobs, concurrency = asked["jobs"], asked["concurrency"]
    if as_json:
        show.echo_json(measured.as_json())
    else:
        show.echo_fields(
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
