"""Requests to the API: verbs that follow from their routes, bodies and parameters of the others.

Invalid input is refused here, with the same message as on the database and without a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial, wraps
from inspect import Signature, signature
from string import Formatter
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

import msgspec

from daybell.client.admin import require_secret_name
from daybell.client.executions import check_no_status
from daybell.client.remote.transport import Transport, build_path
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
from daybell.client.schedules import read_pause_note
from daybell.core.execution import State
from daybell.core.limits import ENQUEUE_BATCH_MAX, check_key, check_name
from daybell.core.monitoring.stats import check_metrics
from daybell.core.options import Arguments, read_args, read_limit
from daybell.core.units import format_duration, parse_duration, to_iso
from daybell.core.views import ExecutionFilter, Page
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


# Verbs that follow from their routes.

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
Verb = Callable[Concatenate[Any, P], Awaitable[R]]  # of `Client`; a remote one has its signature
RemoteVerb = Callable[Concatenate[Any, P], "CoroutineType[Any, Any, R]"]


def reading(
    verb: Verb[P, R], route: str, answer: type[A], read: Callable[[A], R]
) -> RemoteVerb[P, R]:
    """Return a verb that sends a request, and returns its answer as `read` has it.

    `RemoteRoute` has the parts of a route.
    """
    asked = RemoteRoute(verb, route)

    @wraps(verb)
    async def ask(client: Any, *args: P.args, **options: P.kwargs) -> R:
        transport: Transport = client.transport
        path, parameters, body, version = asked.read_call(args, options)
        how: Any = {"parameters": parameters, "version": version}
        return read(await transport.ask(asked.method, path, answer, body, **how))

    return ask


def asking(verb: Verb[P, R], route: str, answer: type[R]) -> RemoteVerb[P, R]:
    """Return a verb that sends a request, and returns the answer."""
    return reading(verb, route, answer, lambda found: found)


def doing(verb: Verb[P, None], route: str) -> RemoteVerb[P, None]:
    """Return a verb that sends a request, and returns nothing."""
    return reading(verb, route, dict[str, Any], lambda _: None)


def paging(verb: Verb[P, Page[R]], path: str, item: type[R]) -> RemoteVerb[P, Page[R]]:
    """Return a verb that gets a page of a list. Its items are complete."""
    asked = RemoteRoute(verb, f"GET {path}")

    @wraps(verb)
    async def get(client: Any, *args: P.args, **options: P.kwargs) -> Page[R]:
        transport: Transport = client.transport
        path, parameters, _, _ = asked.read_call(args, options)
        return await transport.page(path, item, parameters)

    return get


def listing(verb: Verb[P, list[R]], path: str, item: type[R]) -> RemoteVerb[P, list[R]]:
    """Return a verb that gets all items of a list."""
    asked = RemoteRoute(verb, f"GET {path}")

    @wraps(verb)
    async def get(client: Any, *args: P.args, **options: P.kwargs) -> list[R]:
        transport: Transport = client.transport
        path, parameters, _, _ = asked.read_call(args, options)
        return await transport.all(path, item, parameters)

    return get


class RemoteRoute:
    """A method and a path, such as "POST /queues/{queue}/pause", and the arguments of its verb.

    The first arguments stand in the places of the path, read as `PLACES` has it. The others are
    fields of the body, or parameters of a GET and a DELETE, read as `FIELDS` has it; None is left
    out. `changes` is all of the body. `expect` is the version that is required. An author is the
    key, and is not sent.
    """

    def __init__(self, verb: Callable[..., Any], route: str) -> None:
        self._verb = verb
        self.method, self._path = route.split()
        self._places = [name for _, name, _, _ in Formatter().parse(self._path) if name]

    @cached_property
    def _signature(self) -> Signature:
        return signature(self._verb)

    def read_call(
        self, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> tuple[str, Body, Body | None, int | None]:
        """Return the path, the parameters, the body and the required version of a call."""
        call = self._signature.bind(None, *args, **options)
        call.apply_defaults()
        _, *given = call.arguments.items()
        parts = given[: len(self._places)]
        path = self._path.format_map(
            {
                place: build_path(PLACES[place](value))[1:]
                for place, (_, value) in zip(self._places, parts, strict=True)
            }
        )
        rest = dict(given[len(parts) :])
        version = rest.pop("expect", None)
        if "changes" in rest:
            return path, {}, dict(rest["changes"]), version
        said: Body = {}
        for name, value in rest.items():
            if name not in AUTHORS and value is not None:
                sent, encode = FIELDS.get(name, (name, _as_it_is))
                said[sent] = encode(value)
        if self.method in ("GET", "DELETE"):
            return path, said, None, version
        return path, {}, said if rest.keys() - AUTHORS else None, version


def _as_it_is(value: Any) -> Any:
    return value


# Paths. A text that is no name gets the error of a missing thing: a slash in it would lead astray.


def read_job(name: Id) -> str:
    """The name or the id of a job."""
    try:
        return check_name(str(name), what="job")
    except InvalidName:
        raise JobNotFound(f"no job named {shown(name)}") from None


def read_tenant(name: str) -> str:
    """The name of a tenant."""
    try:
        return check_name(name, what="tenant")
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None


def job_path(name: str, *verb: object) -> str:
    """The path of a job."""
    return build_path("jobs", read_job(name), *verb)


AUTHORS: Final = frozenset({"author", "created_by"})
PLACES: Final[Mapping[str, Callable[[Any], object]]] = {
    "execution": read_id,
    "worker": read_id,
    "key": read_id,
    "incident": read_id,
    "job": read_job,
    "tenant": read_tenant,
    "secret": require_secret_name,
    "queue": partial(check_name, what="queue"),
    "template": partial(check_name, what="template"),
    "alert": partial(check_name, what="alert"),
    "subscription": partial(check_name, what="subscription"),
    "export": partial(check_name, what="export policy"),
    "limit": str,
    "hook": str,
}
FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "since": ("since", partial(encode_bound, what="since")),
    "until": ("until", partial(encode_bound, what="until")),
    "duration": ("duration", partial(read_limit, what="duration")),
    "step": ("step", lambda step: format_duration(parse_duration(step, what="step"))),
    "metrics": ("metric", lambda metrics: ",".join(check_metrics(metrics))),
    "job": ("job", str),
    "note": ("note", read_pause_note),
    "is_open": ("open", _as_it_is),
}
