"""Requests of a key that collapse into one execution: debounce, throttle, singleton."""

import asyncio
from typing import Any

import pytest

from daybell.core.collapse import Debounce, RequestThrottle, Singleton
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.errors import ExecutionInTheWay, UsageError
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claim,
    count,
    death,
    defined,
    look,
    retry,
    success,
)

WAIT = 5.0


async def ask(store, n=0, *, account="a", id=None, repeat=False, **options):
    """Enqueue a request; return the answer."""
    args = f'{{"account": "{account}", "n": {n}}}'
    new = an_execution(args=args, id=id or mint(), **options)
    (answer,) = await store.queue.enqueue(TENANT, [new], repeat=repeat)
    return answer


async def debounced(store, **options):
    rule = Debounce(wait=WAIT, key=options.pop("key", "account"))
    await defined(store, debounce=rule, **options)


async def test_debounced_requests_are_one_execution_with_the_last_arguments(store, clock):
    await debounced(store)
    first = await ask(store, 1)
    await clock.advance(3)

    last = await ask(store, 2)

    assert (last.id, last.created) == (first.id, False)
    assert (await look(store, first.id)).state is State.SCHEDULED
    await clock.advance(4)
    assert (await claim(store)).executions == []
    await clock.advance(1)
    claimed = (await claim(store)).one
    assert (claimed.id, claimed.args) == (first.id, '{"account": "a", "n": 2}')
    assert await count(store) == 1


async def test_a_request_after_the_claim_is_an_execution_of_its_own(store, clock):
    await debounced(store)
    first = await ask(store, 1)
    await clock.advance(WAIT)
    hands = await claim(store)

    second = await ask(store, 2)

    assert second.created and second.id != first.id
    assert (await look(store, first.id)).args == hands.one.args
    await clock.advance(WAIT)
    assert (await claim(store)).one.args == '{"account": "a", "n": 2}'


async def test_a_request_while_the_execution_waits_for_its_retry_is_one_of_its_own(store, clock):
    await debounced(store)
    first = await ask(store, 1)
    await clock.advance(WAIT)
    hands = await claim(store)
    await apply(store, hands, retry(hands.one, delay=60.0))

    assert (await ask(store, 2)).created
    assert (await look(store, first.id)).args == '{"account": "a", "n": 1}'


async def test_max_wait_bounds_the_time_from_the_first_request(store, clock):
    await debounced(store, max_wait=8.0)
    first = await ask(store)
    due = (await look(store, first.id)).created_at + 8.0
    for n in range(3):
        await clock.advance(3)
        assert not (await ask(store, n)).created

    assert (await look(store, first.id)).run_at == max(due, clock.now())
    assert (await claim(store)).one.args == '{"account": "a", "n": 2}'


async def test_keys_are_debounced_apart(store):
    await debounced(store)

    assert (await ask(store, account="a")).created
    assert (await ask(store, account="b")).created
    assert not (await ask(store, account="a")).created


async def test_without_a_key_the_unique_key_or_the_job_counts(store):
    await debounced(store, key=None)

    first = await ask(store)
    assert (await ask(store)).id == first.id
    other = await ask(store, unique_key="k")
    assert other.created and (await ask(store, unique_key="k")).id == other.id


async def test_debounced_requests_of_one_batch_are_one_execution(store, clock):
    await debounced(store)
    batch = [an_execution(args=f'{{"account": "{a}", "n": {n}}}') for n, a in enumerate("abab")]

    answers = await store.queue.enqueue(TENANT, batch)

    assert [one.created for one in answers] == [True, True, False, False]
    assert [one.id for one in answers] == [batch[0].id, batch[1].id] * 2
    await clock.advance(WAIT)
    claimed = {one.id: one.args for one in (await claim(store)).executions}
    assert claimed == {batch[0].id: batch[2].args, batch[1].id: batch[3].args}


async def test_the_time_and_the_expiry_of_a_debounced_execution_move_together(store, clock):
    await debounced(store, expires=60.0)
    first = await ask(store)
    await clock.advance(2)

    await ask(store, 1)

    stored = await look(store, first.id)
    assert stored.run_at == clock.now() + WAIT
    assert stored.expires_at == stored.run_at + 60


async def test_a_repeated_debounced_request_changes_nothing_after_it(store):
    await debounced(store)
    new = mint()
    first = await ask(store, 0)
    await ask(store, 1, id=new)

    again = await ask(store, 1, id=new, repeat=True)

    assert (again.id, again.created) == (first.id, False)
    assert (await look(store, first.id)).args == '{"account": "a", "n": 1}'


async def test_a_repeat_of_an_older_request_does_not_bring_its_arguments_back(store):
    await debounced(store)
    first = await ask(store, 0)
    old = mint()
    await ask(store, 1, id=old)
    await ask(store, 2)

    again = await ask(store, 1, id=old, repeat=True)

    assert (again.id, again.created) == (first.id, False)
    assert (await look(store, first.id)).args == '{"account": "a", "n": 2}'


async def test_a_request_with_an_older_id_that_never_arrived_counts_when_it_is_repeated(store):
    await debounced(store)
    lost = mint()  # its clock may be behind that of others
    first = await ask(store, 0)

    again = await ask(store, 1, id=lost, repeat=True)

    assert (again.id, again.created) == (first.id, False)
    assert (await look(store, first.id)).args == '{"account": "a", "n": 1}'


@pytest.mark.parametrize("repeat", [True, False], ids=["repeat", "late first"])
async def test_a_repeat_after_the_claim_creates_no_execution(store, clock, repeat):
    await debounced(store)
    first = await ask(store, 0)
    old = mint()
    await ask(store, 1, id=old)
    await clock.advance(WAIT)
    await claim(store)

    again = await ask(store, 1, id=old, repeat=repeat)

    assert (again.id, again.created) == (first.id, False)
    assert await count(store) == 1


async def test_a_repeat_of_the_request_that_created_is_answered_as_created(store):
    await debounced(store)
    first = await ask(store, 0)
    await ask(store, 1)

    again = await ask(store, 0, id=first.id, repeat=True)

    assert (again.id, again.created) == (first.id, True)
    assert (await look(store, first.id)).args == '{"account": "a", "n": 1}'


async def test_a_debounced_execution_that_is_cancelled_takes_no_more_requests(store):
    await debounced(store)
    first = await ask(store)
    await store.queue.cancel(TENANT, [first.id])

    assert (await ask(store)).created


async def test_a_debounced_job_with_an_overlap_rule_waits_at_its_gate(store, clock):
    await debounced(store, overlap="queue_all")
    first = await ask(store, 0)
    await clock.advance(1)
    assert (await ask(store, 1)).id == first.id

    await clock.advance(WAIT)
    await store.upkeep()
    assert (await claim(store)).one.args == '{"account": "a", "n": 1}'


async def test_requests_of_many_callers_at_once_are_one_execution(crowd, clock):
    store = crowd[0]
    await debounced(store)

    answers = await asyncio.gather(*(ask(one, n) for n in range(10) for one in crowd))

    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert await count(store) == 1
    await clock.advance(WAIT)
    assert len((await claim(store)).executions) == 1


async def throttled(store, limit=1, **options):
    rule = RequestThrottle(limit=limit, period=600.0, key="account")
    await defined(store, throttle=rule, **options)


async def test_a_throttled_request_is_answered_with_the_latest_execution(store, clock):
    await throttled(store)
    first = await ask(store)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await clock.advance(599)

    held = await ask(store)

    assert (held.id, held.created) == (first.id, False)
    assert (await ask(store, account="b")).created
    await clock.advance(1)
    assert (await ask(store)).created


async def test_a_throttle_counts_in_every_window(store, clock):
    await throttled(store, limit=2)
    assert (await ask(store)).created
    await clock.advance(400)
    assert (await ask(store)).created
    assert not (await ask(store)).created

    await clock.advance(200)

    assert (await ask(store)).created
    assert not (await ask(store)).created
    await clock.advance(400)
    assert (await ask(store)).created


async def test_the_memory_of_a_key_outlasts_upkeep_for_its_period(store, clock):
    await throttled(store)
    first = await ask(store)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await clock.advance(500)
    await store.upkeep()

    assert (await ask(store)).id == first.id

    await clock.advance(10 * 86400)
    await store.upkeep()
    assert (await ask(store)).created


async def singleton(store, scope: Any = "unfinished", conflict="return", **options):
    rule = Singleton(scope=scope, key="account")
    await defined(store, singleton=rule, on_conflict=conflict, **options)


async def test_a_singleton_answers_with_the_execution_in_the_way(store):
    await singleton(store)
    first = await ask(store, 1)

    assert (await ask(store, 2)).id == first.id
    hands = await claim(store)
    assert (await ask(store, 3)).id == first.id
    assert hands.one.args == '{"account": "a", "n": 1}'
    await apply(store, hands, success(hands.one))
    assert (await ask(store, 4)).created


async def test_a_singleton_can_refuse_the_new_one(store):
    await singleton(store, conflict="error")
    first = await ask(store)

    with pytest.raises(ExecutionInTheWay, match="singleton") as refused:
        await ask(store)

    assert refused.value.execution == first.id
    assert (await ask(store, force=True)).created


async def test_a_singleton_can_cancel_the_new_one(store):
    await singleton(store, conflict="cancel")
    await ask(store)

    second = await ask(store)

    assert second.created
    stored = await look(store, second.id)
    assert (stored.state, stored.reason) == (State.CANCELLED, "singleton")
    assert len((await claim(store)).executions) == 1


async def test_a_singleton_can_replace_the_one_that_waits(store):
    await singleton(store, conflict="replace")
    first = await ask(store, 1)

    second = await ask(store, 2)

    assert second.created
    assert (await look(store, first.id)).state is State.CANCELLED
    assert (await claim(store)).one.id == second.id


async def test_a_singleton_can_replace_the_one_that_runs(store):
    await singleton(store, conflict="replace")
    first = await ask(store, 1)
    await claim(store)

    second = await ask(store, 2)

    assert second.created
    assert (await look(store, first.id)).cancel_requested_at is not None
    third = await ask(store, 3)
    assert third.created
    assert (await look(store, second.id)).state is State.CANCELLED


async def test_a_running_singleton_lets_one_more_wait(store):
    await singleton(store, scope="running", conflict="error")
    first = await ask(store, 1)
    assert (await ask(store, 2)).id == first.id
    await claim(store)

    with pytest.raises(ExecutionInTheWay):
        await ask(store, 3)


async def test_a_batch_with_a_refused_request_creates_nothing(store):
    await singleton(store, conflict="error")
    batch = [an_execution(args=f'{{"account": "{account}"}}') for account in "aba"]

    with pytest.raises(ExecutionInTheWay):
        await store.queue.enqueue(TENANT, batch)

    assert await count(store) == 0


async def test_ticks_of_schedules_do_not_collapse(store):
    await singleton(store)
    await ask(store)

    tick = await ask(store, schedule=mint(), scheduled_for=1.0)

    assert tick.created


async def test_a_load_takes_no_job_whose_requests_collapse(store):
    await throttled(store)

    with pytest.raises(UsageError, match="throttle"):
        await store.queue.load(TENANT, iter([an_execution()]))


async def test_a_change_of_the_rule_counts_from_the_next_request_on(crowd):
    here, there = crowd[:2]
    await singleton(here)
    first = await ask(there)
    assert (await ask(there)).id == first.id

    await defined(here)

    assert (await ask(there)).created


async def cached(store, **options):
    await defined(store, cache_for=600.0, **options)


async def succeed(store, hands):
    await apply(store, hands, success(hands.one, result='"r"'))


async def test_a_cached_result_answers_until_it_is_too_old(store, clock):
    await cached(store)
    first = await ask(store, 1)
    await clock.advance(100)
    await succeed(store, await claim(store))
    await clock.advance(599)

    held = await ask(store, 1)

    assert (held.id, held.created) == (first.id, False)
    assert (await look(store, held.id)).result == '"r"'
    assert (await ask(store, 2)).created
    await clock.advance(1)
    assert (await ask(store, 1)).created


async def test_requests_join_a_run_and_not_a_failure(store):
    await cached(store, cache_key="account")
    first = await ask(store, 1)
    hands = await claim(store)
    assert (await ask(store, 2)).id == first.id
    await apply(store, hands, death(hands.one))

    second = await ask(store, 3)

    assert second.created and second.id != first.id


async def test_a_refresh_runs_and_counts_from_then_on(store):
    await cached(store)
    first = await ask(store)
    await succeed(store, await claim(store))

    fresh = await ask(store, refresh=True)

    assert fresh.created
    assert (await ask(store)).id == fresh.id
    await succeed(store, await claim(store))
    assert (await ask(store)).id == fresh.id != first.id


async def test_another_version_of_the_cache_knows_no_results(store):
    await cached(store)
    await ask(store)
    await succeed(store, await claim(store))

    await cached(store, cache_version="2")

    assert (await ask(store)).created


async def test_a_unique_key_of_a_cached_job_stays_what_it_is(store):
    await cached(store)
    first = await ask(store, 1, unique_key="k")

    other = await ask(store, 2, unique_key="k")

    assert (await look(store, first.id)).unique_key == "k"
    assert (other.id, other.created) == (first.id, False)


async def test_cache_misses_at_once_are_one_run(crowd):
    await cached(crowd[0])

    answers = await asyncio.gather(*(ask(one) for _ in range(10) for one in crowd))

    assert sum(answer.created for answer in answers) == 1
    assert await count(crowd[0]) == 1
