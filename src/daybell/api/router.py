"""Routes: declared at their handlers, found by method and path, and called with typed arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar, cast, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.caller import CALLER, Caller, Invalid, ReadOnly, api_of, is_read_only, problem
from daybell.api.guard import SAFE
from daybell.api.requests import read_bytes, read_header, read_json, validate_body
from daybell.api.validation import Findings, info_of, read_parameters, read_text
from daybell.client.requests import ARGS_PREFIX, CONTENT
from daybell.core.access import Action, Role, Scope
from daybell.core.limits import REQUEST_BYTES_MAX, REQUEST_KEY_CHARS_MAX
from daybell.core.monitoring import observers
from daybell.errors import AccessDenied, UsageError, shown, suggested

BASE: Final = "/api/v1"
TENANT: Final = "tenant"
# The sources of a handler's parameters. All others take the values of the path, in its order.
SOURCES: Final = frozenset({"request", "caller", "query", "body", "raw", "key", "if_match"})

_PARAMETER: Final = re.compile(r"\{(\w+)\}")

Handler = Callable[..., Awaitable[Response]]
H = TypeVar("H", bound=Handler)


class Reach(Enum):
    """The part of a tenant that an operation reads or changes."""

    NAMES = "names"  # jobs and queues: the store limits a key with a scope to those of the scope
    QUEUES = "queues"  # the same; closed to a key that is limited to jobs without naming queues
    TENANT = "tenant"  # the whole tenant: closed to a key that is limited to jobs or queues
    NEUTRAL = "neutral"  # nothing of a job or a queue


class TenantQuery(msgspec.Struct):
    """The parameter of every operation that takes a key."""

    tenant: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=200, description="Another tenant's; only with a superadmin's key."
            ),
        ]
        | None
    ) = None


class KeyHeader(msgspec.Struct, rename={"value": "Idempotency-Key"}):
    """The header of operations that can be repeated."""

    value: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=REQUEST_KEY_CHARS_MAX,
                pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
                description="Made by the sender. The same request with the same key is done once,"
                " and answered as it was the first time, for a day.",
            ),
        ]
        | None
    ) = None


class MatchHeader(msgspec.Struct, rename={"value": "If-Match"}):
    """The header of changes to one version."""

    value: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=100,
                description="The version that the change is meant for, as the ETag has it.",
            ),
        ]
        | None
    ) = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """An operation: its address, its access rule, its handler, and its texts in the document.

    `examples` are bodies. `also` are other answers of the same shape. `parameters` are those with
    names that the caller chooses, which no struct has.
    """

    method: str
    path: str
    id: str
    role: Role | None  # None: open to callers without a key
    action: Action | None  # None: closed to every key with a scope
    reach: Reach = Reach.TENANT
    tag: str | None = None
    is_hidden: bool = False  # from the document
    changes_nothing: bool = False  # but sessions, so that a read-only server performs it
    handler: Handler
    takes: tuple[str, ...]  # the names of the handler's parameters
    headers_read: tuple[str, ...]  # those of them that are HEADERS
    values: type[msgspec.Struct]  # the parameters of the path
    query: type[msgspec.Struct] | None = None
    body: Any = None  # a struct; or the name of a schema in core/job_request.py
    body_types: tuple[str, ...] = ()  # beside JSON
    is_body_optional: bool = False
    is_body_read: bool = True  # by the router; otherwise by the handler
    bytes_max: int = REQUEST_BYTES_MAX  # of the body
    examples: Mapping[str, Any] = {}
    parameters: Sequence[Mapping[str, Any]] = ()
    bodies: Mapping[str, Any] = {}  # of content types with another body
    answers: Any = None
    answers_also: Any = None  # to such a body
    media_types: tuple[str, ...] = ()  # of the answer, beside JSON
    # A GET that can be a topic of `/stream`: the field that identifies an item of the list, or
    # nothing if the answer is one thing.
    live: str | None = None
    status: int = 200
    says: str = "Done."
    also: Mapping[int, str] = {}
    errors: tuple[int, ...] = ()
    headers: Mapping[str, Any] = {}

    def check_caller(self, caller: Caller) -> None:
        """Raise AccessDenied unless the caller's role and scope include the operation."""
        if self.role is not None:
            caller.check(self.role)
        if caller.scope is not None and self.role is not Role.WORKER:  # it checks the queues itself
            self.check_scope(caller.scope)

    def check_scope(self, scope: Scope) -> None:
        """Raise AccessDenied unless a key with this scope may use the operation."""
        limits = f"this key is limited to {scope.describe()}"
        if self.action is None:
            raise AccessDenied(f"{limits}; this takes a key without such limits")
        if not scope.allows(self.action):
            raise AccessDenied(f"{limits}; this takes the action {self.action}")
        if scope.limits_names and self.reach is Reach.TENANT:
            raise AccessDenied(f"{limits}; this is about the tenant as a whole")
        if scope.jobs and not scope.queues and self.reach is Reach.QUEUES:
            raise AccessDenied(f"{limits}; this takes a key that is limited to queues as well")

    def check_read_only(self, request: Request) -> None:
        """Raise ReadOnly if the operation is a change that this server refuses."""
        is_change = self.method not in SAFE and not self.changes_nothing
        if is_change and is_read_only(request):
            raise ReadOnly("this server is read-only, and this is a change")

    async def answer(self, request: Request, values: Sequence[str]) -> Response:
        """Check the caller, read the arguments, and call the handler."""
        caller: Caller | None = None
        if self.role is not None:
            found: Caller | None = request.scope.get(CALLER)  # by the guard
            caller = found or await api_of(request).authenticate(request)
        self.check_read_only(request)
        if caller is not None:
            self.check_caller(caller)
        given, tenant = self.read_arguments(request, values)
        if caller is not None:
            given["caller"] = caller if tenant is None else await caller.of_tenant(tenant)
        if self.is_body_read and (self.body is not None or "raw" in self.takes):
            raw = given["raw"] = await read_bytes(request, bytes_max=self.bytes_max)
            if "body" in self.takes or "raw" not in self.takes:
                value: Any = read_json(raw) if raw or not self.is_body_optional else {}
                given["body"] = validate_body(value, cast("Any", self.body))
        if self.method == "POST" and (trace := request.headers.get("traceparent")) is not None:
            with observers.received(trace):
                return await self.call(given)
        return await self.call(given)

    def read_arguments(
        self, request: Request, values: Sequence[str]
    ) -> tuple[dict[str, Any], str | None]:
        """Return the arguments of the handler but those from the body, and the tenant that the
        query names. Raises Invalid.
        """
        given: dict[str, Any] = {"request": request}
        wrong: Findings = []
        tenant = self._read_query(request, given, wrong)
        self._read_rest(request, values, given, wrong)
        if wrong:
            raise Invalid(wrong)
        return given, tenant

    async def call(self, given: Mapping[str, Any]) -> Response:
        """Call the handler with those of the arguments that it takes."""
        return await self.handler(**{name: given[name] for name in self.takes})

    def _read_query(self, request: Request, given: dict[str, Any], wrong: Findings) -> str | None:
        """Read the query into `given`; return the tenant that it names. Refuse a parameter that
        the route does not have: a misspelt filter must not list all.
        """
        text: bytes = request.scope["query_string"]
        if not text:
            given["query"] = None if self.query is None else self.query()
            return None
        sent: dict[str, list[str]] = {}
        for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
            sent.setdefault(name, []).append(value)
        if self.role is None:
            return None  # probes come with parameters of all kinds
        known = sorted(
            (*(self.query.__struct_encode_fields__ if self.query is not None else ()), TENANT)
        )
        for name in sent:
            if name not in known and not (self.parameters and name.startswith(ARGS_PREFIX)):
                hint = self._hint(name, known)
                raise UsageError(f"there is no parameter {shown(name)} here; {hint}", field=name)
        if self.query is not None:
            given["query"] = read_parameters(self.query, sent, wrong)
        found = read_parameters(TenantQuery, sent, wrong) if TENANT in sent else None
        return None if found is None else found.tenant

    def _hint(self, name: str, known: Sequence[str]) -> str:
        is_arg = name.startswith((ARGS_PREFIX, "args."))
        if self.parameters and is_arg:
            return f"did you mean {ARGS_PREFIX + name.partition('.')[2]!r}?"
        if self.path.endswith("/counts") and (is_arg or name in CONTENT):
            return "/counts takes no search by content; GET /executions and GET /dead-letters do"
        return suggested(name, known)

    def _read_rest(
        self, request: Request, values: Sequence[str], given: dict[str, Any], wrong: Findings
    ) -> None:
        """Read the parameters of the path, and the headers."""
        for field, value in zip(info_of(self.values).fields, values, strict=True):
            given[field.name] = read_text(field.type, value, field.encode_name, wrong)
        for name in self.headers_read:
            header, model = HEADERS[name]
            text = read_header(request, header)
            given[name] = None if text is None else _read_value(model, text, wrong)


HEADERS: Final[Mapping[str, tuple[bytes, type[KeyHeader | MatchHeader]]]] = {
    "key": (b"idempotency-key", KeyHeader),
    "if_match": (b"if-match", MatchHeader),
}


def _read_value(model: type[KeyHeader | MatchHeader], text: str, wrong: Findings) -> str | None:
    """Read the one field of a header."""
    (name,) = model.__struct_encode_fields__
    read = read_parameters(model, {name: (text,)}, wrong)
    return None if read is None else read.value


class Routes:
    """The routes below a path, under one heading of the document."""

    def __init__(self, prefix: str, *, tag: str | None = None, base: str = BASE) -> None:
        self._prefix = base + prefix
        self._tag = tag
        self._all: list[Route] = []
        self.get = partial(self._route, "GET")
        self.post = partial(self._route, "POST")
        self.put = partial(self._route, "PUT")
        self.patch = partial(self._route, "PATCH")
        self.delete = partial(self._route, "DELETE")
        self.options = partial(self._route, "OPTIONS")

    def __iter__(self) -> Iterator[Route]:
        return iter(self._all)

    def _route(
        self,
        method: str,
        path: str,
        *,
        id: str,
        role: Role | None,
        action: Action | None,
        **more: Any,
    ) -> Callable[[H], H]:
        """Declare the operation that a handler performs. It takes the types of its query, its body
        and its path parameters from the handler; `body` in `more` describes one that the handler
        reads by itself.
        """

        def add(handler: H) -> H:
            hints = get_type_hints(handler, include_extras=True)
            takes = tuple(inspect.signature(handler).parameters)
            own = [name for name in takes if name not in SOURCES]
            there = dict(zip(own, _PARAMETER.findall(self._prefix + path), strict=True))
            fields = [(name, hints[name]) for name in own]
            read = {name: hints[name] for name in ("query", "body") if name in hints}
            route = Route(
                method=method,
                path=self._prefix + path,
                id=id,
                role=role,
                action=action,
                tag=self._tag,
                handler=handler,
                takes=takes,
                headers_read=tuple(name for name in takes if name in HEADERS),
                values=msgspec.defstruct("Path", fields, rename=there),
                **{**read, **more},
            )
            self._all.append(route)
            return handler

        return add


class Router:
    """The table that finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes: Final = list(routes)
        # By the parts of the path, with None in place of each parameter; then by method.
        self._found: dict[tuple[str | None, ...], dict[str, Route]] = {}
        # By the number of parts: the places of the parameters, paths without any first.
        self._places: dict[int, list[tuple[int, ...]]] = {}
        for route in self.routes:
            parts = [None if one.startswith("{") else one for one in route.path.split("/")]
            methods = self._found.setdefault(tuple(parts), {})
            assert route.method not in methods, f"two routes at {route.method} {route.path}"
            methods[route.method] = route
            places = tuple(at for at, part in enumerate(parts) if part is None)
            known = self._places.setdefault(len(parts), [])
            if places not in known:
                known.append(places)
                known.sort(key=len)

    def find(self, method: str, path: str) -> tuple[Route, list[str]] | Response:
        """Find a route and the values of its parameters; otherwise return a problem."""
        parts = path.split("/")
        there: set[str] = set()
        for places in self._places.get(len(parts), ()):
            key: list[str | None] = list(parts)
            for at in places:
                key[at] = None
            methods = self._found.get(tuple(key))
            values = [parts[at] for at in places]
            if methods is None or "" in values:
                continue
            if (route := methods.get(method)) is not None:
                return route, values
            there.update(methods)
        if there:
            return refuse_method(method, there)
        return problem(
            HTTPStatus.NOT_FOUND,
            "not-found",
            "there is nothing at this path; /docs lists what there is, and /openapi.json does so"
            " for programs",
        )


def refuse_method(method: str, methods: Iterable[str]) -> Response:
    """Return the response to a method that a path does not have."""
    there = {*methods, "HEAD"} if "GET" in methods else set(methods)
    return problem(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method-not-allowed",
        f"{method} is not for this path",
        headers={"Allow": ", ".join(sorted(there))},
    )
