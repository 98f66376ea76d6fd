"""Administration: API keys, tenants with their quotas, the audit log, and idempotency keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from daybell.client.executions import now_for
from daybell.client.requests import Id, Time, read_bound, read_id, read_limit, read_whole
from daybell.core import checks
from daybell.core.access import (
    BOUND,
    Action,
    AuditCheck,
    AuditEntry,
    AuditFilter,
    ChainPosition,
    Key,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    Quotas,
    Request,
    Role,
    Scope,
    SealedSecret,
    Secret,
    Tenant,
    bound_id,
    check_scope,
    follow_chain,
)
from daybell.core.checks import check_quotas
from daybell.core.ids import mint
from daybell.core.limits import (
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    QUOTA_MAX,
    SECRET_BYTES_MAX,
    SECRET_CHARS_MIN,
    check_name,
)
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, Instant
from daybell.core.views import Page
from daybell.errors import (
    Conflict,
    InvalidName,
    SecretNotFound,
    Unavailable,
    UsageError,
    VersionConflict,
    shown,
)
from daybell.store.protocol import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


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


# Sealing: what makes of a secret's value something that a database may hold.
#
# AES-256-GCM with a key that no store ever sees. A sealed value is bound to a tenant, a name and
# a version: it opens in no other row, and not in its own row at another version.

KEY_BYTES: Final = 32
KEY_CHARS: Final = 44  # of a key in base64
NONCE_BYTES: Final = 12
KEY_ID_CHARS: Final = 12
VARIABLE: Final = "DAYBELL_SECRETS_KEY"
NEW_KEY: Final = f"export {VARIABLE}=$(daybell secrets key)"
INSTALL: Final = "pip install 'daybell[secrets]'"


class KeyMissing(UsageError):
    """There is no key here, or not the one that is needed. Elsewhere there may be."""


class Unopenable(UsageError):
    """What is kept is not what was sealed: damaged, or moved from elsewhere."""


class Sealer:
    """Seals with the first of its keys and opens with any: `Sealer("new,old")`."""

    def __init__(self, text: str) -> None:
        self._keys = {BOUND + _id_of(key): key for key in _read_keys(text)}
        self._key_id = next(iter(self._keys))
        self._seen: dict[tuple[str, str], int] = {}  # the last version of each that was opened

    def __repr__(self) -> str:
        return f"<Sealer {', '.join(self._keys)}>"

    @property
    def key_id(self) -> str:
        """The name of the key that seals; it tells nothing about the key."""
        return self._key_id

    def seal(self, tenant: str, name: str, value: str, *, version: int) -> tuple[str, bytes]:
        """Seal a value for one version of a secret; answers the key's id and the sealed value."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        belongs = _belonging(tenant, name, self._key_id, version)
        cipher = _cipher()(self._keys[self._key_id])
        return self._key_id, nonce + cipher.encrypt(nonce, value.encode(), belongs)

    def open(self, tenant: str, secret: SealedSecret) -> str:
        """Open a sealed value. Raises KeyMissing and Unopenable.

        A value that was sealed before versions were bound opens as well. A version that is older
        than one that was opened here before does not.
        """
        name, key_id, version = secret.name, secret.key_id, secret.version
        is_bound = key_id.startswith(BOUND)
        key = self._keys.get(bound_id(key_id))
        if key is None:
            raise KeyMissing(
                f"secret {name} is sealed with key {key_id}, which is not among the keys here"
                f" ({', '.join(self._keys)}); add it to {VARIABLE} after a comma, or set the secret"
                " again"
            )
        seen = self._seen.get((tenant, name), 0)
        if version < seen:
            raise Unopenable(
                f"secret {name} of tenant {tenant} is at version {version}, and version {seen} was"
                " used here before: an older row was put back. Set it again with `daybell secrets"
                f" set {name}`, and restart the worker"
            )
        cipher = _cipher()(key)
        from cryptography.exceptions import InvalidTag

        nonce, rest = secret.sealed[:NONCE_BYTES], secret.sealed[NONCE_BYTES:]
        belongs = _belonging(tenant, name, key_id, version if is_bound else None)
        try:
            opened = cipher.decrypt(nonce, rest, belongs)
        except (InvalidTag, ValueError):  # the latter: it is too short to be anything
            raise Unopenable(
                f"secret {name} of tenant {tenant} is not what was sealed as version {version}"
                " under that name: the row is damaged, or has the value of another row or of an"
                f" earlier version; set it again: `daybell secrets set {name}`"
            ) from None
        self._seen[tenant, name] = version
        return opened.decode()


def new_key() -> str:
    """A new key, as settings write it."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def check_value(value: object) -> str:
    """Return what can be a secret's value. What it is, no message tells."""
    if not isinstance(value, str):
        raise UsageError("a secret's value must be text", field="value")
    if len(value.strip()) < SECRET_CHARS_MIN:
        raise UsageError(
            f"a secret's value has at least {SECRET_CHARS_MIN} characters, not counting blanks"
            " around it; a shorter one can be guessed and cannot be kept out of logs. Use a longer"
            " one",
            field="value",
        )
    if "\0" in value:
        raise UsageError("a secret's value has a NUL character in it", field="value")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise UsageError(
            "a secret's value has half a surrogate pair in it, which is not a character",
            field="value",
        ) from None
    if size > SECRET_BYTES_MAX:
        raise UsageError(
            f"a secret's value has at most {SECRET_BYTES_MAX:,} bytes; this one has {size:,}",
            field="value",
        )
    return value


def _read_keys(text: str) -> list[bytes]:
    """The keys of a setting. Messages show nothing of it."""
    keys: list[bytes] = []
    for place, part in enumerate(text.split(","), 1):
        try:
            key = base64.b64decode(part.strip().translate(_URLSAFE), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            which = "the key" if "," not in text else f"key {place}"
            raise UsageError(
                f"{VARIABLE}: {which} is not {KEY_BYTES} bytes in base64 ({KEY_CHARS} characters);"
                " `daybell secrets key` makes one",
                field="secrets_key",
            )
        keys.append(key)
    return keys


_URLSAFE: Final = str.maketrans("-_", "+/")


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"daybell secrets key\0" + key).hexdigest()[:KEY_ID_CHARS]


def _belonging(tenant: str, name: str, key_id: str, version: int | None) -> bytes:
    """What a sealed value is bound to; as JSON, so that no two of these have the same bytes."""
    bound = () if version is None else (version,)
    return msgspec.json.encode(("daybell secret", tenant, name, key_id, *bound))


def _cipher() -> Callable[[bytes], AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise KeyMissing(f"secrets need the package cryptography; {INSTALL}") from None
    return AESGCM


TRIES_MAX: Final = 20  # to write the version that follows the current one


class Secrets:
    """The verbs of `Client` for secrets. There is none that answers a value."""

    store: Store
    tenant: str
    secrets_key: str | None
    _sealer: Sealer | None = None

    async def set_secret(self, name: str, value: str, *, author: str = "") -> Secret:
        """Keep a secret, sealed; one of the same name is replaced. Workers use the new value
        within 5 seconds.
        """
        check_secret_name(name)
        check_value(value)
        known = (await self.store.fetch_secrets(self.tenant, [name])).get(name)
        version = 0 if known is None else known.version
        for _ in range(TRIES_MAX):
            try:
                return await self._seal_version(name, value, version + 1, author)
            except VersionConflict as conflict:  # it was deleted before, or is set elsewhere
                version = conflict.version or version
        raise _conflict_error(name)

    async def reseal_secret(self, name: str, *, author: str = "") -> Secret | None:
        """Seal a secret's value again, as its next version, with the first of the keys; None: that
        is done, or there is none. Raises KeyMissing and Unopenable.
        """
        for _ in range(TRIES_MAX):
            known = (await self.store.fetch_secrets(self.tenant, [name])).get(name)
            if known is None or known.key_id == self.sealer().key_id:
                return None
            value = self.sealer().open(self.tenant, known)
            with suppress(VersionConflict):  # a new value that was set meanwhile stays
                return await self._seal_version(name, value, known.version + 1, author)
        raise _conflict_error(name)

    async def _seal_version(self, name: str, value: str, version: int, author: str) -> Secret:
        key_id, sealed = self.sealer().seal(self.tenant, name, value, version=version)
        new = NewSecret(name=name, key_id=key_id, sealed=sealed, version=version, author=author)
        return await self.store.set_secret(self.tenant, new)

    async def secrets(self) -> list[Secret]:
        """The tenant's secrets by name, without their values."""
        return await self.store.list_secrets(self.tenant)

    async def delete_secret(self, name: str) -> None:
        """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
        await self.store.delete_secret(self.tenant, require_secret_name(name))

    def sealer(self) -> Sealer:
        """What seals and opens, by the key in the settings. Raises UsageError if there is none."""
        if self._sealer is None:
            if self.secrets_key is None:
                raise KeyMissing(
                    f"secrets are sealed with a key, and {VARIABLE} is not set here. Make one with"
                    f" `{NEW_KEY}`, keep it, and give the same one to servers and workers",
                    field="secrets_key",
                )
            self._sealer = Sealer(self.secrets_key)
        return self._sealer


def _conflict_error(name: str) -> Conflict:
    return Conflict(f"secret {name} is being set elsewhere all the time; try again")


def require_secret_name(name: str) -> str:
    """A name that a secret may have. What cannot be one is nobody's."""
    try:
        return check_secret_name(name)
    except InvalidName:
        raise SecretNotFound(f"there is no secret named {shown(name)}") from None
