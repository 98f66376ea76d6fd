"""Declarations of jobs in files, templates that jobs are made from, and warnings about a
definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Unpack, cast

import msgspec

from daybell.client.context import ClientContext
from daybell.client.job_checks import describe_broken_uses, find_mismatched_schedules
from daybell.client.jobs import check_version, define_jobs, definition_of
from daybell.client.when import check_dependencies
from daybell.client.workers import describe_lack, find_capable_workers
from daybell.core import payload
from daybell.core.job import TEMPLATES, Job, JobDefinition, NewTemplate, Template, check_lines
from daybell.core.job_request import build_request, check_fields, read_request, require_choice
from daybell.core.kinds import SETTINGS, read_settings, secrets_of, warnings_of
from daybell.core.kinds.settings import PRIVATE, why_private
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.options import OPTIONS, JobFields, is_by_code
from daybell.core.references import names_in_args
from daybell.core.views import Page, read_pages
from daybell.core.when import Schedule
from daybell.core.when.declared import check_future, has_delay
from daybell.core.workflow.graph import Graph
from daybell.errors import (
    DuplicateKey,
    InvalidSchedule,
    JobNotFound,
    UsageError,
    VersionConflict,
    faults_of,
    shown,
)
from daybell.store.protocol import Store

# Warnings about a job: likely mistakes that are allowed all the same.


async def warnings(client: ClientContext, job: str, *, deleting: bool = False) -> list[str]:
    """Return warnings about the current state of a job, in sentences for people. With `deleting`,
    the job is to be deleted or was: return the effects on jobs that need it, and whether code
    restores it.
    """
    if deleting:
        known = (await client.store.catalog.list_versions(client.tenant, job, limit=1)).items[0]
        return await describe_broken_uses(client.store, client.tenant, known)
    definition = (await client.store.catalog.get_job(client.tenant, job)).definition
    return await warnings_about(client.store, client.tenant, definition)


async def warnings_about(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    """Return warnings about a definition in the current state of the store."""
    rules = [Schedule.from_json(text) for text in definition.schedules]
    found = [warning for rule in rules for warning in rule.warnings()]
    if definition.kind in SETTINGS:
        found += warnings_of(read_settings(definition.kind, payload.decode(definition.settings)))
    graph = None
    if definition.kind == "workflow":
        graph = Graph.from_settings(definition.settings)
        found += _about_nodes(graph)
        with suppress(JobNotFound):  # it is not created yet
            page = await store.schedules.list_job_schedules(
                tenant, definition.name, limit=PAGE_ITEMS_MAX
            )
            found += find_mismatched_schedules(definition, page.items)
    return [
        *found,
        *await _unset_secrets(store, tenant, definition),
        *await _unoffered(store, tenant, [definition, *_inner(definition, graph)]),
        *await _private(store, tenant, [definition, *_inner(definition, graph)]),
    ]


def _about_nodes(graph: Graph) -> list[str]:
    """Return warnings about parameters, and about nodes without code, as far as these do not depend
    on results.
    """
    used = {name for node in graph.nodes for name in node.params}
    told = [
        f"parameter {param.name} is used by no node; a node refers to it as"
        f' {{"param": "{param.name}"}}'
        for param in graph.params
        if param.name not in used
    ]
    for node in graph.nodes:
        if node.kind in SETTINGS and not node.outputs and not node.has_item and not node.params:
            said = warnings_of(read_settings(node.kind, node.runs))
            told += [f"node {node.name}: {one}" for one in said]
    return told


def _inner(definition: JobDefinition, graph: Graph | None) -> list[JobDefinition]:
    """Return the definitions by which the nodes without code run."""
    nodes = () if graph is None else graph.nodes
    return [
        graph.definition_of(node, definition) for node in nodes if graph and node.kind in SETTINGS
    ]


async def _unset_secrets(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    used = secrets_of(definition.kind, payload.decode(definition.settings))
    used |= names_in_args(payload.decode(definition.args))
    if not used:
        return []
    known = {one.name for one in await store.admin.list_secrets(tenant)}
    return [
        f"secret {name} is not set, so it fails until `daybell secrets set {name}` was run"
        for name in sorted(used - known)
    ]


async def _unoffered(store: Store, tenant: str, definitions: Sequence[JobDefinition]) -> list[str]:
    """Return warnings about needs that no worker meets. Tasks are left out: their workers come with
    the code, often after the job.
    """
    lanes = dict.fromkeys((one.queue, one.needs) for one in definitions if one.kind != "task")
    if not lanes:
        return []
    workers, now = await store.catalog.list_workers(tenant), (await store.health()).now
    lacks = [
        describe_lack(needs, queue=queue)
        for queue, needs in lanes
        if not find_capable_workers(workers, queue=queue, needs=needs, now=now)
    ]
    return [f"{lack.found}, so it waits; {lack.advice}" for lack in lacks]


async def _private(store: Store, tenant: str, definitions: Sequence[JobDefinition]) -> list[str]:
    """Return warnings about requests to addresses that workers refuse by default."""
    places: dict[tuple[str, str], None] = {}
    for one in definitions:
        url = payload.decode(one.settings).get("url") if one.kind == "http" else None
        why = why_private(url) if isinstance(url, str) else None
        if why is not None:
            places[one.queue, why] = None
    if not places:
        return []
    workers, now = await store.catalog.list_workers(tenant), (await store.health()).now
    lacks = [
        (describe_lack(PRIVATE, queue=queue), why)
        for queue, why in places
        if not find_capable_workers(workers, queue=queue, needs=PRIVATE, now=now)
    ]
    return [f"{lack.found}, and {why}, so it would fail; {lack.advice}" for lack, why in lacks]


CREATED: Final = "created"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"


class ApplyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of declaring a job, or of a dry run of that."""

    action: str  # created, changed or unchanged
    before: dict[str, Any] | None  # the request for its old definition; None: there was none
    after: dict[str, Any]
    job: Job | None  # None: in a dry run it does not exist
    warnings: list[str]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A field with a changed value. A value that is absent on one side is UNSET there."""

    field: str  # by its path: "schedule", "http.headers.Accept"
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


def diff_requests(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the differences of two requests, field by field. Objects are compared recursively,
    lists as a whole.
    """
    return list(_differences(before, after, ""))


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[Change]:
    found: list[Change] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, msgspec.UNSET), after.get(name, msgspec.UNSET)
        where = f"{path}.{name}" if path else name
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
            found += _differences(*inner, where)
        elif not is_same_json(old, new):
            found.append(Change(field=where, before=old, after=new))
    return found


def is_same_json(one: Any, other: Any) -> bool:
    """Return True if two values are the same as JSON: 1 is not true, and the order of keys is
    ignored.
    """
    if one is msgspec.UNSET or other is msgspec.UNSET:
        return one is other
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # takes half a surrogate pair, too


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A declared job before it is made: its definition, and the version that it follows."""

    definition: JobDefinition
    version: int
    outcome: ApplyOutcome


async def apply_job(
    client: ClientContext,
    name: str,
    *,
    author: str = "",
    expect: int | None = None,
    dry_run: bool = False,
    **fields: Unpack[JobFields],
) -> ApplyOutcome:
    """Make a job match this declaration exactly. Without a schedule the job never starts by itself.
    A job that already matches stays unchanged.

    With `expect`, the job must be at that version; 0 requires a new name. A job that code defines
    is refused.
    """
    planned = await plan_job(client, name, fields, expect=expect, is_dry=dry_run)
    return planned.outcome if dry_run else await make_planned(client, planned, author=author)


async def plan_job(
    client: ClientContext,
    name: str,
    fields: Mapping[str, Any],
    *,
    expect: int | None = None,
    is_dry: bool = False,
    faults: Iterable[UsageError] = (),
) -> PlannedJob:
    """Return the job that `apply_job` makes. `faults` are of the request beside its options."""
    said = {
        name: value
        for name, value in fields.items()
        if value is not None or (name in OPTIONS and OPTIONS[name].null_is_none)
    }
    request = read_request(name, said, what=f"job {shown(name)}", is_draft=True)
    request.faults += [*faults, *_refuse_delays(said.get("schedule"))]
    definition = await definition_of(client, request, is_new=False, is_dry=is_dry)
    there, version = await _there(client, name)
    if expect is not None and there is None and expect != 0:
        raise VersionConflict(f"there is no job named {shown(name)}, at no version")
    if there is not None:
        check_version(there, expect)
        if is_by_code(there.definition):
            raise DuplicateKey(
                f"job {shown(name)} is defined by code, which says what it is; take another name"
            )
    before = None if there is None else build_request(there.definition)
    after = build_request(definition)
    is_same = before is not None and is_same_json(before, after)
    if there is None or there.definition.schedules != definition.schedules:
        now = (await client.store.health()).now if definition.schedules else 0.0
        for rule in definition.schedules:
            request.note("schedule", check_future, Schedule.from_json(rule), now)
        request.check()
    if not is_same:
        await check_dependencies(client.store, client.tenant, definition, is_dry=is_dry)
    outcome = ApplyOutcome(
        action=UNCHANGED if is_same else CREATED if before is None else CHANGED,
        before=before,
        after=after,
        job=there,
        warnings=await warnings_about(client.store, client.tenant, definition),
    )
    return PlannedJob(definition=definition, version=version, outcome=outcome)


async def make_planned(
    client: ClientContext, planned: PlannedJob, *, author: str = ""
) -> ApplyOutcome:
    """Make a planned job, unless it exists already."""
    if planned.outcome.action == UNCHANGED:
        return planned.outcome
    (job,) = await define_jobs(
        client, [planned.definition], author=author, expect=planned.version, promote=True
    )
    return msgspec.structs.replace(planned.outcome, job=job)


def _refuse_delays(schedule: Any) -> list[UsageError]:
    """Return the fault of a schedule that would be another time each time it is declared."""
    if not has_delay(schedule):
        return []
    fault = (
        "a delay counts from now, so it would be another time whenever this is applied; give a"
        " time with at"
    )
    return [InvalidSchedule(fault, field="schedule")]


async def _there(client: ClientContext, name: str) -> tuple[Job | None, int]:
    """Return the current job, and the version that a change follows."""
    try:
        job = await client.store.catalog.get_job(client.tenant, name)
        return job, job.version
    except JobNotFound:
        pass
    try:
        page = await client.store.catalog.list_versions(client.tenant, name, limit=1)
        return None, page.items[0].version
    except JobNotFound:
        return None, 0


def diff_versions(before: Job | None, after: Job) -> list[Change]:
    """Return the changes of a job's version since the one before it; none for the first."""
    if before is None:
        return []
    return diff_requests(build_request(before.definition), build_request(after.definition))


# Templates: jobs with blanks, from which others are made.


async def set_template(
    client: ClientContext, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
) -> Template:
    """Store a template: an object with `name`, `parameters` and `job`. It replaces a template of
    the same name; jobs that were made from that one do not change.

    With `expect`, the template must be at that version; 0 requires a new name.
    """
    new = read_template(value)
    return await client.store.admin.put_record(
        client.tenant, TEMPLATES, new, author=author, expect=expect
    )


async def template(client: ClientContext, name: str) -> Template:
    """A template. Raises TemplateNotFound."""
    return await client.store.admin.get_record(client.tenant, TEMPLATES, name)


async def templates_page(
    client: ClientContext, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Template]:
    """Templates, by name."""
    return await client.store.admin.list_records(
        client.tenant, TEMPLATES, limit=limit, cursor=cursor
    )


async def templates(client: ClientContext) -> list[Template]:
    """All templates, by name."""
    pages = read_pages(lambda at: templates_page(client, limit=PAGE_ITEMS_MAX, cursor=at))
    return [one async for page in pages for one in page]


async def delete_template(client: ClientContext, name: str, *, expect: int | None = None) -> None:
    """Remove a template. Jobs that were made from it stay."""
    await client.store.admin.delete_record(client.tenant, TEMPLATES, name, expect=expect)


def read_template(value: object) -> NewTemplate:
    """Return a template if its fields exist and one of them specifies the work of the job.

    The template is checked as a whole if it needs no parameters. Otherwise its errors appear when a
    job is made from it.
    """
    new = NewTemplate.parse(value)
    try:
        check_fields(new.job, "a job")
        choice = require_choice(new.job)
        check_lines(new.job)
        if not any(one.is_required for one in new.parameters.values()):
            filled = new.job_with({})
            if choice == "workflow":
                Graph.parse(filled["workflow"])
            read_request("job", filled, is_draft=True).check()
    except UsageError as error:
        for one in {*faults_of(error), error}:
            one.field = "job" if one.field is None else f"job.{one.field}"
        raise
    return new
