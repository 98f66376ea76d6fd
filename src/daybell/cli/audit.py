"""`daybell audit`: who changed what."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.edge import DONE, FAILED
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, group, run

if TYPE_CHECKING:
    from daybell.settings import Settings

app = group("The audit log: who changed what.")

Text = str | None


@app.command("list")
def list_entries(
    context: typer.Context,
    actor: Annotated[
        Text, typer.Option("--actor", metavar="NAME", help="By whom, as listed.")
    ] = None,
    action: Annotated[
        Text, typer.Option("--action", metavar="WORD", help="Such as job.update, or all of job.")
    ] = None,
    target: Annotated[
        Text, typer.Option("--target", metavar="NAME", help="The name or id changed.")
    ] = None,
    since: Annotated[
        Text,
        typer.Option(
            "--since", metavar="TIME", help="Then or later: 1h for ago, a date, or ISO 8601."
        ),
    ] = None,
    until: Annotated[Text, typer.Option("--until", metavar="TIME", help="Before then.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List what was changed, newest first."""
    asked = {"actor": actor, "action": action, "target": target}
    command = partial(
        _list,
        asked=asked,
        span=(since, until),
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("verify")
def verify_entries(
    context: typer.Context,
    after: Annotated[
        Text,
        typer.Option(
            "--after",
            metavar="HEAD",
            help="Start after the head that an earlier run printed; the log must still lead on from"
            " it.",
        ),
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Check that no entry was altered or removed.

    Exit status 1: the log is broken."""
    command = partial(_verify, after=after, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


async def _verify(settings: Settings, *, after: Text, tenant: Text, as_json: bool) -> int:
    from msgspec.structs import replace

    from daybell.cli import show
    from daybell.cli.connecting import client_for
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        check = await client.verify_audit(cursor=after)
        while check.next_cursor is not None:
            more = await client.verify_audit(cursor=check.next_cursor)
            entries = check.entries + more.entries
            check = replace(more, entries=entries, unchained=check.unchained)
    broken = check.broken
    if as_json:
        show.echo_json(wire.audit_check(check))
        return DONE if broken is None else FAILED
    older = f", {check.unchained} older than the chain not checked" if check.unchained else ""
    if broken is None:
        typer.echo(f"{check.entries} entries checked{older}; head {check.head}")
        return DONE
    place = f"entry {broken.number}" + ("" if broken.id is None else f" ({broken.id})")
    typer.echo(f"the audit log is broken: {place} {broken.problem}", err=True)
    return FAILED


async def _list(
    settings: Settings,
    *,
    asked: dict[str, Text],
    span: tuple[Text, Text],
    limit: int,
    cursor: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.connecting import client_for
    from daybell.client import wire

    since, until = span
    async with client_for(settings, tenant=tenant) as client:
        page = await client.audit(
            **asked,
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
        )
    if as_json:
        show.echo_json(wire.page(page, wire.entry))
        return DONE
    rows = [
        (show.moment(one.at), one.actor, one.action, one.target, one.after or "", one.source)
        for one in page.items
    ]
    columns = (
        Column("at"),
        Column("actor", least=16, rank=1),
        Column("action"),
        Column("target", least=20, rank=0),
        Column("after", least=16, rank=2),
        Column("from", least=8, rank=3),
    )
    show.echo_table(columns, rows, empty="no entries")
    show.echo_more(page.next_cursor)
    return DONE
