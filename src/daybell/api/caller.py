"""The caller of a request: tenant, role and scope, and the operations they allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request

from daybell.api.encoding import encode
from daybell.client import Client, Holder, mint
from daybell.client.requests import ARGS_PREFIX, CONTENT
from daybell.core import payload
from daybell.core.access import Action, AuditEntry, Key, NewAuditEntry, Role, Scope
from daybell.core.limits import KEY_RATE_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.errors import AccessDenied, UsageError, shown, suggested

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
    """There is no key, or none that is valid. Answered with 401."""


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
    job_ids: Any  # a `routes.executions.JobIds`


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
