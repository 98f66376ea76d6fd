"""Administration: API keys, tenants with their quotas, the audit log, and idempotency keys."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from daybell.client.executions import now_for
from daybell.client.requests import Id, Time, read_bound, read_id, read_limit, read_whole
from daybell.core import checks
from daybell.core.access import (
    Action,
    AuditCheck,
    AuditEntry,
    AuditFilter,
    ChainPosition,
    Key,
    NewAuditEntry,
    NewKey,
    NewRequest,
    Quotas,
    Request,
    Role,
    Scope,
    Tenant,
    check_scope,
    follow_chain,
)
from daybell.core.checks import check_quotas
from daybell.core.ids import mint
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, QUOTA_MAX, check_name
from daybell.core.units import Duration, Instant
from daybell.core.views import Page
from daybell.errors import Unavailable, UsageError, shown
from daybell.store.protocol import Store

TOKEN_PREFIX: Final = "dbk_"  # so that scanners for leaked secrets know one when they see it
TOKEN_BYTES: Final = 32  # of chance: more than anybody can try
HINT_CHARS: Final = 8


class Access:
    """The verbs of `Client` for keys."""

    store: Store
    tenant: str

    async def create_key(
        self,
        name: str,
        *,
        role: Role | str,
        expires: Duration | None = None,
        created_by: str = "",
        jobs: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> tuple[Key, str]:
        """Make a key; answers it with its token, which nobody can find out again.

        `jobs`, `queues` (names, or beginnings of names with a * after them) and `actions` limit
        what its role may do; None does not.
        """
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        new = NewKey(
            id=mint(),
            name=check_name(name, what="key"),
            role=read_role(role),
            digest=digest_token(token),
            hint=token[:HINT_CHARS],
            expires_in=read_limit(expires, "expires"),
            created_by=created_by,
            scope=read_scope(role, jobs=jobs, queues=queues, actions=actions),
        )
        return await self.store.add_key(self.tenant, new), token

    async def keys(self) -> list[Key]:
        """The tenant's keys, newest first; revoked and expired ones too."""
        return await self.store.list_keys(self.tenant)

    async def revoke_key(self, id: Id) -> Key:
        """Let a key open nothing any more."""
        return await self.store.revoke_key(self.tenant, read_id(id))

    async def authenticate(self, token: str) -> tuple[Key, Instant] | None:
        """The key that a token belongs to, of whichever tenant, and the store's time; revoked and
        expired ones too, see `Key.is_valid`. None: it belongs to none.
        """
        return await self.store.find_key(digest_token(token))

    async def has_keys(self) -> bool:
        """Whether any key of any tenant is valid."""
        return await self.store.has_keys()

    async def note_use(self, ids: Iterable[Id]) -> None:
        """Note that these keys are used just now."""
        used = {read_id(id): 0.0 for id in ids}
        if used:
            await self.store.touch_keys(used)


def digest_token(token: str) -> bytes:
    """What is kept of a token."""
    # No salt, and not slow on purpose: that protects what people think up, and this is random.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_scope(
    role: Role | str,
    *,
    jobs: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
) -> Scope | None:
    """The scope that a caller means; None: the key is not limited."""
    given = {"jobs": jobs, "queues": queues, "actions": actions}
    limits = {name: tuple(value) for name, value in given.items() if value is not None}
    for name, value in limits.items():
        if isinstance(given[name], str) or not value:
            raise UsageError(
                f"{name} is a list of at least one; leave it out for a key that may use all",
                field=name,
            )
    if not limits:
        return None
    wanted = limits.pop("actions", ())
    for action in wanted:
        if action not in set(Action):
            raise UsageError(
                f"{shown(action)} is not an action; there are {', '.join(Action)}", field="actions"
            )
    found = Scope(
        jobs=limits.get("jobs", ()),
        queues=limits.get("queues", ()),
        actions=tuple(Action(one) for one in wanted),
    )
    return check_scope(found, read_role(role))


def read_role(value: Role | str) -> Role:
    """The role that somebody means."""
    try:
        return Role(value)
    except ValueError:
        raise UsageError(
            f"{shown(value)} is not a role; there are {', '.join(Role)}", field="role"
        ) from None


# Tenants, and how much each may use.


class Tenants:
    """The verbs of `Client` for tenants. They are about all of them, not only about its own."""

    store: Store

    async def check_ready(self) -> None:
        """Raise Unavailable unless the store can be read and written."""
        await self.store.list_tenant_records()
        try:
            await self.store.check_writable()
        except Unavailable as refusal:
            refusal.is_read_only = True
            raise

    async def tenants(self) -> list[Tenant]:
        """All tenants with their quotas, by name."""
        return await self.store.list_tenant_records()

    async def tenant_record(self, name: str) -> Tenant:
        """A tenant with its quotas. Raises TenantNotFound."""
        return await self.store.get_tenant(name)

    async def ensure_tenant(self, name: str) -> None:
        """Create a tenant; one that exists is left as it is."""
        await self.store.add_tenants([check_name(name, what="tenant")])

    async def add_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Create a tenant. One that exists is refused with DuplicateKey."""
        return await self.store.add_tenant(name, Quotas(**read_quotas(quotas)))

    async def update_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit."""
        return await self.store.set_quotas(name, **read_quotas(quotas))


def read_quotas(quotas: dict[str, int | None]) -> dict[str, int | None]:
    """Return quotas that are whole numbers, or None."""
    for name, most in quotas.items():
        if most is not None:
            read_whole(most, name, most=QUOTA_MAX)
    check_quotas(quotas)
    return quotas


# The audit log: who changed what.

STRETCH_MAX: Final = 100  # entries read at a time; each may have 128 KB


class Audits:
    """The verbs of `Client` for the audit log."""

    store: Store
    tenant: str

    async def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Entries of the audit log, newest first. An action is all of it, or only its noun."""
        now = await now_for(self.store, since, until)
        where = AuditFilter(
            actor=actor,
            action=action,
            target=target,
            since=None if since is None else read_bound(since, "since", now=now),
            until=None if until is None else read_bound(until, "until", now=now),
        )
        return await self.store.list_audit(self.tenant, where, limit=limit, cursor=cursor)

    async def verify_audit(
        self, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
    ) -> AuditCheck:
        """Check the hashes of up to `limit` entries of the audit log, oldest first.

        `cursor` is `next_cursor` of an earlier check, or its `head`: then the log must still
        continue from there.
        """
        checks.check_limit(limit)
        at = ChainPosition() if cursor is None else ChainPosition.parse(cursor)
        first, entries, unchained, broken, is_last = at, 0, 0, None, False
        while entries < limit and broken is None and not is_last:
            most = min(STRETCH_MAX, limit - entries)
            stretch = await self.store.read_audit_chain(self.tenant, after=at.number, limit=most)
            is_last = len(stretch.links) < most
            if at is first:
                unchained = stretch.unchained
            start = max(at.number, stretch.head.removed)
            at, broken = follow_chain(at, stretch, is_last=is_last)
            entries += max(at.number - start, 0)
        return AuditCheck(
            entries=entries,
            unchained=unchained,
            head=str(at),
            broken=broken,
            next_cursor=None if broken or is_last else str(at),
        )

    def auditing(self, entry: NewAuditEntry) -> AbstractContextManager[None]:
        """Have the first change that this task makes in the block bring the entry with it, in the
        same transaction. Not for `enqueue`, which travels with others': see `record`.
        """
        return self.store.auditing(self.tenant, entry)

    async def record(self, entries: Sequence[NewAuditEntry]) -> None:
        """Add these entries. Those that are there already (by id) stay as they are."""
        await self.store.write_audit(self.tenant, entries)


# Requests that may come twice.


class Idempotency:
    """The verbs of `Client` for requests under a key that their sender made."""

    store: Store
    tenant: str

    async def begin_request(self, request: NewRequest) -> Request:
        """Remember a request, or answer what is known of an earlier one with its key. A key is 1
        to 255 printable ASCII characters.
        """
        return await self.store.begin_request(self.tenant, request)

    async def answer_request(self, key: str, *, status: int, answer: str) -> None:
        """Keep the answer to a request. The first one stays."""
        await self.store.answer_request(self.tenant, key, status=status, answer=answer)
