"""Executions through a client: enqueued, found, cancelled, retried and discarded."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from daybell.client.executions import sweep_pages
from daybell.core.execution import Cancellation, Priority, State
from daybell.core.ids import mint
from daybell.core.limits import ENQUEUE_BATCH_MAX
from daybell.core.units import to_datetime
from daybell.core.views import ExecutionFilter
from daybell.errors import (
    Conflict,
    DuplicateKey,
    ExecutionNotFound,
    JobNotFound,
    PayloadError,
    UsageError,
)
from tests.builders import claimed, dead, finished, look
from tests.refusals import refuses


async def test_a_list_may_begin_and_end_with_a_date(client):
    answer = await client.enqueue("resize")
    created = (await client.execution(answer.id)).created_at
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
        return [one.execution_id for one in (await client.executions(**filters)).items]

    assert await ids(status="pending") == [queued, delayed]
    assert await ids(status=["queued", "dead"]) == [queued]
    assert await ids(status=State.SCHEDULED) == [delayed]
    assert await ids(queue="images") == [queued]
    await client.define("other")
    assert await ids(job="other") == []
    assert await ids(until=0) == []
    assert len(await ids(limit=2)) == 2
    assert (await client.count(status="pending")).executions == {
        State.SCHEDULED: 1,
        State.QUEUED: 1,
    }


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
    with refuses(UsageError, field="id"):
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

    with refuses(DuplicateKey):
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
    assert (await client.count()).executions == {State.SUCCEEDED: 1, State.QUEUED: 1}


async def test_a_discarded_execution_is_retried_only_by_force(client, store):
    (id,) = await dead(store)
    await client.discard(id)

    with pytest.raises(Conflict, match="was discarded; force"):
        await client.retry(id)
    assert (await client.retry(id, force=True)).created


async def test_dead_letters_are_listed_until_they_are_discarded(client, store):
    (id,) = await dead(store)

    assert [one.execution_id for one in (await client.dead_letters(job="resize")).items] == [id]
    await client.discard(id)

    assert (await client.dead_letters()).items == ()
    assert (await look(store, id)).state is State.DEAD
    with pytest.raises(Conflict, match="not on the dead-letter list; it is dead"):
        await client.discard(id)
    with pytest.raises(ExecutionNotFound):
        await client.discard(mint())


# Enqueueing through a client: what people write, in batches and streams, reaches the store.


async def test_enqueue_reads_what_people_write(client, place):
    answer = await client.enqueue(
        "resize",
        {"width": 64, "when": datetime(2026, 1, 2, tzinfo=UTC)},
        delay="5m",
        expires="1h",
        priority="critical",
        queue="images",
        unique_key="photo-1",
        retries=0,
        timeout=1.5,
    )
    execution = await client.execution(str(answer.id))

    assert answer.created
    assert execution.status is State.SCHEDULED
    assert execution.args == {"width": 64, "when": "2026-01-02T00:00:00Z"}
    assert execution.run_at == to_datetime(place.clock.now() + 300)
    assert execution.expires_at == execution.run_at + timedelta(hours=1)
    assert (execution.priority, execution.queue) == ("critical", "images")
    assert (execution.unique_key, execution.retries, execution.timeout) == ("photo-1", 0, 1.5)


@pytest.mark.parametrize(
    "at",
    [
        "2100-01-01T01:00:00+01:00",
        datetime(2100, 1, 1, tzinfo=UTC),
        datetime(2100, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        4_102_444_800,
    ],
)
async def test_a_time_may_be_text_a_datetime_or_a_number(client, at):
    answer = await client.enqueue("resize", at=at)

    assert (await client.execution(answer.id)).run_at == datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("args", "options", "field"),
    [
        ({"x": object()}, {}, "args"),
        ({1: 2}, {}, "args"),
        ([1, 2], {}, "args"),
        ("text", {}, "args"),
        ({}, {"delay": "soon"}, "delay"),
        ({}, {"delay": 1, "at": "2100-01-01T00:00:00Z"}, "at"),
        ({}, {"at": 1e300}, "at"),
        ({}, {"at": float("nan")}, "at"),
        ({}, {"at": object()}, "at"),
        ({}, {"at": True}, "at"),
        ({}, {"retries": 1.5}, "retries"),
        ({}, {"retries": True}, "retries"),
        ({}, {"priority": 7}, "priority"),
        ({}, {"queue": ""}, "queue"),
        ({}, {"unique_key": ""}, "unique key"),
        ({}, {"timeout": float("inf")}, "timeout"),
        ({}, {"timeout": 0}, "timeout"),
        ({}, {"expires": "0s"}, "expires"),
    ],
)
async def test_enqueue_refuses_nonsense_by_name(client, args, options, field):
    with pytest.raises(UsageError) as error:
        await client.enqueue("resize", args, **options)

    assert error.value.field == field
    assert (await client.count()).executions == {}


@pytest.mark.parametrize("at", ["2026-01-01", "2026-01-01T00:00:00", datetime(2026, 1, 1)])  # noqa: DTZ001
async def test_a_time_without_an_offset_is_refused(client, at):
    with pytest.raises(UsageError, match="offset" if isinstance(at, str) else "zone"):
        await client.enqueue("resize", at=at)


async def test_an_unknown_option_is_refused_by_name(client):
    with pytest.raises(UsageError, match=r"^enqueue\(\) has no 'dellay'; did you mean 'delay'\?$"):
        await client.enqueue("resize", dellay="1s")
    with pytest.raises(UsageError, match=r"^enqueue\(\) has no 'uniqe_key'; did you mean 'unique_"):
        await client.enqueue("resize", uniqe_key="k")
    with pytest.raises(UsageError, match=r"^enqueue_many\(\) has no 'unique_key'; it takes at, "):
        await client.enqueue_many("resize", [{}], unique_key="k")
    with pytest.raises(UsageError, match=r"^define\(\) has no 'retrys'; did you mean 'retries'\?$"):
        await client.define("resize", retrys=1)


async def test_a_unique_key_that_is_held_names_the_holder(client):
    first = await client.enqueue("resize", unique_key="photo-1")
    second = await client.enqueue("resize", unique_key="photo-1")

    assert (second.id, second.created) == (first.id, False)


async def test_enqueue_many_is_one_batch_in_the_order_given(client):
    done = await client.enqueue_many("resize", ({"n": n} for n in range(5)), priority="low")

    assert done.count == 5
    args = [(await client.execution(one.id)).args for one in done.executions]
    assert args == [{"n": n} for n in range(5)]
    assert (await client.count()).executions == {State.QUEUED: 5}


async def test_enqueue_many_of_nothing_is_nothing(client):
    assert (await client.enqueue_many("resize", [])).count == 0


async def test_one_bad_item_and_nothing_is_enqueued(client):
    with refuses(PayloadError, field="args[2]"):
        await client.enqueue_many("resize", [{}, {}, {"x": object()}, {}])

    assert (await client.count()).executions == {}


async def test_more_than_a_batch_is_streamed(client):
    count = ENQUEUE_BATCH_MAX + 1

    done = await client.enqueue_many("resize", ({"n": n} for n in range(count)))

    assert (done.count, done.executions) == (count, ())
    assert (
        sum(
            [
                len(page)
                async for page in sweep_pages(client.store, client.tenant, [ExecutionFilter()])
            ]
        )
        == count
    )


async def test_a_stream_that_breaks_off_leaves_nothing(client):
    def items():
        yield from ({} for _ in range(ENQUEUE_BATCH_MAX + 5))
        raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="ends here"):
        await client.enqueue_many("resize", items())

    assert (await client.count()).executions == {}


async def test_a_list_or_count_of_a_job_that_never_was_names_it_and_a_similar_one(client):
    await client.define("resize")

    for ask in (client.executions, client.count):
        with pytest.raises(JobNotFound, match=r"no job named 'resizes'; .*'resize'"):
            await ask(job="resizes", status="dead")
    none = await client.executions(job="resize"), await client.count(job="resize")
    await client.enqueue("resize")
    await client.delete_job("resize", force=True)

    assert (none[0].items, none[1].executions) == ((), {})
    assert len((await client.executions(job="resize")).items) == 1
    assert (await client.executions(job="resize", status="dead")).items == ()
