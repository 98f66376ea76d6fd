"""What an API is told when it starts."""

from __future__ import annotations

import msgspec

from daybell.core.limits import KEY_RATE_DEFAULT


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an API serves. The default is the careful one: nobody gets in without a key."""

    # Whoever asks without a key is a superadmin of this tenant: `daybell dev` on this machine only.
    open_tenant: str | None = None
    # Of these, only this local user and root. None: everybody that can connect.
    open_uid: int | None = None
    key_rate: float = KEY_RATE_DEFAULT  # requests per second of one key; 0: no limit
