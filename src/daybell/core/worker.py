"""Workers and their leases, watched time of the store's clock, and leader election."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.execution import Claimed
from daybell.core.units import Instant, Seconds

LEASE_SECONDS: Final[Seconds] = 15.0  # a worker that is silent for so long counts as dead


class WorkerState(StrEnum):
    """The state of a worker."""

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


# Watched time: the spans in which processes have seen the store's clock run evenly.
#
# A lease that ended by the store's clock has not ended if that clock has jumped, or if the store
# was away, so that nobody could renew. Such a thing shows only to a process that compares the
# store's clock with its own. Each process that looks for dead workers watches from its first
# answer on. The store keeps the spans of all of them, because no single process may live for a
# whole lease. A worker is dead when it was silent for its lease in watched time; what nobody
# watched does not count.
#
# A process adds a span from its own first look on. At that look, no span on record can lie in the
# future, or the clock was set back and the record is dropped. So a later span that reaches into
# the time of the process was added since, and the two can be joined.

SPANS_MAX: Final = 100  # the latest ones; to forget a span only delays a death

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
        """The record for somebody who has watched from `since` until now, to be kept if it is
        another one. A longer span is worth a write after `every` seconds.
        """
        known = UNWATCHED if self.spans and self.spans[-1][1] > now else self  # it was set back
        if since == -inf or since >= now:
            return known
        latest = known.spans[-1][1] if known.spans else -inf
        if since <= latest and now - latest < every:
            return known
        began = min([since, *(start for start, end in known.spans if end >= since)])
        kept = tuple(span for span in known.spans if span[1] < since)
        return Watch((*kept, (began, now))[-SPANS_MAX:])

    def silence(self, renewed_at: Instant, now: Instant, *, since: Instant) -> Seconds:
        """How long the caller, who has watched from `since` on, and others before it have watched
        a worker that was last heard of then.
        """
        own = max(0.0, now - max(renewed_at, since))
        return own + sum(
            max(0.0, min(end, since) - max(start, renewed_at)) for start, end in self.spans
        )


UNWATCHED: Final = Watch()


# Leadership: who gets it, and whether nobody at all was there before.
#
# Everybody who asks says since when he has been up, so it is known for how long without a break
# somebody was. One who came up after that has found nobody there, unless another whose time is
# not over, and who has been there long enough, asks again and closes the gap.

NEVER: Final = float("-inf")


class Presence(msgspec.Struct, frozen=True):
    """One who asked, whether he leads or not."""

    since: Instant  # when he came up
    until: Instant  # he may be there until then, if nothing more is heard of him


class LeadershipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A leadership as it is kept, whether it lasts or not."""

    leadership: Leadership
    seen_at: Instant  # somebody was there until then, without a break


class LeadershipAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of asking."""

    seat: LeadershipRecord
    leads: bool
    presence: Presence | None = None  # of the one who asked, if he said since when
    is_reboot: bool = False  # nobody was there when he came up, for certain


def request_leadership(
    seat: LeadershipRecord | None,
    asking: Leadership,
    *,
    since: Instant | None,
    present: Mapping[UUID, Presence],
    now: Instant,
) -> LeadershipAnswer:
    """Decide about one who asks for what `asking` says; see `asks_for`.

    `present` are all those who said since when they have been up.
    """
    if seat is None:
        seat = LeadershipRecord(leadership=replace(asking, until=NEVER), seen_at=NEVER)
    last, seen_at = seat.leadership, seat.seen_at
    begins = last.until <= now
    leads = begins or last.holder == asking.holder
    # Higher even for the same holder: he may have been away.
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
    """What is left of a leadership when one goes, who may have led or not."""
    leads = seat.leadership.holder == holder
    # Whoever was not sure that somebody was there before him takes the question along, unanswered.
    was_there = leads if presence is None else presence.since <= seat.seen_at
    return LeadershipRecord(
        leadership=replace(seat.leadership, until=now) if leads else seat.leadership,
        seen_at=now if was_there else seat.seen_at,
    )


def presence_name(name: str, holder: UUID | str = "") -> str:
    """What a store that keeps both in one table calls one who asked; without a holder, how the
    names of all of them begin.
    """
    return f"{name}/{holder}"


def propose_leadership(name: str, holder: UUID, lease: Seconds, *, now: Instant) -> Leadership:
    """What one who asks would like to have."""
    return Leadership(name=name, holder=holder, epoch=0, until=now + lease)
