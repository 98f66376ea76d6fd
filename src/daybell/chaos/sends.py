"""What durable functions under fire wait for: two events that look alike, and a decision.

Each is sent until that is answered, as the same event every time. It may come before anybody waits
for it, and in any order.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from daybell.chaos.nodes import EVENT
from daybell.client import Client
from daybell.client.events import read_decision, read_event
from daybell.client.node_waits import DECISION
from daybell.core.event import NewEvent
from daybell.core.instant import Seconds
from daybell.engine.clock import Clock
from daybell.errors import Conflict, Unavailable

TURNS: Final = 3  # waits of each function
WITHIN_SECONDS: Final = 0.6  # of the answer to the enqueue, each is sent
PAUSE_SECONDS: Final = 0.2  # between two tries
TRIES_MAX: Final = 300


class Send(msgspec.Struct, kw_only=True):
    """One event, and whether it was acknowledged."""

    execution: UUID  # that is to take it
    number: int  # of that one's enqueue
    turn: int
    answered_at: Seconds | None = None
    is_refused: bool = False  # what is to take it had ended before it was sent

    @property
    def token(self) -> str:
        """What it says, and no other does."""
        return f"{self.number}-{self.turn}"

    def event(self) -> NewEvent:
        if self.turn == TURNS - 1:
            return read_decision(
                self.execution, DECISION, approved=True, by="chaos", note=self.token
            )
        return read_event(EVENT, {"number": self.number, "note": self.token})


async def send(client: Client, one: Send, *, after: Seconds, clock: Clock) -> None:
    """Send it until that is answered, and note when it was."""
    event = one.event()
    await clock.sleep(after)
    for turn in range(TRIES_MAX):
        try:
            await client.send(event, is_own=True)
        except Unavailable:
            await clock.sleep(PAUSE_SECONDS)
            continue
        except Conflict:
            # It has ended: because of this, if only the answer to an earlier try was lost.
            one.is_refused = turn == 0
            return
        one.answered_at = clock.monotonic()
        return
