"""Workers: processes that claim and run executions, each under one lease."""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.instant import Instant, Seconds

LEASE_SECONDS: Final[Seconds] = 15.0  # a worker that is silent for so long counts as dead


class WorkerState(StrEnum):
    LIVE = "live"
    DRAINING = "draining"  # asked to stop: claims nothing more, may finish what it has
    DEAD = "dead"  # its lease ended, or it said goodbye; for good, a restart is a new worker


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it introduces itself. The id is new with every process start."""

    id: UUID
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("task",)
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    capacity: int = 1
    # What its code has: the queue that each task is meant for, by name. None: it does not say.
    tasks: dict[str, str] | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as a person sees it."""

    id: UUID
    tenant: str
    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    labels: dict[str, str]
    capacity: int
    state: WorkerState
    started_at: Instant
    renewed_at: Instant
    lease_until: Instant
    running: int  # executions in its hands
    tasks: dict[str, str] | None = None  # None: it does not say


TASK: Final = "task:"  # before the name of a task that somebody lacks


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What live workers offer that are alike: see `NewWorker`."""

    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    tasks: dict[str, str] | None

    def has(self, lacking: str, *, queue: str) -> bool:
        """Whether such a worker can run what another one of the queue cannot, because it lacks a
        task (`task:NAME`) or does not offer something.
        """
        if queue not in self.queues:
            return False
        if lacking.startswith(TASK):
            return "task" in self.kinds and lacking.removeprefix(TASK) in (self.tasks or {})
        return lacking in self.kinds


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """The store's answer to a heartbeat."""

    now: Instant
    lease_until: Instant
    state: WorkerState
    cancel: tuple[
        tuple[UUID, int], ...
    ] = ()  # (execution, attempt) in its hands that somebody wants cancelled
    returned: int = 0  # executions given back because the worker did not know their lease


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The store's answer to a claim."""

    lease: UUID
    now: Instant
    executions: list[Claimed]
    # When the next one is due that such a claim could take. Known only if this one came back short.
    next_due: Instant | None = None
    is_limited: bool = False  # it came back short because the tenant may not run more at a time


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a running task lets people see before it ends: that it started, how far it is, where
    to go on from.
    """

    id: UUID
    attempt: int
    lease: UUID
    ran: Seconds  # how long it has run so far
    progress: float | None = None
    note: str | None = None
    checkpoint: str | None = None


# Roles that one node has for the whole store. Others are about one tenant, and say its name.
SCHEDULER: Final = "scheduler"
UPKEEP: Final = "upkeep"
STORE_ROLES: Final = frozenset({SCHEDULER, UPKEEP})


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Who does the upkeep that one node should do. The epoch rises with every change of holder."""

    name: str
    holder: UUID
    epoch: int
    until: Instant
