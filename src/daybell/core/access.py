"""Who may do what: roles, API keys, and what is kept of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant, Seconds


class Role(StrEnum):
    """What a key may do. Each of the first four may do all that those before it may."""

    VIEWER = "viewer"  # look
    OPERATOR = "operator"  # trigger, retry, cancel, pause
    ADMIN = "admin"  # define jobs, make keys
    SUPERADMIN = "superadmin"  # tenants, and any tenant's affairs
    WORKER = "worker"  # leases, and nothing else

    def may(self, needed: Role) -> bool:
        """Whether one with this role may do what needs that one."""
        if Role.WORKER in (self, needed):
            return self is needed
        return _RANKS[self] >= _RANKS[needed]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored. Of the secret itself, only a digest ever gets here."""

    id: UUID
    name: str  # what people know it by
    role: Role
    digest: bytes  # SHA-256 of the whole token, which has more bits than anybody can try
    hint: str  # how the token begins, to tell keys apart
    expires_in: Seconds | None = None
    created_by: str = ""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key, without its digest."""

    id: UUID
    tenant: str
    name: str
    role: Role
    hint: str
    created_at: Instant
    created_by: str = ""
    expires_at: Instant | None = None
    used_at: Instant | None = None  # to the minute or so
    revoked_at: Instant | None = None

    def is_valid(self, now: Instant) -> bool:
        """Whether it opens anything at this time of the store."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
