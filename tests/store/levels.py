"""What stores are free to choose, levelled out of their answers."""

from __future__ import annotations

from uuid import UUID

import msgspec

from daybell.core.execution import (
    TERMINAL,
    Claimed,
    Enqueued,
    Execution,
    ExecutionDetail,
    Losses,
    Lost,
    State,
)
from daybell.core.job import JobActivity
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.core.views import Page, Queue
from daybell.core.worker import Claim, Renewal

GATED = "gated"  # what goes through gates has a queue of its own: its order is the store's choice


def as_seen(page: Page[Execution]) -> tuple[list[Execution], str | None]:
    return [seen(one) for one in page.items], page.next_cursor


def as_looked(looks: dict[str, JobActivity]) -> dict[str, JobActivity]:
    return {
        name: look if look.last is None else msgspec.structs.replace(look, last=seen(look.last))
        for name, look in looks.items()
    }


def as_detailed(detail: ExecutionDetail) -> ExecutionDetail:
    return msgspec.structs.replace(detail, execution=seen(detail.execution))


def seen(one: Execution) -> Execution:
    """An execution without what a store may choose."""
    if one.gate is not None:
        one = msgspec.structs.replace(one, run_at=0.0)
    if one.state in TERMINAL:
        checkpoint = one.checkpoint if one.state is State.DEAD else None
        one = msgspec.structs.replace(one, progress=None, note=None, checkpoint=checkpoint)
    return one


def unskipped(answers: list[Enqueued]) -> list[tuple[UUID, bool]]:
    """Whether it was skipped need not be told to who asks again."""
    return [(answer.id, answer.created) for answer in answers]


def unordered(claim: Claim) -> list[Claimed]:
    return sorted(map(levelled, claim.executions), key=lambda one: one.id)


def levelled(one: Claimed) -> Claimed:
    return one if one.gate is None else msgspec.structs.replace(one, run_at=0.0)


def unordered_losses(losses: Losses) -> list[Lost]:
    entries = sorted(losses.executions, key=lambda entry: entry.claimed.id)
    return [msgspec.structs.replace(one, claimed=levelled(one.claimed)) for one in entries]


def levelled_queues(queues: list[Queue]) -> list[Queue]:
    return [
        msgspec.structs.replace(queue, oldest_run_at=None) if queue.name == GATED else queue
        for queue in queues
    ]


def unordered_renewal(answer: Renewal) -> Renewal:
    return msgspec.structs.replace(answer, cancel=tuple(sorted(answer.cancel)))


def verdicts(answer: list[Verdict], moves: list[Transition]) -> list[tuple[UUID, int, Ruling]]:
    """Rulings, in no order. Cancelling what was to be cancelled may be told or not."""
    wanted = {(move.id, move.attempt) for move in moves if move.target is State.CANCELLED}
    return sorted(
        (verdict.id, verdict.attempt, verdict.ruling)
        for verdict in answer
        if not (verdict.ruling is Ruling.CANCELLED and (verdict.id, verdict.attempt) in wanted)
    )
