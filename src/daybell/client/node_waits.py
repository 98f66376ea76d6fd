"""What the nodes of a run wait for by their own wish, in words for a person, and who of them is
meant by what is said to the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from daybell.core.event import NewEvent
from daybell.core.execution import TERMINAL, State
from daybell.core.instant import Instant, to_iso
from daybell.core.lifecycle import FOR_EVENT, FOR_SLEEP, FOR_STEP
from daybell.core.step import NodeWait
from daybell.errors import Conflict, listed

if TYPE_CHECKING:
    from daybell.client.workflows import RunNode

RESERVED: Final = "daybell."  # names of events that begin so are ours
APPROVAL: Final = f"{RESERVED}approval."
DECISION: Final = "approval"  # what is decided on, if it has no other name
_TOLD_MAX: Final = 3  # nodes of which a sentence says what to do
_WAITS_TOLD_MAX: Final = 2  # of one node
_MATCH_CHARS_MAX: Final = 200  # of what a wait asks for, where a sentence says what to type


def short_name(event: str) -> str:
    """The event's name as people know it: of a decision, what is decided on."""
    return event.removeprefix(APPROVAL)


def what_is(event: str) -> str:
    """What a wait is for, by the name of its event."""
    name = short_name(event)
    return f"event {name!r}" if name == event else f"approval {name!r}"


def how_to_end(wait: NodeWait) -> str:
    """What to type so that an execution goes on which waits for an event."""
    name = short_name(wait.name)
    if name == wait.name:
        data = "" if wait.match == "{}" else f" --data {_typed(wait.match)}"
        told = f"{shlex.quote(name)}{data}"
        return f"send it with `daybell executions signal {wait.execution} {told}`"
    named = "" if name == DECISION else f" --name {shlex.quote(name)}"
    return f"decide with `daybell executions approve {wait.execution}{named}`"


def _typed(match: str) -> str:
    # Nobody types a long one out of a sentence.
    return shlex.quote(match) if len(match) <= _MATCH_CHARS_MAX else "JSON"


def ways_to_end(waits: Sequence[NodeWait]) -> str:
    """The same as the end of a sentence, for the waits of a node; empty if there are none."""
    ways = dict.fromkeys(map(how_to_end, waits))
    return f"; {listed(ways, most=1)}" if ways else ""


def note_of(node: RunNode) -> str:
    """Why a node stands where it stands, in short; empty if there is nothing to say."""
    if node.status in TERMINAL or not node.is_begun:
        return node.reason or ""
    if node.waits:
        told = [_told(one, of=node.name) for one in node.waits]
        return f"waits for {listed(told, most=_WAITS_TOLD_MAX, between=' and ')}"
    if node.status is State.WAITING and node.reason == FOR_EVENT:
        return "waits for an event"
    if node.status is State.SCHEDULED and node.run_at is not None:
        return f"{_AWAY.get(node.reason or '', 'not before')} {to_iso(node.run_at)}" + (
            "" if node.reason in (None, *_AWAY) else f" ({node.reason})"
        )
    return node.reason or ""


_AWAY: Final = {FOR_SLEEP: "sleeps until", FOR_STEP: "a step failed; it goes on at"}


def _told(wait: NodeWait, *, of: str) -> str:
    until = "" if wait.until is None else f" (until {to_iso(wait.until)})"
    place = "" if wait.label == of else f" in {wait.label}"
    return f"{what_is(wait.name)}{place}{until}"


def sentences(nodes: Iterable[RunNode]) -> str:
    """What nodes of a run wait for, and what to type; empty if none does by its own wish."""
    told: list[str] = []
    for node in nodes:
        if not node.waits and node.reason not in (FOR_EVENT, *_AWAY):
            continue
        told.append(f". {node.name} {note_of(node)}{ways_to_end(node.waits)}")
    more = f". {len(told) - _TOLD_MAX:,} more wait" if len(told) > _TOLD_MAX else ""
    return "".join(told[:_TOLD_MAX]) + more


def next_time(nodes: Iterable[RunNode]) -> Instant | None:
    """When the first of these nodes goes on by itself."""
    times = [node.run_at for node in nodes if node.status is State.SCHEDULED]
    times += [one.until for node in nodes for one in node.waits]
    return min((at for at in times if at is not None), default=None)


def the_one(run: UUID, event: NewEvent, found: Sequence[NodeWait]) -> NodeWait:
    """The wait of a run's node that an event for the run is meant for, of those that it fits.
    Raises Conflict if there is not just one such node.
    """
    by_execution: dict[UUID, NodeWait] = {}
    for one in found:
        by_execution.setdefault(one.execution, one)
    if len(by_execution) == 1:
        return found[0]
    what = what_is(event.name)
    if found:
        named = listed(f"{one.label} ({one.execution})" for one in by_execution.values())
        raise Conflict(
            f"several nodes of run {run} wait for {what}: {named}. Say which by its own id"
        )
    raise Conflict(
        f"execution {run} is a workflow's run, which itself waits for nothing, and none of its"
        f" nodes waits for {what} now: nobody would get it. `daybell executions show {run}` has the"
        " ids of the nodes that have begun: one of these gets it now or later, by its own id"
    )
