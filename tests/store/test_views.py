"""Lists, counts and single executions; pages that hold still while others write."""

from typing import Any

import pytest

from daybell.core.execution import PENDING, TERMINAL, State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_expiry
from daybell.core.views import ExecutionFilter, Total, read_found
from daybell.errors import ExecutionNotFound, UsageError
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
    id_minted_at,
    retry,
    success,
)
from tests.sweeps import set_gates

EVERYTHING = ExecutionFilter()


async def listed(store, where=EVERYTHING, **options):
    return [one.id for one in (await store.catalog.list_executions(TENANT, where, **options)).items]


async def pages(store, where=EVERYTHING, *, limit, between=None):
    """All pages, one id after the other; `between` is called after each page."""
    seen, cursor = [], None
    while True:
        page = await store.catalog.list_executions(TENANT, where, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        seen += [one.id for one in page.items]
        if page.next_cursor is None:
            return seen
        cursor = page.next_cursor
        if between:
            await between()


async def test_messages_are_left_out_of_lists_and_counts_if_the_filter_says_so(store):
    for job in ("events:chat", "alert:late", "events", "eventsx", "resize"):
        await defined(store, job)
    died = await dead(store, job="events:chat")
    sent = await enqueued(store, job="events:chat") + await enqueued(store, job="alert:late")
    plain = [*await enqueued(store, job="events"), *await enqueued(store, job="eventsx")]
    plain += await enqueued(store, job="resize")
    hiding = ExecutionFilter(hides_messages=True)

    assert await listed(store, hiding) == [*plain[::-1], *died]
    assert await listed(store) == [*plain[::-1], *sent[::-1], *died]
    wheres: list[dict[str, Any]] = [
        {},
        {"states": frozenset({State.QUEUED, State.DEAD})},
        {"since": 1.0},
    ]
    for more in wheres:
        where = ExecutionFilter(hides_messages=True, **more)
        counts = await store.catalog.count_executions(TENANT, where)
        assert counts == {State.QUEUED: 3, State.DEAD: 1}
    everything = await store.catalog.count_executions(TENANT, EVERYTHING)
    assert everything == {State.QUEUED: 5, State.DEAD: 1}


async def one_in_each_state(store, clock):
    """Executions in all nine states, by state."""
    await set_gates(store, TENANT, {"closed": 0})
    made = {}
    (made[State.SUCCEEDED],) = await finished(store)
    (made[State.DEAD],) = await dead(store)
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=3600.0))
    made[State.RETRYING] = hands.one.id
    made[State.RUNNING] = (await claimed(store)).one.id
    (made[State.CANCELLED],) = await enqueued(store)
    await store.queue.cancel(TENANT, [made[State.CANCELLED]])
    hands = await claimed(store)
    await apply(store, hands, after_expiry(hands.one))
    made[State.SKIPPED] = hands.one.id
    (made[State.WAITING],) = await enqueued(store, gate="closed")
    (made[State.SCHEDULED],) = await enqueued(store, delay=3600.0)
    (made[State.QUEUED],) = await enqueued(store)
    return made


async def test_an_unknown_execution_is_not_found(store):
    with pytest.raises(ExecutionNotFound):
        await store.catalog.get_execution(TENANT, mint())


async def test_a_list_shows_the_same_as_a_single_look(store, clock):
    made = await one_in_each_state(store, clock)

    page = await store.catalog.list_executions(TENANT, EVERYTHING)

    assert {one.id for one in page.items} == set(made.values())
    for one in page.items:
        assert (await store.catalog.get_execution(TENANT, one.id)).execution == one


async def test_executions_are_listed_by_id_newest_first(store, clock):
    made = await one_in_each_state(store, clock)

    assert await listed(store) == sorted(made.values(), reverse=True)


async def test_an_empty_store_has_an_empty_page(store):
    page = await store.catalog.list_executions(TENANT, EVERYTHING)

    assert (page.items, page.next_cursor) == ((), None)
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {}


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
async def test_pages_of_any_size_show_everything_once(store, clock, limit):
    made = await one_in_each_state(store, clock)

    assert await pages(store, limit=limit) == sorted(made.values(), reverse=True)


async def test_the_last_page_has_no_cursor_even_if_it_is_full(store):
    await enqueued(store, 4)

    first = await store.catalog.list_executions(TENANT, EVERYTHING, limit=2)
    second = await store.catalog.list_executions(
        TENANT, EVERYTHING, limit=2, cursor=first.next_cursor
    )

    assert first.next_cursor is not None
    assert second.next_cursor is None


async def test_what_moves_between_pages_is_neither_missed_nor_shown_twice(store):
    there = await enqueued(store, 30)
    hands = await claim(store, 20)
    moves = iter([success, death, retry] * 7)
    left = list(hands.executions)
    new = []

    async def write():
        await apply(store, hands, *(next(moves)(left.pop()) for _ in range(min(4, len(left)))))
        new.extend(await enqueued(store, 2))
        await store.queue.cancel(TENANT, new[-1:])

    seen = await pages(store, limit=4, between=write)

    assert len(seen) == len(set(seen))
    assert [id for id in seen if id in there] == there[::-1]


async def test_what_is_revived_or_discarded_between_pages_is_shown_once(store):
    there = await dead(store, 12)
    todo = list(there)

    async def write():
        if len(todo) >= 2:
            await store.queue.revive(TENANT, [todo.pop()])
            await store.queue.discard(TENANT, [todo.pop(0)])

    assert await pages(store, limit=3, between=write) == there[::-1]


async def test_a_filtered_list_under_writes_misses_nothing_that_matched_all_along(store):
    await defined(store, "other")
    there = await enqueued(store, 12)
    (noise,) = await enqueued(store, job="other")

    async def write():
        await enqueued(store, 3, job="other")
        await enqueued(store, 1)

    seen = await pages(store, ExecutionFilter(job="resize"), limit=5, between=write)

    assert [id for id in seen if id in there] == there[::-1]
    assert noise not in seen


async def test_a_cursor_still_counts_when_its_execution_has_left_the_list(store):
    where = ExecutionFilter(dead_letters=True)
    ids = await dead(store, 6)
    first = await store.catalog.list_executions(TENANT, where, limit=3)
    await store.queue.revive(TENANT, [first.items[-1].id])

    second = await store.catalog.list_executions(TENANT, where, limit=3, cursor=first.next_cursor)

    assert [one.id for one in second.items] == ids[2::-1]


@pytest.mark.parametrize("cursor", ["", "nonsense", "1", "\ud800", "'; --"])
async def test_a_cursor_that_is_none_of_ours_is_refused(store, cursor):
    with pytest.raises(UsageError):
        await store.catalog.list_executions(TENANT, EVERYTHING, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_a_reasonable_size(store, limit):
    with pytest.raises(UsageError):
        await store.catalog.list_executions(TENANT, EVERYTHING, limit=limit)


@pytest.mark.parametrize("state", list(State))
async def test_a_state_is_shown_listed_and_counted_alike(store, clock, state):
    made = await one_in_each_state(store, clock)
    where = ExecutionFilter(states=frozenset({state}))

    page = await store.catalog.list_executions(TENANT, where)

    assert [(one.id, one.state) for one in page.items] == [(made[state], state)]
    assert await store.catalog.count_executions(TENANT, where) == {state: 1}


@pytest.mark.parametrize("states", [PENDING, TERMINAL, frozenset(State), frozenset()])
async def test_several_states_can_be_asked_for(store, clock, states):
    made = await one_in_each_state(store, clock)
    where = ExecutionFilter(states=states)

    assert set(await listed(store, where)) == {made[state] for state in states}
    assert await store.catalog.count_executions(TENANT, where) == dict.fromkeys(states, 1)


async def test_what_has_become_due_is_listed_and_counted_as_queued(store, clock):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=10.0))
    (delayed,) = await enqueued(store, delay=10.0)
    queued = ExecutionFilter(states=frozenset({State.QUEUED}))
    future = ExecutionFilter(states=frozenset({State.SCHEDULED, State.RETRYING}))
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {
        State.RETRYING: 1,
        State.SCHEDULED: 1,
    }

    await clock.advance(10)

    assert await listed(store, queued) == [delayed, hands.one.id]
    assert await listed(store, future) == []
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 2}


async def test_counts_leave_out_states_without_any(store):
    await enqueued(store, 3)
    await finished_one(store)

    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {
        State.QUEUED: 2,
        State.SUCCEEDED: 1,
    }


async def finished_one(store):
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))


async def test_executions_are_found_by_their_ids_whatever_their_state(store, clock):
    made = await one_in_each_state(store, clock)
    await enqueued(store)
    wanted = frozenset(made.values())

    found = await listed(store, ExecutionFilter(ids=wanted | {mint()}))
    counts = await store.catalog.count_executions(TENANT, ExecutionFilter(ids=wanted))

    assert found == sorted(wanted, reverse=True)
    assert counts == dict.fromkeys(made, 1)
    assert await listed(store, ExecutionFilter(ids=frozenset())) == []
    cancelled = ExecutionFilter(ids=wanted, states=frozenset({State.CANCELLED}))
    assert await listed(store, cancelled) == [made[State.CANCELLED]]


async def test_executions_of_one_job(store):
    await defined(store, "a", "b")
    wanted = await enqueued(store, 2, job="a")
    await enqueued(store, 2, job="b")
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))

    where = ExecutionFilter(job="a")

    assert await listed(store, where) == wanted[::-1]
    assert sum((await store.catalog.count_executions(TENANT, where)).values()) == 2
    assert await listed(store, ExecutionFilter(job="nothing")) == []
    assert await store.catalog.count_executions(TENANT, ExecutionFilter(job="nothing")) == {}


async def test_executions_of_one_queue(store):
    (done,) = await finished(store, queue="a")
    (waiting,) = await enqueued(store, queue="a")
    await enqueued(store, queue="b")

    assert await listed(store, ExecutionFilter(queue="a")) == [waiting, done]
    assert await listed(store, ExecutionFilter(queue="nothing")) == []


async def test_executions_of_one_worker_running_or_finished_by_it(store):
    hands = await claimed(store, 3)
    done, back, running = hands.executions
    await apply(store, hands, success(done), retry(back))
    await claimed(store)

    where = ExecutionFilter(worker=hands.worker)

    assert await listed(store, where) == [running.id, done.id]
    assert await store.catalog.count_executions(TENANT, where) == {
        State.RUNNING: 1,
        State.SUCCEEDED: 1,
    }
    assert await listed(store, ExecutionFilter(worker=mint())) == []


async def test_executions_of_one_schedule_or_parent(store):
    schedule, parent = mint(), mint()
    (scheduled,) = await enqueued(store, schedule=schedule)
    (child,) = await finished(store, parent=parent, queue="other")
    await enqueued(store)

    assert await listed(store, ExecutionFilter(schedule=schedule)) == [scheduled]
    assert await listed(store, ExecutionFilter(parent=parent)) == [child]


async def test_executions_created_in_a_span_of_time(store, clock):
    made = []
    for _ in range(4):
        made += await finished(store)
        await clock.advance(10)
    start = clock.now() - 40

    since = ExecutionFilter(since=start + 10)
    until = ExecutionFilter(until=start + 10)
    both = ExecutionFilter(since=start + 10, until=start + 30)

    assert await listed(store, since) == made[:0:-1]
    assert await listed(store, until) == made[:1]
    assert await listed(store, both) == made[2:0:-1]


async def test_filters_narrow_each_other(store, clock):
    await defined(store, "a", "b")
    worker = None
    for job in "ab":
        hands = await claimed(store, 2, job=job)
        await apply(store, hands, success(hands.executions[0]), death(hands.executions[1]))
        worker = hands.worker

    where = ExecutionFilter(
        job="b", worker=worker, queue="default", states=frozenset({State.DEAD, State.RUNNING})
    )

    page = await store.catalog.list_executions(TENANT, where)
    assert [(one.job, one.state) for one in page.items] == [("b", State.DEAD)]
    assert await store.catalog.count_executions(TENANT, where) == {State.DEAD: 1}
    nothing = ExecutionFilter(dead_letters=True, states=frozenset({State.SUCCEEDED}))
    assert await listed(store, nothing) == []


async def test_a_page_can_be_as_large_as_the_limit_allows(store):
    await defined(store)
    new = [an_execution() for _ in range(1001)]
    await store.queue.enqueue(TENANT, new)

    page = await store.catalog.list_executions(TENANT, EVERYTHING, limit=1000)

    assert [one.id for one in page.items] == [one.id for one in new[:0:-1]]
    assert page.next_cursor == str(new[1].id)


BOUND = 4


@pytest.fixture
def bounded(monkeypatch, place):
    """Few executions are many, to a store that reads no more than so many of a kind."""
    module = place.kind.rstrip("16")
    for name in ("SCAN_ITEMS_MAX", "COUNT_ITEMS_MAX"):
        monkeypatch.setattr(f"daybell.store.{module}.views.{name}", BOUND)
    if place.kind == "sqlite":
        monkeypatch.setattr("daybell.store.sqlite.views.FEW", 0)


async def many_of_each(store):
    """Waiting, running and ended executions of two jobs in two queues; answers the two workers."""
    workers = []
    for _ in range(3):
        for job, queue in (("common", "work"), ("rare", "calm")):
            hands = await claimed(store, 2, job=job, queue=queue)
            await apply(store, hands, success(hands.executions[0]))
            await dead(store, job=job, queue=queue)
            workers.append(hands.worker)
        await enqueued(store, 2 * BOUND, job="common", queue="busy")
        await enqueued(store, 1, job="common", queue="busy", delay=60.0)
    await enqueued(store, 1, job="rare", queue="calm")
    return workers


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_pages_that_read_little_show_everything_once(store, limit):
    worker, *_ = await many_of_each(store)
    everything = [
        (await store.catalog.get_execution(TENANT, id)).execution
        for id in await pages(store, limit=1000)
    ]
    assert len(everything) == 3 * (2 * 3 + 2 * BOUND + 1) + 1

    for where, fits in (
        (EVERYTHING, lambda one: True),
        (ExecutionFilter(queue="calm"), lambda one: one.queue == "calm"),
        (ExecutionFilter(job="rare"), lambda one: one.job == "rare"),
        (ExecutionFilter(worker=worker), lambda one: one.worker == worker),
        (ExecutionFilter(states=frozenset({State.DEAD})), lambda one: one.state is State.DEAD),
        (ExecutionFilter(states=PENDING), lambda one: one.state in PENDING),
        (
            ExecutionFilter(states=frozenset({State.SCHEDULED}), job="common"),
            lambda one: one.state is State.SCHEDULED,
        ),
        (
            ExecutionFilter(dead_letters=True, queue="calm"),
            lambda one: one.state is State.DEAD and one.queue == "calm",
        ),
        (ExecutionFilter(until=0.0), lambda one: False),
    ):
        expected = [one.id for one in everything if fits(one)]
        assert await pages(store, where, limit=limit) == expected, where


@pytest.mark.usefixtures("bounded")
async def test_a_page_may_be_empty_and_have_a_cursor(store):
    (oldest,) = await enqueued(store, job="rare", queue="calm")
    await enqueued(store, 3 * BOUND, job="common", queue="busy")
    where = ExecutionFilter(queue="calm")

    first = await store.catalog.list_executions(TENANT, where)
    found = await read_found(
        lambda cursor: store.catalog.list_executions(TENANT, where, cursor=cursor)
    )

    assert first.items == () and first.next_cursor is not None
    assert [one.id for one in found.items] == [oldest]


@pytest.mark.usefixtures("bounded")
async def test_a_count_says_of_which_states_there_may_be_more(store):
    await finished(store, 2)
    await enqueued(store, 3 * BOUND)

    counts = await store.catalog.count_executions(TENANT, EVERYTHING)

    assert counts[State.QUEUED] == BOUND
    assert State.QUEUED in counts.at_least
    assert State.DEAD not in counts.at_least
    assert f"{counts.of(State.QUEUED):,}" == f"{BOUND}+"
    assert not counts.total.is_exact


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "where", [EVERYTHING, ExecutionFilter(job="resize"), ExecutionFilter(queue="default")]
)
async def test_a_count_that_reads_everything_is_exact(store, where):
    await finished(store, BOUND - 3)
    await enqueued(store, 1)
    await enqueued(store, 1, delay=60.0)

    counts = await store.catalog.count_executions(TENANT, where)

    expected = {State.SUCCEEDED: BOUND - 3, State.QUEUED: 1, State.SCHEDULED: 1}
    assert (counts, counts.at_least) == (expected, frozenset())


@pytest.mark.usefixtures("bounded")
@pytest.mark.usefixtures("bounded")
async def test_a_count_since_a_time_shows_rare_states(store, clock):
    cancelled = await enqueued(store, 3)
    await store.queue.cancel(TENANT, cancelled)
    await enqueued(store, 3 * BOUND)

    counts = await store.catalog.count_executions(TENANT, ExecutionFilter(since=clock.now() - 3600))

    assert counts[State.CANCELLED] == 3
    assert State.CANCELLED not in counts.at_least
    assert State.QUEUED in counts.at_least


@pytest.mark.usefixtures("bounded")
@pytest.mark.usefixtures("bounded")
async def test_what_is_older_than_a_time_leaves_a_count_since_then_exact(store, clock):
    await defined(store)
    old = [an_execution(id=id_minted_at(clock.now())) for _ in range(3 * BOUND)]
    await store.queue.enqueue(TENANT, old)
    await clock.advance(3600)
    new = [an_execution(id=id_minted_at(clock.now())) for _ in range(BOUND - 1)]
    await store.queue.enqueue(TENANT, new)
    where = ExecutionFilter(since=clock.now() - 60)

    counts = await store.catalog.count_executions(TENANT, where)
    page = await store.catalog.list_executions(TENANT, where)

    assert (counts, counts.at_least) == ({State.QUEUED: BOUND - 1}, frozenset())
    assert (len(page.items), page.next_cursor) == (BOUND - 1, None)


def test_a_total_that_is_not_exact_is_never_nothing():
    assert not Total(0)
    assert Total(0, is_exact=False)
    assert (f"{Total(1000):,}", f"{Total(1000, is_exact=False):,}") == ("1,000", "1,000+")


@pytest.mark.usefixtures("bounded")
async def test_a_queue_says_which_of_its_numbers_may_be_larger(store):
    await enqueued(store, 3 * BOUND)
    await enqueued(store, 2, queue="calm")
    await enqueued(store, 1, queue="calm", delay=60.0)

    calm, busy = await store.catalog.list_queues(TENANT)

    assert (calm.queued, calm.scheduled, calm.at_least) == (2, 1, ())
    assert busy.at_least == ("queued",)
    assert busy.queued == BOUND
    assert not busy.number("queued").is_exact


@pytest.mark.usefixtures("bounded")
async def test_the_backlog_of_a_tenant_does_not_hide_the_numbers_of_another(store):
    await store.admin.add_tenant("busy")
    for tenant, count in (("busy", 3 * BOUND), (TENANT, 2)):
        await set_gates(store, tenant, {"closed": 0})
        await enqueued(store, count, tenant=tenant, gate="closed")

    counts = await store.catalog.count_executions(TENANT, EVERYTHING)
    (queue,) = await store.catalog.list_queues(TENANT)

    assert (counts, counts.at_least) == ({State.WAITING: 2}, frozenset())
    assert (queue.waiting, queue.at_least) == (2, ())
