"""Server-sent events: GET /stream and its topics, logs of executions, limits of open streams."""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from typing import Annotated, Any, Final
from urllib.parse import unquote
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from daybell.api.caller import (
    Caller,
    Invalid,
    TooManyRequests,
    answer_error,
    answer_unexpected,
    encode,
)
from daybell.api.router import BASE, Reach, Route, Routes
from daybell.client import Client, Holder, Shares, answers, set_holder, wire
from daybell.client.executions import execution as find_execution
from daybell.client.logs import START
from daybell.core.access import Action, Role
from daybell.core.execution import TERMINAL, LogPart
from daybell.core.limits import STREAM_TOPICS_MAX, STREAMS_MAX, TOPIC_ITEMS_MAX, TOPICS_MAX
from daybell.core.units import Seconds
from daybell.errors import (
    AccessDenied,
    DaybellError,
    NotFound,
    Unavailable,
    UsageError,
    shown,
)

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
    keep: Seconds = 30.0  # of a topic without followers


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

    def now(self) -> Seconds:
        """Return the time by which intervals are measured."""
        return self._monotonic()

    def open(self, holder: Holder, stream: Stream | None = None) -> Stream:
        """Open a stream of the holder's share. Raises TooManyRequests if the share is used up;
        `answer` releases it.
        """
        if self._is_closed or not self._shares.take(holder):
            raise TooManyRequests(
                "this key or its tenant has as many live streams as its share of this server"
                " allows; close one, or ask now and then instead",
                retry_after=BUSY_SECONDS,
            )
        stream = stream or Stream()
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


def _frame(name: bytes, data: bytes) -> bytes:
    """Return an event with encoded data."""
    return b"event: %b\ndata: %b\n\n" % (name, data)


def encode_event(name: str, data: Any, *, id: str | None = None) -> bytes:
    """Return an encoded event. JSON has no line breaks, so that data cannot start another one."""
    mark = b"" if id is None else b"id: " + id.encode() + b"\n"
    return mark + _frame(name.encode(), encode(data))


async def wait_or_set(seconds: Seconds, until: asyncio.Event) -> None:
    """Wait for some seconds, or until an event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


KEY_REVOKED: Final = encode_event("error", {"detail": "this key was revoked, or has expired"})


logger = logging.getLogger("daybell.api")

AWAY: Final = encode_event("unavailable", {"detail": "the store cannot be used now"})
BACK: Final = encode_event("available", {})
STATS: Final = "stats"
READ_SHARE: Final = 10  # a topic is read for at most a tenth of the time
_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,10})")
_VIEW_PLACE: Final = re.compile(r"([0-9a-f]{12})\.([0-9]{1,15})\.([0-9]{1,10})")
Place = tuple[str, int, int]  # epoch, tick, and the checksum of the topics


router = Routes("", tag="stats")


class StreamQuery(msgspec.Struct, kw_only=True):
    """The topics to follow."""

    topics: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=2_000)]],
            Meta(
                min_length=1,
                max_length=STREAM_TOPICS_MAX,
                description="The address of a list or a thing, without `/api/v1/`, such as"
                " `executions?q=status:dead`, `jobs/resize`, `queues`; may be repeated. Without"
                " it: `stats`.",
                examples=[["stats", "executions?q=status:running&limit=20"]],
            ),
        ]
        | None
    ) = None


@router.get(
    "/stream",
    id="stream",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,  # each topic has its own
    says="Server-sent events until the client leaves: the answers of the topics, then their changes"
    " about every second; `stats`, with what `/stats` answers; `unavailable` while the store is"
    " away. After `Last-Event-ID` the same topics continue.",
    media_types=(MEDIA_TYPE,),
)
async def look(request: Request, caller: Caller, query: StreamQuery) -> Response:
    """See what goes on, as it goes on."""
    topics = dict.fromkeys(query.topics or [STATS])
    return channels_of(request).answer(request, caller, list(topics))


class _Listed(msgspec.Struct):
    """A page of a list, with encoded items."""

    items: list[msgspec.Raw]
    next_cursor: str | None = None


_PAGE: Final = msgspec.json.Decoder(_Listed)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Topic:
    """The answer to a GET, which all its followers share, and when each part of it changed.

    A tick counts the changes of a server. A follower needs the parts that changed after the tick
    that it has seen: however slow it is, it is behind by one answer at most.
    """

    def __init__(self, text: str, live: str, read: Callable[[], Awaitable[Response]]) -> None:
        self.text = text
        self.read = read
        self.followers: set[View] = set()
        self.read_at = 0.0  # the time of the next read
        self.left_at = 0.0  # by the last follower
        self.changed = 0  # the tick of the last change; 0: it was not read yet
        self.is_fresh = False  # read since it has followers
        self._live = live
        self._body = b""
        self._began = 0  # the tick of the first answer, or of the first one after a problem
        self._problem: bytes | None = None
        self._rows: dict[bytes, tuple[int, bytes]] = {}  # by key: tick and value
        self._order = b""
        self._order_changed = 0

    def take(self, body: bytes, tick: int) -> bool:
        """Take an answer; return True if it differs from the one before."""
        if body == self._body and self._problem is None:
            return False
        if self._problem is not None or not self.changed:
            self._began, self._rows, self._order, self._problem = tick, {}, b"", None
        self._body, self.changed = body, tick
        if not self._live:
            self._rows = {b"": (tick, body)}
            return True
        page = _PAGE.decode(body)
        rows: dict[bytes, tuple[int, bytes]] = {}
        for one in page.items:
            value = bytes(one)
            key = bytes(_FIELDS.decode(value)[self._live])
            known = self._rows.get(key)
            rows[key] = known if known is not None and known[1] == value else (tick, value)
        self._rows = rows
        order = b'"keys":[%b],"next_cursor":%b' % (b",".join(rows), encode(page.next_cursor))
        if order != self._order:
            self._order, self._order_changed = order, tick
        return True

    def take_problem(self, body: bytes, tick: int) -> bool:
        """Take an error in place of the answer; return True if it is a new one."""
        if body == self._problem:
            return False
        self._problem, self.changed = body, tick
        return True

    def frame_since(self, tick: int) -> bytes:
        """Return the event with all that changed after a tick."""
        name = encode(self.text)
        if self._problem is not None:
            return _frame(b"problem", b'{"topic":%b,"problem":%b}' % (name, self._problem))
        if not self._live:
            ((_, value),) = self._rows.values()
            if self.text == STATS:
                return _frame(b"stats", value)
            return _frame(b"value", b'{"topic":%b,"value":%b}' % (name, value))
        rows = b",".join(value for changed, value in self._rows.values() if changed > tick)
        order = b"," + self._order if self._order_changed > tick else b""
        is_full = b"true" if self._began > tick else b"false"
        parts = (name, is_full, encode(self._live), rows, order)
        return _frame(b"rows", b'{"topic":%b,"is_full":%b,"key":%b,"rows":[%b]%b}' % parts)


class View(Stream):
    """A stream of the changes of topics. It holds no events: when its client can read, it takes
    all that changed since the last time.
    """

    def __init__(self, channel: Channel, topics: Iterable[Topic], *, place: Place | None) -> None:
        super().__init__()
        self.topics = tuple(topics)
        self._channel = channel
        self._names = zlib.crc32("\n".join(one.text for one in self.topics).encode())
        is_known = place is not None and place[::2] == (channel.epoch, self._names)
        self._seen = dict.fromkeys(self.topics, place[1] if place and is_known else 0)
        self._is_away = False

    def wake(self) -> None:
        """Let the stream take what has changed."""
        self._has_news.set()

    async def next(self) -> bytes | None:
        while True:
            if self._frames:
                return self._frames.popleft()
            if chunk := self._take_changes():
                return chunk
            if self.is_over:
                return None
            self._has_news.clear()
            await self._has_news.wait()

    def _take_changes(self) -> bytes:
        """Return the events of all changes. The last one has the id: a client that loses a part
        of them gets all of them again.
        """
        frames: list[bytes] = []
        if self._is_away != self._channel.is_away:
            self._is_away = self._channel.is_away
            frames.append(AWAY if self._is_away else BACK)
        for topic, seen in self._seen.items():
            if topic.is_fresh and topic.changed > seen:
                frames.append(topic.frame_since(seen))
                self._seen[topic] = topic.changed
        if not frames:
            return b""
        mark = f"id: {self._channel.epoch}.{self._channel.tick}.{self._names}\n"
        frames[-1] = mark.encode() + frames[-1]
        return b"".join(frames)


class Channel:
    """The topics of one tenant, and the one reader of the store for all streams that follow them.

    It reads topics one by one, each again after a second, or after ten times the time that it
    took. A topic stays for a while without followers, so that a stream can continue.
    """

    def __init__(self, tenant: str, streams: Streams, room: Shares) -> None:
        self.tenant = tenant
        self.epoch = token_hex(6)
        self.tick = 0
        self.is_away = False
        self.topics: dict[Hashable, Topic] = {}
        self._streams = streams
        self._room = room
        self._holder = Holder(tenant)
        self._has_news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def find_topic(self, request: Request, caller: Caller, text: str) -> Topic:
        """Return the topic of a caller, made if it is new. Raises UsageError, AccessDenied, and
        TooManyRequests if the tenant has as many as its share allows.
        """
        route, given = read_topic(request, text)
        route.check_caller(caller)
        # A handler may answer other roles and scopes otherwise.
        key = (text, caller.role, None if caller.scope is None else encode(caller.scope))
        found = self.topics.get(key)
        if found is None:
            if not self._room.take(self._holder):
                raise TooManyRequests(
                    "this tenant follows as many topics as its share of this server allows; ask"
                    " now and then instead",
                    retry_after=BUSY_SECONDS,
                )
            arguments = {**given, "caller": caller}
            found = Topic(text, route.live or "", partial(route.call, arguments))
            self.topics[key] = found
            found.left_at = self._streams.now()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run(), name=f"topics of {self.tenant}")
        return found

    def join(self, view: View) -> None:
        """Send the changes of its topics to a stream, at first all of them."""
        for topic in view.topics:
            if not topic.followers:
                topic.is_fresh, topic.read_at = False, self._streams.now()
            topic.followers.add(view)
        self._has_news.set()

    def leave(self, view: View) -> None:
        """Send no more changes to a stream."""
        for topic in view.topics:
            topic.followers.discard(view)
            topic.left_at = self._streams.now()
        self._has_news.set()

    async def _run(self) -> None:
        set_holder(self._holder)  # not the key of the first stream
        keep, now = self._streams.pace.keep, self._streams.now
        while True:
            for key, topic in list(self.topics.items()):
                if not topic.followers and now() >= topic.left_at + keep:
                    del self.topics[key]
                    self._room.give_back(self._holder)
            if not self.topics:
                return
            followed = [one for one in self.topics.values() if one.followers]
            topic = min(followed, key=lambda one: one.read_at, default=None)
            if topic is not None and topic.read_at <= now():
                await self._read(topic)
                continue
            times = [topic.read_at] if topic is not None else []
            times += [one.left_at + keep for one in self.topics.values() if not one.followers]
            self._has_news.clear()
            await wait_or_set(min(times) - now(), self._has_news)

    async def _read(self, topic: Topic) -> None:
        """Read a topic, and wake its followers if it has changed."""
        began = self._streams.now()
        was_away, self.is_away = self.is_away, False
        tick = self.tick + 1
        try:
            response = await topic.read()
            has_changed = topic.take(bytes(response.body), tick)
        except DaybellError as error:
            if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.is_away, has_changed = True, False
                if not was_away:
                    logger.warning("nothing to stream: %s", error)
            else:
                has_changed = topic.take_problem(bytes(answer_error(error).body), tick)
        except Exception as error:
            has_changed = topic.take_problem(bytes(answer_unexpected(error).body), tick)
        is_new, topic.is_fresh = not topic.is_fresh, topic.is_fresh or not self.is_away
        now, look = self._streams.now(), self._streams.pace.look
        topic.read_at = now + max(look, READ_SHARE * (now - began))
        if has_changed:
            self.tick = tick
        if self.is_away != was_away:
            for view in {view for one in self.topics.values() for view in one.followers}:
                view.wake()
        elif has_changed or is_new:
            for view in topic.followers:
                view.wake()


class Channels:
    """The channels, one for each tenant with topics."""

    def __init__(self, streams: Streams, *, topics_max: int = TOPICS_MAX) -> None:
        self._streams = streams
        self._room = Shares(topics_max)
        self._channels: dict[str, Channel] = {}

    def __len__(self) -> int:
        return sum(bool(one.topics) for one in self._channels.values())

    def answer(self, request: Request, caller: Caller, texts: Sequence[str]) -> Response:
        """Return the response that streams these topics. Topics that the caller may not follow are
        reported in the stream, unless there is no other.
        """
        for tenant, known in list(self._channels.items()):
            if not known.topics:
                del self._channels[tenant]
        channel = self._channels.get(caller.tenant)
        if channel is None:
            channel = Channel(caller.tenant, self._streams, self._room)
            self._channels[caller.tenant] = channel
        topics: list[Topic] = []
        refused: dict[str, DaybellError] = {}
        for text in texts:
            try:
                topics.append(channel.find_topic(request, caller, text))
            except (AccessDenied, TooManyRequests) as error:
                refused[text] = error
        if not topics:
            raise next(iter(refused.values()))
        view = View(channel, topics, place=read_view_place(request))
        for text, error in refused.items():
            problem = bytes(answer_error(error).body)
            view.push(_frame(b"problem", b'{"topic":%b,"problem":%b}' % (encode(text), problem)))
        self._streams.open(caller.holder, view)
        channel.join(view)
        return self._streams.answer(request, view, on_end=lambda: channel.leave(view))


def read_topic(request: Request, text: str) -> tuple[Route, dict[str, Any]]:
    """Return the operation that a topic names, with the arguments of its handler."""
    path, _, query = text.partition("?")
    path = f"{BASE}/{unquote(path)}"
    app = request.app
    found = app.router.find("GET", path)
    if isinstance(found, Response) or found[0].live is None:
        known = (
            route.path.removeprefix(f"{BASE}/")
            for route in app.router.routes
            if route.live is not None
        )
        raise UsageError(
            f"{shown(text)} is no topic; there are {', '.join(sorted(known))}", field="topics"
        )
    route, values = found
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
    asked = Request({**scope, "headers": [], "root_path": "", "app": app})
    try:
        given, tenant = route.read_arguments(asked, values)
    except Invalid as error:
        raise Invalid(
            [("topics", f"{shown(text)}: {name}: {what}") for name, what in error.found]
        ) from None
    except UsageError as error:
        raise UsageError(f"{shown(text)}: {error}", field="topics") from None
    if tenant is not None:
        raise UsageError("a stream has one tenant; name it beside topics", field="topics")
    if getattr(given.get("query"), "limit", 0) > TOPIC_ITEMS_MAX:
        raise UsageError(
            f"{shown(text)}: a topic has at most {TOPIC_ITEMS_MAX} items; say limit", field="topics"
        )
    return route, given


def read_view_place(request: Request) -> Place | None:
    """Return the position after the client's last event; None, if it has none that is valid."""
    found = _VIEW_PLACE.fullmatch(request.headers.get("last-event-id", ""))
    return None if found is None else (found[1], int(found[2]), int(found[3]))


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
