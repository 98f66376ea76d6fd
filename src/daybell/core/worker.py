"""Workers and their leases, watched time of the store's clock, and leader election."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.execution import TERMINAL, Claimed, State
from daybell.core.lifecycle import Transition
from daybell.core.placement import Site, seat_of, seated_needs, split_needs
from daybell.core.units import Instant, Seconds

LEASE_SECONDS: Final[Seconds] = 15.0  # a worker that is silent for this long counts as dead
# In the place of a tenant: a worker of several tenants is registered under it, once.
SHARED: Final = "*"


class WorkerState(StrEnum):
    """The state of a worker."""

    LIVE = "live"
    DRAINING = "draining"  # claims nothing more, and finishes its executions
    DEAD = "dead"  # its lease ended, or it retired; a restarted worker has another id


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker to register. The id is new at every start."""

    id: UUID
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("task",)
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    resources: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    capacity: int = 1
    # The queue of each task of its code, by name. None: not published.
    tasks: dict[str, str] | None = None
    # The tenants that a worker serves that is registered under SHARED; none: all, also later ones.
    tenants: tuple[str, ...] = ()

    def needs_near(self, needs: str, *, queue: str, task: str) -> str:
        """Return the needs of an execution that prefers this worker, as far as the worker could
        take it: without the labels or the task, it would only let the execution wait.
        """
        capability, demands = split_needs(needs)
        site = Site(labels=self.labels, resources=self.resources)
        is_able = queue in self.queues and capability in self.kinds and not site.lacks(demands)
        has_task = not task or self.tasks is None or task in self.tasks
        is_fit = is_able and has_task and site.is_preferred(demands)
        return seated_needs(needs, seat_of(self.id)) if is_fit else needs


class TenantWork(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, from the view of a worker that serves several."""

    tenant: str
    weight: float
    now: Instant
    next_at: Instant | None  # when a claim may find work: the past, or a time; None: there is none


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker in answers."""

    id: UUID
    tenant: str
    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    labels: dict[str, str]
    resources: dict[str, float]
    capacity: int
    state: WorkerState
    started_at: Instant
    renewed_at: Instant
    lease_until: Instant
    running: int  # number of its executions, of this tenant
    tasks: dict[str, str] | None = None  # None: not published
    is_shared: bool = False  # it serves other tenants, too
    busy: int = 0  # number of its executions, of all tenants, if it serves several

    @property
    def used(self) -> int:
        """The number of its slots in use, by any tenant."""
        return max(self.running, self.busy)


TASK: Final = "task:"  # prefix of a missing capability that is a task


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of live workers that are alike: see `NewWorker`."""

    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    tasks: dict[str, str] | None
    site: Site = Site()

    def meets(self, needs: str) -> bool:
        """Return True if such a worker runs jobs with these needs."""
        capability, demands = split_needs(needs)
        return capability in self.kinds and not self.site.lacks(demands)

    def has(self, lacking: str, *, queue: str) -> bool:
        """Return True if such a worker has the capability that another worker of the queue lacks: a
        task (`task:NAME`) or a kind.
        """
        if queue not in self.queues:
            return False
        if lacking.startswith(TASK):
            return "task" in self.kinds and lacking.removeprefix(TASK) in (self.tasks or {})
        return lacking in self.kinds


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    now: Instant
    lease_until: Instant
    state: WorkerState
    cancel: tuple[tuple[UUID, int], ...] = ()  # (execution, attempt) to cancel
    returned: int = 0  # executions under leases that the worker did not name


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a claim."""

    lease: UUID
    now: Instant
    executions: list[Claimed]
    # When the next execution for such a claim is due; set only if it returned less than its limit.
    next_due: Instant | None = None
    is_limited: bool = False  # it returned less because of the tenant's quota


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The report of a running attempt: start, progress and checkpoint."""

    id: UUID
    attempt: int
    lease: UUID
    ran: Seconds  # run time so far
    progress: float | None = None
    note: str | None = None
    checkpoint: str | None = None


def last_reports(moves: Iterable[Transition]) -> list[Report]:
    """Return the progress that ends carry, for stores that write it before the ends."""
    return [
        Report(
            id=move.id,
            attempt=move.attempt,
            lease=move.lease,
            ran=move.ran or 0.0,
            progress=move.progress,
            note=move.note,
            checkpoint=move.checkpoint,
        )
        for move in moves
        if move.target in TERMINAL
        and (
            move.progress is not None
            or move.note is not None
            or (move.checkpoint is not None and move.target is State.SUCCEEDED)
        )
    ]


# Roles of one process for the whole store. Other roles belong to a tenant and contain its name.
SCHEDULER: Final = "scheduler"
UPKEEP: Final = "upkeep"
STORE_ROLES: Final = frozenset({SCHEDULER, UPKEEP})


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """The leader of a role. The epoch rises with every change of the holder."""

    name: str
    holder: UUID
    epoch: int
    until: Instant


# Watched time: the spans in which processes have seen the store's clock run evenly.
#
# A lease that ended by the store's clock is still valid if the clock jumped, or if the store was
# away so that workers could not renew. Only a process that compares the store's clock with its own
# notices that. Each process that checks for dead workers watches from its first answer on. The
# store keeps the spans of all of them, because a process may live for less than a lease. A worker
# is dead after a silence of its lease in watched time.
#
# A process adds a span that starts with its own first look. At that look, no recorded span can lie
# in the future; otherwise the clock was set back and the record is dropped. So a later span that
# overlaps its own was added since, and the two can be joined.

SPANS_MAX: Final = 100  # latest spans; a forgotten span only delays a death

Span: TypeAlias = tuple[Instant, Instant]


class Watch(msgspec.Struct, frozen=True):
    """Spans of the store's time, in order, without overlaps."""

    spans: tuple[Span, ...] = ()

    @classmethod
    def from_json(cls, text: str | None) -> Watch:
        return UNWATCHED if text is None else msgspec.json.decode(text, type=Watch)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def seen(self, now: Instant, *, since: Instant, every: Seconds) -> Watch:
        """Return the record after a process has watched from `since` until now. A longer span is
        written every `every` seconds.
        """
        known = UNWATCHED if self.spans and self.spans[-1][1] > now else self  # clock was set back
        if since == -inf or since >= now:
            return known
        latest = known.spans[-1][1] if known.spans else -inf
        if since <= latest and now - latest < every:
            return known
        began = min([since, *(start for start, end in known.spans if end >= since)])
        kept = tuple(span for span in known.spans if span[1] < since)
        return Watch((*kept, (began, now))[-SPANS_MAX:])

    def silence(self, renewed_at: Instant, now: Instant, *, since: Instant) -> Seconds:
        """Return how long a worker was silent in watched time, by the caller's own watch from
        `since` on and the record before it.
        """
        own = max(0.0, now - max(renewed_at, since))
        return own + sum(
            max(0.0, min(end, since) - max(start, renewed_at)) for start, end in self.spans
        )


UNWATCHED: Final = Watch()


# Leadership, and the detection of a start after an outage of all candidates.
#
# Every candidate states since when it has been running, so the time without an interruption is
# known. A candidate that started after that time follows an outage, unless another one that ran
# earlier asks again and closes the gap.

NEVER: Final = float("-inf")


class Presence(msgspec.Struct, frozen=True):
    """A candidate, leader or not."""

    since: Instant  # its start
    until: Instant  # it counts as running until then


class LeadershipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored leadership, valid or expired."""

    leadership: Leadership
    seen_at: Instant  # a candidate was running until then, without interruption


class LeadershipAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request for leadership."""

    seat: LeadershipRecord
    leads: bool
    presence: Presence | None = None  # of the candidate, if it stated its start
    is_reboot: bool = False  # certainly no candidate was running before it started


def request_leadership(
    seat: LeadershipRecord | None,
    asking: Leadership,
    *,
    since: Instant | None,
    present: Mapping[UUID, Presence],
    now: Instant,
) -> LeadershipAnswer:
    """Decide about a request for leadership.

    `present` are all candidates that stated their start.
    """
    if seat is None:
        seat = LeadershipRecord(leadership=replace(asking, until=NEVER), seen_at=NEVER)
    last, seen_at = seat.leadership, seat.seen_at
    begins = last.until <= now
    leads = begins or last.holder == asking.holder
    # Higher even for the same holder, which may have been away.
    taken = replace(asking, epoch=last.epoch + begins) if leads else last
    if since is None:
        return LeadershipAnswer(
            seat=LeadershipRecord(leadership=taken, seen_at=now if leads else seen_at), leads=leads
        )
    there = {holder: one for holder, one in present.items() if one.until > now}
    own = there.pop(asking.holder, None)
    presence = Presence(since if own is None else min(own.since, since), asking.until)
    is_reboot = False
    if presence.since <= seen_at:
        seen_at = now
    elif leads and not any(one.since <= seen_at for one in there.values()):
        seen_at, is_reboot = now, True
    return LeadershipAnswer(
        seat=LeadershipRecord(leadership=taken, seen_at=seen_at),
        leads=leads,
        presence=presence,
        is_reboot=is_reboot,
    )


def release_leadership(
    seat: LeadershipRecord, holder: UUID, presence: Presence | None, *, now: Instant
) -> LeadershipRecord:
    """Return the leadership after a candidate has gone, leader or not."""
    leads = seat.leadership.holder == holder
    # A candidate that does not know of an earlier one leaves the question open.
    was_there = leads if presence is None else presence.since <= seat.seen_at
    return LeadershipRecord(
        leadership=replace(seat.leadership, until=now) if leads else seat.leadership,
        seen_at=now if was_there else seat.seen_at,
    )


def presence_name(name: str, holder: UUID | str = "") -> str:
    """Return the name of a candidate in a table that has leaderships, too; without a holder, the
    prefix of all candidates.
    """
    return f"{name}/{holder}"


def propose_leadership(name: str, holder: UUID, lease: Seconds, *, now: Instant) -> Leadership:
    """Return the leadership that a candidate asks for."""
    return Leadership(name=name, holder=holder, epoch=0, until=now + lease)
