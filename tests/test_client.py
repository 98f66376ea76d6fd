"""The client: what people write reaches the store, and lost answers lose nothing."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from daybell.client import Client
from daybell.client.submitting import read_new
from daybell.core.execution import State
from daybell.core.limits import ENQUEUE_BATCH_MAX
from daybell.core.priority import Priority
from daybell.core.retry import Retry
from daybell.errors import (
    Conflict,
    DuplicateKey,
    ExecutionNotFound,
    JobNotFound,
    NotFound,
    PayloadError,
    SchemaError,
    TenantNotFound,
    Unavailable,
    UsageError,
    VersionConflict,
)
from daybell.store.ids import mint
from daybell.store.outcomes import Cancellation
from tests.builders import (
    an_entry,
    apply,
    claim,
    claimed,
    dead,
    finished,
    look,
    registered,
    steps,
    success,
)
from tests.stores import open_place


class Faulty:
    """A store whose next call of one operation fails, before or after it has been done."""

    def __init__(self, store, operation, *, after, times=1):
        self._store, self._operation = store, operation
        self._is_after, self._times = after, times
        self.calls = []

    def __getattr__(self, name):
        return self._fail if name == self._operation else getattr(self._store, name)

    async def _fail(self, *args, **options):
        self.calls.append(options)
        if len(self.calls) > self._times:
            return await getattr(self._store, self._operation)(*args, **options)
        if self._is_after:
            await getattr(self._store, self._operation)(*args, **options)
        raise Unavailable("the connection broke")


def over(store: Any) -> Client:
    """A client of something that only behaves like a store."""
    return Client(store)


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


async def test_a_client_made_from_a_url_opens_and_closes_its_store(tmp_path):
    url = f"sqlite:///{tmp_path}/daybell.db"

    async with Client(url, migrate=True) as client:
        await client.define("resize")
        answer = await client.enqueue("resize", {"width": 64})
    async with Client(url) as client:
        found = await client.execution(answer.id)

    assert found.execution.args == '{"width":64}'
    with pytest.raises(UsageError, match="not open"):
        await client.jobs()


async def test_a_store_without_a_schema_is_refused_and_let_go(tmp_path):
    client = Client(f"sqlite:///{tmp_path}/daybell.db")

    with pytest.raises(SchemaError, match="daybell migrate"):
        async with client:
            pass
    assert await client.pending_migrations() == steps("sqlite")
    assert await client.migrate() == steps("sqlite")
    assert await client.migrate() == ()
    async with client:
        assert (await client.health()).schema == len(steps("sqlite"))


async def test_a_store_that_was_passed_in_stays_open(store):
    async with Client(store) as client:
        await client.define("resize")

    assert (await store.get_job("default", "resize")).version == 1


async def test_define_reads_what_people_write(client):
    job = await client.define(
        "thumbnail",
        kind="http",
        queue="images",
        priority="high",
        retries={"retries": 5, "base": "2s"},
        timeout="30s",
        expires=timedelta(hours=1),
        max_crashes=1,
        on_lost="dead",
        store_result=False,
        description="makes small pictures",
        settings={"url": "https://example.org"},
        author="ada",
    )

    definition = job.definition
    assert (job.version, job.author) == (1, "ada")
    assert (definition.queue, definition.priority) == ("images", Priority.HIGH)
    assert definition.retry == Retry.exponential("2s", retries=5)
    assert (definition.timeout, definition.expires) == (30.0, 3600.0)
    assert (definition.max_crashes, definition.on_lost) == (1, "dead")
    assert definition.settings == '{"url":"https://example.org"}'


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"kind": "magic"}, "kind"),
        ({"queue": "a/b"}, "queue"),
        ({"priority": "urgent"}, "priority"),
        ({"retries": -1}, "retries"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"expires": -1}, "expires"),
        ({"expires": "0s"}, "expires"),
        ({"max_crashes": 0}, "max_crashes"),
        ({"on_lost": "cry"}, "on_lost"),
        ({"description": "x" * 2001}, "description"),
        ({"settings": {"x": object()}}, "settings"),
    ],
)
async def test_define_refuses_nonsense_by_name(client, options, field):
    with pytest.raises(UsageError) as error:
        await client.define("thumbnail", **options)

    assert error.value.field == field
    assert [job.name for job in (await client.jobs()).items] == ["resize"]


async def test_a_changed_definition_is_a_new_version(client):
    changed = await client.define("resize", timeout="5s")

    assert changed.version == 2
    assert [job.version for job in await client.versions("resize")] == [2, 1]
    assert (await client.job("resize")).definition.timeout == 5.0
    assert (await client.job("resize", version=1)).definition.timeout is None
    with pytest.raises(VersionConflict):
        await client.define("resize", timeout="6s", expect=1)


async def test_jobs_are_listed_in_pages(client):
    await client.define("report")

    page = await client.jobs(limit=1)
    rest = await client.jobs(limit=1, cursor=page.next_cursor)

    assert [job.name for job in (*page.items, *rest.items)] == ["report", "resize"]
    assert [job.name for job in (await client.jobs(prefix="res")).items] == ["resize"]


async def test_a_deleted_job_takes_its_unfinished_executions_along(client, store):
    running = (await claimed(store)).one.id
    queued = (await client.enqueue("resize")).id

    count = await client.delete_job("resize")

    assert count == 2
    assert (await look(store, queued)).state is State.CANCELLED
    assert (await look(store, running)).cancel_requested_at is not None
    with pytest.raises(JobNotFound):
        await client.enqueue("resize")


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
    execution = (await client.execution(str(answer.id))).execution

    assert answer.created
    assert execution.state is State.SCHEDULED
    assert execution.args == '{"width":64,"when":"2026-01-02T00:00:00Z"}'
    assert execution.run_at == place.clock.now() + 300
    assert execution.expires_at == execution.run_at + 3600
    assert (execution.priority, execution.queue) == (Priority.CRITICAL, "images")
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

    assert (await client.execution(answer.id)).execution.run_at == 4_102_444_800.0


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
    assert await client.count() == {}


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


async def test_a_unique_key_that_is_held_names_the_holder(client):
    first = await client.enqueue("resize", unique_key="photo-1")
    second = await client.enqueue("resize", unique_key="photo-1")

    assert (second.id, second.created) == (first.id, False)


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_an_enqueue_whose_answer_was_lost_happens_exactly_once(client, store, after):
    faulty = Faulty(store, "enqueue", after=after)

    answer = await over(faulty).enqueue("resize", unique_key="photo-1")

    assert answer.created
    assert [call.get("repeat", False) for call in faulty.calls] == [False, True]
    assert [one.id for one in (await client.executions()).items] == [answer.id]


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_what_tells_of_it_is_on_record_exactly_once_as_well(client, store, after):
    faulty, new, entry = Faulty(store, "enqueue", after=after), read_new("resize"), an_entry()

    await over(faulty).submit(new, entry=entry)

    assert [one.id for one in (await client.executions()).items] == [new.id]
    assert [one.id for one in (await client.audit()).items] == [entry.id]


async def test_an_enqueue_that_ran_and_finished_meanwhile_is_not_made_again(client, store):
    class Quick(Faulty):
        async def _fail(self, *args, **options):
            try:
                return await super()._fail(*args, **options)
            except Unavailable:
                hands = await claim(store)
                await apply(store, hands, *(success(one) for one in hands.executions))
                raise

    answer = await over(Quick(store, "enqueue", after=True)).enqueue("resize")

    assert await client.count() == {State.SUCCEEDED: 1}
    assert (await look(store, answer.id)).state is State.SUCCEEDED


async def test_a_store_that_stays_away_is_not_asked_for_ever(store, client):
    faulty = Faulty(store, "enqueue", after=False, times=99)

    with pytest.raises(Unavailable):
        await over(faulty).enqueue("resize")
    assert len(faulty.calls) == 2


async def test_enqueue_many_is_one_batch_in_the_order_given(client):
    done = await client.enqueue_many("resize", ({"n": n} for n in range(5)), priority="low")

    assert done.count == 5
    args = [(await client.execution(one.id)).execution.args for one in done.executions]
    assert args == [f'{{"n":{n}}}' for n in range(5)]
    assert await client.count() == {State.QUEUED: 5}


async def test_enqueue_many_of_nothing_is_nothing(client):
    assert (await client.enqueue_many("resize", [])).count == 0


async def test_one_bad_item_and_nothing_is_enqueued(client):
    with pytest.raises(PayloadError, match=r"args\[2\]\.x"):
        await client.enqueue_many("resize", [{}, {}, {"x": object()}, {}])

    assert await client.count() == {}


async def test_more_than_a_batch_is_streamed(client):
    count = ENQUEUE_BATCH_MAX + 1

    done = await client.enqueue_many("resize", ({"n": n} for n in range(count)))

    assert (done.count, done.executions) == (count, ())
    assert await client.count() == {State.QUEUED: count}


async def test_a_stream_that_breaks_off_leaves_nothing(client):
    def items():
        yield from ({} for _ in range(ENQUEUE_BATCH_MAX + 5))
        raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="ends here"):
        await client.enqueue_many("resize", items())

    assert await client.count() == {}


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_a_stream_whose_answer_was_lost_is_looked_for(client, store, after):
    faulty = over(Faulty(store, "load", after=after))
    count = ENQUEUE_BATCH_MAX + 1
    items = [{"n": n} for n in range(count)]

    if after:
        assert (await faulty.enqueue_many("resize", items)).count == count
    else:
        with pytest.raises(Unavailable):
            await faulty.enqueue_many("resize", items)

    assert await client.count() == ({State.QUEUED: count} if after else {})


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
        ({"worker": "ada"}, "worker"),
        ({"since": "yesterday"}, None),
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


async def test_queues_are_paused_and_resumed(client, store):
    await client.enqueue("resize")

    await client.pause_queue("default")
    (queue,) = await client.queues()
    assert (queue.is_paused, queue.queued) == (True, 1)
    assert (await claim(store)).executions == []

    await client.resume_queue("default")
    assert len((await claim(store)).executions) == 1


async def test_purging_a_queue_cancels_what_waits_and_spares_the_rest(client, store):
    running = (await claimed(store)).one.id
    await client.enqueue_many("resize", [{}] * 1_500)
    await client.enqueue("resize", delay="1h")
    other = (await client.enqueue("resize", queue="images")).id

    assert await client.purge_queue("default") == 1_501
    assert (await look(store, running)).cancel_requested_at is None
    assert (await look(store, other)).state is State.QUEUED


async def test_workers_are_drained(client, store):
    id = await registered(store)

    await client.drain_worker(id)

    (worker,) = await client.workers()
    assert (worker.id, worker.state) == (id, "draining")
    with pytest.raises(NotFound, match="no live worker"):
        await client.drain_worker(mint())


async def test_tenants_see_their_own(client, store):
    await client.ensure_tenant("acme")
    await client.ensure_tenant("acme")
    acme = Client(store, tenant="acme")
    id = (await client.enqueue("resize")).id

    assert [one.name for one in await client.tenants()] == ["acme", "default"]
    assert (await acme.jobs()).items == ()
    with pytest.raises(ExecutionNotFound):
        await acme.execution(id)
    with pytest.raises(TenantNotFound):
        await Client(store, tenant="nobody").jobs()
    with pytest.raises(UsageError):
        Client(store, tenant="a/b")
    with pytest.raises(UsageError):
        await client.add_tenant("")


async def test_the_store_tells_its_health(client):
    assert (await client.health()).checks
