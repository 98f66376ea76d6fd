"""The caller of a request: tenant, role and scope, and the operations they allow."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import msgspec
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from daybell import errors
from daybell.client import Client, Holder, mint
from daybell.client.requests import ARGS_PREFIX, CONTENT
from daybell.client.wire import encode
from daybell.core import payload
from daybell.core.access import Action, AuditEntry, Key, NewAuditEntry, Role, Scope
from daybell.core.limits import KEY_RATE_DEFAULT, PAGE_BYTES_MAX, PAGE_ITEMS_MAX
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.core.views import Page
from daybell.errors import AccessDenied, DaybellError, UsageError, shown, suggested

# Responses as JSON: encode content, pages and created objects.

T = TypeVar("T")


def answer_json(
    content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer with JSON in it."""
    return Response(
        encode(content),
        status_code=status,
        headers=None if headers is None else dict(headers),
        media_type="application/json",
    )


def answer_page(
    page: Page[T], items: Iterable[msgspec.Struct], *, cursor: Callable[[T], str]
) -> Response:
    """An answer with a page of a list, its `items` as `client/wire.py` has them. It ends before the
    first item with which it would have more than PAGE_BYTES_MAX bytes.
    """
    parts: list[bytes] = []
    more, left = page.next_cursor, PAGE_BYTES_MAX - 1_100  # what is around them, and the cursor
    for one in items:
        part = encode(one)
        left -= len(part) + 1
        if parts and left < 0:
            more = cursor(page.items[len(parts) - 1])
            break
        parts.append(part)
    body = b'{"items":[%b],"next_cursor":%b}' % (b",".join(parts), encode(more))
    return Response(body, media_type="application/json")


def answer_created(
    content: Any, *, location: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to a creation: where it is now."""
    return answer_json(content, status=201, headers={"Location": location, **(headers or {})})


# The operations that a key with a scope may use.
#
# Each operation belongs to one action. Operations that are not in these tables are closed to
# every key with a scope: those on keys and tenants, and new ones until they are added here.

# The store of the caller (`store/scope.py`) limits these to the jobs and queues of the scope.
LIMITED: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset(
        {
            "count_executions",
            "explain_execution",
            "get_execution",
            "get_execution_logs",
            "get_job",
            "get_job_version",
            "list_dead_letters",
            "list_executions",
            "list_job_executions",
            "list_job_schedules",
            "list_job_versions",
            "list_job_warnings",
            "list_jobs",
        }
    ),
    Action.TRIGGER: frozenset({"enqueue_executions", "trigger_job"}),
    Action.CANCEL: frozenset({"cancel_execution", "cancel_executions", "purge_queue"}),
    Action.RETRY: frozenset({"retry_dead_letters", "retry_execution", "retry_executions"}),
    Action.DISCARD: frozenset({"discard_dead_letters"}),
    Action.PAUSE: frozenset({"pause_job", "pause_queue", "resume_job", "resume_queue"}),
    Action.SIGNAL: frozenset({"approve_execution", "signal_execution"}),
    Action.DEFINE: frozenset(
        {"apply_job", "create_job", "delete_job", "rollback_job", "update_job"}
    ),
    Action.BACKFILL: frozenset({"backfill_job"}),
}
# The same, and closed to a key that is limited to jobs without naming queues.
OF_QUEUES: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset({"get_queue_scaling", "list_queues"}),
}
# These have nothing of a job or a queue.
NEUTRAL: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset({"docs", "get_status", "openapi", "preview_schedule"}),
}
# These show or change something of the whole tenant: closed to a key that is limited to jobs or
# queues, open to one that is limited to actions only.
OF_TENANT: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset(
        {
            "get_stats",
            "get_template",
            "list_audit",
            "list_events",
            "list_keys",
            "list_secrets",
            "list_templates",
            "list_workers",
            "stream",
            "verify_audit",
        }
    ),
    Action.SIGNAL: frozenset({"publish_event"}),
    Action.DRAIN: frozenset({"drain_worker"}),
    Action.DEFINE: frozenset({"create_template", "delete_template", "set_template"}),
    Action.SECRETS: frozenset({"delete_secret", "set_secret"}),
}


def _invert_tables(*tables: dict[Action, frozenset[str]]) -> dict[str, Action]:
    return {id: action for table in tables for action, ids in table.items() for id in ids}


ACTIONS: Final = _invert_tables(LIMITED, OF_QUEUES, NEUTRAL, OF_TENANT)
_OF_QUEUES: Final = _invert_tables(OF_QUEUES)
_OF_TENANT: Final = _invert_tables(OF_TENANT)


def check_operation(scope: Scope, operation: str) -> None:
    """Raise AccessDenied unless a key with this scope may use an operation."""
    limits = f"this key is limited to {scope.describe()}"
    action = ACTIONS.get(operation)
    if action is None:
        raise AccessDenied(f"{limits}; this takes a key without such limits")
    if not scope.allows(action):
        raise AccessDenied(f"{limits}; this takes the action {action}")
    if scope.limits_names and operation in _OF_TENANT:
        raise AccessDenied(f"{limits}; this is about the tenant as a whole")
    if scope.jobs and not scope.queues and operation in _OF_QUEUES:
        raise AccessDenied(f"{limits}; this takes a key that is limited to queues as well")


# What an API is told when it starts.


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an API serves. The default is the careful one: nobody gets in without a key."""

    # Whoever asks without a key is a superadmin of this tenant: `daybell dev` on this machine only.
    open_tenant: str | None = None
    # Of these, only this local user and root. None: everybody that can connect.
    open_uid: int | None = None
    key_rate: float = KEY_RATE_DEFAULT  # requests per second of one key; 0: no limit


BEFORE_BYTES_MAX: Final = 64 * 1024  # of what an audit entry keeps of either side


class KeyNeeded(AccessDenied):
    """The request has no valid key."""

    code = "key-needed"
    status = 401
    remedy = "Send a valid key: `Authorization: Bearer dbk_…`."


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever sent a request. `client` is bound to the tenant that the request is about."""

    client: Client
    tenant: str
    role: Role
    actor: str  # as the audit log names them
    source: str = ""  # the address that they called from
    key: Key | None = None
    holder: Holder = Holder("")  # of the shares that the request takes, whatever tenant it is about

    def check(self, needed: Role) -> None:
        """Raise AccessDenied unless their role allows it."""
        if not self.role.may(needed):
            raise AccessDenied(
                f"this takes a key with the role {needed}; this one's role is {self.role}"
            )

    @property
    def scope(self) -> Scope | None:
        """What their key is limited to within its role."""
        return None if self.key is None else self.key.scope

    def check_args(self, texts: Iterable[str]) -> None:
        """Refuse arguments that name secrets to whoever may not make jobs: what a job does with an
        argument, such as sending it somewhere, is not known here.
        """
        is_limited = self.scope is not None and not self.scope.allows(Action.DEFINE)
        if self.role.may(Role.ADMIN) and not is_limited:
            return
        needed = "the action define" if is_limited else "the role admin"
        for text in texts:
            if SECRET_MARK in text and (names := names_in_args(payload.decode(text))):
                raise AccessDenied(
                    f"naming secrets in args ({shown(min(names))}) takes a key with {needed};"
                    f" this one's role is {self.role}. A job's own args may name them"
                )

    async def of_tenant(self, name: str | None) -> Caller:
        """The same caller about another tenant, which only a superadmin may name."""
        if name is None or name == self.tenant:
            return self
        if not self.role.may(Role.SUPERADMIN):
            raise AccessDenied(
                f"tenant {shown(name)} is not this key's; only a superadmin's key may name another"
            )
        found = await self.client.tenant_record(name)
        other = self.client.for_tenant(found.name)
        return msgspec.structs.replace(self, client=other, tenant=found.name)

    def entry(
        self,
        action: str,
        target: object,
        *,
        before: Any = None,
        after: Any = None,
        id: UUID | None = None,
    ) -> NewAuditEntry:
        """What the audit log is told of a change that they make."""
        return NewAuditEntry(
            id=mint() if id is None else id,
            actor=self.actor,
            action=action,
            target=str(target),
            before=None if before is None else _encode_bounded(before),
            after=None if after is None else _encode_bounded(after),
            source=self.source,
        )

    def auditing(
        self,
        action: str,
        target: object,
        *,
        before: Any = None,
        after: Any = None,
        id: UUID | None = None,
    ) -> AbstractContextManager[None]:
        """The change that is made in here is on record, in its own transaction."""
        return self.client.auditing(self.entry(action, target, before=before, after=after, id=id))

    async def recorded(self, action: str, target: object, id: UUID) -> AuditEntry | None:
        """The entry with this id, if it is there; then the change that it tells of was made."""
        seen, cursor = 0, None
        while seen < PAGE_ITEMS_MAX:
            page = await self.client.audit(
                action=action, target=str(target), limit=PAGE_ITEMS_MAX, cursor=cursor
            )
            for one in page.items:
                if one.id == id:
                    return one
            seen, cursor = seen + len(page.items), page.next_cursor
            if cursor is None:
                break
        return None


Authenticate = Callable[[Request], Awaitable[Caller]]


class Api(msgspec.Struct, kw_only=True):
    """What the routes of one application share: `request.app.state.api`."""

    client: Client
    options: ApiOptions
    authenticate: Authenticate


def api_of(request: Request) -> Api:
    """What the routes share."""
    return request.app.state.api


@lru_cache
def needs(role: Role) -> Callable[..., Awaitable[Caller]]:
    """A dependency that answers the caller, if they may do what takes this role."""

    async def caller(
        request: Request,
        tenant: Annotated[
            str | None,
            Query(description="Another tenant's; only with a superadmin's key.", max_length=200),
        ] = None,
    ) -> Caller:
        found = await api_of(request).authenticate(request)
        found.check(role)
        if found.scope is not None:
            route = request.scope["route"]
            check_operation(found.scope, route.operation_id or route.name)
        check_query(request)
        return await found.of_tenant(tenant)

    return caller


def role_of(dependant: Any) -> Role | None:
    """The role that a route takes; None: it is open to all."""
    asked = [one.call for one in dependant.dependencies]
    return next((role for role in Role if needs(role) in asked), None)


Viewer = Annotated[Caller, Depends(needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(needs(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(needs(Role.ADMIN))]
Superadmin = Annotated[Caller, Depends(needs(Role.SUPERADMIN))]


def check_query(request: Request) -> None:
    """Refuse a parameter that the route does not have: a misspelt filter must not list all."""
    given = request.query_params
    if not given:
        return
    route = request.scope["route"]
    known = _parameter_names(route.dependant)
    takes_args = "parameters" in (route.openapi_extra or {})  # with names of the caller's choice
    for name in given:
        if name not in known and not (takes_args and name.startswith(ARGS_PREFIX)):
            hint = _hint(name, known, takes_args=takes_args, path=route.path)
            raise UsageError(f"there is no parameter {shown(name)} here; {hint}", field=name)


def _hint(name: str, known: set[str], *, takes_args: bool, path: str) -> str:
    is_arg = name.startswith((ARGS_PREFIX, "args."))
    if takes_args and is_arg:
        return f"did you mean {ARGS_PREFIX + name.partition('.')[2]!r}?"
    if path.endswith("/counts") and (is_arg or name in CONTENT):
        return "/counts takes no search by content; GET /executions and GET /dead-letters do"
    return suggested(name, sorted(known))


def _parameter_names(dependant: Any) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*map(_parameter_names, dependant.dependencies))


def _encode_bounded(value: Any) -> str:
    text = encode(value).decode()
    if len(text) > BEFORE_BYTES_MAX:
        return encode({"bytes": len(text), "cut": text[:1000]}).decode()
    return text


# Errors as application/problem+json (RFC 9457), and messages for invalid values.

# What is wrong with a value, in our own words: what a checker finds has a kind, and each kind a
# sentence that goes on from the field's name.

_WHOLE: Final = "must be a whole number"
_NUMBER: Final = "must be a number"
_LOGICAL: Final = "must be true or false"
_OBJECT: Final = "must be an object"

# Of what type it has to be.
TYPES: Final[Mapping[str, str]] = {
    "bool_parsing": _LOGICAL,
    "bool_type": _LOGICAL,
    "dict_type": _OBJECT,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "list_type": "must be a list",
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "string_type": "must be text",
}
# What it has to be beyond that; the names in braces are what the checker tells with the kind.
RULES: Final[Mapping[str, str]] = {
    "enum": "must be {expected}",
    "finite_number": "must be a number that is not infinite",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have {max_length} characters or fewer",
    "string_too_short": "must have {min_length} or more characters",
    "too_long": "must have {max_length} entries or fewer",
    "too_short": "must have {min_length} or more entries",
}
_MUST_BE: Final = "must be "


def describe_finding(found: Mapping[str, Any]) -> str:
    """A finding of pydantic's as we say it."""
    kind = found["type"]
    if kind in TYPES:
        return TYPES[kind]
    said = found.get("ctx", {})
    if said.get("field_type") == "Value":  # what has a rule of its own beside its length is text
        kind = f"string_{kind}"
    if kind in RULES:
        return RULES[kind].format_map(said)
    return str(found["msg"])


def join_findings(found: Iterable[str]) -> str:
    """One sentence of what each type of a choice said.

    If one of them had the right type, it is its word that counts.
    """
    told = list(dict.fromkeys(found))
    types = set(TYPES.values())
    finer = [one for one in told if one not in types]
    first, *more = finer or told
    return first + "".join(f", or {one.removeprefix(_MUST_BE)}" for one in more)


logger = logging.getLogger("daybell.api")

MEDIA_TYPE: Final = "application/problem+json"
ERRORS_MAX: Final = 100  # listed in one answer
AWAY_SECONDS: Final = 2  # after which it is worth asking again when the store is away


class Invalid(UsageError):
    """One or more inputs of the request are wrong."""

    code = "invalid"
    remedy = "Correct the inputs that `errors` names, then send the request again."

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        self.found = list(found)[:ERRORS_MAX]
        field, message = self.found[0]
        more = len(self.found) - 1
        tail = f"; and {more} more, see errors" if more else ""
        super().__init__(f"{field}: {message}{tail}" if field else f"{message}{tail}", field=field)

    def _extra_fields(self) -> dict[str, Any]:
        listed = [errors.describe_field(field, message) for field, message in self.found]
        return {"errors": listed}


class Unsupported(UsageError):
    """The Content-Type of the body is not JSON."""

    code = "unsupported"
    status = 415
    remedy = "Send `Content-Type: application/json`."


class PreconditionFailed(errors.VersionConflict):
    """The current version is not the one that `If-Match` names."""

    code = "precondition-failed"
    status = 412
    remedy = "Read the current version, then make the change with it in `If-Match`."


class TooManyRequests(DaybellError):
    """The address or key has sent too many requests."""

    code = "too-many-requests"
    status = 429
    remedy = "Wait for the seconds that `Retry-After` names."

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def problem(
    status: int,
    kind: str,
    detail: str,
    *,
    found: Iterable[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """An answer that says what went wrong. `kind` is stable, for programs; `detail` for people."""
    listed = [errors.describe_field(field, message) for field, message in found]
    content = errors.build_problem(kind, status, detail, errors=listed, **more)
    return _answer_problem(content, headers=headers)


def _answer_problem(content: dict[str, Any], *, headers: Mapping[str, str] | None) -> Response:
    return Response(
        encode(content),
        status_code=content["status"],
        headers=None if headers is None else dict(headers),
        media_type=MEDIA_TYPE,
    )


def answer_error(error: DaybellError) -> Response:
    """The answer to a request that one of our own errors ended."""
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return answer_unexpected(error)
    content = error.problem() | {"detail": _error_detail(error)}
    return _answer_problem(content, headers=_headers(error))


def answer_unexpected(error: BaseException) -> Response:
    """The answer to a mistake of ours. What it was is for the log, not for the caller."""
    logger.error("a request failed", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "something went wrong here, and is in the server's log; the request may be sent again",
    )


def install(app: FastAPI) -> None:
    """Have the application answer every error with a problem."""
    app.add_exception_handler(DaybellError, _handle_error)
    app.add_exception_handler(RequestValidationError, _handle_parameters)
    app.add_exception_handler(HTTPException, _handle_status)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle_unexpected)


async def _handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DaybellError)
    return answer_error(error)


async def _handle_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [(str(one["loc"][-1]), describe_finding(one)) for one in error.errors()]
    return answer_error(Invalid(found))


async def _handle_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = {
        HTTPStatus.NOT_FOUND: "there is nothing at this path; /docs lists what there is, and"
        " /openapi.json does so for programs",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not for this path",
    }.get(status, str(error.detail))
    kind = status.phrase.lower().replace(" ", "-")
    headers = dict(error.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED and (methods := _methods_of(request)):
        headers["Allow"] = ", ".join(methods)
    return problem(status, kind, detail, headers=headers)


def _methods_of(request: Request) -> list[str]:
    """All that can be done at a path: each route knows only of its own method."""
    found: set[str] = set()
    for path, methods in request.app.state.methods.items():
        if compile_path(path)[0].fullmatch(request.url.path):
            found |= methods | ({"HEAD"} if "GET" in methods else set())
    return sorted(found)


async def _handle_disconnect(request: Request, error: Exception) -> Response:
    """Answer a client that has left before its body was complete: no mistake of ours."""
    logger.debug("a client left in the middle of its request")
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _handle_unexpected(request: Request, error: Exception) -> Response:
    return answer_unexpected(error)


def _error_detail(error: DaybellError) -> str:
    if isinstance(error, errors.Unavailable | errors.SchemaError):
        # Where the store is, and what it says of itself, is not for everybody.
        logger.warning("a request was refused: %s", error)
        return "the store cannot be used now; nothing is wrong with the request, send it again"
    if isinstance(error, errors.InvalidFields):
        first, *more = error.errors
        return f"{first.field}: {first}; and {len(more)} more, see errors"
    return str(error)


def _headers(error: DaybellError) -> dict[str, str]:
    if isinstance(error, errors.QuotaExceeded | TooManyRequests):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if isinstance(error, errors.Unavailable | errors.SchemaError):
        return {"Retry-After": str(AWAY_SECONDS)}
    if isinstance(error, KeyNeeded):
        return {"WWW-Authenticate": 'Bearer realm="daybell"'}
    return {}
