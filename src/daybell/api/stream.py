"""Server-sent events: GET /stream, live logs of executions, limits of open streams."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from daybell.api.caller import Caller, TooManyRequests, encode
from daybell.api.router import Routes
from daybell.client import Client, Holder, Shares, answers, set_holder, wire
from daybell.client.executions import START
from daybell.client.executions import execution as find_execution
from daybell.core.access import Action, Role
from daybell.core.execution import TERMINAL, LogPart
from daybell.core.limits import STREAMS_MAX
from daybell.core.units import Seconds
from daybell.errors import DaybellError, NotFound, Unavailable

# Streams of server-sent events: their number, their start and their end.
#
# A stream ends when its client disconnects or does not read, when its key is not valid any more,
# and when the server stops.

BACKLOG_MAX: Final = 16  # events that a client may be behind
BUSY_SECONDS: Final = 10.0  # until a retry makes sense
HEARTBEAT: Final = b": still here\n\n"
MEDIA_TYPE: Final = "text/event-stream"

IsAllowed = Callable[[Request], Awaitable[bool]]


async def allow_always(_request: Request) -> bool:
    """Allow every caller to keep its stream."""
    return True


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of a stream; tests shorten them."""

    look: Seconds = 1.0  # between two reads of the store
    check: Seconds = 2.0  # of the key; a revoked key ends its streams within 5
    heartbeat: Seconds = 15.0  # below the timeout of proxies


class Stream:
    """The queue of events for one client."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self.is_over = False

    def push(self, frame: bytes) -> None:
        """Add an event. A client that is too far behind gets no more events."""
        if len(self._frames) >= BACKLOG_MAX:
            self.end()
        if not self.is_over:
            self._frames.append(frame)
            self._has_news.set()

    async def send(self, frame: bytes) -> None:
        """Add an event as soon as the client has read enough of the events before it."""
        while len(self._frames) >= BACKLOG_MAX and not self.is_over:
            self._has_room.clear()
            await self._has_room.wait()
        self.push(frame)

    def end(self) -> None:
        """End the stream after the events in the queue."""
        self.is_over = True
        self._has_news.set()
        self._has_room.set()

    async def next(self) -> bytes | None:
        """Return the next event; None: the stream has ended."""
        while not self._frames:
            if self.is_over:
                return None
            self._has_news.clear()
            await self._has_news.wait()
        self._has_room.set()
        return self._frames.popleft()


class EventStream(StreamingResponse):
    """A response that calls `on_end` when it ends, even if it never started."""

    media_type = MEDIA_TYPE

    def __init__(self, frames: AsyncGenerator[bytes], on_end: Callable[[], None]) -> None:
        # With this header, proxies pass events on without buffering.
        super().__init__(frames, headers={"X-Accel-Buffering": "no"})
        self._frames = frames
        self._on_end = on_end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._frames.aclose()


class Streams:
    """All streams of a process."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], Seconds],
        is_welcome: IsAllowed = allow_always,
        pace: Pace | None = None,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        self.pace = pace or Pace()
        self._monotonic = monotonic
        self._is_welcome = is_welcome
        self._shares = Shares(streams_max)
        self._open: dict[Stream, Holder] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, holder: Holder) -> Stream:
        """Open a stream of the holder's share. Raises TooManyRequests if the share is used up;
        `answer` releases it.
        """
        if self._is_closed or not self._shares.take(holder):
            raise TooManyRequests(
                "this key or its tenant has as many live streams as its share of this server"
                " allows; close one, or ask now and then instead",
                retry_after=BUSY_SECONDS,
            )
        stream = Stream()
        self._open[stream] = holder
        return stream

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self._is_closed = True
        for stream in self._open:
            stream.end()

    def answer(
        self, request: Request, stream: Stream, *, on_end: Callable[[], None]
    ) -> EventStream:
        """Return the response that sends a stream. It calls `on_end` at its end, in every case."""

        def end() -> None:
            stream.end()
            if (holder := self._open.pop(stream, None)) is not None:
                self._shares.give_back(holder)
            on_end()

        return EventStream(self._send(request, stream), end)

    async def _send(self, request: Request, stream: Stream) -> AsyncGenerator[bytes]:
        now = self._monotonic
        sent_at = checked_at = now()
        yield b"retry: 3000\n\n"
        while True:
            frame: bytes | None = b""
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pace.check):
                    frame = await stream.next()
            if frame is None:
                return
            if now() - checked_at >= self.pace.check:
                checked_at = now()
                if not await self._is_still_welcome(request):
                    yield KEY_REVOKED
                    return
            if not frame and now() - sent_at >= self.pace.heartbeat:
                frame = HEARTBEAT
            if frame:
                sent_at = now()
                yield frame

    async def _is_still_welcome(self, request: Request) -> bool:
        try:
            return await self._is_welcome(request)
        except Unavailable:
            return True  # the key cannot be checked, and there is nothing new to send


def encode_event(name: str, data: Any, *, id: str | None = None) -> bytes:
    """Return an encoded event. JSON has no line breaks, so that data cannot start another one."""
    mark = b"" if id is None else b"id: " + id.encode() + b"\n"
    return mark + b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


async def wait_or_set(seconds: Seconds, until: asyncio.Event) -> None:
    """Wait for some seconds, or until an event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


KEY_REVOKED: Final = encode_event("error", {"detail": "this key was revoked, or has expired"})


logger = logging.getLogger("daybell.api")

AWAY: Final = encode_event("unavailable", {"detail": "the store cannot be used now"})
_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,10})")


router = Routes("", tag="stats")


@router.get(
    "/stream",
    id="stream",
    role=Role.VIEWER,
    action=Action.READ,
    says="Server-sent events until the client leaves: `stats`, with what `/stats` answers, about"
    " every second, and `unavailable` while the store is away.",
    media_types=(MEDIA_TYPE,),
)
async def look(request: Request, caller: Caller) -> Response:
    """See what goes on, as it goes on."""
    return channels_of(request).answer(request, caller)


class Channel:
    """The statistics of one tenant, sent to all streams that follow it."""

    def __init__(self, client: Client, streams: Streams) -> None:
        self._client = client
        self._streams = streams
        self._listeners: set[Stream] = set()
        self._is_left = asyncio.Event()  # by the last stream
        self._task: asyncio.Task[None] | None = None
        self._last: bytes | None = None

    @property
    def is_idle(self) -> bool:
        return not self._listeners

    def join(self, stream: Stream) -> None:
        """Add a stream. It gets the last event first, then each new one."""
        self._listeners.add(stream)
        if self._task is None or self._task.done():
            self._last = None
            self._is_left.clear()
            self._task = asyncio.create_task(self._run(), name=f"stats of {self._client.tenant}")
        elif self._last is not None:
            stream.push(self._last)

    def leave(self, stream: Stream) -> None:
        """Remove a stream."""
        self._listeners.discard(stream)
        if not self._listeners:
            self._is_left.set()

    async def _run(self) -> None:
        set_holder(Holder(self._client.tenant))  # not the key of the first stream
        while not self._is_left.is_set():
            try:
                frame = encode_event("stats", await self._client.stats())
            except DaybellError as error:
                if self._last is not AWAY:
                    logger.warning("nothing to stream: %s", error)
                frame = AWAY
            self._last = frame
            for listener in self._listeners:
                listener.push(frame)
            await wait_or_set(self._streams.pace.look, self._is_left)


class Channels:
    """The channels, one for each tenant with an open stream."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._channels: dict[str, Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def answer(self, request: Request, caller: Caller) -> Response:
        """Return the response that streams the statistics of the caller's tenant."""
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


def streams_of(request: Request) -> Streams:
    """Return the streams of an application; its server may have set them."""
    state = request.app.state
    if not hasattr(state, "streams"):
        state.streams = Streams(monotonic=asyncio.get_running_loop().time)
    return state.streams


def channels_of(request: Request) -> Channels:
    """Return the channels of an application."""
    state = request.app.state
    if not hasattr(state, "channels"):
        state.channels = Channels(streams_of(request))
    return state.channels


# The log of an execution, until its end.


def wants_stream(request: Request) -> bool:
    """Return True if the client accepts a stream."""
    accepted = request.headers.get("accept", "").lower()
    return any(part.partition(";")[0].strip() == MEDIA_TYPE for part in accepted.split(","))


async def follow_log(request: Request, caller: Caller, id: UUID) -> Response:
    """Return the response that streams an execution's log. Raises ExecutionNotFound."""
    await find_execution(caller.client, id)
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
            # Read before the log: if the execution has ended by now, its log is complete.
            execution = (await find_execution(client, id)).execution
            async for part in client.log_parts(id, after=place):
                place = (part.attempt, part.number)
                frame = encode_event("lines", _lines(part), id=f"{part.attempt}.{part.number}")
                await stream.send(frame)
        except NotFound:
            return stream.end()  # the execution has been removed meanwhile
        except DaybellError:
            stream.push(AWAY)
        else:
            if execution.state in TERMINAL:
                stream.push(encode_event("end", {"status": str(execution.state)}))
                return stream.end()
        await wait_or_set(streams.pace.look, is_left)


def _lines(part: LogPart) -> dict[str, list[wire.LogLine]]:
    return {"items": answers.log_lines(part)}


def read_place(text: str) -> tuple[int, int]:
    """Return the position after the client's last event; the start, if its id is not valid."""
    found = _PLACE.fullmatch(text)
    return START if found is None else (int(found[1]), min(int(found[2]), 2**31 - 1))
