"""`daybell jobs delete`, `versions`, `diff` and `rollback`: what becomes of a job's definitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE, complain
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, Yes, run

if TYPE_CHECKING:
    from daybell.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name, or its id.")]


def delete_job(
    context: typer.Context,
    name: Name,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if the code of a live worker declares it."),
    ] = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a job run no more, and cancel what has not ended.

    Its versions and its history stay.
    """
    command = partial(_delete, name=name, force=force, yes=yes, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


def list_versions(
    context: typer.Context,
    name: Name,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List a job's versions, newest first; of a deleted one, too."""
    asked = {"limit": limit, "cursor": cursor}
    command = partial(_versions, name=name, asked=asked, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


def diff_versions(
    context: typer.Context,
    name: Name,
    old: Annotated[
        int | None,
        typer.Argument(
            metavar="FROM",
            min=1,
            help="Which version. Default: the one before.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[
        int | None,
        typer.Argument(
            metavar="TO", min=1, help="And which. Default: the newest.", show_default=False
        ),
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what differs between two versions of a job."""
    command = partial(_diff, name=name, old=old, new=new, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


def rollback_job(
    context: typer.Context,
    name: Name,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Which one.")],
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make an older version of a job current again.

    It becomes a new version, with its schedules.
    """
    command = partial(_rollback, name=name, version=version, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


async def _delete(
    settings: Settings, *, name: str, force: bool, yes: bool, tenant: str | None, as_json: bool
) -> int:
    from daybell.cli import show
    from daybell.cli.asking import confirm
    from daybell.cli.choosing import explained
    from daybell.cli.connecting import client_for

    async with client_for(settings, tenant=tenant) as client:
        async with explained(client, name):
            found = (await client.job_named(name)).name
        warnings = await client.warnings(found, deleting=True)
        for warning in warnings:  # in the answer, too, but that comes after the question
            complain(f"warning: {show.printable(warning)}")
        counts = await client.count(job=found, status=["pending", "running"])
        confirm(
            f"delete job {found}? Its schedules go, and what has not ended is cancelled"
            f" (executions: {counts.total:,}).",
            yes=yes,
        )
        cancelled = await client.delete_job(found, force=force)
    if as_json:
        show.echo_json({"name": found, "cancelled": cancelled, "warnings": warnings})
    else:
        typer.echo(f"{found} is deleted; executions cancelled: {cancelled:,}")
    return DONE


async def _versions(
    settings: Settings, *, name: str, asked: dict[str, Any], tenant: str | None, as_json: bool
) -> int:
    from daybell.cli import show
    from daybell.cli.connecting import client_for
    from daybell.cli.standing import echo_versions
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        standing = await client.standing(name)
        page = await client.versions_page(standing.job.name, **asked)
    if as_json:
        show.echo_json(wire.page(page, partial(wire.job, listed=True)))
    else:
        echo_versions(page.items)
        show.echo_more(page.next_cursor)
    return DONE


async def _diff(
    settings: Settings,
    *,
    name: str,
    old: int | None,
    new: int | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli import show
    from daybell.cli.connecting import client_for
    from daybell.cli.differences import echo_change
    from daybell.client import wire
    from daybell.client.declaring import changes_between
    from daybell.errors import JobNotFound, UsageError

    async with client_for(settings, tenant=tenant) as client:
        last = (await client.standing(name)).job
        found = last.name
        new = last.version if new is None else new
        old = new - 1 if old is None else old
        if old == 0:
            raise UsageError(f"{found} has one version only, so there is nothing to compare")
        for number in (old, new):
            if number > last.version:
                raise JobNotFound(_no_version(found, number, last.version))
        versions = {number: await client.job(found, version=number) for number in (old, new)}
    changes = changes_between(versions[old], versions[new])
    if as_json:
        said = [wire.change(change) for change in changes]
        show.echo_json({"name": found, "from": old, "to": new, "changes": said})
        return DONE
    by = versions[new]
    who = f" by {by.author}" if by.author else ""
    since = f"{show.moment(by.created_at)}{who}"
    echo_change("~", f"{found}: version {old} → version {new}, since {since}", changes)
    if not changes:
        typer.echo("    no difference")
    return DONE


def _no_version(name: str, version: int, newest: int) -> str:
    has = f"1 to {newest}" if newest > 1 else "1 only"
    return f"job {name} has no version {version}; it has {has}"


async def _rollback(
    settings: Settings, *, name: str, version: int, tenant: str | None, as_json: bool
) -> int:
    from daybell.cli.choosing import explained
    from daybell.cli.connecting import client_for
    from daybell.cli.defining import tell
    from daybell.cli.recording import whoever_types
    from daybell.errors import JobNotFound, UsageError

    async with client_for(settings, tenant=tenant) as client:
        async with explained(client, name):
            known = await client.job_named(name)
        found = known.name
        if known.version == version:
            raise UsageError(f"{found} is at version {version} already", field="version")
        try:
            await client.rollback(found, version, author=whoever_types())
        except JobNotFound:
            raise JobNotFound(_no_version(found, version, known.version)) from None
        return await tell(client, found, as_json=as_json)
