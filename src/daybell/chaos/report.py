"""What came out of a run, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from daybell.chaos.checker import Violation
from daybell.chaos.flow_runs import Figures
from daybell.chaos.recovery import Return, quantile
from daybell.chaos.wait_checker import EventFigures
from daybell.core.instant import Seconds


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures, and what was not as promised."""

    seed: int
    seconds: Seconds
    lease: Seconds
    asked: int
    acknowledged: int
    attempts: int  # starts, as the tasks wrote them down
    states: dict[str, int]
    faults: dict[str, int]  # what was done, and how often
    by_themselves: int  # processes that ended without being told to, and were started again
    answers_lost: int
    waits: Sequence[Seconds]  # of what a lost worker ran, until it started again
    disturbed: int  # those of them that count from when the store was well again
    suspects: int  # more, that had to wait for others of their kind
    promised: Seconds  # how long such a wait may be
    returns: Sequence[Return]  # of the database
    schedules: int
    ticks: dict[str, int]  # on record, by what became of them
    workflows: Figures
    events: EventFigures
    requests: int  # bulks, each sent several times under its key
    answers: int  # that these got
    unfinished: int
    notes: Sequence[str]
    violations: Sequence[Violation]

    @property
    def is_ok(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        broken = Counter(violation.rule for violation in self.violations)
        return {
            "is_ok": self.is_ok,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "lease_seconds": self.lease,
            "asked": self.asked,
            "acknowledged": self.acknowledged,
            "attempts": self.attempts,
            "states": self.states,
            "faults": self.faults,
            "ended_by_themselves": self.by_themselves,
            "answers_lost": self.answers_lost,
            "restarts": {
                "count": len(self.waits),
                "p50_seconds": round(quantile(self.waits, 0.5), 3),
                "p99_seconds": round(quantile(self.waits, 0.99), 3),
                "max_seconds": round(max(self.waits, default=0.0), 3),
                "promised_seconds": self.promised,
                "from_the_end_of_another_fault": self.disturbed,
                "suspects": self.suspects,
            },
            "returns": [
                {
                    "first_start_seconds": round(one.first_start, 3),
                    "backlog_max": one.backlog,
                    "shrinks_after_seconds": None if one.shrinks is None else round(one.shrinks, 1),
                }
                for one in self.returns
            ],
            "schedules": self.schedules,
            "ticks": self.ticks,
            "workflows": msgspec.to_builtins(self.workflows),
            "events": msgspec.to_builtins(self.events),
            "requests": {"sent": self.requests, "answers": self.answers},
            "unfinished": self.unfinished,
            "notes": list(self.notes),
            "broken": dict(broken),
            "violations": [{"rule": one.rule, "what": one.what} for one in self.violations],
        }

    def fields(self) -> dict[str, str]:
        """The same as lines with a name."""
        counts = Counter(violation.rule for violation in self.violations)
        return {
            "seed": str(self.seed),
            "enqueued": f"{self.acknowledged:,} acknowledged of {self.asked:,} asked for",
            "ran": f"{self.attempts:,} attempts; {_listed(self.states)}",
            "faults": _listed(self.faults) or "none",
            "ended alone": f"{self.by_themselves} processes" if self.by_themselves else "",
            "answers lost": f"{self.answers_lost} after their commit" if self.answers_lost else "",
            "orphans": self._orphans(),
            "after restarts": "; ".join(map(_return, self.returns)),
            "ticks": f"{_listed(self.ticks) or 'none'} of {self.schedules} schedules;"
            f" {counts['tick doubled']} doubled, {counts['tick lost']} lost",
            "workflows": self._workflows(),
            "events": f"{self.events.acknowledged:,} acknowledged of {self.events.asked:,} sent;"
            f" {self.events.taken:,} ended a wait, {self.events.early:,} were there before it",
            "requests": f"{self.requests:,} bulks under one key each, {self.answers:,} answers",
            "at the end": f"{self.unfinished:,} unfinished" if self.unfinished else "all is done",
            "notes": "; ".join(self.notes),
            "violations": _listed(counts) or "none",
        }

    def _workflows(self) -> str:
        seen = self.workflows
        return (
            f"{seen.acknowledged:,} runs acknowledged of {seen.asked:,} asked for;"
            f" {_listed(seen.states) or 'none'} with those inside them; {seen.nodes:,} nodes;"
            f" {seen.steps:,} steps on record, {seen.steps_again:,} done again"
        )

    def _orphans(self) -> str:
        if not self.waits:
            return "none"
        half, most = quantile(self.waits, 0.5), quantile(self.waits, 0.99)
        return (
            f"{len(self.waits)} restarted after {half:.1f} s (p50), {most:.1f} s (p99),"
            f" {max(self.waits):.1f} s (max); {self.promised:g} s are promised;"
            f" {self.disturbed} count from the end of another fault"
            + (f"; {self.suspects} suspects are not held to it" if self.suspects else "")
        )


def _return(one: Return) -> str:
    said = f"{one.first_start:.1f} s to the first start"
    if one.shrinks == 0.0:
        return f"{said}, {one.backlog:,} waiting at most"
    if one.shrinks is None:
        return f"{said}, a backlog of {one.backlog:,} that does not shrink"
    return f"{said}, a backlog of {one.backlog:,} shrinks after {one.shrinks:.1f} s"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
