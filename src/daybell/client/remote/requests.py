"""Bodies and parameters of requests to the API.

Invalid input is refused here, with the same message as on the database and without a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Unpack

import msgspec

from daybell.client.executions import check_no_status
from daybell.client.remote.transport import build_path
from daybell.client.requests import (
    ARGS_PREFIX,
    BOUNDS,
    ONE_OPTIONS,
    EnqueueOptions,
    Filters,
    Id,
    Time,
    check_options,
    expand_query,
    read_ago,
    read_bound,
    read_filter,
    read_id,
    read_pattern,
)
from daybell.core.execution import State
from daybell.core.limits import ENQUEUE_BATCH_MAX, check_key, check_name
from daybell.core.options import Arguments, read_args
from daybell.core.units import format_duration, to_iso
from daybell.core.views import ExecutionFilter
from daybell.errors import InvalidName, JobNotFound, TenantNotFound, shown

Body = dict[str, Any]


def encode_execution(
    job: str,
    args: Arguments | None,
    *,
    unique_key: str | None,
    what: str,
    **options: Unpack[EnqueueOptions],
) -> Body:
    """What is said of one execution; without arguments it is called as its job says."""
    check_options(options, ONE_OPTIONS, what)
    pattern = read_pattern(job, **options)
    said: Body = {
        "delay": None if pattern.delay is None else format_duration(pattern.delay),
        "at": None if pattern.at is None else to_iso(pattern.at),
        "expires": pattern.expires_in,
        "priority": None if pattern.priority is None else pattern.priority.label,
        "queue": pattern.queue,
        "retries": pattern.retries,
        "timeout": pattern.timeout,
        "unique_key": None if unique_key is None else check_key(unique_key),
        "force": pattern.force or None,
        "cache": "refresh" if pattern.refresh else None,
        "args": None if args is None else msgspec.Raw(read_args(args).encode()),
    }
    return {key: value for key, value in said.items() if value is not None}


def read_filters(given: Filters) -> ExecutionFilter:
    """Refuse filters that make no sense. Names and lengths of time are for the server to read."""
    checked = expand_query(given)
    user = checked.pop("user", None)
    if user is not None:
        checked["jobs"] = frozenset[str]()
    checked["worker"] = None
    return read_filter(now=0.0, **checked)


def encode_filters(given: Filters, states: frozenset[State] | None = None) -> Body:
    """Which executions are asked for, as a filter of a body; of these states, if there are any."""
    read_filters(given)
    where = read_filters({**given, "q": None})
    states = where.states if states is None else states
    worker = given.get("worker")
    said: Body = {
        "job_id": where.job,
        "status": None if states is None else sorted(states),
        "queue": where.queue,
        "worker_id": None if worker is None else str(worker),
        "workflow_id": None if where.parent is None else str(where.parent),
        "args": None if where.content is None else dict(where.content.args) or None,
        "unique_key": given.get("unique_key"),
        "error": given.get("error"),
        "q": given.get("q"),
        **{name: encode_bound(given.get(name), name) for name in BOUNDS},
    }
    return {key: value for key, value in said.items() if value is not None}


def encode_parameters(given: Filters, states: frozenset[State] | None = None) -> Body:
    """The same as parameters of an address."""
    said = encode_filters(given, states)
    args: Body = said.pop("args", {})
    nodes = {"nodes": "true"} if given.get("nodes") else {}
    return {**said, **nodes, **{f"{ARGS_PREFIX}{name}": value for name, value in args.items()}}


def encode_bound(value: Time | None, what: str) -> str | None:
    """The start or end of a range, as it is sent."""
    if value is None or read_ago(value) is not None:
        return None if value is None else str(value)
    return to_iso(read_bound(value, what))


def selection_bodies(ids: Iterable[Id] | None, filters: Filters) -> Iterator[Body]:
    """Bodies that name ids, as many at a time as a request takes, or one with a filter."""
    if ids is None:
        check_no_status(filters)
        yield {"filter": encode_filters(filters)}
        return
    wanted = [str(read_id(id)) for id in ids]
    for start in range(0, len(wanted), ENQUEUE_BATCH_MAX):
        yield {"ids": wanted[start : start + ENQUEUE_BATCH_MAX]}


# Paths. A text that is no name gets the error of a missing thing: a slash in it would lead astray.


def job_path(name: str, *verb: object) -> str:
    """The path of a job."""
    try:
        return build_path("jobs", check_name(name, what="job"), *verb)
    except InvalidName:
        raise JobNotFound(f"no job named {shown(name)}") from None


def tenant_path(name: str) -> str:
    """The path of a tenant."""
    try:
        return build_path("tenants", check_name(name, what="tenant"))
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None
