"""`daybell bridge`: messages of real servers become events, each once, also when it is killed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aio_pika
import aio_pika.exceptions
import nats
import pytest
import redis
from httpx import AsyncClient

from daybell import Client
from daybell.cli.roles import bridge
from daybell.cli.roles.bridge import BrokerMessage, NoIdentity, read_event
from daybell.cli.roles.receiver import serve_receiver
from daybell.client.sealing import new_key
from daybell.errors import Unavailable, UsageError
from tests.cli.terminal import Running, daybell, environment, until
from tests.postgres import free_port
from tests.sdk.waiting import eventually

BIN = Path(sys.executable).parent


def a_message(body: Any = b"{}", *, id: str | None = "1", content_type: str = "", **headers: str):
    return BrokerMessage(
        topic="orders",
        source="redis:orders",
        id=id,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
        content_type=content_type,
    )


def test_a_message_is_named_by_its_broker():
    assert read_event(a_message({"n": 1})) == {
        "name": "orders", "source": "redis:orders", "id": "1", "data": {"n": 1},
    }  # fmt: skip
    assert read_event(a_message(b"plain"))["data"] == "plain"
    assert read_event(a_message(b"\xff\x00"))["data"] == {"base64": "/wA="}
    assert read_event(a_message(b""))["data"] is None
    assert read_event(a_message(), event="order.placed")["name"] == "order.placed"
    assert read_event(a_message({"order": {"id": 7}}), id_path="order.id")["id"] == "7"


def test_a_cloud_event_names_itself_in_headers_or_body():
    in_headers = a_message({"n": 1}, CE_id="77", ce_source="/shop", ce_type="placed")
    inside = {"specversion": "1.0", "id": "8", "source": "/shop", "type": "paid", "data": {"n": 2}}

    assert read_event(in_headers) == {
        "name": "placed", "source": "/shop", "id": "77", "data": {"n": 1},
    }  # fmt: skip
    structured = a_message(inside, content_type="application/cloudevents+json; charset=utf-8")
    assert read_event(structured) == {
        "name": "paid", "source": "/shop", "id": "8", "data": {"n": 2},
    }  # fmt: skip


@pytest.mark.parametrize("data", [{}, {"order": 5}, {"order": {"id": [1]}}, [1], "text"])
def test_a_message_without_an_id_is_refused(data):
    with pytest.raises(NoIdentity, match="--id PATH"):
        read_event(a_message(data, id=None))
    with pytest.raises(NoIdentity):
        read_event(a_message(data), id_path="order.id")


def test_messages_of_kafka_and_rabbitmq_have_the_ids_of_their_brokers():
    """Without servers: packages of Python have neither. The one of RabbitMQ is tested below."""
    record = SimpleNamespace(
        topic="orders", partition=2, offset=9, timestamp=5, headers=[("ce_type", b"paid")],
        value=b'{"n": 1}',
    )  # fmt: skip
    delivery = SimpleNamespace(
        routing_key="orders", message_id="m-1", headers=None, body=b"{}", content_type=None
    )

    kafka = bridge._kafka_message(SimpleNamespace(raw_message=record))  # pyright: ignore
    rabbit = bridge._rabbitmq_message(SimpleNamespace(raw_message=delivery))  # pyright: ignore

    assert read_event(kafka) == {
        "name": "paid", "source": "kafka:orders", "id": "2-9-5", "data": {"n": 1},
    }  # fmt: skip
    assert read_event(rabbit) == {
        "name": "orders", "source": "rabbitmq:orders", "id": "m-1", "data": {},
    }  # fmt: skip


class Stop:
    """The request for an end that a bridge would hear."""

    is_requested = False

    def request(self) -> None:
        self.is_requested = True


async def test_a_message_is_acknowledged_after_its_event_is_committed():
    order: list[Any] = []

    class Spied(Client):
        async def publish(self, *args: Any, **options: Any) -> Any:
            if len(order) == 0:
                order.append("away")
                raise Unavailable("the store restarts")
            answer = await super().publish(*args, **options)
            order.append(answer.created)
            return answer

    async def acknowledge() -> None:
        order.append("acknowledged")

    async with Spied("memory://") as client:
        request = bridge.BridgeRequest("redis", ["orders"], None, None, "daybell", None, None, None)
        bridged = bridge.MessageBridge(client, request, cast("Any", Stop()))
        for _ in range(2):  # it is delivered again
            await bridged.take(a_message({"n": 1}), acknowledge)
        (event,) = (await client.events()).items

    assert order == ["away", True, "acknowledged", False, "acknowledged"]
    assert (event.source, event.event_id, bridged.published) == ("redis:orders", "1", 1)


async def test_a_message_is_not_acknowledged_if_the_store_refuses_for_good():
    class Refusing(Client):
        async def publish(self, *args: Any, **options: Any) -> Any:
            error = Unavailable("no such database")
            error.is_lasting = True
            raise error

    acknowledged: list[int] = []

    async def acknowledge() -> None:
        acknowledged.append(1)

    async with Refusing("memory://") as client:
        request = bridge.BridgeRequest("redis", ["orders"], None, None, "daybell", None, None, None)
        stop = Stop()
        bridged = bridge.MessageBridge(client, request, cast("Any", stop))
        await bridged.take(a_message(), acknowledge)

    assert (acknowledged, bridged.failed, stop.is_requested) == ([], True, True)


@contextmanager
def served(name: str, *words: str, ready: Any):
    """A server of this test, from the packages for development."""
    path = shutil.which(name, path=str(BIN)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: `make install` brings it")
    process = subprocess.Popen([path, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(ready)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def redis_at(tmp_path):
    """The address of a Redis server, and a client."""
    place = f"unix://{tmp_path}/redis.sock"
    client = redis.Redis.from_url(place)

    def is_ready():
        with suppress(redis.ConnectionError):
            return client.ping()

    words = ["--port", "0", "--unixsocket", f"{tmp_path}/redis.sock", "--save", ""]
    with served("redis-server", *words, "--dir", str(tmp_path), ready=is_ready):
        yield place, client
        client.close()


APP = """\
from daybell import App, on_event

app = App()

@app.task(schedule=on_event("orders"), overlap="allow")
def ship(event): ...
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "place"
    made.mkdir()
    (made / "app.py").write_text(APP)
    assert daybell("migrate", folder=made).code == 0
    return made


async def published(folder: Path, number: int) -> list[Any]:
    """All events, as soon as there are so many."""
    async with Client(f"sqlite:///{folder / 'daybell.db'}") as client:

        async def read() -> list[Any]:
            found, cursor = [], None
            while True:
                page = await client.events(limit=500, cursor=cursor)
                found += page.items
                cursor = page.next_cursor
                if cursor is None:
                    return found

        return await eventually(read, lambda found: len(found) >= number)


async def test_each_message_of_redis_fires_once_although_the_bridge_is_killed(redis_at, folder):
    place, server = redis_at
    with Running("worker", "app:app", folder=folder) as worker:
        worker.wait_for(" runs ship")
    numbers = range(200)
    for n in numbers:
        server.xadd("orders", {"data": json.dumps({"n": n})})
    words = ["bridge", "redis", "--url", place, "--topic", "orders", "--idle", "200ms"]

    for seen in (20, 60, 120):
        with Running(*words, folder=folder) as running:
            await published(folder, seen)
            running.insist(signal.SIGKILL)
    with Running(*words, folder=folder) as running:
        events = await published(folder, len(numbers))
        until(lambda: server.xpending("orders", "daybell")["pending"] == 0)

    assert sorted(one.data["n"] for one in events) == list(numbers)
    async with Client(f"sqlite:///{folder / 'daybell.db'}") as client:
        fired = await client.count(job="ship")
    assert sum(fired.executions.values()) == len(numbers)


TOLD = """\
from daybell import App

app = App()

@app.task(retries=0)
def ship(n: int):
    assert n
"""


async def test_outgoing_events_are_sent_to_redis(redis_at, folder):
    place, server = redis_at
    (folder / "app.py").write_text(TOLD)
    key, port, secret = new_key(), free_port(), "whsec_c2VjcmV0IG9mIGEgYnJpZGdl"
    async with Client(f"sqlite:///{folder / 'daybell.db'}", secrets_key=key) as client:
        await client.set_secret("BRIDGE", secret)
        await client.create_subscription(
            {"name": "told", "url": f"http://127.0.0.1:{port}/", "secret": "BRIDGE"}
        )

    def ended() -> dict[str, str]:
        """The status of each execution, by the id of its message."""
        told = [(one[b"ce-id"], json.loads(one[b"data"])) for _, one in server.xrange("told")]
        return {id: one["data"]["status"] for id, one in told if one["type"] != "job.changed"}

    words = ["bridge", "redis", "--url", place, "--receive", f"127.0.0.1:{port}", "--to", "told"]
    work = ["worker", "app:app", "--allow-private-http"]
    with (
        Running(*words, folder=folder, DAYBELL_BRIDGE_SECRET=secret) as bridging,
        Running(*work, folder=folder, DAYBELL_SECRETS_KEY=key) as worker,
    ):
        bridging.wait_for("sending the events")
        worker.wait_for(" runs ")
        for n in range(3):
            args = json.dumps({"n": n})
            assert daybell("jobs", "trigger", "ship", "--args", args, folder=folder).code == 0
        until(lambda: len(ended()) == 3)

    assert sorted(ended().values()) == ["dead", "succeeded", "succeeded"]


def test_a_receiver_takes_signed_events_alone(tmp_path):
    sent: list[tuple[bytes, str, str]] = []

    async def send(body: bytes, kind: str, id: str) -> None:
        if body == b"later":
            raise OSError("no broker")
        sent.append((body, kind, id))

    async def main() -> list[int]:
        async with serve_receiver("127.0.0.1:0", send, key=b"a key") as url, AsyncClient() as http:
            return [
                (await http.post(url, content=body, headers=headers)).status_code
                for body, headers in (
                    (b"one", sign(b"one", b"a key")),
                    (b"two", sign(b"one", b"a key")),
                    (b"two", {}),
                    (b"later", sign(b"later", b"a key")),
                    (b"x" * 1_100_000, sign(b"x", b"a key")),
                )
            ]

    assert asyncio.run(main()) == [204, 401, 401, 503, 413]
    assert [(one[0], one[2]) for one in sent] == [(b"one", "m1")]


def sign(body: bytes, key: bytes) -> dict[str, str]:
    at = str(int(time.time()))
    digest = hmac.digest(key, f"m1.{at}.".encode() + body, hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": "m1", "webhook-timestamp": at, "webhook-signature": signature}


@pytest.mark.parametrize("address", ["127.0.0.1", ":8090", "127.0.0.1:x", "0.0.0.0:8090"])
def test_a_wrong_address_of_a_receiver_is_refused(address):
    async def main() -> None:
        async with serve_receiver(address, lambda *_: asyncio.sleep(0), key=None):
            pass

    with pytest.raises(UsageError):
        asyncio.run(main())


async def test_messages_of_a_stream_of_nats_are_events(tmp_path, folder):
    ports = tmp_path / "ports"
    ports.mkdir()
    words = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "js")]

    def address() -> str | None:
        for path in ports.glob("*.ports"):
            with suppress(ValueError):
                return json.loads(path.read_text())["nats"][0]
        return None

    with served("nats-server", *words, "--ports_file_dir", str(ports), ready=address):
        url = str(address())
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.*"])
        for n in range(20):
            await stream.publish("orders.new", json.dumps({"n": n}).encode())
        words = ["bridge", "nats", "--url", url, "--topic", "orders.*", "--stream", "ORDERS"]
        with Running(*words, "--event", "orders", folder=folder):
            await published(folder, 10)
        with Running(*words, "--event", "orders", folder=folder):
            await stream.publish("orders.new", b'{"n": 20}')
            events = await published(folder, 21)
            info = await stream.consumer_info("ORDERS", "daybell-orders__")
        await client.close()

    assert sorted(one.data["n"] for one in events) == list(range(21))
    assert {(one.type, one.source) for one in events} == {("orders", "nats:ORDERS")}
    assert cast("Any", info.delivered).stream_seq == 21


RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@pytest.fixture
def rabbitmq_at(tmp_path):
    """The address of a RabbitMQ server that is starting."""
    if not RABBITMQ.exists():
        pytest.skip("RabbitMQ is not installed: apt install rabbitmq-server")
    port = free_port()
    place = tmp_path / "rabbit"
    place.mkdir()
    variables = environment(
        HOME=str(place),
        ERL_EPMD_ADDRESS="127.0.0.1",
        ERL_EPMD_PORT=str(free_port()),
        RABBITMQ_NODENAME=f"daybell{port}@localhost",
        RABBITMQ_NODE_IP_ADDRESS="127.0.0.1",
        RABBITMQ_NODE_PORT=str(port),
        RABBITMQ_DIST_PORT=str(free_port()),
        RABBITMQ_MNESIA_BASE=str(place / "mnesia"),
        RABBITMQ_LOG_BASE=str(place / "log"),
        RABBITMQ_ENABLED_PLUGINS_FILE=str(place / "plugins"),
        RABBITMQ_PID_FILE=str(place / "pid"),
        RABBITMQ_CONFIG_FILE=str(place / "none"),
        RABBITMQ_CONF_ENV_FILE=str(place / "env"),
    )
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([RABBITMQ], env=variables, **quiet)
    yield f"amqp://guest:guest@127.0.0.1:{port}/"
    process.terminate()
    process.wait()
    subprocess.run(["epmd", "-kill"], env=variables, check=False, **quiet)


@pytest.mark.all_only
async def test_each_message_of_rabbitmq_fires_once_although_the_bridge_is_killed(
    rabbitmq_at, folder
):
    async def connected() -> Any:
        with suppress(OSError, aio_pika.exceptions.AMQPError):
            return await aio_pika.connect(rabbitmq_at)

    link = await eventually(connected, lambda found: found is not None)
    channel = await link.channel()
    await channel.declare_queue("orders", durable=True)
    for n in range(300):
        message = aio_pika.Message(json.dumps({"n": n}).encode(), message_id=f"m{n}")
        await channel.default_exchange.publish(message, "orders")
    words = ["bridge", "rabbitmq", "--url", rabbitmq_at, "--topic", "orders"]
    with Running(*words, folder=folder) as running:
        await published(folder, 40)
        running.insist(signal.SIGKILL)
    with Running(*words, folder=folder):
        events = await published(folder, 300)
    await link.close()

    assert sorted(one.data["n"] for one in events) == list(range(300))


async def test_a_message_without_an_id_ends_the_bridge_and_stays(redis_at, folder):
    place, server = redis_at
    server.xadd("orders", {"data": '{"n": 1}'})
    words = ["bridge", "redis", "--url", place, "--topic", "orders", "--id", "order.id"]

    ended = await asyncio.to_thread(daybell, *words, folder=folder)

    assert ended.code == 1
    assert "give --id PATH" in ended.err
    assert server.xpending("orders", "daybell")["pending"] == 1


async def test_a_message_that_is_no_event_is_left_out(redis_at, folder):
    place, server = redis_at
    server.xadd("orders", {"ce-id": "x" * 300, "data": "{}"})
    server.xadd("orders", {"ce-id": "2", "data": "{}"})
    words = ["bridge", "redis", "--url", place, "--topic", "orders", "--log-format", "json"]
    with Running(*words, folder=folder) as running:
        running.wait_for("is no event and is left out: event id")
        (event,) = await published(folder, 1)
        assert {json.loads(line)["logger"] for line in running.lines} == {"daybell.bridge"}
    assert event.event_id == "2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pigeon", "--topic", "a"], "'pigeon' is not a broker; there are nats, kafka, rabbitmq"),
        (["nats", "--topic", "a"], "give --stream"),
        (["redis"], "give --topic to publish"),
        (["redis", "--receive", "127.0.0.1:0"], "--receive and --to go together"),
        (["redis", "--topic", "a", "--url", "redis://127.0.0.1:1"], "cannot be reached"),
    ],
)
def test_a_bridge_that_cannot_be_is_refused(folder, words, said):
    ended = daybell("bridge", *words, folder=folder)

    assert ended.code in (1, 2)
    assert said in ended.err and "Traceback" not in ended.err
