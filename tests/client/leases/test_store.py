"""A worker by way of a server: the same engine, with the same promises, whatever gets lost."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from daybell.api.caller import ApiOptions
from daybell.api.server import ApiService, ServerOptions
from daybell.client import Client
from daybell.client.leases.store import RemoteStore
from daybell.core.access import Role
from daybell.core.execution import State
from daybell.core.retry import Retry
from daybell.core.views import ExecutionFilter
from daybell.engine.attempt import Stop
from daybell.engine.events import Events
from daybell.engine.lease import Pacemaker
from daybell.engine.loop import SystemClock
from daybell.engine.upkeep import Upkeep
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import AccessDenied, LeaseLost, Unavailable, UsageError
from tests.builders import TENANT, a_worker, an_execution, enqueued, success
from tests.client.remote.losing import losing
from tests.engine.tasks import Log, Task, Tasks, endless
from tests.engine.virtual import until
from tests.stores import KINDS, open_place

STORES = [
    pytest.param(kind, marks=[pytest.mark.postgres] if kind.startswith("postgres") else [])
    for kind in KINDS
]


class Front:
    """A server in front of a store, and workers of it."""

    def __init__(self, client: Client, token: str) -> None:
        self.client = client
        self.token = token
        self.store = client.store
        self.service = self._service(0)

    def _service(self, port: int) -> ApiService:
        return ApiService(
            self.client,
            options=ServerOptions(port=port),
            api=ApiOptions(),
            monotonic=SystemClock().monotonic,
            ask=self.client.tenants,
        )

    async def restart(self) -> None:
        """Stop the server, and start another at the same port, which remembers nothing."""
        port = int(self.service.url.rpartition(":")[2])
        await self.service.stop()
        self.service = self._service(port)
        await self.service.start()

    def remote(self, url: str | None = None, *, lease: float = 15.0) -> RemoteStore:
        return RemoteStore(url or self.service.url, key=self.token, lease=lease)

    @asynccontextmanager
    async def worker(self, tasks: Tasks, *, url=None, lease=15.0, has_pacemaker=False, **options):
        store, clock = self.remote(url, lease=lease), SystemClock()
        pacemaker = None
        if has_pacemaker:
            pacemaker = Pacemaker(lambda: store.again().as_store(), clock=clock)
        worker = Worker(
            store.as_store(),
            tasks,
            WorkerOptions(tasks=tasks.told, lease=lease, poll=30.0, **options),
            clock=clock,
            mint=store.mint,
            events=Events(),
            pacemaker=pacemaker,
        )
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()
            await store.close()

    async def counts(self) -> dict[State, int]:
        return await self.store.catalog.count_executions(TENANT, ExecutionFilter())

    async def count(self, state: State) -> int:
        return (await self.counts()).get(state, 0)

    async def ended(self, count: int, state: State = State.SUCCEEDED) -> None:
        """Wait until so many have ended so."""
        deadline = asyncio.get_running_loop().time() + 20
        while await self.count(state) < count:
            assert asyncio.get_running_loop().time() < deadline, await self.counts()
            await asyncio.sleep(0.02)


@pytest.fixture(params=STORES)
async def front(request, tmp_path, servers):
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(open_place(request.param, tmp_path, servers))
        store = await stack.enter_async_context(place.opened())
        client = Client(store)
        key = await client.create_key("edge", role=Role.WORKER)
        made = Front(client, key.token)
        await made.service.start()
        yield made
        await made.service.stop()


async def test_executions_run_once_each_and_new_ones_are_found_at_once(front):
    log = Log()
    ids = await enqueued(front.store, 200)
    async with front.worker(Tasks(resize=log), concurrency=20, has_pacemaker=True):
        await front.ended(200)
        for more in range(1, 4):
            ids += await enqueued(front.store)
            await front.ended(200 + more)

    assert sorted(log.ran) == sorted(ids)
    assert {one.state for one in await front.client.workers(include_dead=True)} == {"dead"}


async def test_two_workers_share_the_work(front):
    logs = [Log(), Log()]
    ids = await enqueued(front.store, 300)
    async with (
        front.worker(Tasks(resize=logs[0]), concurrency=10),
        front.worker(Tasks(resize=logs[1]), concurrency=10),
    ):
        await front.ended(300)

    assert sorted(logs[0].ran + logs[1].ran) == sorted(ids)


async def test_an_answer_that_is_lost_costs_and_repeats_nothing(front):
    log, ids = Log(), []
    async with (
        losing(front.service.url) as way,
        front.worker(Tasks(resize=log), url=way.url, concurrency=5),
    ):
        for number in range(1, 7):
            way.to_lose = 1
            ids += await enqueued(front.store, 10)
            await until(lambda number=number: way.lost == number, within=60)
        await front.ended(60)

    assert sorted(log.ran) == sorted(ids)
    page = await front.store.catalog.list_executions(TENANT, ExecutionFilter(), limit=100)
    assert {(one.state, one.attempt, one.crashes) for one in page.items} == {
        (State.SUCCEEDED, 1, 0)
    }


async def test_a_claim_with_a_lost_answer_brings_the_same_rows_to_the_same_worker(front):
    ids = await enqueued(front.store, 3)
    remote = front.remote()
    async with losing(front.service.url) as way:
        far = front.remote(way.url)
        worker, lease = far.mint(), far.mint()
        await far.queue.register(TENANT, _new(worker), lease=60.0)
        way.to_lose = 1
        said = {"worker": worker, "lease": lease, "queues": ["default"], "limit": 2}
        with pytest.raises(Unavailable):
            await far.queue.claim(TENANT, **said)
        again = await far.queue.claim(TENANT, **said)
        more = await far.queue.claim(TENANT, **{**said, "lease": far.mint()})
        await far.close()

    assert [one.id for one in again.executions] == ids[:2]
    assert [one.id for one in more.executions] == ids[2:]
    await remote.close()


def _new(id):
    return replace(a_worker(), id=id)


async def test_a_server_that_starts_anew_is_no_accident(front):
    log, gate = Log(), asyncio.Event()

    async def held(running):
        await gate.wait()
        await log(running)

    ids = await enqueued(front.store, 10)
    async with front.worker(Tasks(resize=held), concurrency=20):
        await until(lambda: front.service.polls.held._count == 10, within=60)
        await front.restart()
        gate.set()
        await front.ended(10)
        ids += await enqueued(front.store)
        await front.ended(11)

    assert sorted(log.ran) == sorted(ids)


async def test_a_cancellation_reaches_a_busy_worker_before_its_next_renewal(front):
    (id,) = await enqueued(front.store)
    async with front.worker(Tasks(resize=endless), lease=300.0) as worker:
        await until(lambda: len(worker.executor) == 1, within=60)
        await until(lambda: front.service.polls.held.is_busy(TENANT, worker.id), within=60)

        await front.client.cancel(id)
        await front.ended(1, State.CANCELLED)


async def test_a_worker_hears_that_it_is_to_drain(front):
    await enqueued(front.store)
    async with front.worker(Tasks(resize=endless), lease=3.0) as worker:
        await until(lambda: len(worker.executor) == 1, within=60)
        await front.client.drain_worker(worker.id)
        await until(worker.is_draining.is_set, within=60)
        worker.executor.stop({run.fence for run in worker.executor}, Stop.RELEASE)


async def test_a_failure_is_retried_as_the_code_decides(front):
    tries = []

    async def fails(running):
        tries.append(running.claimed.attempt)
        if len(tries) < 2:
            running.say("info", "app", "about to fail")
            raise ValueError("no luck")
        return '"done"'

    retry = Retry(retries=3, backoff="fixed", base=0.0, jitter=0.0)
    (id,) = await enqueued(front.store)
    async with front.worker(Tasks(resize=Task(fails, retry=retry))):
        await front.ended(1)

    detail = await front.client.execution(id)
    assert tries == [1, 2] and detail.result == "done" and detail.failures == 1
    assert detail.attempts[0].error["type"] == "ValueError"
    assert "fails" in detail.attempts[0].error["traceback"]
    (part,) = await front.client.log(id)
    assert [line.message for line in part.lines] == ["about to fail"]


async def test_an_end_has_the_progress_that_no_report_had(front):
    (id,) = await enqueued(front.store)
    remote = front.remote()
    worker = remote.mint()
    await remote.queue.register(TENANT, _new(worker), lease=60.0)
    claim = await remote.queue.claim(
        TENANT, worker=worker, lease=remote.mint(), queues=["default"], limit=1
    )
    end = replace(success(claim.executions[0]), progress=90.0, note="page 9")

    assert await remote.queue.apply(TENANT, worker=worker, transitions=[end]) == []

    ended = await front.client.execution(id)
    assert (ended.status, ended.progress, ended.note) == ("succeeded", 90.0, "page 9")
    await remote.close()


async def test_a_lost_lease_ends_the_work_and_late_reports_are_refused(front):
    (id,) = await enqueued(front.store)
    remote = front.remote()
    worker, lease = remote.mint(), remote.mint()
    await remote.queue.register(TENANT, _new(worker), lease=60.0)
    claim = await remote.queue.claim(
        TENANT, worker=worker, lease=lease, queues=["default"], limit=1
    )
    await front.store.queue.retire(TENANT, worker)
    upkeep = Upkeep(front.store, clock=SystemClock(), mint=remote.mint, events=Events(), lease=60.0)
    await upkeep.reaper.tick()

    with pytest.raises(LeaseLost):
        await remote.queue.renew(TENANT, worker=worker, lease=60.0, leases=[lease])
    with pytest.raises(LeaseLost):
        await remote.queue.claim(
            TENANT, worker=worker, lease=remote.mint(), queues=["default"], limit=1
        )
    (verdict,) = await remote.queue.apply(
        TENANT, worker=worker, transitions=[replace(success(claim.executions[0]), progress=9.0)]
    )

    assert verdict.ruling == "stale" and verdict.current == 2
    assert (await front.client.execution(id)).status == "queued"
    await remote.close()


async def test_what_takes_a_database_is_refused_with_the_way_out(front):
    remote = front.remote()

    with pytest.raises(UsageError, match="worker beside the database"):
        await remote.queue.begin(remote.mint())
    with pytest.raises(UsageError, match="RemoteClient"):
        await remote.queue.enqueue(TENANT, [an_execution()])
    with pytest.raises(UsageError, match="RemoteClient"):
        await remote.catalog.define_jobs(TENANT, [])
    await remote.close()


async def test_a_key_that_may_not_ends_the_start_and_delays_what_runs(front):
    remote = front.remote()
    remote.worker = None
    key = (await front.client.create_key("op", role=Role.OPERATOR)).token
    other = RemoteStore(front.service.url, key=key)

    with pytest.raises(AccessDenied, match="the role worker"):
        await other.queue.register(TENANT, _new(other.mint()), lease=60.0)
    with pytest.raises(Unavailable, match="the role worker"):
        await other.queue.renew(TENANT, worker=other.mint(), lease=60.0, leases=[])
    await other.close()
    await remote.close()
