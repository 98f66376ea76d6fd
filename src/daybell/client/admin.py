"""Administration: the store, API keys, tenants with their quotas, the audit log,
idempotency keys, and secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from daybell.client import wire
from daybell.client.context import ClientContext
from daybell.client.executions import now_for
from daybell.client.requests import Id, Time, check_range, read_bound, read_id
from daybell.client.sealing import check_value
from daybell.core import checks
from daybell.core.access import (
    LOGIN_SECONDS,
    Action,
    AuditCheck,
    AuditEntry,
    AuditFilter,
    ChainPosition,
    Key,
    KeyKind,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    NewSession,
    Quotas,
    Request,
    Role,
    Scope,
    Secret,
    Tenant,
    check_scope,
    follow_chain,
)
from daybell.core.checks import check_quotas
from daybell.core.ids import mint
from daybell.core.limits import (
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    QUOTA_MAX,
    check_name,
)
from daybell.core.monitoring.exports import EXPORTS, ExportPolicy, StoredExport
from daybell.core.options import Keep, read_limit, read_whole
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, Instant, to_datetime
from daybell.core.views import Page, read_pages
from daybell.errors import (
    Conflict,
    DuplicateKey,
    InvalidName,
    SecretNotFound,
    Unavailable,
    UsageError,
    VersionConflict,
    shown,
)

if TYPE_CHECKING:
    pass


TOKEN_PREFIX: Final = "dbk_"  # so that scanners for leaked secrets know one when they see it
TOKEN_BYTES: Final = 32  # of randomness: too many to guess
HINT_CHARS: Final = 8


async def create_key(
    client: ClientContext,
    name: str,
    *,
    role: Role | str,
    expires: Duration | None = None,
    created_by: str = "",
    jobs: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
) -> tuple[Key, str]:
    """Create a key and return it with its token. The token cannot be read again: the store keeps
    its digest.

    `jobs`, `queues` (names, or prefixes followed by a *) and `actions` limit the rights of its
    role; None does not.
    """
    token = TOKEN_PREFIX + token_urlsafe(TOKEN_BYTES)
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
    return await client.store.admin.add_key(client.tenant, new), token


async def create_login(
    client: ClientContext,
    *,
    role: Role | str | None = None,
    expires: Duration = LOGIN_SECONDS,
    parent: Key | None = None,
    created_by: str = "",
) -> tuple[Key, str]:
    """Create a login link; return it with its token, which opens one session of a browser.

    The session ends with `parent`, and has its scope. Without a role it has the one of `parent`, or
    admin.
    """
    given = (Role.ADMIN if parent is None else parent.role) if role is None else read_role(role)
    if given is Role.WORKER:
        raise UsageError("a worker's key opens no session; name another role", field="role")
    token = TOKEN_PREFIX + token_urlsafe(TOKEN_BYTES)
    key_id = None if parent is None else parent.id
    if parent is not None and parent.kind is not KeyKind.KEY:
        key_id = parent.parent
    new = NewKey(
        id=mint(),
        name="login" if parent is None else parent.name,
        role=given,
        digest=digest_token(token),
        hint=token[:HINT_CHARS],
        expires_in=read_limit(expires, "expires"),
        created_by=created_by,
        scope=None if parent is None else parent.scope,
        kind=KeyKind.LOGIN,
        parent=key_id,
    )
    return await client.store.admin.add_key(client.tenant, new), token


def login_link(url: str, token: str) -> str:
    """Return the address that logs a browser in. Browsers do not send the part behind the # to the
    server, and no proxy logs it.
    """
    return f"{url.rstrip('/')}/#login={token}"


async def open_session(client: ClientContext, token: str) -> tuple[Key, str]:
    """Create a session of a valid key or login link; return it with its token. Raises NotFound."""
    made = TOKEN_PREFIX + token_urlsafe(TOKEN_BYTES)
    new = NewSession(id=mint(), digest=digest_token(made), hint=made[:HINT_CHARS])
    known = await client.store.admin.add_session(client.tenant, digest_token(token), new)
    return known, made


async def keys(client: ClientContext) -> list[Key]:
    """The tenant's keys, newest first; revoked and expired ones too."""
    return await client.store.admin.list_keys(client.tenant)


async def revoke_key(client: ClientContext, id: Id) -> Key:
    """Revoke a key: it gives no access from then on."""
    return await client.store.admin.revoke_key(client.tenant, read_id(id))


async def authenticate(client: ClientContext, token: str) -> tuple[Key, Instant] | None:
    """Return the key that a token belongs to, of any tenant, and the store's time; revoked and
    expired ones too, see `Key.is_valid`. None: it belongs to none.
    """
    return await client.store.admin.find_key(digest_token(token))


async def has_keys(client: ClientContext) -> bool:
    """Return True if any key of any tenant is valid."""
    return await client.store.admin.has_keys()


async def note_use(client: ClientContext, ids: Iterable[Id]) -> None:
    """Record that these keys are used just now."""
    used = {read_id(id): 0.0 for id in ids}
    if used:
        await client.store.admin.touch_keys(used)


def digest_token(token: str) -> bytes:
    """Return the digest of a token, which is stored in its place."""
    # No salt, and not slow on purpose: these protect chosen passwords; a token is random.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_scope(
    role: Role | str,
    *,
    jobs: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
) -> Scope | None:
    """Return the scope that a caller specifies; None: the key is not limited."""
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
    """Return the role that a value specifies."""
    try:
        return Role(value)
    except ValueError:
        raise UsageError(
            f"{shown(value)} is not a role; there are {', '.join(Role)}", field="role"
        ) from None


# Tenants, and how much each may use.


async def pending_migrations(client: ClientContext) -> tuple[str, ...]:
    """Return the steps that `migrate` would make. Needs no entry."""
    return await client.store.pending_migrations()


async def migrate(client: ClientContext) -> tuple[str, ...]:
    """Bring the schema up to date; return the steps made. Needs no entry."""
    return await client.store.migrate()


async def check_ready(client: ClientContext) -> None:
    """Raise Unavailable unless the store can be read and written."""
    await client.store.admin.list_tenants()
    try:
        await client.store.check_writable()
    except Unavailable as refusal:
        refusal.is_read_only = True
        raise


async def tenants(client: ClientContext) -> list[Tenant]:
    """All tenants with their quotas, by name."""
    return await client.store.admin.list_tenants()


async def tenant_record(client: ClientContext, name: str) -> Tenant:
    """A tenant with its quotas. Raises TenantNotFound."""
    return await client.store.admin.get_tenant(name)


async def ensure_tenant(client: ClientContext, name: str) -> None:
    """Create a tenant; one that exists is left as it is."""
    with suppress(DuplicateKey):
        await client.store.admin.add_tenant(name)


async def add_tenant(client: ClientContext, name: str, **quotas: int | None) -> Tenant:
    """Create a tenant. One that exists is refused with DuplicateKey."""
    return await client.store.admin.add_tenant(name, Quotas(**read_quotas(quotas)))


async def update_tenant(
    client: ClientContext,
    name: str,
    *,
    keep: Any = UNSET,
    weight: float | None = None,
    **quotas: int | None,
) -> Tenant:
    """Change a tenant's quotas; those that are not named stay, None is no limit. `keep` replaces
    its policy of retention; None is none. `weight` is its part of the workers that serve several
    tenants.
    """
    policy = None if keep is UNSET else Keep.parse(keep)
    return await client.store.admin.set_quotas(
        name, keep=policy, weight=weight, **read_quotas(quotas)
    )


def read_quotas(quotas: dict[str, int | None]) -> dict[str, int | None]:
    """Return quotas that are whole numbers, or None."""
    for name, most in quotas.items():
        if most is not None:
            read_whole(most, name, most=QUOTA_MAX)
    check_quotas(quotas)
    return quotas


# The audit log: each change and its author.

STRETCH_MAX: Final = 100  # entries read at a time; each may have 128 KB


async def audit(
    client: ClientContext,
    *,
    actor: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
) -> Page[AuditEntry]:
    """Return entries of the audit log, newest first. An action is all of it, or only its noun."""
    now = await now_for(client.store, since, until)
    begin = None if since is None else read_bound(since, "since", now=now)
    end = None if until is None else read_bound(until, "until", now=now)
    check_range(begin, end)
    where = AuditFilter(actor=actor, action=action, target=target, since=begin, until=end)
    return await client.store.admin.list_audit(client.tenant, where, limit=limit, cursor=cursor)


async def verify_audit(
    client: ClientContext, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
) -> AuditCheck:
    """Check the hashes of up to `limit` entries of the audit log, oldest first.

    `cursor` is `next_cursor` of an earlier check, or its `head`: then the log must still
    continue from there.
    """
    checks.check_limit(limit)
    at = ChainPosition() if cursor is None else ChainPosition.parse(cursor)
    entries, broken, is_last = 0, None, False
    while entries < limit and broken is None and not is_last:
        most = min(STRETCH_MAX, limit - entries)
        stretch = await client.store.admin.read_audit_chain(
            client.tenant, after=at.number, limit=most
        )
        is_last = len(stretch.links) < most
        start = max(at.number, stretch.head.removed)
        at, broken = follow_chain(at, stretch, is_last=is_last)
        entries += max(at.number - start, 0)
    return AuditCheck(
        entries=entries,
        head=str(at),
        broken=broken,
        next_cursor=None if broken or is_last else str(at),
    )


async def record(client: ClientContext, entries: Sequence[NewAuditEntry]) -> None:
    """Add these entries. Those that are there already (by id) stay as they are."""
    await client.store.admin.write_audit(client.tenant, entries)


# Requests that may come twice.


async def begin_request(client: ClientContext, request: NewRequest) -> Request:
    """Store a request, or return the record of an earlier one with the same key. A key is 1 to 255
    printable ASCII characters.
    """
    return await client.store.admin.begin_request(client.tenant, request)


async def answer_request(client: ClientContext, key: str, *, status: int, answer: str) -> None:
    """Store the answer to a request. The first one stays."""
    await client.store.admin.answer_request(client.tenant, key, status=status, answer=answer)


TRIES_MAX: Final = 20  # to write the version that follows the current one


async def set_secret(client: ClientContext, name: str, value: str, *, author: str = "") -> Secret:
    """Store a secret, sealed; it replaces one of the same name. Workers use the new value within 5
    seconds.
    """
    check_secret_name(name)
    check_value(value)
    known = (await client.store.admin.fetch_secrets(client.tenant, [name])).get(name)
    version = 0 if known is None else known.version
    for _ in range(TRIES_MAX):
        try:
            return await _seal_version(client, name, value, version + 1, author)
        except VersionConflict as conflict:  # it was deleted before, or is set elsewhere
            version = conflict.version or version
    raise _conflict_error(name)


async def reseal_secret(client: ClientContext, name: str, *, author: str = "") -> Secret | None:
    """Seal a secret's value again, as its next version, with the first of the keys; None: that
    is done, or there is none. Raises KeyMissing and Unopenable.
    """
    for _ in range(TRIES_MAX):
        known = (await client.store.admin.fetch_secrets(client.tenant, [name])).get(name)
        if known is None or known.key_id == client.sealer().key_id:
            return None
        value = client.sealer().open(client.tenant, known)
        with suppress(VersionConflict):  # a new value that was set meanwhile stays
            return await _seal_version(client, name, value, known.version + 1, author)
    raise _conflict_error(name)


async def _seal_version(
    client: ClientContext, name: str, value: str, version: int, author: str
) -> Secret:
    key_id, sealed = client.sealer().seal(client.tenant, name, value, version=version)
    new = NewSecret(name=name, key_id=key_id, sealed=sealed, version=version, author=author)
    return await client.store.admin.set_secret(client.tenant, new)


async def secrets(client: ClientContext) -> list[Secret]:
    """The tenant's secrets by name, without their values."""
    return await client.store.admin.list_secrets(client.tenant)


async def delete_secret(client: ClientContext, name: str) -> None:
    """Delete a secret; references to it fail from then on. Raises SecretNotFound."""
    await client.store.admin.delete_secret(client.tenant, require_secret_name(name))


def _conflict_error(name: str) -> Conflict:
    return Conflict(f"secret {name} is being set elsewhere all the time; try again")


def require_secret_name(name: str) -> str:
    """Return the name if a secret may have it. No secret exists under an invalid name."""
    try:
        return check_secret_name(name)
    except InvalidName:
        raise SecretNotFound(f"there is no secret named {shown(name)}") from None


# Repeated exports.


async def export_policies(client: ClientContext) -> list[wire.ExportPolicy]:
    """How far each repeated export has come, by name."""
    pages = read_pages(
        lambda at: client.store.admin.list_records(client.tenant, EXPORTS, cursor=at)
    )
    return [_export_policy(one) async for page in pages for one in page]


async def hold_export(
    client: ClientContext, name: str, until: Time, *, author: str = ""
) -> wire.ExportPolicy:
    """Record that a repeated export has written what ended before `until`. Retention keeps all that
    ended later, until the policy is moved on or released.
    """
    policy = ExportPolicy(
        name=check_name(name, what="export policy"), until=read_bound(until, "until")
    )
    stored = await client.store.admin.put_record(client.tenant, EXPORTS, policy, author=author)
    return _export_policy(stored)


async def release_export(client: ClientContext, name: str) -> None:
    """Forget a repeated export: retention waits for it no longer. Raises ExportNotFound."""
    await client.store.admin.delete_record(
        client.tenant, EXPORTS, check_name(name, what="export policy")
    )


def _export_policy(of: StoredExport) -> wire.ExportPolicy:
    return wire.ExportPolicy(
        name=of.policy.name,
        tenant=of.tenant,
        until=to_datetime(of.policy.until),
        author=of.author,
        updated_at=to_datetime(of.updated_at),
    )
