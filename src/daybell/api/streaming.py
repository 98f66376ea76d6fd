"""Streams of server-sent events: how many there may be, how they begin, and how they end.

A stream ends when its reader is gone or does not read, when the key that opened it opens nothing
any more, and when the server stops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from fastapi import Request
from fastapi.responses import StreamingResponse

from daybell.api.answers import encode
from daybell.api.problems import TooManyRequests
from daybell.client import Holder, Shares
from daybell.core.instant import Seconds
from daybell.core.limits import STREAMS_MAX
from daybell.errors import Unavailable

WAITING_MAX: Final = 16  # events that a reader may be behind
BUSY_SECONDS: Final = 10.0  # after which it is worth asking again
HEARTBEAT: Final = b": still here\n\n"
MEDIA_TYPE: Final = "text/event-stream"

Welcome = Callable[[Request], Awaitable[bool]]


async def always(_request: Request) -> bool:
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
        if len(self._frames) >= WAITING_MAX:
            self.end()
        if not self.is_over:
            self._frames.append(frame)
            self._has_news.set()

    async def send(self, frame: bytes) -> None:
        """Send it as soon as the reader has taken enough of what came before."""
        while len(self._frames) >= WAITING_MAX and not self.is_over:
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
        is_welcome: Welcome = always,
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
                    yield UNWELCOME
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


def event(name: str, data: Any, *, id: str | None = None) -> bytes:
    """An event. JSON has no line breaks, so that nothing in it can begin another."""
    mark = b"" if id is None else b"id: " + id.encode() + b"\n"
    return mark + b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


async def pause(seconds: Seconds, until: asyncio.Event) -> None:
    """Wait, but not after that has happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


UNWELCOME: Final = event("error", {"detail": "this key was revoked, or has expired"})
