"""What the names in a batch of executions come to."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from daybell.core.execution import NewExecution
from daybell.core.overlap import Overlap, gate_for
from daybell.store.postgres.names import CurrentJob


class Outdated(Exception):
    """A job has a new version, or the holder of a unique key finished just now: look again."""


class Repeated(Exception):
    """An execution of the batch has ended: a repeat of the request has created it before."""


class Spec(msgspec.Struct, frozen=True, gc=False):
    """What an execution's job and queue come to."""

    tenant: int
    job: CurrentJob
    lane: int

    def rule(self, execution: NewExecution) -> Overlap:
        """What happens to it if one before it has not finished; a gate of its own decides that."""
        if execution.gate is not None:
            return Overlap.ALLOW
        return self.job.overlap if execution.schedule is None else self.job.tick_overlap

    def gate(self, execution: NewExecution) -> str | None:
        """Which gate it has to pass."""
        if execution.gate is not None or self.rule(execution) is Overlap.ALLOW:
            return execution.gate
        return gate_for(execution) if execution.own_gate else self.job.gate

    def awaits(self, execution: NewExecution) -> bool:
        """Whether it has to wait for what its job depends on."""
        return execution.awaits and self.job.depends


class Specs(msgspec.Struct, frozen=True):
    """All that a batch names, by job and queue."""

    tenant: int
    is_fresh: bool  # looked up just now, not remembered
    found: dict[tuple[str, str | None], Spec]
    made: set[UUID] = msgspec.field(default_factory=set[UUID])  # created by the caller so far
    news: set[str] = msgspec.field(default_factory=set[str])  # to be said beside the queues

    @property
    def queues(self) -> set[str]:
        return self.news | {queue or spec.job.queue for (_, queue), spec in self.found.items()}

    def of(self, execution: NewExecution) -> Spec:
        return self.found[execution.job, execution.queue]

    def cover(self, executions: Iterable[NewExecution]) -> bool:
        return all((execution.job, execution.queue) in self.found for execution in executions)
