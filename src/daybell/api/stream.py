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

# Streams of server-sent events: how many there may be, how they begin, and how they end.
#
# A stream ends when its reader is gone or does not read, when the key that opened it opens
# nothing any more, and when the server stops.

BACKLOG_MAX: Final = 16  # events that a reader may be behind
BUSY_SECONDS: Final = 10.0  # after which it is worth asking again
HEARTBEAT: Final = b": still here\n\n"
MEDIA_TYPE: Final = "text/event-stream"

IsAllowed = Callable[[Request], Awaitable[bool]]


async def allow_always(_request: Request) -> bool:
    """Whoever got in may stay."""
    return True


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often things happen; tests hurry."""

    look: Seconds = 1.0  # between two looks at what goes on
    check: Seconds = 2.0  # whether the key still opens anything; revoking works within 5
    heartbeat: Seconds = 15.0  # below what proxies wait for


class Stream:
    """What one reader has yet to be sent."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self.is_over = False

    def push(self, frame: bytes) -> None:
        """Send it next. Somebody who is too far behind gets nothing more."""
        if len(self._frames) >= BACKLOG_MAX:
            self.end()
        if not self.is_over:
            self._frames.append(frame)
            self._has_news.set()

    async def send(self, frame: bytes) -> None:
        """Send it as soon as the reader has taken enough of what came before."""
        while len(self._frames) >= BACKLOG_MAX and not self.is_over:
            self._has_room.clear()
            await self._has_room.wait()
        self.push(frame)

    def end(self) -> None:
        """Send nothing after what waits now."""
        self.is_over = True
        self._has_news.set()
        self._has_room.set()

    async def next(self) -> bytes | None:
        """The next event; None: there will be none."""
        while not self._frames:
            if self.is_over:
                return None
            self._has_news.clear()
            await self._has_news.wait()
        self._has_room.set()
        return self._frames.popleft()


class EventStream(StreamingResponse):
    """An answer that calls `on_end` when it is over, also if it was never begun."""

    media_type = MEDIA_TYPE

    def __init__(self, frames: AsyncGenerator[bytes], on_end: Callable[[], None]) -> None:
        # Proxies pass on what they would otherwise collect.
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
        """Take a place of the holder's share. Raises TooManyRequests if there is none; `answer`
        gives it back.
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
        """End all streams, and begin none."""
        self._is_closed = True
        for stream in self._open:
            stream.end()

    def answer(
        self, request: Request, stream: Stream, *, on_end: Callable[[], None]
    ) -> EventStream:
        """The answer that sends a stream. `on_end` is called when it is over, however that was."""

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
            return True  # nobody can tell, and nothing new can be sent, either


def encode_event(name: str, data: Any, *, id: str | None = None) -> bytes:
    """An event. JSON has no line breaks, so that nothing in it can begin another."""
    mark = b"" if id is None else b"id: " + id.encode() + b"\n"
    return mark + b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


async def wait_or_set(seconds: Seconds, until: asyncio.Event) -> None:
    """Wait, but not after that has happened."""
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
            # Looked at before the log is read: what has ended by then has said everything.
            execution = (await find_execution(client, id)).execution
            async for part in client.log_parts(id, after=place):
                place = (part.attempt, part.number)
                frame = encode_event("lines", _lines(part), id=f"{part.attempt}.{part.number}")
                await stream.send(frame)
        except NotFound:
            return stream.end()  # it has been removed meanwhile
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
    """Where a reader was, by the last event it has seen; the start, if that says nothing."""
    found = _PLACE.fullmatch(text)
    return START if found is None else (int(found[1]), min(int(found[2]), 2**31 - 1))
