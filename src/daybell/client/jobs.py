"""Jobs: the fields of a job request, definitions made and changed by request, and lookup by name or
id.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypedDict, Unpack, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.client.job_checks import check_args, check_call, find_task_definition, read_workflow
from daybell.client.requests import (
    JOB_FILTERS,
    Id,
    JobFilters,
    JobOptions,
    TaskOptions,
    check_options,
    id_in,
    read_definition,
    read_text,
    read_whole,
)
from daybell.client.when import (
    check_dependencies,
    is_after,
    is_after_any,
    is_one_time,
    keep_options,
    without_times,
)
from daybell.core import payload
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.ids import mint
from daybell.core.job import Job, JobDefinition, NewJob, Template, task_of
from daybell.core.kinds import KINDS, SETTINGS, read_settings, settings_json
from daybell.core.kinds.settings import BESIDE, command_of
from daybell.core.limits import NAME_CHARS_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.retry import Retry
from daybell.core.views import JobFilter, Page, read_pages
from daybell.core.when import Misfire, Schedule
from daybell.core.when.language import KEYS
from daybell.core.when.rule import OPTIONS
from daybell.core.workflow.graph import Graph
from daybell.errors import (
    COMPARED_MAX,
    DuplicateKey,
    JobNotFound,
    TemplateNotFound,
    UsageError,
    VersionConflict,
    shown,
    suggested,
)
from daybell.store.protocol import Store

# Jobs by their names or ids; and of those that are not there, which one may be meant.

_NAME_BEGIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


async def find_job(store: Store, tenant: str, id_or_name: Id) -> Job:
    """A job by its id, or by its name. Text that is both is taken as an id first."""
    id = id_in(id_or_name)
    if id is not None:
        with suppress(JobNotFound):
            return await store.find_job(tenant, id)
    try:
        return await store.get_job(tenant, str(id_or_name))
    except JobNotFound:
        if id is None:
            raise
        raise JobNotFound(f"no job with the id {id}") from None


@asynccontextmanager
async def suggest_similar_job(store: Store, tenant: str, name: str) -> AsyncGenerator[None]:
    """Say of a job that is not there which one may be meant. That is the dearest part of such an
    answer: what is not there at first sight, and may be found elsewhere, is looked up without it.
    """
    try:
        yield
    except JobNotFound:
        if id_in(name) is not None:
            raise JobNotFound(f"no job with the id {name}") from None
        hint = await _find_similar_name(store, tenant, name)
        if not hint:
            raise
        raise JobNotFound(f"no job named {shown(name)}; {hint}") from None


async def _find_similar_name(store: Store, tenant: str, name: str) -> str:
    """Of jobs that begin like it: the first of those that share half of it, or only a letter."""
    begin = _NAME_BEGIN.match(name)
    if begin is None:
        return ""
    for prefix in dict.fromkeys((begin[0][: max(1, len(name) // 2)], name[0])):
        page = await store.list_jobs(tenant, JobFilter(prefix=prefix), limit=COMPARED_MAX)
        hint = suggested(name, [job.name for job in page.items], otherwise="")
        if hint:
            return hint
    return ""


# What a job runs, as people say it: one field of a request that names its kind, and those that go
# with it.

# One of these says what a job runs.
CHOICES: Final = ("task", *SETTINGS, "workflow", "template")
# These go with one of them.
OF_COMMAND: Final = BESIDE
OF_TEMPLATE: Final = "parameters"
FIELDS: Final = (*CHOICES, *OF_COMMAND, OF_TEMPLATE)
# What a line or an address stands for, where a kind's settings may be given as that alone.
SHORT_FOR: Final = {"command": "run", "http": "url"}


class KindFields(TypedDict, total=False):
    """What a job may run: exactly one of task, command, http, sql, notify, workflow, template."""

    task: str | None  # by the name under which the store knows it
    command: str | Sequence[Any] | Mapping[str, Any] | None  # a line, words, or {"run": …, …}
    shell: bool | None  # of a command
    env: Mapping[str, Any] | None  # of a command
    http: str | Mapping[str, Any] | None  # an address, or {"url": …, …}
    sql: Mapping[str, Any] | None
    notify: Mapping[str, Any] | None
    workflow: Mapping[str, Any] | None  # {"nodes": […], "edges": […], …}
    template: str | None
    parameters: Mapping[str, Any] | None  # of a template


def read_choice(fields: Mapping[str, Any]) -> str | None:
    """The field that says what a job runs; None: no field does. Two are refused, and so is what
    goes with another one.
    """
    said = [name for name in CHOICES if fields.get(name) is not None]
    if len(said) > 1:
        raise UsageError(
            f"{said[0]} and {said[1]} are two things to run; a job runs one", field=said[1]
        )
    choice = said[0] if said else None
    if fields.get(OF_TEMPLATE) is not None and choice != "template":
        raise UsageError(
            "parameters are a template's, and no template is named; a task takes args",
            field=OF_TEMPLATE,
        )
    for name in OF_COMMAND:
        if choice not in (None, "command") and fields.get(name) is not None:
            raise UsageError(
                f"{name} is for a command, and this job is said to run {choice}", field=name
            )
    return choice


def require_choice(fields: Mapping[str, Any]) -> str:
    """The same for a new job, which has to run something."""
    choice = read_choice(fields)
    if choice is not None:
        return choice
    for name in OF_COMMAND:
        if fields.get(name) is not None:
            raise UsageError(f"{name} is for a command, and there is none", field="command")
    raise UsageError(
        f"nothing says what it runs; give one of {', '.join(CHOICES)}", field=CHOICES[0]
    )


def read_kind(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a kind without code, as they are kept."""
    value = fields[kind]
    if kind == "workflow":
        return Graph.parse(value).to_settings()
    if kind == "command":
        value = command_of(value, fields)
    return settings_json(read_settings(kind, value))


def update_kind(kind: str, fields: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job that stays of its kind, after a change. A line or an address takes the
    place of the old one, and leaves the rest; an object is all of it.
    """
    value = fields.get(kind)
    if isinstance(value, Mapping) or (value is not None and kind not in SHORT_FOR):
        return read_kind(kind, fields)
    said = {**old, **({} if value is None else {SHORT_FOR[kind]: value})}
    if kind == "command":
        said |= {name: fields[name] for name in OF_COMMAND if name in fields}  # null: as usual
    return settings_json(read_settings(kind, said))


def kind_fields(definition: JobDefinition) -> dict[str, Any]:
    """What a job runs, in the fields of a request. `read_kind` makes the same settings of it."""
    kind = definition.kind
    if kind == "task":
        return {"task": task_of(definition) or definition.name}
    if kind not in KINDS:
        return {}
    settings = cast("dict[str, Any]", payload.decode(definition.settings))
    if kind == "command":
        beside = {name: settings.pop(name) for name in OF_COMMAND if name in settings}
        return {"command": settings["run"] if settings.keys() == {"run"} else settings, **beside}
    if kind == "http" and settings.keys() == {"url"} and isinstance(settings["url"], str):
        return {"http": settings["url"]}
    return {kind: settings}


def is_by_code(definition: JobDefinition) -> bool:
    """Whether a job is what some code says: a task under its own name."""
    return definition.kind == "task" and task_of(definition) is None


# The fields of a request about a job, as files, the API and programs write them alike.

MADE_FROM: Final = ("name", "version", "parameters")


class JobFields(KindFields, TaskOptions, total=False):
    """What may be said of a job that is made by hand."""

    backoff: str | Mapping[str, Any] | None  # how long to wait before each retry
    source: str | None  # what it belongs to, such as "apply": for who tidies up
    made_from: Mapping[str, Any] | None  # the template that the rest came from: a note


JOB_FIELDS: Final = frozenset(JobFields.__optional_keys__)


# Fields of a part of a job, which people look for in the job itself.
_INNER: Final[dict[str, frozenset[str]]] = {
    **{kind: frozenset(settings.__struct_fields__) for kind, settings in SETTINGS.items()},
    "schedule": frozenset((*KEYS, *OPTIONS)),
}
# What such a part has when it is not a text alone.
_BESIDE: Final = {**SHORT_FOR, "schedule": "cron"}


def check_fields(fields: Mapping[str, Any], what: str) -> None:
    """Refuse a field that does not exist."""
    for error in unknown_fields(fields, what):
        raise error


def unknown_fields(fields: Mapping[str, Any], what: str) -> list[UsageError]:
    """What is wrong with each field that does not exist: where it belongs, or what was meant."""
    return [
        UsageError(f"{what} has no field {shown(name)}; {_suggest_field(name, fields)}", field=name)
        for name in fields
        if name not in JOB_FIELDS
    ]


def _suggest_field(name: str, fields: Mapping[str, Any]) -> str:
    parts = [part for part, inner in _INNER.items() if name in inner]
    if parts:
        part = next((one for one in parts if fields.get(one) is not None), parts[0])
        beside = f", beside {_BESIDE[part]}" if part in _BESIDE else ""
        return f"it goes under {part}{beside}"
    has = (
        f"it has what it runs ({', '.join(CHOICES)}), schedule, args, retries, timeout, queue and"
        " more, as POST /jobs"
    )
    return suggested(name, sorted(JOB_FIELDS), otherwise=has)


def read_retries(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The retry policy of what two fields say, under the name that definitions have for it."""
    backoff, retries = fields.get("backoff"), fields.get("retries")
    if backoff is None:
        return {"retries": retries} if "retries" in fields else {}
    said = {"backoff": backoff} if isinstance(backoff, str) else backoff
    if not isinstance(said, Mapping):
        raise UsageError(
            f'backoff={shown(backoff)} must be a word such as "fixed", or an object',
            field="backoff",
        )
    policy = dict(cast("Mapping[str, Any]", said))
    if retries is None:
        return {"retries": policy}
    if not isinstance(retries, int):
        raise UsageError("retries says how long to wait, too; leave out backoff", field="backoff")
    return {"retries": {**policy, "retries": retries}}


def update_retries(fields: Mapping[str, Any], old: Retry) -> dict[str, Any]:
    """The same for a change: how often without how long, or the other way round, leaves the other
    as it was.
    """
    given = read_retries(fields)
    if not given:
        return {} if "backoff" not in fields else {"retries": Retry(retries=old.retries)}
    backoff, retries = fields.get("backoff"), fields.get("retries")
    if backoff is None and isinstance(retries, int):
        return {"retries": replace(old, retries=Retry.parse(retries).retries)}
    if backoff is not None and "retries" not in fields:
        return {"retries": {**given["retries"], "retries": old.retries}}
    return given


def plain_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What `read_definition` takes as it is: all but what a job runs, and its retries."""
    others = {*FIELDS, "retries", "backoff", "made_from", "source"}
    return {name: value for name, value in fields.items() if name not in others}


def apply_template(fields: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """The fields of a job that is made from a template: what is said beside it wins."""
    parameters = read_parameters(fields.get(OF_TEMPLATE))
    made = template.template.job_with(parameters)
    check_fields(made, f"template {template.name}")
    require_choice(made)
    beside = {name: value for name, value in fields.items() if name not in FIELDS}
    note = {"name": template.name, "version": template.version, "parameters": parameters}
    return {**made, **beside, "made_from": note}


def read_parameters(value: object) -> dict[str, Any]:
    """What a template is given, by name."""
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(
            f"parameters={shown(value)} must be given by name, as an object", field=OF_TEMPLATE
        )
    return dict(cast("Mapping[str, Any]", value or {}))


def read_notes(fields: Mapping[str, Any]) -> dict[str, str]:
    """What a definition keeps for people: what it was made from, and what it belongs to."""
    notes: dict[str, str] = {}
    if "made_from" in fields:
        notes["template"] = read_made_from(fields["made_from"])
    if "source" in fields:
        notes["source"] = read_source(fields["source"])
    return notes


def read_made_from(value: object) -> str:
    """A template's name, version and parameters, as they are kept."""
    if value is None:
        return ""
    if not isinstance(value, Mapping) or set(cast("Mapping[str, Any]", value)) != set(MADE_FROM):
        raise UsageError(
            f"made_from must be an object with {', '.join(MADE_FROM)}",
            field="made_from",
        )
    given = cast("Mapping[str, Any]", value)
    note = {
        "name": check_name(given["name"], what="template"),
        "version": read_whole(given["version"], "made_from.version", least=1, most=2**31 - 1),
        "parameters": read_parameters(given["parameters"]),
    }
    return payload.encode(note, what="made_from")


def read_source(value: object) -> str:
    """What a job belongs to."""
    if value is None:
        return ""
    if len(read_text(value, "source")) > NAME_CHARS_MAX or "\0" in str(value):
        raise UsageError(
            f"source {shown(value)} must be text of at most {NAME_CHARS_MAX} characters",
            field="source",
        )
    return str(value)


# What a job of another name takes over from the task's own, unless it says something else.
_INHERITED: Final = (
    "queue",
    "priority",
    "retries",
    "timeout",
    "expires",
    "max_crashes",
    "on_lost",
    "store_result",
)
# Of schedules that were there before, these are set anew by a change that names them.
_COMMON: Final = ("jitter", "start_at", "end_at", "max_executions", "calendar")


class Definitions:
    """The verbs of `Client` for definitions that do not come from code."""

    store: Store
    tenant: str

    async def define(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        promote: bool = False,
        id: UUID | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        raise NotImplementedError  # see `Client`

    async def define_jobs(
        self,
        definitions: list[JobDefinition],
        *,
        author: str = "",
        expect: int | None = None,
        promote: bool = False,
        id: UUID | None = None,
    ) -> list[Job]:
        raise NotImplementedError  # see `Client`

    async def job(self, name: str, *, version: int | None = None) -> Job:
        """A job, at its current version or the one asked for."""
        return await self.store.get_job(self.tenant, name, version=version)

    async def job_named(self, id_or_name: Id) -> Job:
        """A job by its id, or by its name. Text that is both is taken as an id first."""
        async with suggest_similar_job(self.store, self.tenant, str(id_or_name)):
            return await find_job(self.store, self.tenant, id_or_name)

    async def jobs(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **where: Unpack[JobFilters],
    ) -> Page[Job]:
        """Jobs by name: those whose name begins with `prefix`, that have `text` in their name or
        description, that are this user's, whose queue this is. Deleted ones are not shown.
        """
        check_options(where, JOB_FILTERS, "jobs()")
        chosen = JobFilter(**where)
        return await self.store.list_jobs(self.tenant, chosen, limit=limit, cursor=cursor)

    async def versions_page(
        self, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Job]:
        """Versions of a job, newest first."""
        return await self.store.list_versions(self.tenant, name, limit=limit, cursor=cursor)

    async def versions(self, name: str) -> list[Job]:
        """All versions of a job, newest first."""
        read = partial(self.versions_page, name, limit=PAGE_ITEMS_MAX)
        return [job async for page in read_pages(lambda at: read(cursor=at)) for job in page]

    async def create(
        self,
        name: str,
        *,
        author: str = "",
        id: UUID | None = None,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Make a job. One of `task`, `command`, `http`, `sql`, `notify`, `workflow` and `template`
        says what it runs; without a schedule it runs when it is triggered.

        What is not said of a task is as the task's own job has it; its schedules and arguments are
        not taken over. A name that exists is refused, unless it has the `id` that the caller chose:
        then it is the same request again.
        """
        job, _ = await self._create(name, None, fields, author=author, id=id, what="create()")
        return job

    async def launch(
        self,
        name: str,
        run: NewExecution,
        *,
        author: str = "",
        id: UUID | None = None,
        **fields: Unpack[JobFields],
    ) -> tuple[Job, Enqueued]:
        """Make a job without a schedule as `create` does, and have it run: both or neither."""
        job, made = await self._create(name, run, fields, author=author, id=id, what="launch()")
        assert made is not None, "it was asked for"
        return job, made

    async def _create(
        self,
        name: str,
        run: NewExecution | None,
        fields: JobFields,
        *,
        author: str,
        id: UUID | None,
        what: str,
    ) -> tuple[Job, Enqueued | None]:
        definition = await self.definition_of(name, fields, what=what)
        if run is not None and definition.runs_by_itself:
            raise UsageError(
                "what is launched runs once, without a schedule or dependencies", field="schedule"
            )
        if run is not None:
            way_out = '; say args, or "schedule": "manual" to have it run when it is triggered'
            check_args(definition, run.args, what="it would run once, now:", way_out=way_out)
        await check_dependencies(self.store, self.tenant, definition)
        if run is not None or is_one_time(definition.schedules):
            definition = msgspec.structs.replace(definition, once=True)
        try:
            return await self._add(definition, run, author=author, expect=0, id=id)
        except VersionConflict:
            pass
        try:
            there = await self.store.get_job(self.tenant, name)
        except JobNotFound:
            # A deleted one comes back: under its old id, as another version of it.
            last = (await self.store.list_versions(self.tenant, name, limit=1)).items[0].version
            return await self._add(definition, run, author=author, expect=last, promote=True)
        if there.id == id:
            again = [] if run is None else [run]
            answers = await self.store.enqueue(self.tenant, again, repeat=True)
            return there, next(iter(answers), None)
        raise DuplicateKey(
            f"there is a job named {shown(name)} already; update it, or take another name"
        )

    async def _add(
        self,
        definition: JobDefinition,
        run: NewExecution | None,
        *,
        author: str,
        expect: int,
        promote: bool = False,
        id: UUID | None = None,
    ) -> tuple[Job, Enqueued | None]:
        if run is None:
            (job,) = await self.define_jobs(
                [definition], author=author, expect=expect, promote=promote, id=id
            )
            return job, None
        how: dict[str, Any] = {"author": author, "expect": expect, "promote": promote}
        new = NewJob(id=mint() if id is None else id, definition=definition, **how)
        return await self.store.launch(self.tenant, new, run)

    async def definition_of(
        self,
        name: str,
        fields: JobFields,
        *,
        what: str,
        is_new: bool = True,
        is_dry: bool = False,
    ) -> JobDefinition:
        """What a job is that a request describes. One whose schedule is over is refused, unless it
        need not be new. If it is only tried, jobs that a workflow runs need not be there.
        """
        said = await self.filled_in(fields, what=what)
        choice = require_choice(said)
        options: dict[str, Any] = {}
        if choice == "task":
            known = await self._task(said)
            options = {key: one for key, one in options_of(known).items() if key in _INHERITED}
            options["settings"] = {"task": task_of(known) or known.name}
        elif choice == "workflow":
            options |= {"kind": choice, "settings": await self._graph_of(name, said, is_dry)}
        else:
            options |= {"kind": choice, "settings": read_kind(choice, said)}
        options |= {**plain_options(said), **read_retries(said), **read_notes(said)}
        asks = is_new and said.get("schedule") is not None
        now = (await self.store.health()).now if asks else None
        return check_call(read_definition(name, now=now, **options))

    async def _named(self, dependency: Any) -> Any:
        """The name of a job that is given by its id. One that is unknown is refused later, with all
        others that are.
        """
        id = id_in(dependency) if isinstance(dependency, str) else None
        if id is not None:
            with suppress(JobNotFound):
                return (await self.store.find_job(self.tenant, id)).name
        return dependency

    async def _fired_by(self, schedule: Any) -> Any:
        """The schedule, with names for the ids of jobs of which any fires it."""
        if not isinstance(schedule, dict):
            return schedule
        said = cast("dict[str, Any]", schedule)
        if not isinstance(said.get("after_any"), list | tuple):
            return said
        jobs = cast("Sequence[Any]", said["after_any"])
        return {**said, "after_any": [await self._named(one) for one in jobs]}

    async def filled_in(self, fields: JobFields, *, what: str) -> dict[str, Any]:
        """The fields, with those of the template that they name in its place."""
        check_fields(cast("Mapping[str, Any]", fields), what)
        said = dict(cast("Mapping[str, Any]", fields))
        if isinstance(said.get("dependencies"), list | tuple):
            said["dependencies"] = [await self._named(one) for one in said["dependencies"]]
        schedule = said.get("schedule")
        if isinstance(schedule, list | tuple):
            said["schedule"] = [await self._fired_by(one) for one in cast("list[Any]", schedule)]
        elif schedule is not None:
            said["schedule"] = await self._fired_by(schedule)
        if read_choice(said) != "template":
            return said
        if said.get("made_from") is not None:
            raise UsageError(
                "made_from tells of a template that was filled in before; leave it out",
                field="made_from",
            )
        name = check_name(said["template"], what="template")
        try:
            template = await self.store.get_template(self.tenant, name)
        except TemplateNotFound:
            raise UsageError(
                f"there is no template named {shown(name)}; create it first", field="template"
            ) from None
        return apply_template(said, template)

    async def update(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Change what is said of a job; all else stays. Answers its new version.

        A command's line or a request's address takes the place of the old one, and leaves the rest
        of its settings; an object is all of them. What runs something else begins without
        arguments. Code that has an older definition of it does not change it back. With `expect`,
        it must be at that version.
        """
        old = await self.store.get_job(self.tenant, name)
        check_version(old, expect)
        given = await self.filled_in(fields, what="update()")
        kept = options_of(old.definition)
        kept |= await self._change_of_kind(old.definition, given)
        changed = {**plain_options(given), **update_retries(given, old.definition.retry)}
        changed |= read_notes(given)
        if "schedule" not in given:
            again = {key: None for key in _COMMON if key in given}
            kept["schedule"] = [one.replaced(**again) for one in kept["schedule"]]
            if again and not kept["schedule"]:
                field = next(iter(again))
                raise UsageError(
                    f"job {name} has no schedule that {field} could be for", field=field
                )
        elif not given["schedule"]:
            is_said = "dependencies" in given
            needed = (given if is_said else kept)["dependencies"] or ()
            changed["schedule"] = without_times(old.definition, needed, is_said=is_said)
        else:
            if "dependencies" not in given and is_after(given["schedule"]):
                kept["dependencies"] = ()  # it runs after others now
            changed["schedule"] = keep_options(given["schedule"], kept["schedule"], named=given)
        if not _has_upstream({**kept, **given}):
            kept.pop("on_dependency_failure", None)  # it goes with them
        is_new = given.get("schedule") is not None or any(key in given for key in _COMMON)
        now = (await self.store.health()).now if is_new else None
        definition = check_call(read_definition(name, now=now, **{**kept, **changed}))
        await check_dependencies(self.store, self.tenant, definition)
        runs_once = is_one_time(definition.schedules)
        if runs_once or (old.definition.once and not definition.runs_by_itself):
            definition = msgspec.structs.replace(definition, once=True)
        (job,) = await self.define_jobs(
            [definition], author=author or old.author, expect=old.version, promote=True
        )
        return job

    async def _change_of_kind(self, old: JobDefinition, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a change makes of a job's kind and settings; nothing, if it leaves them."""
        choice = read_choice(given)
        is_command = old.kind == "command"  # of which null says something, too
        beside = [name for name in OF_COMMAND if name in given]
        beside = [name for name in beside if is_command or given[name] is not None]
        if choice is None and not beside:
            return {}
        if is_by_code(old):
            raise UsageError(
                f"job {old.name} is defined by code, which says what it runs; create another job",
                field=choice or beside[0],
            )
        if choice is None and not is_command:
            raise UsageError(
                f"{beside[0]} is for a command, and this job runs none", field=beside[0]
            )
        kind = choice or "command"
        change: dict[str, Any] = {"kind": kind, "template": ""}
        if kind != old.kind:
            change["args"] = None
        if kind == "task":
            known = await self._task(given)
            return {**change, "settings": {"task": task_of(known) or known.name}}
        if kind == "workflow":
            return {**change, "settings": await self._graph_of(old.name, given)}
        if kind != old.kind:
            return {**change, "settings": read_kind(kind, given)}
        settings = payload.decode(old.settings)
        return {**change, "settings": update_kind(kind, given, settings)}

    async def rollback(
        self, name: str, version: int, *, author: str = "", expect: int | None = None
    ) -> Job:
        """Make what an older version of a job said current again, as a new version of it.

        Its schedules are those that it declared, from now on; what was added at run time stays.
        Rolling back to the current version changes nothing. With `expect`, it must be at that
        version.
        """
        current = await self.store.get_job(self.tenant, name)
        old = await self.store.get_job(self.tenant, name, version=version)
        await check_dependencies(self.store, self.tenant, old.definition)
        (job,) = await self.define_jobs(
            [old.definition],
            author=author or current.author,
            expect=current.version if expect is None else expect,
            promote=True,
        )
        return job

    async def _task(self, said: Mapping[str, Any]) -> JobDefinition:
        name = check_name(said["task"], what="task")
        return await find_task_definition(self.store, self.tenant, name)

    async def _graph_of(self, name: str, said: Mapping[str, Any], is_dry: bool = False) -> Graph:
        value = said["workflow"]
        return await read_workflow(self.store, self.tenant, value, job=name, is_dry=is_dry)


def _has_upstream(options: Mapping[str, Any]) -> bool:
    schedule = options["schedule"]
    return bool(options["dependencies"]) or is_after(schedule) or is_after_any(schedule)


def check_version(job: Job, expect: int | None) -> None:
    """Refuse to go on with a job that is at another version than the one expected."""
    if expect is not None and job.version != expect:
        raise VersionConflict(
            f"job {job.name} is at version {job.version}, not {expect}; read it again, then decide"
        )


def options_of(definition: JobDefinition) -> dict[str, Any]:
    """What `read_definition` was told, in a form that it takes again."""
    fields: Mapping[str, Any] = msgspec.structs.asdict(definition)
    on_failure = {"on_dependency_failure": definition.on_dependency_failure}
    same = ("kind", *_INHERITED, "description", "user_id", "overlap", "pause_after_failures")
    return {
        **{name: fields[name] for name in same if name in fields},
        "retries": definition.retry,
        "settings": payload.decode(definition.settings),
        "args": payload.decode(definition.args),
        "dependencies": definition.dependencies,
        **(on_failure if definition.upstream else {}),
        "template": definition.template,
        "source": definition.source,
        "schedule": [Schedule.from_json(text) for text in definition.schedules],
        "misfire": Misfire.parse(
            payload.decode(definition.misfire) if definition.misfire else None
        ),
    }
