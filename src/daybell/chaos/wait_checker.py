"""What must be true of durable functions that wait for events, whatever has happened. Pure.

That all of them end is a rule for everything, and so is that no step is done twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.chaos.checker import History
from daybell.chaos.nodes import durable_waiting
from daybell.chaos.sends import TURNS
from daybell.core import payload
from daybell.core.execution import State
from daybell.core.step import Step, StepKind


class EventFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How many there were."""

    asked: int
    acknowledged: int
    taken: int  # ended a wait
    early: int  # of the acknowledged, before it began


def _event_lost(history: History) -> Iterator[str]:
    """What was acknowledged has ended a wait of the one that it was for, even if it came first."""
    taken = _taken(history)
    for one in history.sends:
        if one.is_refused:
            yield f"event {one.token} was refused: {one.execution} had ended without it"
        elif one.answered_at is not None and one.token not in taken.get(one.execution, ()):
            found = history.executions.get(one.execution)
            state = "nowhere" if found is None else found.state
            yield f"event {one.token} was acknowledged, not taken; {one.execution} is {state}"


def _event_taken_twice(history: History) -> Iterator[str]:
    """An event ends one wait, though the next one asks for the same."""
    for id, tokens in _taken(history).items():
        for token, count in Counter(tokens).items():
            if count > 1:
                yield f"event {token} has ended {count} waits of {id}"


def _event_of_another(history: History) -> Iterator[str]:
    """What ends a wait was sent, and to this one."""
    sent = {(one.execution, one.token) for one in history.sends}
    for id, tokens in _taken(history).items():
        for token in tokens:
            if (id, token) not in sent:
                yield f"a wait of {id} has ended with {token}, which nobody has sent to it"


def _event_told_otherwise(history: History) -> Iterator[str]:
    """Who has succeeded was told what is on record, for each wait, in all attempts the same."""
    taken = _taken(history)
    for one in history.executions.values():
        if one.job != durable_waiting.name or one.state is not State.SUCCEEDED:
            continue
        told = _decoded(one.result)["tokens"]
        recorded = taken.get(one.id, [])
        if told != recorded or len(recorded) != TURNS:
            yield f"{one.id} was told of {told}, and {recorded} is on record"


WAIT_RULES: Final = (
    _event_lost,
    _event_taken_twice,
    _event_of_another,
    _event_told_otherwise,
)


def events_of(history: History) -> EventFigures:
    """How many were sent, and when."""
    began = {
        (id, _token(wait)): wait.started_at - history.clock
        for id in history.steps
        for wait in _waits(history, id)
    }
    answers = [
        (one.answered_at, began.get((one.execution, one.token)))
        for one in history.sends
        if one.answered_at is not None
    ]
    return EventFigures(
        asked=len(history.sends),
        acknowledged=len(answers),
        taken=sum(map(len, _taken(history).values())),
        early=sum(since is not None and at < since for at, since in answers),
    )


def _taken(history: History) -> dict[UUID, list[str | None]]:
    """What has ended the waits of each function, in their order."""
    return {id: [_token(wait) for wait in _waits(history, id)] for id in history.steps}


def _waits(history: History, id: UUID) -> list[Step]:
    return [one for one in history.steps[id] if one.kind is StepKind.WAIT and one.is_done]


def _token(wait: Step) -> str | None:
    """What the event says that has ended a wait; none has, if there was none in time."""
    event = _decoded(wait.result)
    return None if event is None else event["data"]["note"]


def _decoded(text: str | None) -> Any:
    return None if text is None else payload.decode(text)
