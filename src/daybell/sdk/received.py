"""What a durable function is told of the events that it has waited for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from daybell.core import payload


@dataclass(frozen=True, kw_only=True)
class ReceivedEvent:
    """An event that was waited for."""

    name: str
    data: Any
    source: str
    id: str
    time: datetime | None  # when it happened, if its sender has said so
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What a person has decided; true if it was approved."""

    approved: bool
    by: str | None = None
    note: str | None = None
    timed_out: bool = False  # nobody has decided

    def __bool__(self) -> bool:
        return self.approved


def received(result: str | None) -> ReceivedEvent | None:
    """What ended a wait; None: its time was over."""
    if result is None:
        return None
    event = payload.decode(result, what="event")
    return ReceivedEvent(
        name=event["name"],
        data=event["data"],
        source=event["source"],
        id=event["id"],
        time=None if event["time"] is None else datetime.fromisoformat(event["time"]),
        received_at=datetime.fromisoformat(event["received_at"]),
    )


def approval_of(result: str | None) -> Approval:
    """The same as a decision. An event that says nothing of one approves nothing."""
    event = received(result)
    if event is None:
        return Approval(approved=False, timed_out=True)
    said = cast("dict[str, Any]", event.data) if isinstance(event.data, dict) else {}
    by, note = said.get("by"), said.get("note")
    return Approval(
        approved=said.get("approved") is True,
        by=by if isinstance(by, str) else None,
        note=note if isinstance(note, str) else None,
    )
