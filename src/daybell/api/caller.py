"""Who asks, and whether they may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request

from daybell.api.answers import encode
from daybell.api.options import ApiOptions
from daybell.api.scopes import check_operation
from daybell.client import Client, Holder, mint
from daybell.client.requests import ARGS_PREFIX, CONTENT
from daybell.core import payload
from daybell.core.access import Action, Key, Role, Scope
from daybell.core.audit import Entry, NewEntry
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.errors import AccessDenied, UsageError, shown, suggested

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
    ) -> NewEntry:
        """What the audit log is told of a change that they make."""
        return NewEntry(
            id=mint() if id is None else id,
            actor=self.actor,
            action=action,
            target=str(target),
            before=None if before is None else _kept(before),
            after=None if after is None else _kept(after),
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

    async def recorded(self, action: str, target: object, id: UUID) -> Entry | None:
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
    job_ids: Any  # a `naming.JobIds`


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
    known = _parameters(route.dependant)
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


def _parameters(dependant: Any) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*map(_parameters, dependant.dependencies))


def _kept(value: Any) -> str:
    text = encode(value).decode()
    if len(text) > BEFORE_BYTES_MAX:
        return encode({"bytes": len(text), "cut": text[:1000]}).decode()
    return text
