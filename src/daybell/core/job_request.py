"""Requests for jobs, by the table of options: reading with all errors at once, writing, changes,
and the schemas of their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

import msgspec

from daybell.core import payload
from daybell.core.execution import Priority
from daybell.core.flow import check_combination
from daybell.core.kinds import KINDS, SETTINGS, read_settings, settings_json
from daybell.core.kinds.schema import (
    COMPONENTS,
    Schema,
    an_object,
    says,
)
from daybell.core.kinds.settings import command_of
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    NAME_CHARS_MAX,
)
from daybell.core.options import (
    CHOICES,
    GROUPED,
    INHERITED,
    KIND_FIELDS,
    OF_COMMAND,
    OF_MISFIRE,
    OF_TEMPLATE,
    OPTIONS,
    SHORT_FOR,
    JobDefinition,
    is_by_code,
    read_dependencies,
    read_job_name,
    task_of,
    text_of,
)
from daybell.core.placement import DEMAND_OPTIONS, Demands, check_demands
from daybell.core.retry import Retry
from daybell.core.schedule import OnFailure, Overlap, any_jobs
from daybell.core.units import (
    Instant,
)
from daybell.core.when import After, Calendar, Misfire
from daybell.core.when import Schedule as Rule
from daybell.core.when.declared import (
    OF_EACH,
    check_not_manual,
    is_after,
    is_after_any,
    keep_options,
    read_misfire,
    read_schedules,
    split_dependencies,
    without_times,
)
from daybell.core.when.event import check_event_args
from daybell.core.when.language import KEYS
from daybell.core.when.rule import OPTIONS as OF_SCHEDULE
from daybell.core.when.rule import name_of
from daybell.errors import (
    InvalidFields,
    UsageError,
    shown,
    suggested,
)

R = TypeVar("R")

# Reading. All that is wrong with a request is found at once.


class JobRequest(msgspec.Struct, kw_only=True):
    """A request for a job as it was read, with all that is wrong with it."""

    name: str
    fields: dict[str, Any]  # as they were written
    choice: str | None = None  # the field that names the kind; None: no field does
    values: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])  # of a JobDefinition
    faults: list[UsageError] = msgspec.field(default_factory=list[UsageError])

    def note(self, field: str, read: Callable[..., R], *args: Any, **named: Any) -> R | None:
        """Return what `read` returns. An error of it becomes a fault of this field."""
        try:
            return read(*args, **named)
        except UsageError as error:
            error.field = self._place(error.field, field)
            self.faults.append(error)
            return None

    def _place(self, field: str | None, of: str) -> str:
        """Return the way to a field that an error names, within the one that was read."""
        begin = (field or of).partition(".")[0].partition("[")[0]
        if of not in OPTIONS:
            return of  # such as the name
        if field is None or begin in OPTIONS:
            if of == "task":
                return field or of  # of the choice among kinds
            return field if field and (begin in self.fields or begin == of) else of
        if of == "schedule" and field in ("gap", "fold"):
            return f"dst.{field}" if "dst" in self.fields else f"schedule.dst.{field}"
        return field if begin == of else f"{of}.{field}"

    def check(self) -> None:
        """Raise what is wrong, if anything is."""
        raise_all(self.faults)

    def definition(self, **more: Any) -> JobDefinition:
        """Return the definition. Raises all faults."""
        self.check()
        return JobDefinition(name=self.name, **{**more, **self.values})


def raise_all(faults: Sequence[UsageError]) -> None:
    """Raise an error, or several as one, if there are any."""
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise InvalidFields(faults)


def read_request(
    name: Any,
    fields: Mapping[str, Any],
    *,
    what: str = "a job",
    now: Instant | None = None,
    needs_kind: bool = True,
    is_draft: bool = False,
) -> JobRequest:
    """Read a request for a job. With `now`, a schedule that is over is refused. A draft, with a
    delay that counts from now, is read again later.

    The graph of a workflow and the fields of a template are read against the store, later.
    """
    request = JobRequest(name=name, fields=dict(fields))
    request.note("name", read_job_name, name)
    read: dict[str, Any] = {}
    for key, value in fields.items():
        option = OPTIONS.get(key)
        if option is None:
            request.faults += unknown_field(key, value, fields, what)
        elif value is not None:
            faults = len(request.faults)
            found = request.note(key, option.read, value, key)
            if len(request.faults) == faults:
                read[key] = found
        elif option.null_is_none:
            read[key] = None
    request.values = {key: value for key, value in read.items() if key not in GROUPED}
    request.note("rate", check_combination, read.get("concurrency", ()), read.get("rate", ()))
    if "made_from" in read:
        request.values["template"] = request.values.pop("made_from")
    request.choice = request.note("task", require_choice if needs_kind else read_choice, fields)
    for kind in SETTINGS:
        if fields.get(kind) is not None:
            settings = _read_settings(request, kind)
            if kind == request.choice:
                request.values |= {"kind": kind, "settings": settings}
    _read_retries(request, read)
    _read_misfire(request, read)
    _read_times(request, read, now, is_draft=is_draft)
    _check_collapse(request)
    _check_demands(request)
    order = {key: place for place, key in enumerate(("name", *fields))}
    request.faults.sort(key=lambda one: order.get(str(one.field).partition(".")[0], len(order)))
    return request


def _check_demands(request: JobRequest) -> None:
    """Check the demands on workers, and that `near` is not given where it has no meaning."""
    demands = {name: request.values.get(name, {}) for name in DEMAND_OPTIONS}
    is_near = request.values.get("near") is not None
    if request.choice == "workflow":
        for name in (one for one, given in demands.items() if given):
            fault = f"a workflow has no {name}; give it to the nodes that need it"
            request.faults.append(UsageError(fault, field=name))
    request.note("requires", check_demands, Demands(**demands))
    if is_near and request.choice == "workflow":
        fault = "a workflow has no near: no worker runs it, and nodes have no parent; leave it out"
        request.faults.append(UsageError(fault, field="near"))
    elif is_near and request.values.get("share") is not None:
        fault = "near and share both decide which work a worker takes next; leave one of them out"
        request.faults.append(UsageError(fault, field="near"))


def _read_settings(request: JobRequest, kind: str) -> str:
    if kind == "command" and any(str(one.field).startswith("env") for one in request.faults):
        return "{}"  # read together with its environment
    try:
        return payload.encode(
            read_kind(kind, request.fields), what="settings", bytes_max=ARGS_BYTES_MAX
        )
    except UsageError as error:
        error.field = _place_in_kind(error.field, kind)
        request.faults.append(error)
        return "{}"


def _place_in_kind(field: str | None, kind: str) -> str:
    """Return the way to a field in a request, from its name in the rules of a kind."""
    if field in (None, "secret", "settings"):
        return kind
    begin = field.partition(".")[0]
    if begin == kind or (kind == "command" and begin in OF_COMMAND):
        return field
    return f"{kind}.{field}"


def _read_retries(request: JobRequest, read: Mapping[str, Any]) -> None:
    """Make one policy of the tries and the waits between them."""
    retries, backoff = read.get("retries"), read.get("backoff")
    if backoff is None:
        if retries is not None:
            request.values["retry"] = Retry.parse(retries)
    elif retries is not None and not isinstance(retries, int):
        fault = "retries says how long to wait, too; leave out backoff"
        request.faults.append(UsageError(fault, field="backoff"))
    else:
        more = {} if retries is None else {"retries": retries}
        policy = request.note("backoff", Retry.parse, {**backoff, **more})
        request.values["retry"] = policy or Retry()


def _read_misfire(request: JobRequest, read: Mapping[str, Any]) -> None:
    if "misfire" in read or any(name in read for name in OF_MISFIRE):
        parts = {name.removeprefix("misfire_"): read.get(name) for name in OF_MISFIRE}
        request.values["misfire"] = request.note(
            "misfire", read_misfire, read.get("misfire"), **parts
        )


def _read_times(
    request: JobRequest, read: Mapping[str, Any], now: Instant | None, *, is_draft: bool
) -> None:
    """Read when the job runs: its schedules with their common options, and its dependencies."""
    common = {name: read[name] for name in OF_EACH if name in read}
    value, faults = request.fields.get("schedule"), len(request.faults)
    schedules = request.note("schedule", read_schedules, value, common, now=now, is_draft=is_draft)
    schedules = schedules or []
    is_read = len(request.faults) == faults
    after, schedules = request.note("schedule", split_dependencies, schedules) or ([], [])
    if is_read and all(isinstance(one, After) or one.listens_to for one in schedules):
        for name in common:
            fault = f"{name} is about a schedule of times, and there is none; give one, or leave it"
            request.faults.append(UsageError(fault, field=name))
    own = read.get("dependencies", ())
    needed = request.note("dependencies", read_dependencies, (*own, *after), "dependencies") or ()
    rules = tuple(one.to_json() for one in schedules)
    fired_by = any_jobs(rules)
    for names, field, verb in ((needed, "dependencies", "depend on"), (fired_by, "schedule", "")):
        if request.name in names:
            fault = f"job {shown(request.name)} cannot {verb or 'be fired by'} itself"
            request.faults.append(UsageError(fault, field=field))
    request.note("schedule", check_not_manual, value, needed)
    request.values |= {"schedules": rules, "dependencies": needed}
    if request.values.get("overlap") is None and any(isinstance(one, After) for one in schedules):
        request.values["overlap"] = Overlap.QUEUE  # no other time would come
    if any(one.listens_to for one in schedules):
        request.note("args", check_event_args, request.values.get("args", "{}"))
    if "on_dependency_failure" in read:
        policy = OnFailure(read["on_dependency_failure"])
        request.values["on_dependency_failure"] = policy
        is_of_any = bool(fired_by) and policy is OnFailure.RUN
        if is_read and policy is not OnFailure.WAIT and not needed and not is_of_any:
            fault = (
                f"on_dependency_failure={policy} is for a job that depends on others, and this one"
                ' has no dependencies; add them, as in dependencies=["extract"], or leave it out'
            )
            request.faults.append(UsageError(fault, field="on_dependency_failure"))


COLLAPSING: Final = ("debounce", "throttle", "singleton", "cache_for")
OF_COLLAPSING: Final = {
    "max_wait": "debounce",
    "on_conflict": "singleton",
    "cache_key": "cache_for",
    "cache_version": "cache_for",
}


def _check_collapse(request: JobRequest) -> None:
    """Check that a job has one rule for requests of a key, and that options of a rule have it."""
    values = request.values
    rules = [name for name in COLLAPSING if values.get(name) is not None]
    for name in rules[1:]:
        fault = f"{rules[0]} and {name} both decide which requests run; a job has one of them"
        request.faults.append(UsageError(fault, field=name))
    for name, of in OF_COLLAPSING.items():
        if values.get(name) not in (None, "", "return") and of not in rules:
            fault = f"{name} is a part of {of}, and this job has none; give it, or leave it out"
            request.faults.append(UsageError(fault, field=name))
    if "cache_for" in rules and values.get("store_result") is False:
        fault = "cache_for needs results, and store_result=False keeps none; leave one of them out"
        request.faults.append(UsageError(fault, field="cache_for"))


# Fields of a part of a job, which people write beside the part.
_INNER: Final[Mapping[str, frozenset[str]]] = {
    **{kind: frozenset(settings.__struct_fields__) for kind, settings in SETTINGS.items()},
    "schedule": frozenset((*KEYS, *OF_SCHEDULE)),
}
_BESIDE_INNER: Final = {**SHORT_FOR, "schedule": "cron"}


def unknown_field(name: Any, value: Any, fields: Mapping[str, Any], what: str) -> list[UsageError]:
    """Return the fault of a field that does not exist: where it belongs, or a similar name."""
    parts = [part for part, inner in _INNER.items() if name in inner]
    if name == "cache":
        hint = "cache_for is how long a result is used"
    elif parts:
        part = next((one for one in parts if fields.get(one) is not None), parts[0])
        beside = f", beside {_BESIDE_INNER[part]}" if part in _BESIDE_INNER else ""
        hint = f"it goes under {part}{beside}"
    else:
        hint = suggested(
            name,
            sorted(OPTIONS),
            otherwise=f"it has what it runs ({', '.join(CHOICES)}), schedule, args, retries,"
            " timeout, queue and more, as POST /jobs",
        )
    return [UsageError(f"{what} has no field {shown(name)}; {hint}", field=str(name))]


def check_fields(fields: Mapping[str, Any], what: str) -> None:
    """Refuse fields that do not exist."""
    raise_all(
        [
            fault
            for name, value in fields.items()
            if name not in OPTIONS
            for fault in unknown_field(name, value, fields, what)
        ]
    )


def read_choice(fields: Mapping[str, Any]) -> str | None:
    """Return the field that names the kind of a job; None: no field does. Two are refused, and so
    is a field that goes with another kind.
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
    """Return the field that names the kind of a new job, which has to run something."""
    choice = read_choice(fields)
    if choice is not None:
        return choice
    for name in OF_COMMAND:
        if fields.get(name) is not None:
            raise UsageError(f"{name} is for a command, and there is none", field="command")
    raise UsageError(f"it names nothing to run; give one of {', '.join(CHOICES)}", field=CHOICES[0])


def read_kind(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a kind without code, as they are kept."""
    value = command_of(fields[kind], fields) if kind == "command" else fields[kind]
    return settings_json(read_settings(kind, value))


# Writing: `read_request` makes the same definition of it.


def write_kind(definition: JobDefinition) -> dict[str, Any]:
    """Return the fields of a request that name the kind of a job."""
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


def write_options(definition: JobDefinition) -> dict[str, Any]:
    """Return all options of a job but its kind, as a request has them."""
    retry = payload.decode(definition.retry.to_json())
    grouped = {
        "made_from": payload.decode(definition.template or "null"),
        "schedule": _write_schedules([payload.decode(text) for text in definition.schedules]),
        "retries": retry.pop("retries"),
        "backoff": retry,
        "misfire": payload.decode(definition.misfire or "{}"),
        "dependencies": list(definition.dependencies),
        "on_dependency_failure": str(definition.on_dependency_failure),
    }
    own = set(JobDefinition.__struct_fields__)
    return {
        name: grouped[name] if name in grouped else one.write(getattr(definition, name))
        for name, one in OPTIONS.items()
        if name in grouped or (name in own and name not in GROUPED)
    }


def _write_schedules(rules: list[dict[str, Any]]) -> Any:
    """Return schedules as people write them: one by itself, and a cron expression as text."""
    plain = [rule["cron"] if rule.keys() == {"cron"} else rule for rule in rules]
    return None if not plain else plain[0] if len(plain) == 1 else plain


def build_request(definition: JobDefinition) -> dict[str, Any]:
    """Return the request that makes this job: its name and its fields without defaults. Of a job
    that runs a task, options that the task may have are always in it.
    """
    fields, usual = write_options(definition), write_options(JobDefinition(name=definition.name))
    always = set(INHERITED if definition.kind == "task" else ())
    if fields["backoff"] != usual["backoff"]:
        always.add("retries")  # else as many as there are waits
    rest = {name: value for name, value in fields.items() if value != usual[name] or name in always}
    return {"name": definition.name, **write_kind(definition), **rest}


# Change: the options that a job has, merged with those that are named, by the rule of each.


def merge_options(
    old: JobDefinition, given: Mapping[str, Any], kind: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all options of a job after a change, but those of its `kind`. Those that the change
    does not name stay; null returns one to its default.
    """
    fields = write_options(old)
    before = [payload.decode(text) for text in old.schedules]
    fields |= {name: value for name, value in given.items() if name not in KIND_FIELDS}
    if kind and "made_from" not in given:
        fields["made_from"] = None
    if kind and old.kind not in kind and "args" not in given:
        fields["args"] = None
    if not isinstance(given.get("retries"), int | None):
        fields["backoff"] = given.get("backoff")  # a whole policy has its own
    for name, of in OF_COLLAPSING.items():
        if name not in given and of in given and given[of] is None:
            fields[name] = None
    _merge_misfire(fields, old, given)
    _merge_schedules(fields, old, before, given)
    schedule = fields["schedule"]
    if "on_dependency_failure" not in given and not (
        fields["dependencies"] or is_after_any(schedule) or any(map(is_after, as_list(schedule)))
    ):
        fields["on_dependency_failure"] = None
    return fields


def _merge_misfire(fields: dict[str, Any], old: JobDefinition, given: Mapping[str, Any]) -> None:
    if "misfire" not in given:
        named = {name.removeprefix("misfire_") for name in OF_MISFIRE if name in given}
        kept = payload.decode(old.misfire or "{}")
        fields["misfire"] = {name: value for name, value in kept.items() if name not in named}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and a value by itself as the only one of a list."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def _merge_schedules(
    fields: dict[str, Any],
    old: JobDefinition,
    before: Sequence[dict[str, Any]],
    given: Mapping[str, Any],
) -> None:
    """Merge the schedule, and the dependencies if they change with it.

    | `schedule` in the change | schedule |
    |---|---|
    | missing | the old one, but for the common options that the change names |
    | empty | none; a job with dependencies runs after these |
    | given | the new one, with the options of the old one that it does not name |
    """
    dst = given.get("dst")
    apart = {"dst"} if isinstance(dst, Mapping) else set[str]()  # it may name one of two rules
    named = [name for name in OF_EACH if name in given]
    if "schedule" not in given:
        if named and not before:
            raise UsageError(
                f"job {old.name} has no schedule that {named[0]} could be for", field=named[0]
            )
        names = {*named} - apart
        fields["schedule"] = [_without(one, names) for one in before] or None
    elif not given["schedule"]:
        is_said = "dependencies" in given
        fields["schedule"] = without_times(
            old.name, fields["dependencies"] or (), fires_after=is_said or old.fires_after
        )
    else:
        names = {*given} - apart
        fields["schedule"] = keep_options(given["schedule"], before, named=names)
        if "dependencies" not in given and any(map(is_after, as_list(given["schedule"]))):
            fields["dependencies"] = ()  # it runs after others now
    if isinstance(dst, Mapping) and isinstance(fields["schedule"], list):
        del fields["dst"]
        for one in cast("list[Any]", fields["schedule"]):
            rule = cast("dict[str, Any]", one if isinstance(one, dict) else {})
            if "cron" in rule or "rrule" in rule:
                rule["dst"] = {**(rule.get("dst") or {}), **dst}


def _without(schedule: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in schedule.items() if name not in names}


def merge_kind(old: JobDefinition, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job's kind after a change; nothing, if the change leaves the kind.

    A line or an address takes the place of the old one and keeps the other settings; an object is
    all settings. Of a command, `shell` and `env` are settings, too.
    """
    choice = read_choice(given)
    is_command = old.kind == "command"
    beside = {
        name: given[name]
        for name in OF_COMMAND
        if name in given and (is_command or given[name] is not None)
    }
    if choice is None and given.get(old.kind, "") is None:
        raise UsageError(
            f"a job runs something, and there is no default for that; leave {old.kind} out, or say"
            " what it runs instead",
            field=old.kind,
        )
    if choice is None and not beside:
        return {}
    if is_by_code(old):
        raise UsageError(
            f"job {old.name} is defined by code, which says what it runs; create another job",
            field=choice or next(iter(beside)),
        )
    if choice is None and not is_command:
        field = next(iter(beside))
        raise UsageError(f"{field} is for a command, and this job runs none", field=field)
    kind = choice or "command"
    value = given.get(kind)
    if kind != old.kind or kind not in SHORT_FOR or isinstance(value, Mapping):
        return {name: given[name] for name in KIND_FIELDS if given.get(name) is not None}
    settings = payload.decode(old.settings) | beside
    return {kind: settings if value is None else settings | {SHORT_FOR[kind]: value}}


# JSON: values as Python programs write them, for requests over HTTP.


def encode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request as plain data."""
    said = {name: _plain(value) for name, value in fields.items()}
    retries = fields.get("retries")
    if isinstance(retries, Retry):
        policy = payload.decode(retries.to_json())
        said |= {"retries": policy.pop("retries"), "backoff": policy}
    if "dependencies" in fields and isinstance(fields["dependencies"], list | tuple):
        said["dependencies"] = [name_of(one) for one in cast("list[Any]", fields["dependencies"])]
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, Rule | Calendar | Misfire):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[Any]", value)]
    if isinstance(value, Priority):
        return value.label
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


# JSON schemas of the bodies of requests, for the OpenAPI document.

_NAME: Final = says("The job's name.", text_of(NAME_CHARS_MAX, minLength=1))


def _or_null(schema: Schema) -> Schema:
    """Return a schema of a value that may be null."""
    notes = {name: schema[name] for name in ("examples",) if name in schema}
    rest = {name: value for name, value in schema.items() if name not in notes}
    kinds = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {"anyOf": [*kinds, {"type": "null"}], **notes}


_FIELDS: Final = {name: says(one.meaning, _or_null(one.schema)) for name, one in OPTIONS.items()}
BODIES: Final[Mapping[str, Schema]] = {
    "NewJob": an_object(
        "A job to be created.",
        {
            "name": _NAME,
            **_FIELDS,
            "unique_key": says(
                "Of the one execution of a job without a schedule.", _or_null(text_of(500))
            ),
            "tenant": says(
                "Another tenant; for a superadmin's key.", _or_null(text_of(NAME_CHARS_MAX))
            ),
        },
        required=("name",),
    ),
    "DeclaredJob": an_object(
        "All that a job is. Without a schedule it never runs by itself.",
        {"name": says("As in the address.", _or_null(text_of(NAME_CHARS_MAX))), **_FIELDS},
    ),
    "JobChange": an_object(
        "A change of a job. Options that it does not name stay; null is back to the default.",
        _FIELDS,
    ),
    **COMPONENTS,
}
