"""The five accidents that other schedulers do not survive, each by its name.

Two of them are tested in the middle of their statements, where no process can be stopped from
outside: a renewal that races the reaper in `tests/store/test_queue_concurrency.py` and
`tests/store/postgres/test_queue_races.py`, an enqueue that is repeated after its first copy has
finished in `tests/store/test_enqueue.py` and `tests/store/postgres/test_queue_lost_answers.py`.
Here they happen to whole processes, or in the time that they would really take.
"""

from __future__ import annotations

import asyncio
import signal
from uuid import UUID

import asyncpg
import pytest

from daybell.chaos.faults import Proxy
from daybell.client import Client
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.engine.attempt import Attempt as Run
from daybell.engine.events import Events
from daybell.engine.loop import SystemClock
from daybell.engine.upkeep import Upkeep
from tests.builders import LEASE, TENANT, apply, claim, defined, enqueued, look, states, success
from tests.cli.terminal import Running
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker
from tests.engine.virtual import VirtualClock, in_virtual_time, until
from tests.sdk.waiting import WAIT, eventually
from tests.stores import KINDS, POSTGRES, open_place

LEASE_SECONDS = 2.0
SHOP = """
import asyncio
from daybell import App, Context

app = App()


@app.task
async def greet(name: str) -> None:
    print(f"greets {name}", flush=True)


@app.task(max_crashes=10)
async def sell(ctx: Context, number: int) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO sale VALUES ($1, $2)", number, ctx.attempt)
        print(f"sells {number}, attempt {ctx.attempt}", flush=True)
        if ctx.attempt == 1:
            await asyncio.sleep(3600)
"""


@pytest.fixture
async def url(servers):
    async with servers.live(POSTGRES["postgres"]) as url:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE sale (number int, attempt int)")
        await connection.close()
        yield url


@pytest.fixture
async def client(url):
    async with Client(url) as client:
        yield client


@pytest.fixture
def work(tmp_path):
    """Starts a worker process; answers it as soon as it is up."""
    (tmp_path / "shop.py").write_text(SHOP)
    started = []

    def start(url: str) -> Running:
        running = Running(
            *("worker", "shop.py", "--concurrency", "1", "--drain-timeout", "1s"),
            folder=tmp_path,
            DAYBELL_DATABASE_URL=url,
            DAYBELL_LEASE=f"{LEASE_SECONDS:g}s",
        )
        started.append(running)
        running.wait_for(r" runs .* at a time")
        return running

    yield start
    for running in started:
        running.__exit__()


@pytest.mark.postgres
async def test_a_claim_whose_answer_is_lost_while_the_worker_lives_on(client, url, work):
    async with Proxy(url, clock=SystemClock()) as proxy:
        worker = await asyncio.to_thread(work, proxy.url)
        proxy.lose_answers(1, holding=b"Ada Lovelace")

        id = (await client.enqueue("greet", {"name": "Ada Lovelace"})).id

        await asyncio.to_thread(worker.wait_for, "greets Ada Lovelace")
        await eventually(lambda: seen(client, id), lambda found: found.status is State.SUCCEEDED)
        assert proxy.lost == 1
        assert await asyncio.to_thread(stopped, worker) == 0
    found = await seen(client, id)
    assert (found.attempt, found.crashes, found.failures) == (1, 0, 0)
    assert worker.said.count("greets") == 1
    assert len(await client.workers(include_dead=True)) == 1


@pytest.mark.postgres
async def test_a_frozen_worker_inside_a_transaction_while_others_are_reaped(client, url, work):
    frozen = await asyncio.to_thread(work, url)
    first = (await client.enqueue("sell", {"number": 1})).id
    await asyncio.to_thread(frozen.wait_for, "sells 1, attempt 1")
    killed = await asyncio.to_thread(work, url)
    second = (await client.enqueue("sell", {"number": 2})).id
    await asyncio.to_thread(killed.wait_for, "sells 2, attempt 1")
    heir = await asyncio.to_thread(work, url)

    frozen.signal(signal.SIGSTOP)
    killed.signal(signal.SIGKILL)
    try:  # while the frozen one stands still
        await asyncio.to_thread(heir.wait_for, "sells 2, attempt 2")
    finally:
        frozen.signal(signal.SIGCONT)
    for id in (first, second):
        await eventually(
            lambda id=id: seen(client, id), lambda found: found.status is State.SUCCEEDED
        )

    assert await sales(url) == [(1, 2), (2, 2)]


@pytest.mark.postgres
async def test_a_frozen_worker_that_thaws_with_a_claims_answer_waiting_begins_nothing(
    client, url, work
):
    async with Proxy(url, clock=SystemClock()) as proxy:
        frozen = await asyncio.to_thread(work, proxy.url)
        keeping = asyncio.create_task(proxy.keep_back(b"Ada Lovelace"))
        await asyncio.sleep(0)
        id = (await client.enqueue("greet", {"name": "Ada Lovelace"})).id
        await asyncio.wait_for(keeping, WAIT)
        heir = await asyncio.to_thread(work, url)

        frozen.signal(signal.SIGSTOP)
        proxy.let_go()
        try:
            await asyncio.to_thread(heir.wait_for, "greets Ada Lovelace")
        finally:
            frozen.signal(signal.SIGCONT)
        await asyncio.to_thread(frozen.wait_for, "lost its lease")

        assert await asyncio.to_thread(stopped, frozen) == 0
    assert "greets" not in frozen.said
    assert ((found := await seen(client, id)).attempt, found.status) == (2, State.SUCCEEDED)


async def seen(client: Client, id):
    return await client.execution(id)


async def sales(url: str) -> list[tuple[int, int]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch("SELECT * FROM sale ORDER BY 1")]
    finally:
        await connection.close()


def stopped(running: Running) -> int:
    running.signal(signal.SIGTERM)
    return running.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_enqueue_repeated_after_its_first_copy_already_finished(kind, tmp_path, servers):
    async with open_place(kind, tmp_path, servers) as place:
        store = faulty(place.connect())
        await store.open()
        await defined(store)
        gates: list[asyncio.Event] = []

        def hold_the_second() -> None:
            if store.count("enqueue") == 2:
                gates.append(store.hold("enqueue"))

        store.hook("enqueue", hold_the_second)
        store.fail("enqueue", after=True)  # committed, and the answer is lost
        asking = asyncio.create_task(Client(store, tenant=TENANT).enqueue("resize"))
        await until(lambda: gates, within=WAIT)

        hands = await claim(store)
        await apply(store, hands, success(hands.one))
        gates[0].set()
        answer = await asyncio.wait_for(asking, WAIT)

        assert (answer.id, answer.created) == (hands.one.id, True)
        assert await states(store, [answer.id]) == [State.SUCCEEDED]
        assert (await claim(store)).executions == []
        await store.close()


@in_virtual_time
async def test_a_database_away_for_longer_than_the_lease_with_five_minute_tasks_running():
    running, most, ended = set[UUID](), [0], list[UUID]()

    async def five_minutes(run: Run) -> None:
        assert run.claimed.id not in running, "the attempt before still runs"
        running.add(run.claimed.id)
        most.append(len(running))
        try:
            await asyncio.sleep(300)
            ended.append(run.claimed.id)
        finally:
            running.discard(run.claimed.id)

    store = faulty(await a_store())
    ids = await enqueued(store, 4)
    workers = [
        a_worker(store, Tasks(resize=five_minutes), concurrency=2, lease=LEASE) for _ in range(2)
    ]
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events(), lease=LEASE)
    for worker in workers:
        await worker.start()
    upkeep.start()
    await asyncio.sleep(100)
    assert len(running) == 4

    store.is_away = True
    await asyncio.sleep(LEASE)
    assert not running, "the lease may be given away now"
    await asyncio.sleep(120)
    store.is_away = False
    await until(lambda: len(ended) == 4, within=400)
    for worker in workers:
        await worker.stop()
    await upkeep.stop()

    assert sorted(ended) == sorted(ids)
    assert await states(store, ids) == [State.SUCCEEDED] * 4
    found = [await look(store, id) for id in ids]
    assert [(one.attempt, one.crashes, one.failures) for one in found] == [(2, 0, 0)] * 4
