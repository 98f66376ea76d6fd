"""Which faults come when: drawn from a seed, so that a run can be repeated as far as real time
allows.

Faults of processes and of connections have a line of time each. On that of connections a fault is
followed by a pause, in which its effect can be seen: what heals another fault would hide it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from daybell.chaos.fleet import SCHEDULER, SERVER, WORKER
from daybell.core.instant import Seconds


class Kind(StrEnum):
    KILL = "kill"  # SIGKILL, and another takes its place
    FREEZE = "freeze"  # SIGSTOP for longer than the lease, then SIGCONT
    DRAIN = "drain"  # SIGTERM, as in a rolling deploy
    EXIT = "exit"  # a task ends its process with os._exit(0), under a supervisor
    CUT = "cut"  # all connections break at once
    LOSE = "lose"  # connections break when they have committed and before that is answered
    DELAY = "delay"  # nothing gets through for a while
    LATE = "late"  # clients lose connections, and their enqueues arrive all the same, seconds later
    RESTART = "restart"  # the database server crashes and comes back
    OUTAGE = "outage"  # nobody reaches the database for longer than the lease
    DEAF = "deaf"  # all connections accept bytes and never answer again; new ones work
    HOLD = "hold"  # a COMMIT is on its way for longer than the lease, its locks held
    SLOW = "slow"  # every answer takes a part of the lease longer; a worker has to register again


OF_PROCESSES: Final = {Kind.KILL: 5, Kind.FREEZE: 3, Kind.DRAIN: 2, Kind.EXIT: 1}
OF_CONNECTIONS: Final = {Kind.CUT: 2, Kind.LOSE: 4, Kind.DELAY: 1, Kind.LATE: 3, Kind.OUTAGE: 1}
# Those whose effect is judged while connections are left alone otherwise.
ALONE: Final = {Kind.DEAF: 1, Kind.HOLD: 1, Kind.SLOW: 1}
CALM_SECONDS: Final = 2.0  # at the beginning, so that there is something to disturb
GAP_SECONDS: Final = 1.2  # between two faults of processes, on average
SHARED_GAP_SECONDS: Final = 1.8  # the same where there are faults of connections, too
PAUSE_SECONDS: Final = 0.6  # after a fault of connections, at least
RESTART_SECONDS: Final = 2.0  # that a restart takes, about
SERVES_SECONDS: Final = 5.0  # beyond the lease: by then deaf connections are replaced
HOLD_SECONDS: Final = 7.0  # longer than a tick may be late with the default misfire
SLOW_LEASES: Final = 3.5
FROZEN_LEASES: Final = 1.2  # at the beginning of a slow time: after that it registers again


Weights = Mapping[Kind, int]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong."""

    at: Seconds  # since the load began
    kind: Kind
    pick: float  # from 0 up to 1: which of those that it could hit
    length: Seconds = 0.0  # how long it lasts
    role: str = WORKER  # of the process that is hit


def plan(
    seed: int,
    *,
    seconds: Seconds,
    lease: Seconds,
    has_proxy: bool,
    has_restart: bool,
    only: Collection[Kind] = tuple(Kind),
) -> list[Fault]:
    """All faults of a run, in order; `only` those of some kinds."""
    usual = (OF_CONNECTIONS if has_proxy else {}) | ({Kind.RESTART: 1} if has_restart else {})
    usual, alone, of_processes = (
        {kind: count for kind, count in weights.items() if kind in only}
        for weights in (usual, ALONE if has_proxy else {}, OF_PROCESSES)
    )
    connections = list(_of_connections(Random(f"connections {seed}"), usual, alone, seconds, lease))
    processes = _of_processes(
        Random(f"processes {seed}"), of_processes, connections, seconds, lease
    )
    return sorted([*connections, *processes], key=lambda fault: fault.at)


def _of_connections(
    dice: Random, usual: Weights, alone: Weights, seconds: Seconds, lease: Seconds
) -> Iterator[Fault]:
    at = CALM_SECONDS
    for kind in _dealt(dice, usual, alone):  # those that need quiet last: a short run has the rest
        if at >= seconds:
            return
        length = _length(kind, lease, dice.random())
        yield Fault(at=at, kind=kind, pick=dice.random(), length=length, role=_role(dice))
        at += length + PAUSE_SECONDS * dice.uniform(0.5, 1.5)


def _of_processes(
    dice: Random, weights: Weights, connections: list[Fault], seconds: Seconds, lease: Seconds
) -> Iterator[Fault]:
    """While connections are deaf, none; while they are held or slow, of workers alone."""
    gap = SHARED_GAP_SECONDS if connections else GAP_SECONDS
    quiet = [one for one in connections if one.kind in ALONE]
    at = CALM_SECONDS
    for kind in _dealt(dice, weights):
        over = next((one for one in quiet if one.at <= at <= one.at + one.length), None)
        if over is not None and over.kind is Kind.DEAF:
            at, over = over.at + over.length + PAUSE_SECONDS / 4, None
        if at >= seconds:
            return
        length, role = _length(kind, lease, dice.random()), _role(dice)
        yield Fault(
            at=at,
            kind=kind,
            pick=dice.random(),
            length=length,
            role=role if over is None else WORKER,
        )
        at += dice.uniform(0.2, 2 * gap - 0.2)


def _dealt(dice: Random, *hands: Weights) -> Iterator[Kind]:
    """Kinds like cards, so that even a short run has some of everything: first one of each, hand by
    hand, then as often as their weights say.
    """
    for hand in hands:
        yield from dice.sample(list(hand), len(hand))
    while deck := [kind for hand in hands for kind, count in hand.items() for _ in range(count)]:
        dice.shuffle(deck)
        yield from deck


def _length(kind: Kind, lease: Seconds, share: float) -> Seconds:
    match kind:
        case Kind.FREEZE:
            return lease * (1.2 + 0.8 * share)
        case Kind.OUTAGE:
            return lease * (1.3 + 0.7 * share)
        case Kind.DELAY:
            return lease * (0.1 + 0.5 * share)
        case Kind.RESTART:
            return RESTART_SECONDS
        case Kind.DEAF:
            return lease + SERVES_SECONDS
        case Kind.HOLD:
            return max(HOLD_SECONDS, 1.5 * lease)
        case Kind.SLOW:
            return SLOW_LEASES * lease
        case _:
            return 0.0


def _role(dice: Random) -> str:
    share = dice.random()
    return SCHEDULER if share < 0.2 else SERVER if share < 0.3 else WORKER
