"""How a worker works."""

from __future__ import annotations

from typing import Final

import msgspec

from daybell.core.instant import Seconds
from daybell.core.job import DEFAULT_TENANT
from daybell.engine.leases import LEASE_SECONDS

DRAIN_SECONDS: Final = 30.0


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    name: str = "worker"
    tenant: str = DEFAULT_TENANT
    queues: str = ""  # as `Queues.parse` reads it; empty: the default queue
    kinds: tuple[str, ...] = ("task",)
    concurrency: int = 100
    ahead: Seconds = 0.0  # for so long at least, what starts is claimed ahead
    lease: Seconds = LEASE_SECONDS
    drain_timeout: Seconds = DRAIN_SECONDS
    host: str = ""
    pid: int = 0
    version: str = ""
    # The queue that each is meant for, by name; None: others are not told.
    tasks: dict[str, str] | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
