"""Sorted lists of executions: the same order and pages in every store."""

import pytest

from daybell.core.access import Scope
from daybell.core.execution import State
from daybell.core.views import Content, ExecutionFilter, SortOrder
from daybell.errors import UsageError
from daybell.store import sorting
from daybell.store.postgres import views as postgres_views
from daybell.store.scope import ScopedStore
from daybell.store.sqlite import views as sqlite_views
from tests.builders import (
    TENANT,
    apply,
    claimed,
    dead,
    defined,
    enqueued,
    finished,
    success,
)
from tests.refusals import refuses


def by(sort, **conditions):
    return ExecutionFilter(order=SortOrder.parse(sort), **conditions)


async def ids_of(store, where, *, limit=100):
    """The ids of a sorted list, page by page."""
    found, cursor = [], None
    while True:
        page = await store.catalog.list_executions(TENANT, where, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += [one.id for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.fixture
async def ended(store, clock):
    """Three executions, made in turn, that ended in the order 2, 0, 1 after 5, 1 and 3 seconds."""
    await defined(store, "resize")
    hands = []
    for _ in range(3):
        hands.append(await claimed(store, job="resize"))
        await clock.advance(0.5)
    for number in (2, 0, 1):
        [one] = hands[number].executions
        await apply(store, hands[number], success(one, ran=(5.0, 1.0, 3.0)[number]))
        await clock.advance(10)
    return [hand.executions[0].id for hand in hands]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("created", (0, 1, 2)),
        ("-created", (2, 1, 0)),
        ("ended", (2, 0, 1)),
        ("-ended", (1, 0, 2)),
        ("duration", (1, 2, 0)),
        ("-duration", (0, 2, 1)),
        ("started", (2, 0, 1)),
        ("-started", (1, 0, 2)),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_list_is_sorted_by_a_time(store, ended, sort, order, limit):
    assert await ids_of(store, by(sort), limit=limit) == [ended[at] for at in order]


async def test_executions_without_the_time_come_last(store, ended):
    [waiting] = await enqueued(store, 1, job="resize")

    for sort in ("started", "-started", "ended", "-ended", "duration", "-duration"):
        assert (await ids_of(store, by(sort), limit=2))[-1] == waiting


async def test_other_conditions_hold_as_well(store, ended):
    [lost] = await dead(store, 1, job="resize")

    assert await ids_of(store, by("ended", states=frozenset({State.DEAD}))) == [lost]
    assert await ids_of(store, by("ended", dead_letters=True)) == [lost]
    longer = by("-duration", content=Content(longer_than=2.0))
    assert await ids_of(store, longer, limit=1) == [ended[0], ended[2]]


async def test_a_page_goes_on_behind_its_last_item_whatever_has_ended_since(store, ended):
    where = by("-ended")
    first = await store.catalog.list_executions(TENANT, where, limit=1)
    await finished(store, 3, job="resize")

    rest = await store.catalog.list_executions(TENANT, where, cursor=first.next_cursor)

    assert [one.id for one in (*first.items, *rest.items)] == [ended[1], ended[0], ended[2]]


async def test_more_than_a_sort_reads_is_refused(store, ended, monkeypatch):
    monkeypatch.setattr(sorting, "SCAN_ITEMS_MAX", 2)

    with refuses(UsageError, field="sort"):
        await store.catalog.list_executions(TENANT, by("-duration"))
    narrow = by("-duration", content=Content(longer_than=2.0), states=frozenset({State.DEAD}))
    assert await ids_of(store, narrow) == []


@pytest.mark.parametrize("cursor", ["x", "[]", "[1, 2]", '[0, null, "x"]', "\ud800"])
async def test_a_wrong_cursor_is_refused(store, ended, cursor):
    with refuses(UsageError, field="cursor"):
        await store.catalog.list_executions(TENANT, by("ended"), cursor=cursor)


@pytest.mark.parametrize("sort", ["", "start", "+ended", "--ended", 5, None])
def test_an_unknown_order_is_refused(sort):
    with refuses(UsageError, field="sort"):
        SortOrder.parse(sort)


async def test_a_scope_sorts_what_it_covers(store, ended):
    await finished(store, 1, job="other")
    scoped = ScopedStore(store, Scope(jobs=("resize",)))

    page = await scoped.catalog.list_executions(TENANT, by("-duration"))

    assert [one.id for one in page.items] == [ended[0], ended[2], ended[1]]


# Estimates.


@pytest.mark.parametrize(
    ("where", "number"),
    [
        (ExecutionFilter(), 9),
        (ExecutionFilter(states=frozenset({State.SUCCEEDED})), 3),
        (ExecutionFilter(states=frozenset({State.QUEUED, State.DEAD})), 6),
        (ExecutionFilter(dead_letters=True), 2),
        (ExecutionFilter(job="other"), 2),
        (ExecutionFilter(queue="mail"), 0),
    ],
)
async def test_an_estimate_of_few_is_their_number(store, ended, where, number):
    await dead(store, 2, job="other")
    await enqueued(store, 4, job="resize")

    assert await store.catalog.estimate_executions(TENANT, where) == number


async def test_an_estimate_of_nothing_is_zero(store):
    assert await store.catalog.estimate_executions(TENANT, ExecutionFilter()) == 0


async def test_an_estimate_is_not_made_by_content(store, ended):
    with refuses(UsageError):
        await store.catalog.estimate_executions(TENANT, ExecutionFilter(content=Content(error="x")))


async def test_an_estimate_of_many_is_near_their_number(store, monkeypatch):
    monkeypatch.setattr(sqlite_views, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(postgres_views, "SAMPLE_PAGES", 20)
    for job in ("resize", "other"):
        await enqueued(store, 1500, job=job)

    everything = await store.catalog.estimate_executions(TENANT, ExecutionFilter())
    half = await store.catalog.estimate_executions(TENANT, ExecutionFilter(job="other"))

    assert 2000 < everything < 4000
    assert 700 < half < 2500
