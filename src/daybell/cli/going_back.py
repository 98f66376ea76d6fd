"""Code that says of jobs what it said before: who is told of it, and how it becomes current.

A definition that was replaced does not come back because a process starts that has it: in a rolling
deploy, that may be an old one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.edge import DONE, complain
from daybell.cli.options import DatabaseUrl, Json, chosen, run

if TYPE_CHECKING:
    from daybell.core.job import Job
    from daybell.core.view import Check
    from daybell.sdk.app import App
    from daybell.settings import Settings
    from daybell.store.protocol import Store


async def settle_superseded(app: App, *, go_back: bool) -> None:
    """Make the definitions current that the code has and the store does not go by; or say so."""
    from daybell.client.superseded import described, traced
    from daybell.sdk.declaring import warning

    found = list(app.declaring.superseded.values())
    if not found:
        return
    client = await app.open()
    if not go_back:
        complain(f"warning: {await warning(client, found)}")
        return
    was = described(await traced(client.store, found), verb="was")
    app.handlers.learn(await _go_back(app))
    complain(f"note: went back to what the code says: {was}")


def is_own(url: str) -> bool:
    """Whether a store is probably one developer's alone. A server's may be that of many, and what
    they have changed since is not undone because somebody tries older code.
    """
    return not url.startswith("postgres")


async def check_code(store: Store, app: App) -> Check:
    """What `daybell doctor` says of an app's code: whether the store goes by what it says. What is
    new in it will be defined by the next start, and is nobody's problem.
    """
    from daybell.cli import show
    from daybell.client.graphs import check_together
    from daybell.client.superseded import described, find_superseded, way_back
    from daybell.core.view import Check
    from daybell.errors import UsageError

    wanted = app.definitions()
    try:
        await check_together(store, app.tenant, wanted)
    except UsageError as error:
        advice = "mend the code: no worker can start with it"
        return Check(name="code", is_ok=False, found=str(error), advice=advice)
    found = await find_superseded(store, app.tenant, wanted)
    jobs = show.count(len(wanted), "job")
    if not found:
        return Check(name="code", is_ok=True, found=f"{jobs}, none in an older version")
    old = f"{len(found):,} of {jobs} in an older version: {described(found)}"
    advice = f"go back with {way_back(found)}; or run newer code"
    return Check(name="code", is_ok=False, found=old, advice=advice)


def declare_jobs(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="module:app, module or path/to/file.py. Default: DAYBELL_APP.",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Default: the app's.", show_default=False),
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make what an app's code says of its jobs current.

    Also where that goes back to an older version, which a worker leaves alone.
    """
    flag = chosen(context, database_url)
    command = partial(_declare, spec=app, tenant=tenant, as_json=as_json, flag=flag)
    run(context, command, database_url)


async def _declare(
    settings: Settings, *, spec: str | None, tenant: str | None, as_json: bool, flag: str | None
) -> int:
    from daybell.cli import show
    from daybell.cli.apps import connected, find_app
    from daybell.cli.edge import check_store
    from daybell.core.limits import check_name
    from daybell.errors import UsageError

    if (spec or settings.app) is None:
        raise UsageError("say which app: module:app, or path/to/file.py")
    app = find_app(spec, settings, flag=flag)
    check_store(settings, "jobs declare", url=app.url)
    if tenant is not None:
        app.tenant = check_name(tenant, what="tenant")
    async with connected(app):
        back = await _go_back(app)
    names = [definition.name for definition in app.definitions()]
    if as_json:
        show.echo_json({"jobs": names, "back": {job.name: job.version for job in back}})
        return DONE
    for job in back:
        typer.echo(f"{job.name} is again what it was, as version {job.version}")
    typer.echo(f"as the code says: {show.count(len(names), 'job')}")
    return DONE


async def _go_back(app: App) -> list[Job]:
    """A person has asked for it, so it goes on record."""
    from daybell.cli.recording import MANY, on_record

    found = [one.current for one in app.declaring.superseded.values()]
    if not found:
        return []
    client = await app.open()
    before = {job.name: job.version for job in found}
    after = {"author": app.author}
    with on_record(client, "job.declare", MANY, before=before, after=after):
        return await app.declaring.go_back(client, author=app.author)
