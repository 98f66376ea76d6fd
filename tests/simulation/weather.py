"""The faults of one seed: a few kinds, each more or less often.

Not every fault in every seed. Where everything fails all the time, no run reaches the rarer paths;
where only one thing fails, its consequences are observed to their end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

LEASE = 6.0  # seconds of a worker's lease; short, so that a run sees many
POINTS = ("before", "committed", "answered")
STEPS = (
    *("claim", "apply", "renew", "register", "report", "write_log", "release", "retire", "listen"),
    *("lost", "admit", "expire", "lead", "retain", "due_schedules", "fire", "rearm_schedules"),
    *("schedules_ahead", "turn_back"),
)


@dataclass
class Weather:
    """Chances of faults for each call, and storms at certain times."""

    latency: float  # of a message, at most, as a rule
    slow: float = 0.0  # chance of one that takes longer than any timeout
    error_before: float = 0.0
    error_after: float = 0.0  # it was committed, but the caller gets an error
    lost_answers: dict[str, float] = field(default_factory=dict)  # the same, of one operation
    full_disk: float = 0.0
    lost_wakeup: float = 0.0
    crash_points: dict[str, float] = field(default_factory=dict)  # "claim.committed" and the like
    freeze_points: dict[str, float] = field(default_factory=dict)  # before such a call is sent
    steps_to_crash: int = 0  # a process dies about every so many steps, between any two awaits
    storms: list[tuple[float, str]] = field(default_factory=list)


STORMS = (
    "freeze",
    "freeze at work",
    "freeze at work",
    "freeze at work",
    "block at work",
    "crash",
    "outage",
    "cut",
    "mute",
    "term",
    "term at work",
    "term at work",
    "store clock",
    "host clock",
)
CALM = Weather(latency=0.01)


def draw(chance: Random, *, seconds: float) -> Weather:
    """Draw the weather of a seed, for so long."""

    def perhaps(*choices: float) -> float:
        return chance.choice((0.0, *choices))

    points = [f"{step}.{point}" for step in STEPS for point in POINTS]
    hot = chance.sample(points, chance.randint(0, 5))
    storms = [
        (chance.uniform(2, seconds), chance.choice(STORMS)) for _ in range(chance.randint(2, 9))
    ]
    return Weather(
        latency=chance.choice((0.002, 0.02, 0.2)),
        slow=perhaps(0.01, 0.03),
        error_before=perhaps(0.02, 0.1),
        error_after=perhaps(0.02, 0.1, 0.2),
        lost_answers={chance.choice(("apply", "claim", "enqueue", "fire", *STEPS)): perhaps(0.5)},
        full_disk=perhaps(0.02),
        lost_wakeup=perhaps(0.3, 1.0),
        crash_points={point: chance.choice((0.01, 0.05, 0.2)) for point in hot},
        freeze_points={
            chance.choice(("apply", "apply", "claim", "fire", *STEPS)): chance.choice(
                (0.0, 0.03, 0.08)
            )
        },
        steps_to_crash=chance.choice((0, 0, 500, 2000)),
        storms=sorted(storms),
    )
