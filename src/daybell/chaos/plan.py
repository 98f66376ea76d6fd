"""Which faults come when: drawn from a seed, so that a run can be repeated as far as real time
allows.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from daybell.core.instant import Seconds


class Kind(StrEnum):
    KILL = "kill"  # SIGKILL, and another takes its place
    FREEZE = "freeze"  # SIGSTOP for longer than the lease, then SIGCONT
    DRAIN = "drain"  # SIGTERM, as in a rolling deploy
    CUT = "cut"  # all connections break at once
    LOSE = "lose"  # connections break when they have committed and before that is answered
    DELAY = "delay"  # nothing gets through for a while
    RESTART = "restart"  # the database server crashes and comes back
    OUTAGE = "outage"  # nobody reaches the database for longer than the lease


OF_PROCESSES: Final = {Kind.KILL: 5, Kind.FREEZE: 3, Kind.DRAIN: 2}
OF_CONNECTIONS: Final = {Kind.CUT: 2, Kind.LOSE: 4, Kind.DELAY: 1}
CALM_SECONDS: Final = 2.0  # at the beginning, so that there is something to disturb
GAP_SECONDS: Final = 1.2  # between two faults, on average
RESTART_SECONDS: Final = 40.0  # between two restarts, and between two outages


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong."""

    at: Seconds  # since the load began
    kind: Kind
    pick: float  # from 0 up to 1: which of those that it could hit
    length: Seconds = 0.0  # how long it lasts
    is_scheduler: bool = False  # what is hit, if it is a process


def plan(
    seed: int, *, seconds: Seconds, lease: Seconds, has_proxy: bool, has_restart: bool
) -> list[Fault]:
    """All faults of a run, in order."""
    dice = Random(f"faults {seed}")
    weights = OF_PROCESSES | (OF_CONNECTIONS if has_proxy else {})
    # Dealt like cards, so that even a short run has some of everything.
    deck: list[Kind] = []
    faults: list[Fault] = []
    at = CALM_SECONDS
    while at < seconds:
        if not deck:
            deck = [kind for kind, count in weights.items() for _ in range(count)]
            dice.shuffle(deck)
        kind = deck.pop()
        long = kind is Kind.FREEZE
        faults.append(
            Fault(
                at=at,
                kind=kind,
                pick=dice.random(),
                length=lease * (dice.uniform(1.2, 2.0) if long else dice.uniform(0.1, 0.6)),
                is_scheduler=dice.random() < 0.25,
            )
        )
        at += dice.uniform(0.2, 2 * GAP_SECONDS - 0.2)
    rounds = max(1, int(seconds / RESTART_SECONDS))
    for number in range(rounds):
        if has_restart:
            moment = seconds * (number + dice.uniform(0.2, 0.4)) / rounds
            faults.append(Fault(at=moment, kind=Kind.RESTART, pick=0.0))
        if has_proxy:
            moment = seconds * (number + dice.uniform(0.6, 0.7)) / rounds
            length = lease * dice.uniform(1.3, 2.0)
            faults.append(Fault(at=moment, kind=Kind.OUTAGE, pick=0.0, length=length))
    return sorted(faults, key=lambda fault: fault.at)
