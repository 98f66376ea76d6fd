"""Dead letters: listed until a person revives or discards them."""

from daybell.core.execution import Outcome, Revival, State
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    look,
    retry,
    states,
    success,
)

DEAD_LETTERS = ExecutionFilter(dead_letters=True)


async def letters(store):
    return [one.id for one in (await store.catalog.list_executions(TENANT, DEAD_LETTERS)).items]


async def test_dead_executions_are_on_the_list_newest_first(store):
    ids = await dead(store, 3)
    await finished(store)
    await enqueued(store)

    assert await letters(store) == ids[::-1]
    assert await store.catalog.count_executions(TENANT, DEAD_LETTERS) == {State.DEAD: 3}


async def test_a_revived_one_can_be_claimed_again_with_a_clean_slate(store, clock):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=0.0, checkpoint="[1]"))
    second = await claim(store)
    await apply(store, second, death(second.one, crashes=2, error='"e"'))
    await clock.advance(100)

    assert await store.queue.revive(TENANT, [hands.one.id]) == [Revival.REVIVED]

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.attempt, seen.failures, seen.crashes) == (State.QUEUED, 3, 0, 0)
    assert seen.run_at == clock.now()
    assert (seen.finished_at, seen.outcome, seen.reason) == (None, None, None)
    assert (seen.worker, seen.started_at) == (None, None)
    assert await letters(store) == []
    again = (await claim(store)).one
    assert (again.id, again.attempt, again.failures, again.crashes) == (hands.one.id, 3, 0, 0)
    assert again.checkpoint == "[1]"


async def test_a_revived_one_is_the_same_execution(store):
    await defined(store, queue="images")
    options = {"queue": "images", "args": '{"n": 1}', "retries": 2, "timeout": 5.0}
    (id,) = await dead(store, parent=mint(), schedule=mint(), **options)
    before = await look(store, id)

    await store.queue.revive(TENANT, [id])

    after = await look(store, id)
    for field in ("args", "queue", "priority", "retries", "timeout", "parent", "schedule"):
        assert getattr(after, field) == getattr(before, field)
    assert (after.created_at, after.version) == (before.created_at, before.version)


async def test_a_revived_one_does_not_expire_any_more(store, clock):
    (id,) = await dead(store, expires_in=60.0)
    await clock.advance(120)

    await store.queue.revive(TENANT, [id])

    assert (await look(store, id)).expires_at is None
    assert (await claim(store)).one.expires_at is None


async def test_the_attempts_before_a_revival_stay_on_record(store):
    (id,) = await dead(store)
    first = (await store.catalog.get_execution(TENANT, id)).attempts
    await store.queue.revive(TENANT, [id])
    assert (await store.catalog.get_execution(TENANT, id)).attempts == first
    hands = await claim(store)

    await apply(store, hands, success(hands.one))

    attempts = (await store.catalog.get_execution(TENANT, id)).attempts
    assert [(a.attempt, a.outcome) for a in attempts] == [
        (1, Outcome.FAILED),
        (2, Outcome.SUCCEEDED),
    ]
    assert attempts[0] == first[0]


async def test_answers_come_in_the_order_given(store):
    (gone,) = await dead(store)
    (done,) = await finished(store)
    (queued,) = await enqueued(store)

    answers = await store.queue.revive(TENANT, [mint(), gone, done, queued])

    assert answers == [Revival.UNKNOWN, Revival.REVIVED, Revival.NOT_LISTED, Revival.NOT_LISTED]


async def test_reviving_nothing_is_answered_with_nothing(store):
    assert await store.queue.revive(TENANT, []) == []
    assert await store.queue.discard(TENANT, []) == []


async def test_reviving_twice_revives_once(store):
    (id,) = await dead(store)
    await store.queue.revive(TENANT, [id])

    assert await store.queue.revive(TENANT, [id]) == [Revival.NOT_LISTED]

    assert (await look(store, id)).attempt == 2


async def test_one_whose_unique_key_another_holds_stays_dead(store):
    (id,) = await dead(store, unique_key="k")
    (holder,) = await enqueued(store, unique_key="k")

    assert await store.queue.revive(TENANT, [id]) == [Revival.KEY_HELD]

    assert await states(store, [id, holder]) == [State.DEAD, State.QUEUED]
    assert await letters(store) == [id]


async def test_a_revived_one_takes_its_unique_key_again(store):
    (id,) = await dead(store, unique_key="k")

    await store.queue.revive(TENANT, [id])

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    assert (answer.id, answer.created) == (id, False)


async def test_of_two_with_the_same_key_the_first_is_revived(store):
    (first,) = await dead(store, unique_key="k")
    (second,) = await dead(store, unique_key="k")

    answers = await store.queue.revive(TENANT, [second, first])

    assert answers == [Revival.REVIVED, Revival.KEY_HELD]


async def test_a_discarded_one_is_off_the_list_and_still_dead(store):
    (id,) = await dead(store)

    assert await store.queue.discard(TENANT, [id]) == [True]

    assert await letters(store) == []
    seen = await look(store, id)
    assert (seen.state, seen.is_discarded) == (State.DEAD, True)
    assert (seen.reason, seen.outcome) == ("retries_used_up", Outcome.FAILED)
    everything = await store.catalog.list_executions(TENANT, ExecutionFilter())
    assert [one.id for one in everything.items] == [id]


async def test_discarding_says_which_were_on_the_list(store):
    gone, other = await dead(store, 2)
    (done,) = await finished(store)
    await store.queue.discard(TENANT, [other])

    assert await store.queue.discard(TENANT, [done, gone, mint(), other]) == [
        False,
        True,
        False,
        False,
    ]


async def test_what_was_discarded_is_not_revived(store):
    (id,) = await dead(store)
    await store.queue.discard(TENANT, [id])

    assert await store.queue.revive(TENANT, [id]) == [Revival.NOT_LISTED]

    assert await states(store, [id]) == [State.DEAD]


async def test_what_was_revived_is_not_discarded(store):
    (id,) = await dead(store)
    await store.queue.revive(TENANT, [id])

    assert await store.queue.discard(TENANT, [id]) == [False]

    assert await states(store, [id]) == [State.QUEUED]


async def test_a_dead_letter_of_a_deleted_job_can_be_revived(store):
    (id,) = await dead(store)
    await store.catalog.delete_job(TENANT, "resize")

    assert await store.queue.revive(TENANT, [id]) == [Revival.REVIVED]

    assert (await claim(store)).one.id == id


async def test_one_that_dies_again_is_on_the_list_again(store):
    (id,) = await dead(store)
    await store.queue.revive(TENANT, [id])
    hands = await claim(store)

    await apply(store, hands, death(hands.one))

    assert await letters(store) == [id]
    attempts = (await store.catalog.get_execution(TENANT, id)).attempts
    assert [a.attempt for a in attempts] == [1, 2]
