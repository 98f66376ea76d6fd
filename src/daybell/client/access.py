"""Keys: tokens that open a tenant to those who have them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from daybell.client.requests import Id, read_id, read_limit
from daybell.core.access import Action, Key, NewKey, Role, Scope, check_scope
from daybell.core.duration import Duration
from daybell.core.instant import Instant
from daybell.core.limits import check_name
from daybell.errors import UsageError, shown
from daybell.store.ids import mint
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
            digest=digest_of(token),
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
        return await self.store.find_key(digest_of(token))

    async def has_keys(self) -> bool:
        """Whether any key of any tenant is valid."""
        return await self.store.has_keys()

    async def note_use(self, ids: Iterable[Id]) -> None:
        """Note that these keys are used just now."""
        used = {read_id(id): 0.0 for id in ids}
        if used:
            await self.store.touch_keys(used)


def digest_of(token: str) -> bytes:
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
