"""What came out of a run, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from daybell.chaos.checker import Violation
from daybell.chaos.recovery import quantile
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
    waits: Sequence[Seconds]  # of what a lost worker ran, where nothing else went wrong
    disturbed: int  # the same where something did
    promised: Seconds  # how long such a wait may be
    resumed: Sequence[Seconds]  # from the database's return to the first start after it
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
                "during_other_faults": self.disturbed,
            },
            "resumed_seconds": [round(one, 3) for one in self.resumed],
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
            "after restarts": ", ".join(f"{one:.1f} s to the first start" for one in self.resumed),
            "notes": "; ".join(self.notes),
            "violations": _listed(counts) or "none",
        }

    def _orphans(self) -> str:
        if not self.waits:
            return f"none alone; {self.disturbed} during other faults"
        half, most = quantile(self.waits, 0.5), quantile(self.waits, 0.99)
        return (
            f"{len(self.waits)} restarted after {half:.1f} s (p50), {most:.1f} s (p99),"
            f" {max(self.waits):.1f} s (max); {self.promised:g} s are promised;"
            f" {self.disturbed} more during other faults"
        )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
