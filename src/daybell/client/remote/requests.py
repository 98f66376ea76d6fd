"""Encoders of requests to the API.

Invalid input is refused here, with the same message as on the database and without a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack, cast

import msgspec

from daybell.client.jobs import (
    JobFields,
    check_fields,
    plain_options,
    read_choice,
    read_kind,
    read_notes,
    read_retries,
    require_choice,
)
from daybell.client.requests import (
    ARGS_PREFIX,
    BOUNDS,
    ONE_OPTIONS,
    EnqueueOptions,
    Filters,
    Time,
    check_options,
    read_ago,
    read_args,
    read_bound,
    read_definition,
    read_filter,
    read_pattern,
    read_seconds,
    read_time,
)
from daybell.client.when import Arguments
from daybell.core.execution import Priority, State
from daybell.core.limits import check_key
from daybell.core.retry import Retry
from daybell.core.units import Instant, format_duration, to_iso
from daybell.core.views import ExecutionFilter
from daybell.core.when import Calendar, Misfire, Schedule

Wire = dict[str, Any]

_OF_SCHEDULES = ("jitter", "start_at", "end_at", "max_executions", "calendar", "dst")
_OF_MISFIRE = ("misfire_limit", "misfire_within", "misfire_grace")
_DURATIONS = ("timeout", "expires", "misfire_within", "misfire_grace", "jitter")


def definition(name: str, fields: JobFields, what: str, *, is_change: bool = False) -> Wire:
    """What is said of a job, or what is to change about it."""
    given = dict(cast("Mapping[str, Any]", fields))
    check_fields(given, what)
    choice = read_choice(given) if is_change else require_choice(given)
    is_whole = not is_change or isinstance(given.get(choice or ""), Mapping)
    if is_whole and choice not in (None, "task", "template"):
        read_kind(choice, given)
    read_notes(given)
    rest = {**plain_options(given), **read_retries(given)}
    if not _has_delay(given.get("schedule")):  # that counts from the store's now
        read_definition(name, **cast("Any", _drop_dependent_options(rest) if is_change else rest))
    said = {key: _plain(value) for key, value in given.items()}
    if "retries" in given:
        said |= _retries(given["retries"])
    if "schedule" in given:
        said["schedule"] = _schedule(given["schedule"])
    if given.get("priority") is not None:
        said["priority"] = Priority.parse(given["priority"]).label
    for field in _DURATIONS:
        if given.get(field) is not None:
            said[field] = read_seconds(given[field], field)
    return said


def execution(
    job: str,
    args: Arguments | None,
    *,
    unique_key: str | None,
    what: str,
    **options: Unpack[EnqueueOptions],
) -> Wire:
    """What is said of one execution; without arguments it is called as its job says."""
    check_options(options, ONE_OPTIONS, what)
    pattern = read_pattern(job, **options)
    said: Wire = {
        "delay": None if pattern.delay is None else format_duration(pattern.delay),
        "at": None if pattern.at is None else to_iso(pattern.at),
        "expires": pattern.expires_in,
        "priority": None if pattern.priority is None else pattern.priority.label,
        "queue": pattern.queue,
        "retries": pattern.retries,
        "timeout": pattern.timeout,
        "unique_key": None if unique_key is None else check_key(unique_key),
        "force": pattern.force or None,
        "args": None if args is None else msgspec.Raw(read_args(args).encode()),
    }
    return {key: value for key, value in said.items() if value is not None}


def read(given: Filters) -> ExecutionFilter:
    """Refuse filters that make no sense. Names and lengths of time are for the server to read."""
    checked: dict[str, Any] = {**given, "worker": None}
    return read_filter(now=0.0, **checked)


def filters(given: Filters, states: frozenset[State] | None = None) -> Wire:
    """Which executions are asked for, as a filter of a body; of these states, if there are any."""
    where = read(given)
    states = where.states if states is None else states
    worker = given.get("worker")
    said: Wire = {
        "job_id": where.job,
        "status": None if states is None else sorted(states),
        "queue": where.queue,
        "worker_id": None if worker is None else str(worker),
        "workflow_id": None if where.parent is None else str(where.parent),
        "args": None if where.content is None else dict(where.content.args) or None,
        "unique_key": given.get("unique_key"),
        "error": given.get("error"),
        **{name: _bound(given.get(name), name) for name in BOUNDS},
    }
    return {key: value for key, value in said.items() if value is not None}


def parameters(given: Filters, states: frozenset[State] | None = None) -> Wire:
    """The same as parameters of an address."""
    said = filters(given, states)
    args: Wire = said.pop("args", {})
    nodes = {"nodes": "true"} if given.get("nodes") else {}
    return {**said, **nodes, **{f"{ARGS_PREFIX}{name}": value for name, value in args.items()}}


def _bound(value: Time | None, what: str) -> str | None:
    if value is None or read_ago(value) is not None:
        return None if value is None else str(value)
    return to_iso(read_bound(value, what))


def time(value: datetime | str | Instant) -> str:
    """A moment, or where a range begins or ends."""
    return value if isinstance(value, str) else to_iso(read_time(value, "time"))


def _drop_dependent_options(given: Mapping[str, Any]) -> Wire:
    """What makes sense or not by itself; the rest depends on what the job says already."""
    others = set[str]() if "schedule" in given else {*_OF_SCHEDULES}
    others |= set[str]() if "misfire" in given else {*_OF_MISFIRE}
    return {key: value for key, value in given.items() if key not in others}


def _has_delay(schedule: object) -> bool:
    given = cast("Sequence[Any]", schedule if isinstance(schedule, list | tuple) else [schedule])
    return any(isinstance(one, Mapping) and "delay" in one for one in given)


def _schedule(value: object) -> Any:
    """No schedule is said in so many words: left out, it would mean once and now."""
    if value is None or value == "" or value == [] or value == ():
        return "manual"
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    return _plain(value)


def _retries(value: object) -> Wire:
    """A policy in the two fields that it has there."""
    if value is None or isinstance(value, int):
        return {"retries": value}
    policy: Wire = msgspec.json.decode(Retry.parse(value).to_json())
    return {"retries": policy.pop("retries"), "backoff": policy}


def _plain(value: Any) -> Any:
    """A value without types of ours."""
    if isinstance(value, Schedule | Calendar | Misfire):
        return value.to_dict()
    if isinstance(value, datetime):
        return to_iso(read_time(value, "time"))
    return value
