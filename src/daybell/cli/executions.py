"""`daybell executions`: what runs, ran and will run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE, FAILED
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, Timeout, group, run

if TYPE_CHECKING:
    from daybell.client import Client
    from daybell.core.execution import Execution, ExecutionDetail
    from daybell.core.instant import Instant
    from daybell.settings import Settings

app = group("Executions: what runs, ran and will run.")

Ids = Annotated[list[str], typer.Argument(metavar="ID", help="The executions' ids.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The execution's id.")]
Text = str | None


@app.command("list")
def list_executions(
    context: typer.Context,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Such as running, dead or pending; may be repeated."),
    ] = None,
    job: Annotated[Text, typer.Option(metavar="NAME", help="Of this job.")] = None,
    queue: Annotated[Text, typer.Option(metavar="NAME", help="In this queue.")] = None,
    worker: Annotated[Text, typer.Option(metavar="ID", help="On this worker.")] = None,
    since: Annotated[
        Text, typer.Option(metavar="TIME", help="Created then or later: ISO 8601, or 1h for ago.")
    ] = None,
    until: Annotated[Text, typer.Option(metavar="TIME", help="Created before then.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List executions, newest first."""
    filters = {
        "status": status or None,
        "job": job,
        "queue": queue,
        "worker": worker,
        "since": since,
        "until": until,
    }
    command = partial(
        _list, filters=filters, limit=limit, cursor=cursor, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("show")
def show_execution(
    context: typer.Context,
    id: Id,
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show an execution with its attempts."""
    run(context, partial(_show, id=id, tenant=tenant, as_json=as_json), database_url)


@app.command("cancel")
def cancel_executions(
    context: typer.Context, ids: Ids, tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Cancel executions; those that run are asked to stop."""
    run(context, partial(_each, ids=ids, tenant=tenant, act=_cancel), database_url)


@app.command("retry")
def retry_executions(
    context: typer.Context,
    ids: Ids,
    force: Annotated[
        bool, typer.Option("--force", help="Also those that succeeded, as new executions.")
    ] = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Run executions again: dead and cancelled ones."""
    act = partial(_retry, force=force)
    run(context, partial(_each, ids=ids, tenant=tenant, act=act), database_url)


@app.command("wait")
def wait_for_execution(
    context: typer.Context,
    id: Id,
    timeout: Timeout = None,
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Wait for its end; exit with 0 if it succeeded."""
    command = partial(_wait, id=id, within=timeout, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


async def _list(
    settings: Settings,
    *,
    filters: dict[str, Any],
    limit: int,
    cursor: str | None,
    tenant: str,
    as_json: bool,
) -> int:
    from daybell.cli import show, wire
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        for name in ("since", "until"):
            filters[name] = await _moment(client, filters[name], name)
        page = await client.executions(limit=limit, cursor=cursor, **filters)
        now = (await client.health()).now
    if as_json:
        show.echo_json(wire.page(page, wire.execution))
        return DONE
    echo_executions(page.items, now=now, empty="no executions")
    show.echo_more(page.next_cursor)
    return DONE


async def _moment(client: Client, text: str | None, what: str) -> float | str | None:
    """A time as typed; a length of time means so long ago, by the store's clock."""
    from daybell.core.duration import parse_duration
    from daybell.errors import InvalidDuration

    if text is None:
        return None
    try:
        ago = parse_duration(text, what=what)
    except InvalidDuration:
        return text
    return max(0.0, (await client.health()).now - ago)


def echo_executions(executions: Sequence[Execution], *, now: Instant, empty: str) -> None:
    """Print executions as a table, their times seen from the store's `now`."""
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.waiting import error_line

    rows = [
        (
            one.id,
            one.job,
            one.state,
            one.queue,
            one.attempt,
            show.relative(one.finished_at or one.started_at or one.run_at, now=now),
            one.note or error_line(one.error) or one.reason,
        )
        for one in executions
    ]
    columns = (
        Column("id", rank=0),
        Column("job", least=10, rank=2),
        Column("status"),
        Column("queue", least=8, rank=5),
        Column("attempt", rank=6),
        Column("time", rank=3),
        Column("note", least=10, rank=4),
    )
    show.echo_table(columns, rows, empty=empty)


async def _show(settings: Settings, *, id: str, tenant: str, as_json: bool) -> int:
    from daybell.cli import show, wire
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        detail = await client.execution(id)
    if as_json:
        show.echo_json(wire.detail(detail))
    else:
        echo_detail(detail)
    return DONE


def echo_detail(detail: ExecutionDetail) -> None:
    """Print all that is known of an execution."""
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.waiting import error_line, read_failure

    one = detail.execution
    progress = None if one.progress is None else f"{one.progress:g} % {one.note or ''}"
    asked = one.cancel_requested_at
    show.echo_fields(
        {
            "id": one.id,
            "job": f"{one.job}, version {one.version}",
            "status": one.state,
            "reason": one.reason,
            "cancel": None if asked is None else f"requested at {show.moment(asked)}",
            "queue": f"{one.queue}, {one.priority.label} priority",
            "arguments": one.args,
            "unique key": one.unique_key,
            "created": show.moment(one.created_at),
            "due": show.moment(one.run_at),
            "started": show.moment(one.started_at),
            "finished": show.moment(one.finished_at),
            "worker": one.worker,
            "progress": progress,
            "result": one.result,
            "error": error_line(one.error),
        }
    )
    rows = [
        (
            attempt.attempt,
            attempt.outcome,
            show.moment(attempt.started_at) or "not started",
            show.moment(attempt.ended_at),
            error_line(attempt.error),
        )
        for attempt in detail.attempts
    ]
    typer.echo("")
    columns = ("attempt", "outcome", "started", "ended", Column("error", least=20))
    show.echo_table(columns, rows, empty="no attempt has ended yet")
    if one.error is not None and (trace := read_failure(one.error).traceback):
        typer.echo("\n" + show.printable(trace.rstrip(), keep="\n"))


async def _each(
    settings: Settings,
    *,
    ids: list[str],
    tenant: str,
    act: Callable[[Client, str], Awaitable[str]],
) -> int:
    """Do the same to each; one that cannot be done stops no other."""
    from daybell.cli.edge import complain
    from daybell.client import Client
    from daybell.client.requests import read_id
    from daybell.errors import Conflict, NotFound

    wanted = [str(read_id(id)) for id in ids]
    code = DONE
    async with Client(settings.database_url, tenant=tenant) as client:
        for id in wanted:
            try:
                typer.echo(await act(client, id))
            except (Conflict, NotFound) as error:
                complain(f"error: {error}")
                code = FAILED
    return code


async def _cancel(client: Client, id: str) -> str:
    from daybell.errors import Conflict
    from daybell.store.outcomes import Cancellation

    answer = await client.cancel(id)
    if answer is Cancellation.FINISHED:
        state = (await client.execution(id)).execution.state
        raise Conflict(f"execution {id} has ended already, as {state}")
    asked = "is cancelled" if answer is Cancellation.CANCELLED else "runs, and was asked to stop"
    return f"{id} {asked}"


async def _retry(client: Client, id: str, *, force: bool) -> str:
    answer = await client.retry(id, force=force)
    return f"{id} runs again" + ("" if str(answer.id) == id else f" as {answer.id}")


async def _wait(
    settings: Settings, *, id: str, within: str | None, tenant: str, as_json: bool
) -> int:
    from daybell.cli.waiting import wait_for_end
    from daybell.client import Client
    from daybell.core.duration import parse_duration

    seconds = None if within is None else parse_duration(within, what="timeout")
    async with Client(settings.database_url, tenant=tenant) as client:
        return await wait_for_end(client, id, seconds=seconds, as_json=as_json)
