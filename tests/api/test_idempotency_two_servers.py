"""One request under one key at two servers: the first try may be overtaken by its own repeat."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from daybell.api import ApiOptions, create_api
from daybell.client import Client
from daybell.core.execution import State
from tests.api.conftest import asking
from tests.builders import TENANT, apply, claim, registered, success
from tests.stores import KINDS, open_place

KEY = {"Idempotency-Key": "k-1"}
REQUESTS = [
    ("/jobs", {"name": "import", "task": "resize"}),
    ("/jobs/resize/trigger", {"args": {"width": 1}}),
    ("/jobs/resize/trigger", {"args": {"width": 1}, "unique_key": "k"}),
    ("/jobs/alone/trigger", {"args": {}}),
    ("/executions", [{"job": "resize"}]),
]
BULKS = 20
BULK = 150


def marked(kind):
    return pytest.param(kind, marks=[pytest.mark.postgres] if kind.startswith("postgres") else [])


@pytest.fixture(params=[marked(kind) for kind in KINDS])
async def stores(request, tmp_path, servers):
    """Three stores on the same data: of two servers, and of a worker."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(open_place(request.param, tmp_path, servers))
        opened = [await stack.enter_async_context(place.opened()) for _ in range(3)]
        await Client(opened[0]).define("resize")
        await Client(opened[0]).define("alone", overlap="skip")
        yield opened


@pytest.fixture
async def servers_of_it(stores):
    """Two servers, each on a store of its own."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                asking(create_api(Client(store), options=ApiOptions(open_tenant=TENANT)))
            )
            for store in stores[:2]
        ]


def freeze(store):
    """Have the server stop as soon as it has begun a request: two events, begun and may go on."""
    begin, begun, may_go_on = store.admin.begin_request, asyncio.Event(), asyncio.Event()

    async def begin_request(*args):
        answer = await begin(*args)
        begun.set()
        await may_go_on.wait()
        return answer

    store.admin.begin_request = begin_request
    return begun, may_go_on


async def run_all(store):
    hands = await claim(store, 1000)
    assert await apply(store, hands, *(success(one) for one in hands.executions)) == []
    return [one.id for one in hands.executions]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_a_first_try_that_was_overtaken_creates_nothing_and_is_answered_alike(
    stores, servers_of_it, path, body
):
    first, second = servers_of_it
    begun, may_go_on = freeze(stores[0])
    trying = asyncio.create_task(first.post(path, json=body, headers=KEY))
    await asyncio.wait_for(begun.wait(), 300)

    again = await second.post(path, json=body, headers=KEY)
    assert len(await run_all(stores[2])) == 1
    if path == "/jobs/alone/trigger":
        await second.post(path, json=body)  # it is in the way of others
    may_go_on.set()
    late = await trying

    assert (again.status_code, late.status_code) in [(201, 201), (202, 202)]
    for name in ("execution_id", "id", "items"):
        assert again.json().get(name) == late.json().get(name)
    counts = (await Client(stores[2]).count()).executions
    assert counts[State.SUCCEEDED] == 1
    assert counts.get(State.QUEUED, 0) == (path == "/jobs/alone/trigger")
    entries = await stores[2].admin.list_audit(TENANT)
    assert len(entries.items) == 1 + (path == "/jobs/alone/trigger")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tenants", {"name": "acme"}),
        ("/jobs", {"name": "daily", "task": "resize", "schedule": "0 0 * * *"}),
    ],
)
async def test_a_first_try_is_not_refused_for_what_its_repeat_has_created(
    stores, servers_of_it, path, body
):
    first, second = servers_of_it
    begun, may_go_on = freeze(stores[0])
    trying = asyncio.create_task(first.post(path, json=body, headers=KEY))
    await asyncio.wait_for(begun.wait(), 300)

    again = await second.post(path, json=body, headers=KEY)
    may_go_on.set()
    late = await trying

    assert (again.status_code, late.status_code) == (201, 201)
    assert late.json()["name"] == again.json()["name"] == body["name"]


async def test_a_bulk_that_is_sent_three_times_to_two_servers_runs_once(stores, servers_of_it):
    started = Counter()
    is_over = asyncio.Event()

    async def work():
        worker = await registered(stores[2])
        while True:
            is_last = is_over.is_set()
            hands = await claim(stores[2], 100, worker=worker)
            started.update(one.id for one in hands.executions)
            moves = [success(one) for one in hands.executions]
            assert await apply(stores[2], hands, *moves) == []
            if is_last and not moves:
                return
            await asyncio.sleep(0)

    async def send(number):
        body = [{"job": "resize", "args": {"n": n}} for n in range(BULK)]
        key = {"Idempotency-Key": f"bulk {number}"}
        tries = [
            servers_of_it[at % 2].post("/executions", json=body, headers=key) for at in (0, 1, 2)
        ]
        answers = await asyncio.gather(*tries)
        assert {answer.status_code for answer in answers} == {202}

    async with asyncio.timeout(120):
        working = asyncio.create_task(work())
        for number in range(0, BULKS, 4):
            await asyncio.gather(*(send(one) for one in range(number, number + 4)))
        is_over.set()
        await working

    assert len(started) == BULKS * BULK
    assert set(started.values()) == {1}
