"""Checks of jobs against the store: workflow graphs, workflow arguments, uses of a job, superseded
versions, and names that are similar to a missing one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybell.client.context import ClientContext, Takes
from daybell.client.requests import Id
from daybell.client.when import check_dependencies
from daybell.core import payload
from daybell.core.execution import NewExecution, distinct_in
from daybell.core.ids import id_in
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.options import task_of
from daybell.core.schedule import Schedule, has_times, is_event
from daybell.core.units import to_iso
from daybell.core.views import JobFilter, read_pages
from daybell.core.when.event import sample_args
from daybell.core.workflow.graph import (
    Graph,
    check_given,
    check_passed,
    decode_args,
    describe_cycle,
    find_cycle,
    inner_jobs,
)
from daybell.core.workflow.graph import params_of as graph_params
from daybell.core.workflow.node import JOB, GraphNode
from daybell.errors import (
    COMPARED_MAX,
    Conflict,
    InvalidArguments,
    InvalidWorkflow,
    JobNotFound,
    NotFound,
    Unavailable,
    UnknownJob,
    listed,
    shown,
    suggested,
)
from daybell.store.protocol import Store

# Larger ones are read in a thread: meanwhile, all others would have to wait.
QUICK: Final = 1_000


async def read_workflow(
    store: Store, tenant: str, value: Any, *, job: str, is_dry: bool = False
) -> Graph:
    """Read a workflow that is to be the job of this name. Fields that its nodes leave out come from
    the tasks that they run. In a dry run, the jobs of its nodes need not exist yet.
    """
    graph = await (_read_in_thread(value) if _size(value) > QUICK else _read(value))
    tasks: dict[str, JobDefinition] = {}
    for name, field in _first_uses(graph.nodes, "task"):
        tasks[name] = await find_task_definition(store, tenant, name, field=field)
    _check_names(graph.nodes, tasks)
    uses = dict(_first_uses(graph.nodes, JOB))
    inner = await _inner_jobs(store, tenant, uses, job=job, is_dry=is_dry)
    circle = await _find_cycle(store, tenant, {job: tuple(uses)}, beside=inner)
    if circle:
        raise InvalidWorkflow(describe_cycle(circle), field=uses.get(circle[1]))
    if not is_dry:  # else they may be about to change
        for one in inner:
            if one.kind == "workflow":
                _check_inner(graph.nodes, one)
    # A job may run a task of another name.
    known = {name: task_of(one) or one.name for name, one in tasks.items()}
    return graph.inherit(tasks) if all(k == v for k, v in known.items()) else _renamed(graph, tasks)


async def find_task_definition(
    store: Store, tenant: str, task: str, *, field: str = "task"
) -> JobDefinition:
    """Return the definition of a task that the store knows, or of a job that runs one."""
    try:
        known = (await store.catalog.get_job(tenant, task)).definition
    except JobNotFound:
        raise UnknownJob(
            f"the store knows no task named {shown(task)}; a worker of the app that has it"
            " tells the store at its start",
            field=field,
        ) from None
    if known.kind != "task":
        raise UnknownJob(f"job {shown(task)} is a {known.kind}, not a task", field=field)
    return known


def _check_names(nodes: Iterable[GraphNode], tasks: Mapping[str, JobDefinition]) -> None:
    """Refuse arguments that the task of a node does not have. Results of other nodes may supply
    those that are missing.
    """
    for place, node in enumerate(nodes):
        text = tasks[node.runs].signature if node.kind == "task" else ""
        if not text:
            continue
        called = replace(payload.read_signature(text), required=())
        try:
            called.check(node.args, what=f"task {shown(node.runs)}")
        except InvalidArguments as error:
            raise InvalidWorkflow(
                f"node {shown(node.name)}: {error}",
                field=f"workflow.nodes[{place}].args.{error.field}",
            ) from None


async def _read(value: Any) -> Graph:
    return Graph.parse(value)


async def _read_in_thread(value: Any) -> Graph:
    return await asyncio.to_thread(Graph.parse, value)


def _size(value: Any) -> int:
    if not isinstance(value, Mapping):
        return 0
    parts = [cast("Mapping[str, Any]", value).get(name) for name in ("nodes", "edges")]
    return sum(len(cast("list[Any]", part)) for part in parts if isinstance(part, list))


def _first_uses(nodes: Iterable[GraphNode], kind: str) -> list[tuple[str, str]]:
    """Return the tasks, or jobs, that nodes run, each with the place of its first use."""
    found: dict[str, str] = {}
    for place, node in enumerate(nodes):
        if node.kind == kind:
            found.setdefault(node.runs, f"workflow.nodes[{place}].{kind}")
    return list(found.items())


def _renamed(graph: Graph, tasks: Mapping[str, JobDefinition]) -> Graph:
    said = graph.inherit(tasks)
    nodes = [
        replace(node, runs=task_of(tasks[node.runs]) or tasks[node.runs].name)
        if node.kind == "task"
        else node
        for node in said.nodes
    ]
    return replace(said, nodes=tuple(nodes))


async def _inner_jobs(
    store: Store, tenant: str, uses: Mapping[str, str], *, job: str, is_dry: bool
) -> list[JobDefinition]:
    """Return the jobs that a workflow runs beside itself. A job that does not exist is refused."""
    found: list[JobDefinition] = []
    for name, field in uses.items():
        try:
            if name != job:
                found.append((await store.catalog.get_job(tenant, name)).definition)
        except JobNotFound:
            if not is_dry:  # else it may be to be made yet
                raise UnknownJob(
                    f"there is no job named {shown(name)}; create it first", field=field
                ) from None
    return found


async def check_definitions(
    store: Store, tenant: str, definitions: Sequence[JobDefinition]
) -> None:
    """Refuse jobs that are defined together and cannot be: with dependencies that do not exist, or
    that lead in a circle; workflows that would run each other, also by way of jobs that are there.

    A job that is not there yet may be run by a workflow: it is looked up when its turn comes.
    """
    for one in definitions:
        await check_dependencies(store, tenant, one, beside=definitions)
    circle = await _find_cycle(store, tenant, {one.name: inner_jobs(one) for one in definitions})
    if circle:
        raise InvalidWorkflow(describe_cycle(circle))


async def _find_cycle(
    store: Store,
    tenant: str,
    jobs: Mapping[str, Collection[str]],
    *,
    beside: Iterable[JobDefinition] = (),
) -> list[str]:
    """Return a cycle of workflows that these jobs would be in, or would run. Each is given with the
    jobs that it runs; those `beside` them have been looked up.
    """
    found = {one.name: inner_jobs(one) for one in beside}
    found = {**jobs, **{name: runs for name, runs in found.items() if name not in jobs}}
    missing = [name for runs in found.values() for name in runs]
    while missing:
        name = missing.pop()
        if name in found:
            continue
        try:
            found[name] = inner_jobs((await store.catalog.get_job(tenant, name)).definition)
        except JobNotFound:
            found[name] = ()
        missing += found[name]
    return find_cycle(found)


def _check_inner(nodes: Iterable[GraphNode], inner: JobDefinition) -> None:
    """Refuse to run a workflow with arguments that do not match its parameters."""
    params = graph_params(inner.settings)
    for place, node in enumerate(nodes):
        if node.kind == JOB and node.runs == inner.name:
            try:
                check_passed(params, node.args, what=f"workflow {shown(inner.name)}")
            except InvalidArguments as error:
                raise InvalidWorkflow(
                    f"node {shown(node.name)}: {error}",
                    field=f"workflow.nodes[{place}].args.{error.field}",
                ) from None


# Arguments of workflows and tasks, checked before an execution exists that would die of them. The
# signature of a task is what its code has declared; a job without one takes any arguments.
#
# A caller that bypasses this check, such as a function in the database, gets the error from the
# execution: it is dead at once, and its error says the same.

WORKFLOW: Final = "workflow"
KEPT_SECONDS: Final = 5.0  # definitions may be large; a cached one never causes a refusal
OTHERS_KEPT_SECONDS: Final = 60.0  # of a job that is no workflow
KEPT_MAX: Final = 10_000


def note_params(client: ClientContext, jobs: Iterable[Job]) -> None:
    """Cache the parameters of these jobs, which were just defined."""
    for job in jobs:
        # A job that runs the task of another name is looked up when it is called.
        if job.is_current and task_of(job.definition) is None:
            _keep(client, job.name, _params_in(job.definition))


async def check_calls(
    client: ClientContext, executions: Sequence[NewExecution], *, is_bound: bool = False
) -> None:
    """Refuse arguments that do not match the workflows and tasks among these. `is_bound`: the code
    of the tasks has checked them. Raises InvalidArguments.
    """
    names = {new.job for new in distinct_in(executions)}
    if all(needs_no_check(client, name, is_bound=is_bound) for name in names):
        return
    unknown = [name for name in names if not _is_known(client, name)]
    answers = (
        await asyncio.gather(*(params_of(client, name) for name in unknown)) if unknown else ()
    )
    found = dict(zip(unknown, answers, strict=True))
    for name in names:
        params = found[name] if name in found else await params_of(client, name)
        if params is None or (is_bound and isinstance(params, payload.Signature)):
            continue
        try:
            _check_all(name, params, executions)
        except InvalidArguments:
            # Perhaps it has changed since.
            params = await params_of(client, name, is_fresh=True)
            if params is not None:
                _check_all(name, params, executions)


def checked_calls(
    params: Takes | None, executions: Iterable[NewExecution], *, is_bound: bool = False
) -> Iterator[NewExecution]:
    """Yield the executions, each checked when the caller asks for it."""
    if is_bound and isinstance(params, payload.Signature):
        params = None
    for position, new in enumerate(executions):
        if params is not None:
            _check_one(params, new, position)
        yield new


async def params_of(client: ClientContext, job: str, *, is_fresh: bool = False) -> Takes | None:
    """Return the parameters of a workflow or the signature of a task; None: it is not known."""
    if not is_fresh and _is_known(client, job):
        return client.known_params[job][1]
    if job not in client.asked_params:  # of many that start together, the first asks for all
        client.asked_params[job] = asyncio.get_running_loop().create_task(_ask(client, job))
    return await asyncio.shield(client.asked_params[job])


async def _ask(client: ClientContext, job: str) -> Takes | None:
    try:
        definition = (await client.store.catalog.get_job(client.tenant, job)).definition
        definition = await add_signature(client, definition)
    except (NotFound, Unavailable):
        return None  # the caller that enqueues it gets the error
    finally:
        del client.asked_params[job]
    _keep(client, job, _params_in(definition))
    return client.known_params[job][1]


async def add_signature(client: ClientContext, definition: JobDefinition) -> JobDefinition:
    """Return the definition with the signature of the task that it runs, if both are known."""
    (found,) = await add_signatures(client, [definition])
    return found


async def add_signatures(
    client: ClientContext, definitions: Iterable[JobDefinition]
) -> list[JobDefinition]:
    """Return up to a page of definitions, each with the signature of its task, if it is known."""
    found = list(definitions)
    tasks = sorted({task for one in found if (task := task_of(one)) is not None})
    known = await client.store.catalog.get_jobs(client.tenant, tasks) if tasks else {}
    for place, one in enumerate(found):
        job = known.get(task_of(one) or "")
        if job is not None:
            found[place] = replace(one, signature=job.definition.signature)
    return found


def needs_no_check(client: ClientContext, job: str, *, is_bound: bool = False) -> bool:
    """True if the job is known to take any arguments, or those that its code has checked."""
    if not _is_known(client, job):
        return False
    params = client.known_params[job][1]
    return params is None or (is_bound and isinstance(params, payload.Signature))


def _is_known(client: ClientContext, job: str) -> bool:
    if job not in client.known_params:
        return False
    since, params = client.known_params[job]
    kept = KEPT_SECONDS if isinstance(params, tuple) else OTHERS_KEPT_SECONDS
    return asyncio.get_running_loop().time() < since + kept


def _keep(client: ClientContext, job: str, params: Takes | None) -> None:
    if len(client.known_params) >= KEPT_MAX:
        client.known_params.clear()
    client.known_params[job] = asyncio.get_running_loop().time(), params


async def check_own_calls(client: ClientContext, definition: JobDefinition) -> JobDefinition:
    """Refuse a job as `check_call` does, if it runs a task of another name too."""
    check_call(await add_signature(client, definition))
    return definition


def check_call(definition: JobDefinition) -> None:
    """Refuse a job if a call by its schedules, or a trigger without arguments, must fail."""
    if _params_in(definition) is None:
        return
    args = definition.called_args
    runs_by_time = has_times(definition.schedules) or bool(definition.dependencies)
    calls = [args] if runs_by_time or args != "{}" else []
    if any(map(is_event, definition.schedules)):
        calls.append(sample_args(definition.args))
    for called in calls:
        place = "schedule" if definition.runs_by_itself else "definition"
        what = f"its {place} has the wrong arguments:"
        way_out = "; say args" if definition.args == "{}" else ""
        check_args(definition, called, what=what, way_out=way_out)


def check_args(definition: JobDefinition, args: str, *, what: str = "", way_out: str = "") -> None:
    """Refuse arguments that do not match the parameters of a workflow, or of a known task."""
    params = _params_in(definition)
    if params is None:
        return
    try:
        _check_text(params, definition.name, args)
    except InvalidArguments as error:
        said = f"{what} {error}{way_out}".strip()
        raise InvalidArguments(said, field=_field(error)) from None


def find_mismatched_schedules(
    definition: JobDefinition, schedules: Iterable[Schedule]
) -> list[str]:
    """Return the errors of a job's schedules that were added at run time, before its parameters
    changed; in sentences for people.
    """
    told: list[str] = []
    for one in schedules:
        if one.is_declared or not one.is_to_fire:
            continue
        name = f"schedule {shown(one.name)}, which was added at run time,"
        try:
            args = one.args if one.event is None else sample_args(one.args)
            check_args(definition, args, what=f"{name} has the wrong arguments:")
        except InvalidArguments as error:
            told.append(f"{error}; schedule it anew with other args, or unschedule it")
    return told


def _params_in(definition: JobDefinition) -> Takes | None:
    if definition.kind == WORKFLOW:
        return graph_params(definition.settings)
    return payload.read_signature(definition.signature) if definition.signature else None


def _check_text(params: Takes, job: str, args: str) -> None:
    if not isinstance(params, payload.Signature):
        check_given(params, decode_args(args), what=f"workflow {shown(job)}")
        return
    names = payload.argument_names(args)
    if not params.fits(names):
        params.check(names, what=f"job {shown(job)}")


def _check_all(job: str, params: Takes, executions: Sequence[NewExecution]) -> None:
    is_one = len(executions) == 1
    for position, new in enumerate(executions):
        if new.job == job:
            _check_one(params, new, None if is_one else position)


def _check_one(params: Takes, new: NewExecution, position: int | None) -> None:
    try:
        _check_text(params, new.job, new.args)
    except InvalidArguments as error:
        if position is None:
            raise InvalidArguments(str(error), field=_field(error)) from None
        raise InvalidArguments(
            f"executions[{position}]: {error}", field=f"[{position}].{_field(error)}"
        ) from None


def _field(error: InvalidArguments) -> str:
    return "args" if error.field is None else f"args.{error.field}"


# The uses of a job: workflows with nodes that run it, and jobs that depend on it.
#
# A used job can be deleted all the same: the caller gets a warning about its uses.

CODE: Final = "code:"  # an author with this prefix is an app
JOBS_MAX: Final = 20_000  # checked whether they need it
NAMED_MAX: Final = 3


class Uses(Struct, frozen=True, kw_only=True):
    """The uses of a job, by name."""

    workflows: tuple[str, ...] = ()  # that run it as a node
    dependents: tuple[str, ...] = ()


async def find_uses(store: Store, tenant: str, name: str) -> Uses:
    """Return the uses of the job of this name: one pass over the definitions that mention it."""
    workflows, dependents = list[str](), list[str]()
    pages = read_pages(
        lambda cursor: store.catalog.list_jobs(
            tenant, JobFilter(mentions=name), limit=PAGE_ITEMS_MAX, cursor=cursor
        )
    )
    looked_at = 0
    async for page in pages:
        for job in page:
            if name in job.definition.upstream:
                dependents.append(job.name)
            if name in job.definition.settings and name in inner_jobs(job.definition):
                workflows.append(job.name)
        looked_at += len(page)
        if looked_at >= JOBS_MAX:
            break
    return Uses(workflows=tuple(workflows), dependents=tuple(dependents))


async def describe_broken_uses(store: Store, tenant: str, job: Job) -> list[str]:
    """Describe the effects of a missing job for people, and whether code restores it."""
    found = await describe_uses(store, tenant, job.name)
    code = await _code_of(store, tenant, job)
    if code is not None:
        found.append(
            f"{job.name} comes from code ({code}), which brings it back when it is started next;"
            " take it out of the code, too"
        )
    return found


async def check_undeclared(store: Store, tenant: str, name: str) -> None:
    """Raise Conflict if a live worker has a task of this name: programs with that code would
    enqueue a job that does not exist, until they declare it again.
    """
    if any(name in (offer.tasks or ()) for offer in await store.catalog.offers(tenant)):
        raise Conflict(
            f"job {shown(name)} is declared by the code of a live worker;"
            " remove the task from the code and restart its workers, or delete it with force"
            " (--force, ?force=true)"
        )


async def describe_uses(store: Store, tenant: str, name: str) -> list[str]:
    """Describe the uses of the job of this name, in sentences for people."""
    uses = await find_uses(store, tenant, name)
    found: list[str] = []
    if uses.workflows:
        one = len(uses.workflows) == 1
        found.append(
            f"{'workflow' if one else 'workflows'} {listed(uses.workflows, most=NAMED_MAX)}"
            f" {'runs' if one else 'run'} {name} as a node, which fails while it is not there"
        )
    if uses.dependents:
        one = len(uses.dependents) == 1
        found.append(
            f"{'job' if one else 'jobs'} {listed(uses.dependents, most=NAMED_MAX)}"
            f" {'depends' if one else 'depend'} on {name}, and"
            f" {'waits' if one else 'wait'} in vain while it is not there"
        )
    return found


async def _code_of(store: Store, tenant: str, job: Job) -> str | None:
    """Return the app that has defined the job; another author may have changed it since."""
    async for page in iterate_versions(store, tenant, job.name):
        for version in page:
            if version.author.startswith(CODE):
                return version.author.removeprefix(CODE)
    return None


def iterate_versions(store: Store, tenant: str, name: str) -> AsyncGenerator[tuple[Job, ...]]:
    """All versions of a job, newest first, a page in memory at a time."""
    return read_pages(
        lambda cursor: store.catalog.list_versions(
            tenant, name, limit=PAGE_ITEMS_MAX, cursor=cursor
        )
    )


# Definitions that were current once and were replaced since: an old process of a rolling deploy
# still has them, and code that was reverted has them again.


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that a process has, and the version of the job that counts instead."""

    definition: JobDefinition
    current: Job
    version: int | None = None  # the newest with the same definition, where it was looked up


def select_superseded(wanted: Iterable[JobDefinition], answered: Iterable[Job]) -> list[Superseded]:
    """Return the definitions to which `define_jobs` answered with another one."""
    pairs = zip(wanted, answered, strict=True)
    return [
        Superseded(definition=one, current=job)
        for one, job in pairs
        if not _is_same(one, job.definition)
    ]


async def find_superseded(
    store: Store, tenant: str, wanted: Iterable[JobDefinition]
) -> list[Superseded]:
    """Return the definitions that the store would not make current, if it received them."""
    found: list[Superseded] = []
    for definition in wanted:
        try:
            current = await store.catalog.get_job(tenant, definition.name)
        except NotFound:
            continue
        for one in select_superseded([definition], [current]):
            version = await _version_of(store, one)
            found += [] if version is None else [replace(one, version=version)]
    return found


async def add_versions(store: Store, found: Sequence[Superseded]) -> list[Superseded]:
    """Return the same definitions, with the versions of those that are named."""
    named = [replace(one, version=await _version_of(store, one)) for one in found[:NAMED_MAX]]
    return [*named, *found[NAMED_MAX:]]


def describe_superseded(found: Sequence[Superseded], *, verb: str = "is") -> str:
    """Describe superseded jobs with their versions: the first of them, and how many more."""
    return listed((_describe_one(one, verb) for one in found), most=NAMED_MAX)


def describe_way_back(found: Sequence[Superseded]) -> str:
    """Return the commands that make the definitions current again."""
    first = found[0]
    tenant = first.current.tenant
    of = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    one = f"`daybell jobs rollback {first.current.name} {first.version}{of}`"
    every = f", or `daybell jobs declare APP{of}` for all jobs of the code"
    return one + (every if len(found) > 1 else "")


def _describe_one(one: Superseded, verb: str) -> str:
    current = one.current
    by = f" by {current.author}" if current.author else ""
    since = f"current {verb} {current.version}, since {to_iso(int(current.created_at))[:19]}Z{by}"
    return f"{current.name} (version {one.version}; {since})"


async def _version_of(store: Store, one: Superseded) -> int | None:
    """Return the newest version of the job with the same definition."""
    async for page in iterate_versions(store, one.current.tenant, one.current.name):
        for job in page:
            if _is_same(one.definition, job.definition):
                return job.version
    return None


def _is_same(one: JobDefinition, kept: JobDefinition) -> bool:
    # As it is when it is read back: a retry policy's own function is not kept.
    return JobDefinition.from_json(one.to_json()) == kept


_NAME_BEGIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


async def find_job(client: ClientContext, id_or_name: Id) -> Job:
    """A job by its id, or by its name. Text that is both is taken as an id first."""
    id = id_in(id_or_name)
    if id is not None:
        with suppress(JobNotFound):
            return await client.store.catalog.find_job(client.tenant, id)
    try:
        return await client.store.catalog.get_job(client.tenant, str(id_or_name))
    except JobNotFound:
        if id is None:
            raise
        raise JobNotFound(f"no job with the id {id}") from None


async def describe_missing_job(client: ClientContext, name: str, error: JobNotFound) -> JobNotFound:
    """Return the error for a missing job, with the name of a similar one. The search for that is
    expensive: it is left out where a job may be found elsewhere.
    """
    if id_in(name) is not None:
        return JobNotFound(f"no job with the id {name}")
    hint = await _find_similar_name(client.store, client.tenant, name)
    return JobNotFound(f"no job named {shown(name)}; {hint}") if hint else error


async def _find_similar_name(store: Store, tenant: str, name: str) -> str:
    """Return a hint at similar names: of jobs that share half of it, or only the first letter."""
    begin = _NAME_BEGIN.match(name)
    if begin is None:
        return ""
    for prefix in dict.fromkeys((begin[0][: max(1, len(name) // 2)], name[0])):
        page = await store.catalog.list_jobs(tenant, JobFilter(prefix=prefix), limit=COMPARED_MAX)
        hint = suggested(name, [job.name for job in page.items], otherwise="")
        if hint:
            return hint
    return ""
