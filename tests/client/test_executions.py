"""Executions through a client: found, cancelled, retried and discarded."""

from datetime import UTC, datetime, timedelta

import pytest

from daybell.client import Client
from daybell.core.execution import Cancellation, Priority, State
from daybell.core.ids import mint
from daybell.errors import Conflict, DuplicateKey, ExecutionNotFound, UsageError
from tests.builders import claimed, dead, finished, look
from tests.stores import open_place


@pytest.fixture(params=["memory", "sqlite"])
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def client(store):
    """A client with one job, `resize`."""
    made = Client(store)
    await made.define("resize")
    return made


async def test_a_list_may_begin_and_end_with_a_date(client):
    answer = await client.enqueue("resize")
    created = datetime.fromtimestamp((await client.execution(answer.id)).execution.created_at, UTC)
    today, tomorrow = created.date(), created.date() + timedelta(days=1)

    async def found(**bounds):
        return len((await client.executions(**bounds)).items)

    assert await found(since=str(today), until=str(tomorrow)) == 1
    assert await found(since=str(tomorrow)) == 0
    assert await found(until=str(today)) == 0
    with pytest.raises(UsageError, match=r"'2026-11-15T10:00' has no offset; write ISO 8601"):
        await found(since="2026-11-15T10:00")


async def test_executions_are_found_by_status_and_more(client, store):
    await finished(store)
    delayed = (await client.enqueue("resize", delay="1h")).id
    queued = (await client.enqueue("resize", queue="images")).id

    async def ids(**filters):
        return [one.id for one in (await client.executions(**filters)).items]

    assert await ids(status="pending") == [queued, delayed]
    assert await ids(status=["queued", "dead"]) == [queued]
    assert await ids(status=State.SCHEDULED) == [delayed]
    assert await ids(queue="images") == [queued]
    assert await ids(job="other") == []
    assert await ids(since="2000-01-01T00:00:00Z", until=0) == []
    assert len(await ids(limit=2)) == 2
    assert await client.count(status="pending") == {State.SCHEDULED: 1, State.QUEUED: 1}


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"status": "done"}, "status"),
        ({"status": ["queued", 5]}, "status"),
        ({"since": "yesterday"}, "since"),
        ({"ended_until": "soon"}, "ended_until"),
        ({"args": ["order_id"]}, "args"),
        ({"args": {"": 1}}, "arg."),
        ({"args": {"a..b": 1}}, "arg.a..b"),
        ({"args": {"order": {"id": 1}}}, "arg.order"),
        ({"args": {str(n): n for n in range(11)}}, "args"),
        ({"error": ""}, "error"),
        ({"unique_key": ""}, "unique_key"),
        ({"limit": 0}, "limit"),
        ({"cursor": "x"}, "cursor"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(client, filters, field):
    with pytest.raises(UsageError) as error:
        await client.executions(**filters)

    assert error.value.field == field


@pytest.mark.parametrize("id", ["", "42", "not-an-id", 5, None])
async def test_what_is_no_id_is_refused(client, id):
    with pytest.raises(UsageError, match="is not an id"):
        await client.execution(id)


async def test_cancel_says_what_became_of_it(client, store):
    running = (await claimed(store)).one.id
    queued = (await client.enqueue("resize")).id

    assert await client.cancel(queued) is Cancellation.CANCELLED
    assert await client.cancel(queued) is Cancellation.FINISHED
    assert await client.cancel(running) is Cancellation.REQUESTED
    with pytest.raises(ExecutionNotFound):
        await client.cancel(mint())


async def test_a_dead_execution_is_retried_itself(client, store):
    (id,) = await dead(store)

    answer = await client.retry(id)

    assert (answer.id, answer.created) == (id, False)
    assert (await look(store, id)).state is State.QUEUED
    with pytest.raises(Conflict, match="is queued"):
        await client.retry(id)


async def test_a_dead_execution_whose_key_is_held_stays_dead(client, store):
    (id,) = await dead(store, unique_key="photo-1")
    await client.enqueue("resize", unique_key="photo-1")

    with pytest.raises(DuplicateKey, match="unique key"):
        await client.retry(id)


async def test_a_cancelled_execution_is_retried_as_a_new_one(client, store):
    old = await client.enqueue(
        "resize", {"n": 1}, unique_key="k", priority="high", expires="1h", timeout=9
    )
    await client.cancel(old.id)

    answer = await client.retry(old.id)
    again, before = await look(store, answer.id), await look(store, old.id)

    assert answer.created
    assert answer.id != old.id
    assert (again.args, again.unique_key, again.priority) == ('{"n":1}', "k", Priority.HIGH)
    assert (again.timeout, again.expires_at) == (9.0, again.run_at + 3600)
    assert before.state is State.CANCELLED
    with pytest.raises(DuplicateKey):
        await client.retry(old.id)


async def test_a_succeeded_execution_is_retried_only_by_force(client, store):
    (id,) = await finished(store)

    with pytest.raises(Conflict, match="has succeeded; force"):
        await client.retry(id)
    answer = await client.retry(id, force=True)

    assert answer.id != id
    assert await client.count() == {State.SUCCEEDED: 1, State.QUEUED: 1}


async def test_a_discarded_execution_is_retried_only_by_force(client, store):
    (id,) = await dead(store)
    await client.discard(id)

    with pytest.raises(Conflict, match="was discarded; force"):
        await client.retry(id)
    assert (await client.retry(id, force=True)).created


async def test_dead_letters_are_listed_until_they_are_discarded(client, store):
    (id,) = await dead(store)

    assert [one.id for one in (await client.dead_letters(job="resize")).items] == [id]
    await client.discard(id)

    assert (await client.dead_letters()).items == ()
    assert (await look(store, id)).state is State.DEAD
    with pytest.raises(Conflict, match="not on the dead-letter list; it is dead"):
        await client.discard(id)
    with pytest.raises(ExecutionNotFound):
        await client.discard(mint())
