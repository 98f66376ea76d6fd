"""Tenants: isolated spaces, and how much each may use."""

from __future__ import annotations

from typing import Final

import msgspec

from daybell.core.instant import Instant


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tenant may use; None: as much as it likes."""

    jobs: int | None = None  # defined and not deleted
    queued: int | None = None  # executions that have not ended, whatever they wait for
    per_minute: int | None = None  # executions enqueued in a minute of the store's clock
    running: int | None = None  # at the same time, on all workers together

    @property
    def has_any(self) -> bool:
        return self != NO_QUOTAS

    @property
    def limits_enqueues(self) -> bool:
        return self.queued is not None or self.per_minute is not None


NO_QUOTAS: Final = Quotas()


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: Instant
    quotas: Quotas = NO_QUOTAS
