"""`daybell bridge`: messages of a broker become events, each once.

A message is acknowledged after its event is committed. The event has the source and the id of the
message, so that one that is delivered again changes nothing.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

import msgspec

from daybell.cli.roles import logs
from daybell.cli.roles.startup import wait_for_store
from daybell.cli.terminal import StartInterrupted, StopSignals
from daybell.client import Client
from daybell.client.remote.client import AnyClient, RemoteClient
from daybell.core import payload
from daybell.core.job import DEFAULT_TENANT
from daybell.core.units import Seconds
from daybell.engine.loop import SystemClock
from daybell.errors import (
    DaybellError,
    PayloadError,
    Unavailable,
    UsageError,
    install_advice,
    shown,
)
from daybell.settings import Settings, masked_url

logger = logging.getLogger("daybell.bridge")

URLS: Final = {
    "nats": "nats://127.0.0.1:4222",
    "kafka": "127.0.0.1:9092",
    "rabbitmq": "amqp://guest:guest@127.0.0.1:5672/",
    "redis": "redis://127.0.0.1:6379",
}
IDLE_SECONDS: Final[Seconds] = 30.0  # until a message of a reader that is gone is read by another
CONCURRENCY: Final = 50  # messages at a time, unless the broker keeps an order
PAUSE_SECONDS_MAX: Final[Seconds] = 10.0
KEY_VARIABLE: Final = "DAYBELL_BRIDGE_SECRET"  # signs outgoing events
ALWAYS: Final = "application/cloudevents+json"


class BridgeRequest(NamedTuple):
    """The command line of a bridge."""

    broker: str
    topics: list[str]
    url: str | None
    event: str | None
    group: str
    stream: str | None
    id_path: str | None
    tenant: str | None
    idle: Seconds = IDLE_SECONDS
    receive: str | None = None  # the address for outgoing events
    to: str | None = None  # the topic that they are sent to


class BrokerMessage(NamedTuple):
    """A message as its broker names it."""

    topic: str
    source: str
    id: str | None  # None: the broker gives it none
    headers: Mapping[str, str]
    body: bytes
    content_type: str


class NoIdentity(Exception):
    """A message has no id: its event could fire twice."""


async def run_bridge(settings: Settings, *, request: BridgeRequest) -> int:
    """Publish messages as events until an end is requested."""
    logs.configure(settings)
    if request.broker not in URLS:
        raise UsageError(
            f"{shown(request.broker)} is not a broker; there are {', '.join(URLS)}", field="broker"
        )
    if request.broker == "nats" and request.stream is None:
        raise UsageError(
            "give --stream: only a stream of JetStream keeps messages until they are acknowledged",
            field="stream",
        )
    check_directions(request)
    place = masked_url(request.url or URLS[request.broker])
    async with AsyncExitStack() as stack:
        with StopSignals() as stop:
            try:
                client = make_client(settings, request.tenant)
                named = masked_url(settings.api_url or settings.database_url)
                opening = partial(stack.enter_async_context, cast("Any", client))
                await wait_for_store(opening, named, stop)
            except StartInterrupted:
                return stop.code
            bridge = MessageBridge(client, request, stop)
            broker = connect(request, bridge.take)
            try:
                await prepare(request)
                await broker.start()
            except Exception as error:
                raise Unavailable(f"{place} cannot be reached: {error}") from error
            try:
                if request.topics:
                    topics = ", ".join(request.topics)
                    logger.info("publishing messages of %s from %s", topics, place)
                if request.receive is not None:
                    sending = partial(_SENDERS[request.broker], broker, request)
                    await stack.enter_async_context(receive_events(request.receive, sending))
                await stop.wait()
            finally:
                await broker.stop()
    logger.info("stopped; %d events published", bridge.published)
    return 1 if bridge.failed else 0


def check_directions(request: BridgeRequest) -> None:
    """Raise UsageError unless there is something to read or to send."""
    if not request.topics and request.receive is None:
        raise UsageError(
            "give --topic to publish messages as events, or --receive and --to to send outgoing"
            " events to the broker",
            field="topic",
        )
    if (request.receive is None) != (request.to is None):
        raise UsageError(
            "--receive and --to go together: the address that a subscription sends events to, and"
            " the topic that they are sent to",
            field="to",
        )


@asynccontextmanager
async def receive_events(address: str, send: Send) -> AsyncGenerator[None]:
    """Send the events that arrive at an address to the broker, until the context ends."""
    receiver = import_module("daybell.cli.roles.receiver")  # imports the API
    key = os.environ.get(KEY_VARIABLE)
    async with receiver.serve_receiver(address, send, key=key.encode() if key else None) as url:
        logger.info("sending the events that arrive at %s", url)
        yield


def make_client(settings: Settings, tenant: str | None) -> AnyClient:
    """Return a client of the server or store that the settings name."""
    if settings.api_url is not None:
        return RemoteClient(settings.api_url, key=settings.api_key, tenant=tenant)
    return Client(settings.database_url, tenant=tenant or DEFAULT_TENANT, lease=settings.lease)


class MessageBridge:
    """Publishes messages, and acknowledges them."""

    def __init__(self, client: AnyClient, request: BridgeRequest, stop: StopSignals) -> None:
        self._client = client
        self._request = request
        self._stop = stop
        self._clock = SystemClock()
        self.published = 0
        self.failed = False

    async def take(self, message: BrokerMessage, acknowledge: Callable[[], Awaitable[Any]]) -> None:
        """Publish a message. One that cannot be an event is logged, and acknowledged as well: it
        would be delivered for ever.
        """
        try:
            event = read_event(message, event=self._request.event, id_path=self._request.id_path)
            answer = await self._publish(event)
        except UsageError as error:
            logger.error(
                "message %s of %s is no event and is left out: %s",
                message.id, message.topic, error,
            )  # fmt: skip
            await acknowledge()
            return
        except (NoIdentity, DaybellError) as error:
            # It is not acknowledged: after a change, it can be published.
            logger.error("%s", error)
            self.failed = True
            self._stop.request()
            return
        await acknowledge()
        if answer:
            self.published += 1

    async def _publish(self, event: dict[str, Any]) -> bool:
        """Publish an event as soon as the store answers."""
        pause = 0.2
        while True:
            try:
                return (await self._client.publish(**event)).created
            except Unavailable as error:
                if error.is_lasting or self._stop.is_requested:
                    raise
                logger.warning("the store is away, trying again: %s", error)
            await self._clock.sleep(pause)
            pause = min(PAUSE_SECONDS_MAX, 2 * pause)


def read_event(
    message: BrokerMessage, *, event: str | None = None, id_path: str | None = None
) -> dict[str, Any]:
    """Return a message as arguments of `publish`. A CloudEvent names itself, in its headers or in
    its body.
    """
    headers = {name.lower(): value for name, value in message.headers.items()}
    data = _read_body(message.body)
    told = data if _is_cloud_event(message, data) else _of_headers(headers)
    if told is data:
        data = told.get("data")
    id = told.get("id") or message.id
    if id_path is not None:
        id = _value_at(data, id_path)
    if id is None:
        raise NoIdentity(
            f"a message of {message.topic} has no id, so that its event could fire twice; have its"
            " sender set one (message_id, or the header ce-id), or give --id PATH, the path of one"
            " in its data"
        )
    return {
        "name": event or told.get("type") or message.topic,
        "source": told.get("source") or message.source,
        "id": str(id),
        "data": data,
        **({"time": told["time"]} if told.get("time") else {}),
    }


def _is_cloud_event(message: BrokerMessage, data: Any) -> bool:
    return message.content_type.startswith(ALWAYS) and isinstance(data, dict)


def _of_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a CloudEvent in headers: `ce-id`, `ce_id`, `cloudEvents:id`."""
    found: dict[str, Any] = {}
    for name, value in headers.items():
        for prefix in ("ce-", "ce_", "cloudevents:", "cloudevents_"):
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = value
    return found


def _read_body(body: bytes) -> Any:
    """Return JSON as it is, other text as text, and anything else in base 64."""
    try:
        return payload.decode(body.decode(), what="data") if body else None
    except (UnicodeDecodeError, PayloadError):
        pass
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def _value_at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = cast("dict[str, Any]", data).get(key) if isinstance(data, dict) else None
    return data if isinstance(data, str | int) else None


# Brokers. Each is imported when it is used.

Send = Callable[[bytes, str, str], Awaitable[Any]]  # a body, its type, and the id of its event
Take = Callable[[BrokerMessage, Callable[[], Awaitable[Any]]], Awaitable[None]]


def connect(request: BridgeRequest, take: Take) -> Any:
    """Return the broker with its subscriptions, before its start."""
    try:
        faststream = import_module("faststream")
        found = import_module(f"faststream.{_MODULES.get(request.broker, request.broker)}")
    except ImportError:
        raise UsageError(f"FastStream is not installed: {install_advice('bridge')}") from None
    make, read = _BROKERS[request.broker]
    broker, subscribers = make(found, faststream.AckPolicy.MANUAL, request)
    for subscriber in subscribers:
        subscriber(_handler(faststream, take, read))
    return broker


def _handler(faststream: Any, take: Take, read: Callable[[Any], BrokerMessage]) -> Any:
    given = faststream.Context("message")

    async def handle(message: Any = given) -> None:
        await take(read(message), message.ack)

    handle.__annotations__.clear()  # it would parse the body by them
    return handle


def _nats(found: Any, policy: Any, request: BridgeRequest) -> tuple[Any, list[Any]]:
    broker = found.NatsBroker(request.url or URLS["nats"], logger=None)
    stream = found.JStream(request.stream, declare=False)
    return broker, [
        broker.subscriber(
            topic,
            stream=stream,
            durable=f"{request.group}-{_word(topic)}",
            pull_sub=found.PullSub(batch_size=CONCURRENCY),
            ack_policy=policy,
            max_workers=CONCURRENCY,
        )
        for topic in request.topics
    ]


def _nats_message(message: Any) -> BrokerMessage:
    raw = message.raw_message
    headers: dict[str, str] = raw.headers or {}
    # A stream that is made again begins at 1; the time tells its messages apart.
    at = raw.metadata.timestamp
    number = f"{raw.metadata.sequence.stream}-{_milliseconds(at)}"
    return BrokerMessage(
        topic=raw.subject,
        source=f"nats:{raw.metadata.stream}",
        id=number,
        headers=headers,
        body=raw.data,
        content_type=headers.get("content-type", ""),
    )


def _kafka(found: Any, policy: Any, request: BridgeRequest) -> tuple[Any, list[Any]]:
    broker = found.KafkaBroker(request.url or URLS["kafka"], logger=None)
    subscriber = broker.subscriber(
        *request.topics,
        group_id=request.group,
        auto_offset_reset="earliest",
        ack_policy=policy,
    )
    return broker, [subscriber]


def _kafka_message(message: Any) -> BrokerMessage:
    raw = message.raw_message
    headers = {name: _text(value) for name, value in raw.headers or ()}
    return BrokerMessage(
        topic=raw.topic,
        source=f"kafka:{raw.topic}",
        id=f"{raw.partition}-{raw.offset}-{raw.timestamp}",
        headers=headers,
        body=raw.value or b"",
        content_type=headers.get("content-type", ""),
    )


def _rabbitmq(found: Any, policy: Any, request: BridgeRequest) -> tuple[Any, list[Any]]:
    broker = found.RabbitBroker(
        request.url or URLS["rabbitmq"],
        logger=None,
        default_channel=found.Channel(prefetch_count=CONCURRENCY),
    )
    return broker, [
        broker.subscriber(found.RabbitQueue(topic, declare=False), ack_policy=policy)
        for topic in request.topics
    ]


def _rabbitmq_message(message: Any) -> BrokerMessage:
    raw = message.raw_message
    headers: dict[str, Any] = raw.headers or {}
    queue = raw.routing_key or ""
    return BrokerMessage(
        topic=queue,
        source=f"rabbitmq:{queue}",
        id=raw.message_id,
        headers={name: _text(value) for name, value in headers.items()},
        body=raw.body,
        content_type=raw.content_type or "",
    )


def _redis(found: Any, policy: Any, request: BridgeRequest) -> tuple[Any, list[Any]]:
    broker = found.RedisBroker(request.url or URLS["redis"], logger=None)
    subscribers: list[Any] = []
    for topic in request.topics:
        # New messages, and those that a reader took and did not acknowledge.
        for more in ({}, {"min_idle_time": round(request.idle * 1000)}):
            stream = found.StreamSub(
                topic, group=request.group, consumer="daybell", max_records=CONCURRENCY, **more
            )
            subscribers.append(
                broker.subscriber(stream=stream, ack_policy=policy, max_workers=CONCURRENCY)
            )
    return broker, subscribers


async def prepare(request: BridgeRequest) -> None:
    """Make the groups of Redis begin with the first message of a stream."""
    if request.broker != "redis":
        return
    redis = import_module("redis.asyncio").from_url(request.url or URLS["redis"])
    try:
        for topic in request.topics:
            with suppress(import_module("redis.exceptions").ResponseError):  # there is one
                await redis.xgroup_create(topic, request.group, id="0", mkstream=True)
    finally:
        await redis.aclose()


def _redis_message(message: Any) -> BrokerMessage:
    raw = message.raw_message
    fields = {_text(name): value for name, value in raw["data"].items()}
    if "__data__" in fields:  # in the format of FastStream
        headers, body = dict(message.headers), message.body
    else:
        headers = {name: _text(value) for name, value in fields.items()}
        body = fields.get("data")
        if body is None:
            body = msgspec.json.encode(headers)
    return BrokerMessage(
        topic=raw["channel"],
        source=f"redis:{raw['channel']}",
        id=_text(raw["message_ids"][0]),
        headers=headers,
        body=body if isinstance(body, bytes) else str(body).encode(),
        content_type=str(headers.get("content-type", "")),
    )


# Outgoing events. Each function returns when the broker has the message.


async def _send_nats(broker: Any, request: BridgeRequest, body: bytes, kind: str, id: str) -> None:
    headers = {"content-type": kind, "Nats-Msg-Id": id}  # JetStream drops repeated ids
    await broker.publish(body, request.to, headers=headers, stream=request.stream)


async def _send_kafka(broker: Any, request: BridgeRequest, body: bytes, kind: str, id: str) -> None:
    await broker.publish(body, request.to, headers={"content-type": kind, "ce-id": id})


async def _send_rabbitmq(
    broker: Any, request: BridgeRequest, body: bytes, kind: str, id: str
) -> None:
    await broker.publish(body, request.to, content_type=kind, message_id=id, persist=True)


async def _send_redis(broker: Any, request: BridgeRequest, body: bytes, kind: str, id: str) -> None:
    # FastStream would put the body into an envelope of its own.
    fields = {"data": body, "content-type": kind, "ce-id": id}
    redis = import_module("redis.asyncio").from_url(request.url or URLS["redis"])
    try:
        await redis.xadd(request.to, fields)
    finally:
        await redis.aclose()


_SENDERS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "nats": _send_nats,
    "kafka": _send_kafka,
    "rabbitmq": _send_rabbitmq,
    "redis": _send_redis,
}

_MODULES: Final = {"rabbitmq": "rabbit"}
_BROKERS: Final[
    dict[str, tuple[Callable[..., tuple[Any, list[Any]]], Callable[[Any], BrokerMessage]]]
] = {
    "nats": (_nats, _nats_message),
    "kafka": (_kafka, _kafka_message),
    "rabbitmq": (_rabbitmq, _rabbitmq_message),
    "redis": (_redis, _redis_message),
}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _word(topic: str) -> str:
    return "".join(one if one.isalnum() or one == "-" else "_" for one in topic)


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
