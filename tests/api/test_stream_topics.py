"""Topics of a stream: changes, resumption, slow readers, scopes, and the cost for the store."""

import asyncio
import json
from urllib.parse import quote

import pytest

from daybell.api import ApiOptions, create_api
from daybell.api.auth import Authenticator
from daybell.api.stream import Channel, Channels, Pace, Streams, Topic, View
from daybell.client import Client
from daybell.core.access import Role
from daybell.core.limits import STREAM_TOPICS_MAX
from daybell.store.shares import Shares
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite.ports import SqliteCatalog
from tests.api.sockets import PATIENCE, Reader, come, guarded

QUICK = Pace(look=0.02, keep=60)
ONCE = Pace(look=3600, keep=60)


class Counting(SqliteCatalog):
    """A port that counts the reads of lists."""

    reads = 0

    async def list_executions(self, tenant, where, *, limit=100, cursor=None):
        self.reads += 1
        return await super().list_executions(tenant, where, limit=limit, cursor=cursor)


@pytest.fixture
async def store():
    store = SqliteStore.in_memory()
    store.catalog = Counting(store.db, store.wakeups)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def client(store):
    client = Client(store)
    await client.define("greet")
    return client


def an_app(client, *, pace=QUICK, topics_max=100, gatekeeper=None):
    tenant = None if gatekeeper else "default"
    app = create_api(client, options=ApiOptions(open_tenant=tenant), gatekeeper=gatekeeper)
    app.state.streams = Streams(
        monotonic=asyncio.get_running_loop().time, pace=pace, streams_max=900
    )
    app.state.channels = Channels(app.state.streams, topics_max=topics_max)
    return app


def path_of(*topics: str) -> str:
    return "/api/v1/stream?" + "&".join(f"topics={quote(one)}" for one in topics)


class Follower(Reader):
    """A reader that also returns the id of an event."""

    async def event(self, name: str) -> tuple[dict, str]:
        async with asyncio.timeout(PATIENCE):
            while True:
                text = (await self._until(b"\n\n")).decode()
                if f"event: {name}\n" in text:
                    id = text.partition("id: ")[2].partition("\n")[0]
                    return json.loads(text.partition("data: ")[2]), id


def ids(event: dict) -> list[str]:
    return [one["execution_id"] for one in event["rows"]]


async def test_a_list_comes_whole_and_then_only_what_changed(client):
    first = str((await client.enqueue("greet")).id)
    async with guarded(an_app(client)) as (_, port), Reader(port) as reader:
        await reader.ask(path_of("executions?limit=2"))
        whole = await reader.next("rows")
        second = str((await client.enqueue("greet")).id)
        added = await reader.next("rows")
        await client.cancel(first)
        changed = await reader.next("rows")
        third = str((await client.enqueue("greet")).id)
        moved = await reader.next("rows")

    assert (whole["topic"], whole["is_full"], whole["key"], ids(whole), whole["keys"]) == (
        "executions?limit=2", True, "execution_id", [first], [first],
    )  # fmt: skip
    assert (added["is_full"], ids(added), added["keys"]) == (False, [second], [second, first])
    assert ids(changed) == [first] and changed["rows"][0]["status"] == "cancelled"
    assert "keys" not in changed
    assert ids(moved) == [third] and moved["keys"] == [third, second]  # the first has left the page
    assert moved["next_cursor"] == second


async def test_one_thing_comes_whole_at_each_change(client):
    made = await client.enqueue("greet")
    async with guarded(an_app(client)) as (_, port), Reader(port) as reader:
        await reader.ask(path_of(f"executions/{made.id}"))
        before = await reader.next("value")
        await client.cancel(made.id)
        after = await reader.next("value")

    assert before["value"]["status"] == "queued" and after["value"]["status"] == "cancelled"
    assert "timeline" in after["value"]


async def test_many_streams_cost_the_store_as_much_as_one(client, store):
    app = an_app(client, pace=ONCE)
    async with guarded(app) as (_, port):
        readers = [Follower(port) for _ in range(20)]
        for reader in readers:
            await reader.__aenter__()
            await reader.ask(path_of("executions", "executions?q=status%3Adead"))
        for reader in readers:
            await reader.next("rows")
            await reader.next("rows")
        reads = store.catalog.reads
        for reader in readers:
            await reader.__aexit__()

    assert reads == 2


async def test_a_stream_continues_after_the_event_that_was_seen_last(client):
    first = str((await client.enqueue("greet")).id)
    topics = path_of("executions", "queues")
    async with guarded(an_app(client)) as (_, port):
        async with Follower(port) as reader:
            await reader.ask(topics)
            _, id = await reader.event("rows")
            while not id:  # several events that belong together have one id
                _, id = await reader.event("rows")
        second = str((await client.enqueue("greet")).id)
        async with Follower(port) as reader:
            await reader.ask(topics, Last_Event_ID=id)
            event, _ = await reader.event("rows")
            while event["topic"] != "executions":
                event, _ = await reader.event("rows")
        async with Follower(port) as reader:  # what it has seen of other topics is not known
            await reader.ask(path_of("executions"), Last_Event_ID=id)
            other, _ = await reader.event("rows")

    assert (event["is_full"], ids(event)) == (False, [second])
    assert (other["is_full"], ids(other)) == (True, [second, first])


async def test_an_id_of_another_server_is_not_continued(client):
    await client.enqueue("greet")
    async with guarded(an_app(client)) as (_, port), Follower(port) as reader:
        await reader.ask(path_of("executions"), Last_Event_ID="0123456789ab.999.5")
        event, _ = await reader.event("rows")

    assert event["is_full"] and len(event["rows"]) == 1


async def test_a_slow_reader_gets_the_last_state_alone():
    streams = Streams(monotonic=asyncio.get_running_loop().time)
    channel = Channel("default", streams, Shares(9))

    async def read():
        raise AssertionError("not read here")

    topic = Topic("queues", "name", read)
    view = View(channel, [topic], place=None)
    topic.is_fresh = True

    def take(tick: int, n: int) -> None:
        channel.tick = tick
        body = {"items": [{"name": "a", "n": n}, {"name": "b", "n": 0}], "next_cursor": None}
        topic.take(json.dumps(body).encode(), tick)

    for tick in range(1, 1001):
        take(tick, tick)
    chunk = await view.next()
    take(1001, -1)
    later = await view.next()
    view.end()

    assert chunk is not None and later is not None
    assert chunk.count(b"event: ") == 1 and b'"n": 1000' in chunk and b'"n": 999' not in chunk
    assert b'"name": "b"' not in later and b'"n": -1' in later
    assert await view.next() is None


async def test_what_no_longer_exists_is_reported_and_may_come_back(client):
    async with guarded(an_app(client)) as (_, port), Reader(port) as reader:
        await reader.ask(path_of("jobs/missing", "jobs/greet"))
        problem = await reader.next("problem")
        await client.define("missing")
        found = await reader.next("value")
        while found["topic"] != "jobs/missing":
            found = await reader.next("value")

    assert problem["topic"] == "jobs/missing"
    assert (problem["problem"]["status"], problem["problem"]["code"]) == (404, "unknown-job")
    assert found["value"]["name"] == "missing"


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        (["nothing"], "'nothing' is no topic; there are"),
        (["keys"], "is no topic"),
        (["stream"], "is no topic"),
        (["executions?stat=dead"], "there is no parameter 'stat'"),
        (["executions?q=stat:dead"], "stat"),
        (["executions?limit=1000"], "at most 200 items"),
        (["executions?tenant=other"], "one tenant"),
        (["queues"] * (STREAM_TOPICS_MAX + 1), "topics"),
    ],
)
async def test_a_wrong_topic_is_refused(client, topics, says):
    app = an_app(client)
    async with guarded(app) as (_, port), Reader(port) as reader:
        head = await reader.ask(path_of(*topics))
        body = await reader._reader.readuntil(b"}")

        assert b"HTTP/1.1 422" in head and says in body.decode()
        assert len(app.state.streams) == 0


async def test_topics_show_what_is_in_the_scope_of_a_key_alone(client):
    for job in ("billing-run", "secret-run"):
        await client.define(job)
        await client.enqueue(job)
    token = (await client.create_key("scoped", role=Role.VIEWER, jobs=["billing-run"])).token
    whole = (await client.create_key("whole", role=Role.VIEWER)).token
    gatekeeper = Authenticator(client, ApiOptions(), monotonic=asyncio.get_running_loop().time)
    app = an_app(client, gatekeeper=gatekeeper)
    async with guarded(app, guard={"admit": gatekeeper.admit}) as (_, port):
        async with Reader(port) as all_of_it, Reader(port) as part:
            await all_of_it.ask(path_of("executions"), Authorization=f"Bearer {whole}")
            every = await all_of_it.next("rows")
            await part.ask(
                path_of("executions", "workers", "jobs/secret-run"), Authorization=f"Bearer {token}"
            )
            problems = [await part.next("problem")]
            some = await part.next("rows")
            problems.append(await part.next("problem"))
        async with Reader(port) as other:
            head = await other.ask(path_of("workers"), Authorization=f"Bearer {token}")

    assert {one["job"] for one in every["rows"]} == {"billing-run", "secret-run"}
    assert {one["job"] for one in some["rows"]} == {"billing-run"}
    assert [(one["topic"], one["problem"]["status"]) for one in problems] == [
        ("workers", 403), ("jobs/secret-run", 404),
    ]  # fmt: skip
    assert b"HTTP/1.1 403" in head


async def test_there_is_a_limit_to_topics_and_they_end_without_followers(client):
    app = an_app(client, topics_max=5, pace=Pace(look=0.02, keep=0))
    async with guarded(app) as (_, port), Reader(port) as one, Reader(port) as other:
        await one.ask(path_of("executions", "queues", "jobs"))
        refused = await one.next("problem")

        assert (refused["topic"], refused["problem"]["status"]) == ("jobs", 429)
        head = await other.ask(path_of("workers"))
        assert b"HTTP/1.1 429" in head and len(app.state.streams) == 1
        one._writer.close()
        await come(lambda: len(app.state.channels) == 0)
