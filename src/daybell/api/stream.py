"""`GET /stream`: what goes on, as it goes on. And the live form of an execution's log.

The store is asked once a second for each tenant that somebody looks at, however many look.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request, Response

from daybell.api.caller import Caller, Viewer
from daybell.api.contract import ALWAYS, refusal
from daybell.api.streaming import MEDIA_TYPE, Stream, Streams, event, pause
from daybell.client import Client, Holder, set_holder, wire
from daybell.client.logs import START
from daybell.client.overview import Overview
from daybell.core.execution import TERMINAL
from daybell.core.instant import to_iso
from daybell.core.log import LogPart
from daybell.core.view import QUEUE_NUMBERS
from daybell.errors import DaybellError, NotFound

logger = logging.getLogger("daybell.api")

AWAY: Final = event("unavailable", {"detail": "the store cannot be used now"})
_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,10})")


router = APIRouter(tags=["stats"])


@router.get(
    "/stream",
    operation_id="stream",
    response_model=None,
    responses={
        200: {
            "description": "Server-sent events for as long as somebody listens: `stats`, with what"
            " `/stats` answers, about every second, and `unavailable` while the store is away.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **{code: refusal(code) for code in ALWAYS},
    },
)
async def look(request: Request, caller: Viewer) -> Response:
    """See what goes on, as it goes on."""
    return channels_of(request).answer(request, caller)


class Channel:
    """What all who look at one tenant are sent."""

    def __init__(self, client: Client, streams: Streams) -> None:
        self._client = client
        self._streams = streams
        self._listeners: set[Stream] = set()
        self._is_left = asyncio.Event()  # by the last of them
        self._task: asyncio.Task[None] | None = None
        self._last: bytes | None = None

    @property
    def is_idle(self) -> bool:
        return not self._listeners

    def join(self, stream: Stream) -> None:
        """Send it what comes, beginning with what was sent last."""
        self._listeners.add(stream)
        if self._task is None or self._task.done():
            self._last = None
            self._is_left.clear()
            self._task = asyncio.create_task(self._run(), name=f"stats of {self._client.tenant}")
        elif self._last is not None:
            stream.push(self._last)

    def leave(self, stream: Stream) -> None:
        """Send it nothing more."""
        self._listeners.discard(stream)
        if not self._listeners:
            self._is_left.set()

    async def _run(self) -> None:
        set_holder(Holder(self._client.tenant))  # not to the key of the first that listens
        seen: Overview | None = None
        while not self._is_left.is_set():
            try:
                seen = await self._client.overview(earlier=seen)
                frame = event("stats", stats(seen))
            except DaybellError as error:
                if self._last is not AWAY:
                    logger.warning("nothing to stream: %s", error)
                frame = AWAY
            self._last = frame
            for listener in self._listeners:
                listener.push(frame)
            await pause(self._streams.pace.look, self._is_left)


class Channels:
    """A channel for each tenant that somebody looks at."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._channels: dict[str, Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def answer(self, request: Request, caller: Caller) -> Response:
        """The answer to somebody who wants to look."""
        stream = self._streams.open(caller.holder)
        channel = self._channels.get(caller.tenant)
        if channel is None:
            channel = self._channels[caller.tenant] = Channel(caller.client, self._streams)
        channel.join(stream)

        def leave() -> None:
            channel.leave(stream)
            if channel.is_idle and self._channels.get(caller.tenant) is channel:
                del self._channels[caller.tenant]

        return self._streams.answer(request, stream, on_end=leave)


def stats(seen: Overview) -> dict[str, Any]:
    """What goes on, as JSON."""
    totals: dict[str, Any] = {
        name: sum(getattr(queue, name) for queue in seen.queues) for name in QUEUE_NUMBERS
    }
    bounded = {name for queue in seen.queues for name in queue.at_least}
    totals["at_least"] = [name for name in QUEUE_NUMBERS if name in bounded]
    rates = seen.rates
    return {
        "now": to_iso(seen.now),
        "totals": totals,
        "queues": [wire.queue(one) for one in seen.queues],
        "workers": [wire.worker(one) for one in seen.workers],
        "rates": None
        if rates is None
        else {"enqueued": rates.enqueued, "finished": rates.finished, "failed": rates.failed},
        "dead_letters": [wire.execution(one) for one in seen.letters],
        "has_more_dead_letters": seen.has_more_letters,
    }


def streams_of(request: Request) -> Streams:
    """The streams of an application; whoever serves it may have brought them."""
    state = request.app.state
    if not hasattr(state, "streams"):
        state.streams = Streams(monotonic=asyncio.get_running_loop().time)
    return state.streams


def channels_of(request: Request) -> Channels:
    """The channels of an application."""
    state = request.app.state
    if not hasattr(state, "channels"):
        state.channels = Channels(streams_of(request))
    return state.channels


# The log of an execution, until its end.


def wants_stream(request: Request) -> bool:
    """Whether an answer is to be a stream."""
    accepted = request.headers.get("accept", "").lower()
    return any(part.partition(";")[0].strip() == MEDIA_TYPE for part in accepted.split(","))


async def follow_log(request: Request, caller: Caller, id: UUID) -> Response:
    """The answer that sends an execution's log as it grows. Raises ExecutionNotFound."""
    await caller.client.execution(id)
    streams = streams_of(request)
    stream = streams.open(caller.holder)
    place = read_place(request.headers.get("last-event-id", ""))
    is_left = asyncio.Event()
    task = asyncio.create_task(_follow(caller.client, id, stream, place, streams, is_left))

    def leave() -> None:
        is_left.set()
        task.cancel()

    return streams.answer(request, stream, on_end=leave)


async def _follow(
    client: Client,
    id: UUID,
    stream: Stream,
    place: tuple[int, int],
    streams: Streams,
    is_left: asyncio.Event,
) -> None:
    while not is_left.is_set():
        try:
            # Looked at before the log is read: what has ended by then has said everything.
            execution = (await client.execution(id)).execution
            async for part in client.log_parts(id, after=place):
                place = (part.attempt, part.number)
                frame = event("lines", _lines(part), id=f"{part.attempt}.{part.number}")
                await stream.send(frame)
        except NotFound:
            return stream.end()  # it has been removed meanwhile
        except DaybellError:
            stream.push(AWAY)
        else:
            if execution.state in TERMINAL:
                stream.push(event("end", {"status": str(execution.state)}))
                return stream.end()
        await pause(streams.pace.look, is_left)


def _lines(part: LogPart) -> dict[str, Any]:
    lines = [
        {
            "at": to_iso(line.at),
            "attempt": part.attempt,
            "level": line.level,
            "source": line.source,
            "message": line.message,
        }
        for line in part.lines
    ]
    return {"items": lines}


def read_place(text: str) -> tuple[int, int]:
    """Where a reader was, by the last event it has seen; the start, if that says nothing."""
    found = _PLACE.fullmatch(text)
    return START if found is None else (int(found[1]), min(int(found[2]), 2**31 - 1))
