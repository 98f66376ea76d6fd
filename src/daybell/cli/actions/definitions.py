"""The work of `daybell jobs create`, `update`, `delete`, `rollback` and others on definitions,
and of `daybell templates`."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import typer

from daybell.cli import output
from daybell.cli.actions.job_options import (
    Work,
    read_options,
    rephrase_definition_error,
    rephrase_errors,
    work_changes,
    work_fields,
)
from daybell.cli.actions.selection import explain_missing_job
from daybell.cli.apply.declarations import Declaration, Declarations, read_declaration
from daybell.cli.apply.files import read_file, write_yaml
from daybell.cli.apply.plan import echo_change, template_fields
from daybell.cli.apps import connect_app, find_app
from daybell.cli.connection import MANY, audited, client_for
from daybell.cli.output import Column
from daybell.cli.references import format_references
from daybell.cli.runtime import DONE, print_stderr, require_store
from daybell.cli.terminal import confirm, current_actor
from daybell.cli.views.jobs import (
    describe_schedule,
    echo_schedules,
    echo_versions,
    next_run,
    required_args,
)
from daybell.client import answers, wire
from daybell.client.declarations import diff_requests, read_template
from daybell.client.job_checks import (
    add_versions,
    check_definitions,
    describe_superseded,
    describe_way_back,
    find_superseded,
)
from daybell.client.remote.client import AnyClient
from daybell.core.job import Job, Parameter
from daybell.core.job_request import build_request
from daybell.core.limits import check_name
from daybell.core.views import Check, Page
from daybell.errors import DuplicateKey, InvalidFields, JobNotFound, UsageError, VersionConflict
from daybell.sdk.app import App, superseded_warning
from daybell.settings import Settings
from daybell.store.protocol import Store


async def create_job(
    settings: Settings,
    *,
    name: str | None,
    work: Work,
    said: dict[str, Any],
    tenant: str | None,
    as_json: bool,
) -> int:
    options = read_options(said)
    found = _in_file(work, name)
    name = name if found is None else found.name
    assert name is not None, "it was asked for, or is in the file"
    async with client_for(settings, tenant=tenant) as client:
        with rephrase_errors(rephrase_definition_error):
            fields = await work_fields(client, work) if found is None else found.fields
        with rephrase_errors(rephrase_definition_error), _placing(found, options):
            await client.create(name, author=current_actor(), **{**fields, **options})
        return await report_job(client, name, as_json=as_json)


async def update_job(
    settings: Settings,
    *,
    name: str,
    work: Work,
    said: dict[str, Any],
    tenant: str | None,
    as_json: bool,
) -> int:
    options = read_options(said)
    if not options and not work.is_said:
        raise typer.BadParameter("say what to change, such as --cron or --queue")
    found = _in_file(work, name)
    fields: dict[str, Any] = {} if found is None else found.fields
    async with client_for(settings, tenant=tenant) as client:
        known = await client.job(name)
        if work.is_said and found is None:
            fields = await work_changes(client, known.definition, work)
        with rephrase_errors(rephrase_definition_error), _placing(found, options):
            # `expect` keeps a change that another user made since this command read the job.
            how: dict[str, Any] = {"author": current_actor(), "expect": known.version}
            await client.update(name, **how, **{**fields, **options})
        return await report_job(client, name, as_json=as_json)


def _in_file(work: Work, name: str | None) -> Declaration | None:
    """Return the one job in the named file; None: no file was named."""
    if work.choice != "from_file":
        return None
    path: str = work.main
    documents = read_file(Path(path))
    if len(documents) != 1:
        there = "nothing" if not documents else f"{len(documents):,} documents"
        raise UsageError(f"{path} has {there} in it, not one job; daybell apply takes several")
    (document,) = documents
    value: Any = document.value
    if isinstance(value, dict) and {"jobs", "templates", "job"} & {*cast("dict[str, Any]", value)}:
        raise UsageError(f"{path} has more than a job in it; daybell apply -f {path} takes it")
    try:
        return read_declaration("job", value, document, name=name)
    except UsageError as error:
        where = document.place(tuple(error.field.split(".")) if error.field else ())
        raise UsageError(f"{where}: {error}", field=error.field) from None


@contextmanager
def _placing(found: Declaration | None, options: Mapping[str, Any]) -> Generator[None]:
    """Add the place in the file to an error."""
    try:
        yield
    except UsageError as error:
        field = None if found is None else next(iter(found.blamed(error)), None)
        if found is None or field not in found.fields or field in options:
            raise
        raise InvalidFields([UsageError(line) for line in found.told(error)]) from None


async def print_job_file(
    settings: Settings, *, name: str, version: int | None, tenant: str | None
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            job = await client.job_named(name)
        if version is not None:
            job = await client.job(job.name, version=version)
    said = build_request(job.definition)
    said.pop("source", None)  # the command that applies it sets it
    typer.echo(write_yaml(said), nl=False)
    return DONE


async def report_job(client: AnyClient, name: str, *, as_json: bool) -> int:
    """Report the state of a changed job, with the warnings about it."""
    standing = await client.standing(name)
    for warning in await client.warnings(name):
        print_stderr(f"warning: {output.printable(rephrase_definition_error(warning))}")
    if as_json:
        output.echo_json(standing)
        return DONE
    args = required_args(standing.definition)
    runs = f"runs when triggered: daybell jobs trigger {shlex.quote(name)}{args}"
    if standing.next_run_at:
        runs = f"runs next {next_run(standing)}"
    if standing.paused_at is not None:
        runs = "is paused"
    typer.echo(output.printable(f"{name} is at version {standing.version} and {runs}"))
    for schedule in standing.schedules:
        typer.echo(output.printable(f"  {describe_schedule(schedule)}"))
    return DONE


async def delete_job(
    settings: Settings, *, name: str, force: bool, yes: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            found = (await client.job_named(name)).name
        warnings = await client.warnings(found, deleting=True)
        for warning in warnings:  # in the answer, too, but that comes after the question
            print_stderr(f"warning: {output.printable(warning)}")
        counts = await client.count(job=found, status=["pending", "running"])
        confirm(
            f"delete job {found}? Its schedules go, and what has not ended is cancelled"
            f" (executions: {counts.total:,}).",
            yes=yes,
        )
        cancelled = await client.delete_job(found, force=force)
    if as_json:
        output.echo_json({"name": found, "cancelled": cancelled, "warnings": warnings})
    else:
        typer.echo(f"{found} is deleted; executions cancelled: {cancelled:,}")
    return DONE


async def list_versions(
    settings: Settings, *, name: str, asked: dict[str, Any], tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        standing = await client.standing(name)
        page = await client.versions_page(standing.name, **asked)
    if as_json:
        output.echo_json(answers.page(page, answers.shorten_version))
    else:
        echo_versions(page.items)
        output.echo_more(page.next_cursor)
    return DONE


async def list_schedules(
    settings: Settings, *, name: str, asked: dict[str, Any], tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        job = await client.job_named(name)
        page = await client.schedules_page(job.name, **asked)
        now = (await client.health()).now
    if as_json:
        output.echo_json(page)
    else:
        echo_schedules(page.items, now=now)
        output.echo_more(page.next_cursor)
    return DONE


async def compare_versions(
    settings: Settings,
    *,
    name: str,
    old: int | None,
    new: int | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        last = await client.standing(name)
        found = last.name
        new = last.version if new is None else new
        old = new - 1 if old is None else old
        if old == 0:
            raise UsageError(f"{found} has one version only, so there is nothing to compare")
        for number in (old, new):
            if number > last.version:
                raise JobNotFound(_no_version(found, number, last.version))
        versions = {number: await client.job(found, version=number) for number in (old, new)}
    changes = diff_requests(*(build_request(versions[n].definition) for n in (old, new)))
    if as_json:
        said = [answers.change(change) for change in changes]
        output.echo_json({"name": found, "from": old, "to": new, "changes": said})
        return DONE
    by = versions[new]
    who = f" by {by.author}" if by.author else ""
    since = f"{output.format_moment(by.created_at)}{who}"
    echo_change("~", f"{found}: version {old} → version {new}, since {since}", changes)
    if not changes:
        typer.echo("    no difference")
    return DONE


def _no_version(name: str, version: int, newest: int) -> str:
    has = f"1 to {newest}" if newest > 1 else "1 only"
    return f"job {name} has no version {version}; it has {has}"


async def rollback_job(
    settings: Settings, *, name: str, version: int, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            known = await client.job_named(name)
        found = known.name
        if known.version == version:
            raise UsageError(f"{found} is at version {version} already", field="version")
        try:
            await client.rollback(found, version, author=current_actor())
        except JobNotFound:
            raise JobNotFound(_no_version(found, version, known.version)) from None
        return await report_job(client, found, as_json=as_json)


# Code that repeats an earlier definition of a job: how the user is told and makes it current.
#
# A replaced definition does not come back because a process that has it starts: in a rolling
# deploy, that process may be an old one.


async def restore_superseded(app: App, *, go_back: bool) -> None:
    """Make the definitions of the code current where the store has others, or warn of them."""
    found = list(app.declaring.superseded.values())
    if not found:
        return
    client = await app.open()
    if not go_back:
        print_stderr(f"warning: {await superseded_warning(client, found)}")
        return
    was = describe_superseded(await add_versions(client.store, found), verb="was")
    app.handlers.learn(await _restore_definitions(app))
    print_stderr(f"note: went back to what the code says: {was}")


def is_private_store(url: str) -> bool:
    """Return true if one developer probably uses the store alone. Many users may share a server's
    store. Their later changes are not undone because one of them tries older code.
    """
    return not url.startswith("postgres")


async def check_app_code(store: Store, app: App) -> Check:
    """Check for `daybell doctor` that the store follows the definitions of an app's code. The next
    start defines the new ones, so they are no problem.
    """
    wanted = app.definitions()
    try:
        await check_definitions(store, app.tenant, wanted)
    except UsageError as error:
        advice = "mend the code: no worker can start with it"
        return Check(name="code", is_ok=False, found=str(error), advice=advice)
    found = await find_superseded(store, app.tenant, wanted)
    jobs = output.format_count(len(wanted), "job")
    if not found:
        return Check(name="code", is_ok=True, found=f"{jobs}, none in an older version")
    old = f"{len(found):,} of {jobs} in an older version: {describe_superseded(found)}"
    advice = f"go back with {describe_way_back(found)}; or run newer code"
    return Check(name="code", is_ok=False, found=old, advice=advice)


async def declare_jobs(
    settings: Settings, *, spec: str | None, tenant: str | None, as_json: bool, flag: str | None
) -> int:
    if (spec or settings.app) is None:
        raise UsageError("say which app: module:app, or path/to/file.py")
    app = find_app(spec, settings, flag=flag)
    require_store(settings, "jobs declare", url=app.url)
    if tenant is not None:
        app.tenant = check_name(tenant, what="tenant")
    async with connect_app(app):
        back = await _restore_definitions(app)
    names = [definition.name for definition in app.definitions()]
    if as_json:
        output.echo_json({"jobs": names, "back": {job.name: job.version for job in back}})
        return DONE
    for job in back:
        typer.echo(f"{job.name} is again what it was, as version {job.version}")
    typer.echo(f"as the code says: {output.format_count(len(names), 'job')}")
    return DONE


async def _restore_definitions(app: App) -> list[Job]:
    """Make the code's definitions current. A person has asked for it, so it goes on record."""
    found = [one.current for one in app.declaring.superseded.values()]
    if not found:
        return []
    client = await app.open()
    before = {job.name: job.version for job in found}
    after = {"author": app.author}
    recorded = audited(client, "job.declare", MANY, before=before, after=after)
    return await app.declaring.promote(recorded, author=app.author)


# `daybell templates`: job definitions with parameters.


async def list_templates(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    """List the templates, by name."""
    async with client_for(settings, tenant=tenant) as client:
        templates = await client.templates()
    if as_json:
        output.echo_json(Page(items=tuple(map(answers.shorten_template, templates))))
        return DONE
    rows = [
        (
            one.name,
            one.version,
            ", ".join(one.parameters),
            one.description,
            output.format_moment(one.updated_at),
            one.author,
        )
        for one in templates
    ]
    columns = (
        Column("name", least=20, rank=0),
        Column("version"),
        Column("parameters", least=16, rank=2),
        Column("description", least=16, rank=3),
        Column("since", rank=4),
        Column("author", least=8, rank=5),
    )
    none = "no templates; daybell templates create -f FILE makes one"
    output.echo_table(columns, rows, empty=none)
    return DONE


async def show_template(
    settings: Settings, *, name: str, as_yaml: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.template(name)
    if as_json:
        output.echo_json(found)
    elif as_yaml:
        typer.echo(write_yaml({"name": found.name, **template_fields(found.template)}), nl=False)
    else:
        _echo_template(found)
        typer.echo("\njob")
        typer.echo(write_yaml(found.job, indent="  "), nl=False)
    return DONE


async def create_template(
    settings: Settings, *, file: str, replace: bool, tenant: str | None, as_json: bool
) -> int:
    value = _read_template(file)
    async with client_for(settings, tenant=tenant) as client:
        try:
            expect = None if replace else 0
            made = await client.set_template(value, author=current_actor(), expect=expect)
        except (VersionConflict, DuplicateKey):
            if replace:
                raise
            raise DuplicateKey(
                f"there is a template named {value['name']!r} already; --replace takes its place"
            ) from None
    if as_json:
        output.echo_json(made)
    else:
        blanks = ", ".join(made.parameters) or "none"
        typer.echo(f"template {made.name} is at version {made.version}; parameters: {blanks}")
    return DONE


async def delete_template(
    settings: Settings, *, name: str, yes: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.template(name)
        confirm(f"delete template {found.name}? Jobs that were made from it stay.", yes=yes)
        await client.delete_template(name)
    if as_json:
        output.echo_json({"name": found.name})
    else:
        typer.echo(f"template {found.name} is deleted")
    return DONE


def _read_template(file: str) -> dict[str, Any]:
    """Return the one template in a file. Check it first, so that an error names its line."""
    found = Declarations(read_file(Path(file)))
    if found.faults:
        raise UsageError(found.faults[0])
    if len(found.templates) != 1 or found.jobs:
        raise UsageError(
            f"{file} must have one template in it, an object with name, parameters and job;"
            " daybell apply takes several"
        )
    (declared,) = found.templates.values()
    try:
        read_template(declared.fields)
    except UsageError as error:
        raise InvalidFields([UsageError(line) for line in declared.told(error)]) from None
    return declared.fields


def _echo_template(found: wire.Template) -> None:
    output.echo_fields(
        {
            "name": found.name,
            "description": found.description,
            "version": f"{found.version}, since {output.format_moment(found.updated_at)}",
            "author": found.author,
        }
    )
    known = found.template.parameters
    output.echo_fields({f"  {name}": _describe_parameter(one) for name, one in known.items()})


def _describe_parameter(parameter: Parameter) -> str:
    """Describe the values that a parameter accepts."""
    words: list[str] = [parameter.type]
    if parameter.is_required:
        words.append("required")
    else:
        words.append(f"default {format_references(parameter.default)}")
    if parameter.choices:
        words.append(f"one of {', '.join(map(format_references, parameter.choices))}")
    if parameter.minimum is not None:
        words.append(f"at least {parameter.minimum:g}")
    if parameter.maximum is not None:
        words.append(f"at most {parameter.maximum:g}")
    described = f": {parameter.description}" if parameter.description else ""
    return ", ".join(words) + described
