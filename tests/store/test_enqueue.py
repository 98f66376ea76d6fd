"""Ways in: enqueue and load."""

import pytest

from daybell.core.execution import ExecutionCopies, Priority, State
from daybell.core.ids import mint, mint_many
from daybell.core.limits import ARGS_BYTES_MAX, ENQUEUE_BATCH_MAX
from daybell.core.views import ExecutionFilter, read_pages
from daybell.errors import DuplicateKey, JobNotFound, UsageError
from tests.builders import (
    TENANT,
    a_job,
    an_execution,
    apply,
    claim,
    count,
    dead,
    defined,
    enqueued,
    finished,
    look,
    retry,
    success,
)

EVERYTHING = ExecutionFilter()


async def test_an_execution_takes_from_its_job_what_it_does_not_say_itself(store, clock):
    await defined(store, queue="images", priority=Priority.LOW, expires=90.0)
    new = an_execution(args='{"width": 100}')

    (answer,) = await store.queue.enqueue(TENANT, [new])

    assert (answer.id, answer.created) == (new.id, True)
    stored = await look(store, new.id)
    assert (stored.job, stored.version, stored.tenant) == ("resize", 1, TENANT)
    assert (stored.queue, stored.priority) == ("images", Priority.LOW)
    assert stored.args == '{"width": 100}'
    assert stored.state is State.QUEUED
    assert (stored.attempt, stored.failures, stored.crashes) == (1, 0, 0)
    assert stored.created_at == stored.run_at == clock.now()
    assert stored.expires_at == clock.now() + 90


async def test_what_an_execution_says_itself_wins(store, clock):
    await defined(store, queue="images", priority=Priority.LOW, expires=90.0)
    new = an_execution(
        queue="fast",
        priority=Priority.CRITICAL,
        delay=10.0,
        expires_in=5.0,
        unique_key="k-1",
        retries=9,
        timeout=2.5,
        scheduled_for=clock.now() - 7,
        schedule=mint(),
        parent=mint(),
    )

    await store.queue.enqueue(TENANT, [new])

    stored = await look(store, new.id)
    assert (stored.queue, stored.priority) == ("fast", Priority.CRITICAL)
    assert (stored.run_at, stored.expires_at) == (clock.now() + 10, clock.now() + 15)
    assert (stored.unique_key, stored.retries, stored.timeout) == ("k-1", 9, 2.5)
    assert stored.scheduled_for == new.scheduled_for
    assert (stored.schedule, stored.parent) == (new.schedule, new.parent)


async def test_an_execution_keeps_the_version_that_it_was_created_under(store):
    (old,) = await enqueued(store)
    await defined(store, timeout=9.0)

    (new,) = await enqueued(store)

    assert (await look(store, old)).version == 1
    assert (await look(store, new)).version == 2
    assert {one.id: one.version for one in (await claim(store)).executions} == {old: 1, new: 2}


async def test_executions_are_answered_in_the_order_given(store):
    await defined(store, "a", "b")
    batch = [an_execution(job) for job in "abab"]
    shuffled = [batch[2], batch[0], batch[3], batch[1]]

    answers = await store.queue.enqueue(TENANT, shuffled)

    assert [answer.id for answer in answers] == [new.id for new in shuffled]


async def test_enqueueing_nothing_is_answered_with_nothing(store):
    assert await store.queue.enqueue(TENANT, []) == []


async def test_a_delay_makes_it_scheduled_and_due_by_the_stores_time(store, clock):
    (id,) = await enqueued(store, delay=10.0)

    assert (await look(store, id)).state is State.SCHEDULED
    await clock.advance(9)
    assert (await claim(store)).executions == []
    await clock.advance(1)
    assert (await look(store, id)).state is State.QUEUED
    assert (await claim(store)).one.id == id


async def test_a_moment_in_the_future_makes_it_scheduled(store, clock):
    at = clock.now() + 3600

    (id,) = await enqueued(store, at=at)

    stored = await look(store, id)
    assert (stored.state, stored.run_at) == (State.SCHEDULED, at)


@pytest.mark.parametrize("options", [{"delay": 0.0}, {"at": 1.0}], ids=["delay", "at"])
async def test_a_time_that_has_come_makes_it_queued_now(store, clock, options):
    (id,) = await enqueued(store, **options)

    stored = await look(store, id)
    assert (stored.state, stored.run_at) == (State.QUEUED, clock.now())


async def test_an_id_that_exists_is_not_created_again(store):
    (id,) = await enqueued(store, args='{"first": true}')

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(id=id, args='{"second": true}')])

    assert (answer.id, answer.created) == (id, True)
    assert await count(store) == 1
    assert (await look(store, id)).args == '{"first": true}'


async def test_an_id_twice_in_a_batch_is_created_once(store):
    await defined(store)
    new = an_execution()

    answers = await store.queue.enqueue(TENANT, [new, an_execution(), new])

    assert [answer.created for answer in answers] == [True, True, True]
    assert await count(store) == 2


@pytest.mark.parametrize("make", [finished, dead], ids=["succeeded", "dead"])
async def test_a_repeated_enqueue_recognises_what_has_finished_meanwhile(store, make):
    (id,) = await make(store)
    fresh = an_execution()

    answers = await store.queue.enqueue(TENANT, [an_execution(id=id), fresh], repeat=True)

    assert [(answer.id, answer.created) for answer in answers] == [(id, True), (fresh.id, True)]
    assert await count(store) == 2
    assert (await claim(store)).one.id == fresh.id


async def test_a_repeated_enqueue_recognises_its_own_unique_key(store):
    await defined(store)
    new = an_execution(unique_key="k")
    await store.queue.enqueue(TENANT, [new])

    (answer,) = await store.queue.enqueue(TENANT, [new], repeat=True)

    assert (answer.id, answer.created) == (new.id, True)


async def test_an_unknown_job_stops_the_whole_batch(store):
    await defined(store)

    with pytest.raises(JobNotFound, match="nothing"):
        await store.queue.enqueue(TENANT, [an_execution(), an_execution("nothing")])

    assert await count(store) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"args": '"\ud800"'},
        {"args": '"\0"'},
        {"args": '"' + "x" * ARGS_BYTES_MAX + '"'},
        {"args": '"' + "ä" * (ARGS_BYTES_MAX // 2) + '"'},
        {"queue": "a,b"},
        {"unique_key": ""},
        {"unique_key": "x" * 501},
        {"unique_key": "\ud800"},
        {"delay": -1.0},
        {"delay": float("nan")},
        {"at": float("inf")},
        {"expires_in": -1.0},
        {"expires_in": 0.0},
        {"timeout": 0.0},
        {"retries": -1},
        {"timeout": float("inf")},
    ],
    ids=lambda options: " ".join(f"{k}={v!r:.12}" for k, v in options.items()),
)
async def test_a_row_that_cannot_be_kept_is_refused_by_its_position(store, options):
    await defined(store)

    with pytest.raises(UsageError, match=r"executions\[1\]"):
        await store.queue.enqueue(TENANT, [an_execution(), an_execution(**options), an_execution()])

    assert await count(store) == 0


@pytest.mark.parametrize("args", ["\ud800", "\0", '"' + "x" * ARGS_BYTES_MAX + '"'])
async def test_arguments_among_copies_are_refused_by_their_position(store, args):
    await defined(store)
    copies = ExecutionCopies(an_execution(), mint_many(3), ["{}", args, "{}"])

    with pytest.raises(UsageError, match=r"executions\[1\]"):
        await store.queue.enqueue(TENANT, copies)

    assert await count(store) == 0


@pytest.mark.parametrize(
    "options", [{}, {"retries": 3}, {"delay": 60.0}, {"priority": Priority.LOW}]
)
async def test_copies_are_enqueued_once_with_arguments_of_their_own(store, options):
    await defined(store)
    args = [f'{{"n":"{character}"}}' for character in "aä"]
    copies = ExecutionCopies(an_execution(**options), mint_many(2), args)

    answers = await store.queue.enqueue(TENANT, copies)
    again = await store.queue.enqueue(TENANT, copies, repeat=True)

    assert [answer.id for answer in answers] == [answer.id for answer in again] == copies.ids
    kept = [await look(store, id) for id in copies.ids]
    assert [one.args for one in kept] == args
    assert {one.priority for one in kept} == {options.get("priority", Priority.NORMAL)}
    assert await count(store) == 2


async def test_a_batch_has_a_reasonable_size(store):
    await defined(store)
    new = an_execution()

    with pytest.raises(UsageError, match="limit"):
        await store.queue.enqueue(TENANT, [new] * (ENQUEUE_BATCH_MAX + 1))


async def test_arguments_come_back_character_by_character(store):
    args = '{"text": "äöü 🔔 \\u0000 \\ud83d\\ude00 \\\\ \\" \' %s $1 ; --", "n": 1.0}'

    (id,) = await enqueued(store, args=args)

    assert (await look(store, id)).args == args
    assert (await claim(store)).one.args == args


async def test_a_held_unique_key_is_answered_with_its_holder(store):
    (holder,) = await enqueued(store, unique_key="k")

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert (answer.id, answer.created) == (holder, False)
    assert await count(store) == 1


async def test_a_unique_key_twice_in_a_batch_is_held_by_the_first(store):
    await defined(store)
    batch = [an_execution(unique_key=key) for key in ("k", "other", "k")]

    answers = await store.queue.enqueue(TENANT, batch)

    assert [answer.id for answer in answers] == [batch[0].id, batch[1].id, batch[0].id]
    assert [answer.created for answer in answers] == [True, True, False]


async def test_a_unique_key_belongs_to_one_job(store):
    await defined(store, "a", "b")

    answers = await store.queue.enqueue(TENANT, [an_execution(job, unique_key="k") for job in "ab"])

    assert all(answer.created for answer in answers)


async def test_a_unique_key_is_held_across_versions_of_the_job(store):
    (holder,) = await enqueued(store, unique_key="k")
    await defined(store, timeout=9.0)

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert (answer.id, answer.created) == (holder, False)


async def test_a_unique_key_is_held_from_the_future_through_running_and_retries(store, clock):
    (holder,) = await enqueued(store, unique_key="k", delay=10.0)
    again = an_execution(unique_key="k")
    answers = await store.queue.enqueue(TENANT, [again])
    await clock.advance(10)
    hands = await claim(store)
    answers += await store.queue.enqueue(TENANT, [again])
    await apply(store, hands, retry(hands.one))

    answers += await store.queue.enqueue(TENANT, [again])

    assert {(answer.id, answer.created) for answer in answers} == {(holder, False)}


async def test_an_end_frees_the_unique_key(store):
    await enqueued(store, unique_key="k")
    hands = await claim(store)

    await apply(store, hands, success(hands.one))

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    assert answer.created


async def test_unique_keys_may_be_any_text(store):
    keys = ["ä🔔", " ", "k" * 500, "a,b=c/d", "'"]
    await defined(store)

    answers = await store.queue.enqueue(TENANT, [an_execution(unique_key=key) for key in keys])

    assert all(answer.created for answer in answers)
    assert [(await look(store, answer.id)).unique_key for answer in answers] == keys


async def test_a_load_creates_everything_an_iterator_gives(store, clock):
    await defined(store, "a")
    await defined(store, "b", queue="images", priority=Priority.HIGH, expires=30.0)
    rows = [an_execution("a"), an_execution("b", delay=5.0), an_execution("a", retries=2)]

    assert await store.queue.load(TENANT, iter(rows)) == 3

    stored = [await look(store, row.id) for row in rows]
    assert [one.state for one in stored] == [State.QUEUED, State.SCHEDULED, State.QUEUED]
    assert [one.queue for one in stored] == ["default", "images", "default"]
    assert [one.priority for one in stored] == [Priority.NORMAL, Priority.HIGH, Priority.NORMAL]
    assert (stored[1].run_at, stored[1].expires_at) == (clock.now() + 5, clock.now() + 35)
    assert stored[2].retries == 2


async def test_what_was_loaded_is_claimed_like_anything_else(store):
    await defined(store)
    rows = [an_execution(args=f'{{"n": {n}}}') for n in range(20)]
    await store.queue.load(TENANT, rows)

    hands = await claim(store, 50)

    assert [(one.id, one.args) for one in hands.executions] == [(row.id, row.args) for row in rows]


async def test_a_load_may_be_longer_than_a_batch(store):
    await defined(store)

    loaded = await store.queue.load(
        TENANT, (an_execution() for _ in range(ENQUEUE_BATCH_MAX + 500))
    )

    assert loaded == ENQUEUE_BATCH_MAX + 500
    found = 0
    async for page in read_pages(
        lambda cursor: store.catalog.list_executions(TENANT, EVERYTHING, limit=1000, cursor=cursor)
    ):
        found += len(page)
    assert found == loaded


async def test_loading_nothing_is_fine(store):
    assert await store.queue.load(TENANT, []) == 0


async def test_a_load_that_was_made_before_is_refused_as_a_whole(store):
    (there,) = await enqueued(store)

    with pytest.raises(DuplicateKey):
        await store.queue.load(TENANT, [an_execution(), an_execution(id=there)])

    assert await count(store) == 1


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (an_execution(unique_key="k"), UsageError),
        (an_execution(gate="g"), UsageError),
        (an_execution(args="\ud800"), UsageError),
        (an_execution("nothing"), JobNotFound),
    ],
    ids=["unique key", "gate", "surrogate", "job"],
)
async def test_a_load_is_all_or_nothing(store, bad, error):
    await defined(store)

    with pytest.raises(error):
        await store.queue.load(TENANT, [an_execution(), bad])

    assert await count(store) == 0


async def test_a_load_whose_iterator_fails_leaves_nothing(store):
    await defined(store)

    def rows():
        yield an_execution()
        raise RuntimeError("the file ended early")

    with pytest.raises(RuntimeError, match="the file ended early"):
        await store.queue.load(TENANT, rows())

    assert await count(store) == 0
    assert await store.queue.load(TENANT, [an_execution()]) == 1


async def test_a_job_of_another_kind_can_be_enqueued_too(store):
    await store.catalog.define_jobs(TENANT, [a_job("call", kind="http")])

    (id,) = await enqueued(store, job="call")

    assert (await claim(store)).executions == []
    assert (await claim(store, kinds=["http"])).one.id == id
