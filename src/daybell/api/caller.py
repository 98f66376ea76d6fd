"""The caller of a request: tenant, role and scope; and responses, errors among them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from daybell import errors
from daybell.client import Client, Holder, mint
from daybell.client.wire import AuditEntry, encode
from daybell.core import payload
from daybell.core.access import Action, Key, NewAuditEntry, Role, Scope, role_for
from daybell.core.limits import KEY_RATE_DEFAULT, PAGE_BYTES_MAX, PAGE_ITEMS_MAX
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.core.views import Page
from daybell.errors import AccessDenied, DaybellError, UsageError, shown

# Responses as JSON: encode content, pages and created objects.

S = TypeVar("S", bound=msgspec.Struct)


class JsonResponse(Response):
    """A response with encoded JSON, without Starlette's checks of other bodies."""

    def __init__(
        self,
        body: bytes,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", media_type.encode()),
        ]
        for name, value in (headers or {}).items():
            self.raw_headers.append((name.lower().encode(), value.encode("latin-1")))


def answer_json(
    content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with JSON."""
    return JsonResponse(encode(content), status=status, headers=headers)


def answer_page(page: Page[S], *, cursor: Callable[[S], str]) -> Response:
    """Return a response with a page of a list. The page ends before the first item with which it
    would have more than PAGE_BYTES_MAX bytes.
    """
    parts: list[bytes] = []
    more, left = page.next_cursor, PAGE_BYTES_MAX - 1_100  # without the envelope and the cursor
    for one in page.items:
        part = encode(one)
        left -= len(part) + 1
        if parts and left < 0:
            more = cursor(page.items[len(parts) - 1])
            break
        parts.append(part)
    body = b'{"items":[%b],"next_cursor":%b}' % (b",".join(parts), encode(more))
    return JsonResponse(body)


def answer_created(
    content: Any, *, location: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response to a creation, with the location of the object."""
    return answer_json(content, status=201, headers={"Location": location, **(headers or {})})


# Options of an API, set when it starts.


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an API. The default is the safe one: every request needs a key."""

    # A caller without a key is a superadmin of this tenant: `daybell dev` on this machine only.
    open_tenant: str | None = None
    # Of these callers, only this local user and root. None: every user that can connect.
    open_uid: int | None = None
    key_rate: float = KEY_RATE_DEFAULT  # requests per second of one key; 0: no limit
    read_only: bool = False  # refuse all changes, but let browsers log in


CALLER: Final = "daybell.caller"  # in a scope: the caller, once it was found
BEFORE_BYTES_MAX: Final = 64 * 1024  # of `before` and of `after` in an audit entry


class KeyNeeded(AccessDenied):
    """The request has no valid key."""

    code = "key-needed"
    status = 401
    remedy = "Send a valid key: `Authorization: Bearer dbk_…`."


class HookRefused(AccessDenied):
    """The request to a webhook is not accepted."""

    code = "hook-refused"
    status = 401
    remedy = "Check the address, the secret that signs, and the clock of the sender."


class CsrfTokenNeeded(AccessDenied):
    """The change has a session's cookie, but not its CSRF token from a page of this server."""

    code = "csrf-token-needed"
    remedy = "Send the `csrf_token` of `GET /session` as `X-CSRF-Token`, from the same origin."


class ReadOnly(AccessDenied):
    """The server was started with `--read-only`."""

    code = "read-only"
    remedy = "Send the change to a server without `--read-only`."


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request. `client` is bound to the tenant that the request is about."""

    client: Client
    tenant: str
    role: Role
    actor: str  # the caller's name in the audit log
    source: str = ""  # the address of the caller
    key: Key | None = None
    holder: Holder = Holder("")  # of the request's shares; independent of its tenant

    def check(self, needed: Role) -> None:
        """Raise AccessDenied unless the caller's role includes the needed one. The local user of
        `daybell dev` may run workers, too.
        """
        is_local = self.key is None and needed is Role.WORKER
        if not is_local and not self.role.may(needed):
            raise AccessDenied(
                f"this takes a key with the role {needed}; this one's role is {self.role}"
            )

    @property
    def scope(self) -> Scope | None:
        """The limits of the caller's key within its role."""
        return None if self.key is None else self.key.scope

    @property
    def actions(self) -> list[Action]:
        """The actions that the caller may perform."""
        return [
            one
            for one in Action
            if self.role.may(role_for(one)) and (self.scope is None or self.scope.allows(one))
        ]

    def check_args(self, texts: Iterable[str]) -> None:
        """Refuse arguments that name secrets if the caller may not create jobs. The API does not
        know the use of an argument in a job: the job may send it somewhere.
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
        """Return the same caller for another tenant, which only a superadmin may name."""
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
        """Return the entry in the audit log for a change of the caller."""
        return NewAuditEntry(
            id=mint() if id is None else id,
            actor=self.actor,
            action=action,
            target=str(target),
            before=None if before is None else _encode_bounded(before),
            after=None if after is None else _encode_bounded(after),
            source=self.source,
        )

    def audited(
        self,
        action: str,
        target: object,
        *,
        before: Any = None,
        after: Any = None,
        id: UUID | None = None,
    ) -> Client:
        """Return a client whose first change stores an audit entry in the same transaction."""
        return self.client.audited(self.entry(action, target, before=before, after=after, id=id))

    async def recorded(self, action: str, target: object, id: UUID) -> AuditEntry | None:
        """Return the entry with this id; if there is one, its change was made."""
        seen, cursor = 0, None
        while seen < PAGE_ITEMS_MAX:
            page = await self.client.audit(
                action=action, target=str(target), limit=PAGE_ITEMS_MAX, cursor=cursor
            )
            for one in page.items:
                if one.entry_id == id:
                    return one
            seen, cursor = seen + len(page.items), page.next_cursor
            if cursor is None:
                break
        return None


Authenticate = Callable[[Request], Awaitable[Caller]]


class Api(msgspec.Struct, kw_only=True):
    """The state that the routes of one application share: `request.app.state.api`."""

    client: Client
    options: ApiOptions
    authenticate: Authenticate


def api_of(request: Request) -> Api:
    """Return the state that the routes share."""
    return request.app.state.api


def is_read_only(request: Request) -> bool:
    """Return True if this server refuses changes. Other applications, such as the receiver of a
    bridge, have no such option.
    """
    api: Api | None = getattr(request.app.state, "api", None)
    return api is not None and api.options.read_only


def _encode_bounded(value: Any) -> str:
    text = encode(value).decode()
    if len(text) > BEFORE_BYTES_MAX:
        return encode({"bytes": len(text), "cut": text[:1000]}).decode()
    return text


# Errors as application/problem+json (RFC 9457), and messages for invalid values.

logger = logging.getLogger("daybell.api")

MEDIA_TYPE: Final = "application/problem+json"
ERRORS_MAX: Final = 100  # listed in one answer
AWAY_SECONDS: Final = 2  # until a retry makes sense when the store is unavailable


def _name_field(field: str, message: str) -> str:
    """Return the message with its field in front, unless it begins with it already."""
    is_named = not field or re.match(rf"{re.escape(field)}\b", message)
    return message if is_named else f"{field}: {message}"


class Invalid(UsageError):
    """One or more inputs of the request are wrong."""

    code = "invalid"
    remedy = "Correct the inputs that `errors` names, then send the request again."

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        self.found = list(found)[:ERRORS_MAX]
        field, message = self.found[0]
        more = len(self.found) - 1
        tail = f"; and {more} more, see errors" if more else ""
        super().__init__(_name_field(field, message) + tail, field=field)

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
    """Return the response of an error. `kind` is stable, for programs; `detail` is for people."""
    listed = [errors.describe_field(field, message) for field, message in found]
    content = errors.build_problem(kind, status, detail, errors=listed, **more)
    return _answer_problem(content, headers=headers)


def _answer_problem(content: dict[str, Any], *, headers: Mapping[str, str] | None) -> Response:
    return Response(
        encode(content),
        status_code=content["status"],
        headers=headers,
        media_type=MEDIA_TYPE,
    )


def answer_error(error: DaybellError) -> Response:
    """Return the response to a request that ended with an error of Daybell."""
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return answer_unexpected(error)
    content = error.problem() | {"detail": _error_detail(error)}
    return _answer_problem(content, headers=_headers(error))


def answer_unexpected(error: BaseException) -> Response:
    """Return the response to an internal error. The cause goes to the log, not to the caller."""
    logger.error("a request failed", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "something went wrong here, and is in the server's log; the request may be sent again",
    )


def _error_detail(error: DaybellError) -> str:
    if isinstance(error, errors.Unavailable | errors.SchemaError):
        # The address and the messages of the store go to the log, not to the caller.
        logger.warning("a request was refused: %s", error)
        return "the store cannot be used now; nothing is wrong with the request, send it again"
    if isinstance(error, errors.InvalidFields):
        first, *more = error.errors
        return f"{_name_field(first.field or '', str(first))}; and {len(more)} more, see errors"
    return str(error)


def _headers(error: DaybellError) -> dict[str, str]:
    if isinstance(error, errors.QuotaExceeded | TooManyRequests):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if isinstance(error, errors.Unavailable | errors.SchemaError):
        return {"Retry-After": str(AWAY_SECONDS)}
    if isinstance(error, KeyNeeded):
        return {"WWW-Authenticate": 'Bearer realm="daybell"'}
    return {}
