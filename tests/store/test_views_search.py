"""Search by content: the same executions in every store, in pages that read a bounded number."""

import asyncio
import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.access import Scope
from daybell.core.execution import Failure, State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_success
from daybell.core.limits import LIST_VALUE_BYTES_MAX, PAGE_BYTES_MAX, SCAN_ITEMS_MAX
from daybell.core.views import Content, ExecutionFilter
from daybell.errors import UsageError
from daybell.store.scope import ScopedStore
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    success,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
NAMES = st.sampled_from(["a", "b", "a.b", "0", "é", "\x00", "\ud800"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ARGS = st.dictionaries(NAMES, VALUES, max_size=4)


def by(**content):
    filters = {n: content.pop(n) for n in ("job", "states", "parent") if n in content}
    return ExecutionFilter(content=Content(**content), **filters)


async def pages(store, where, *, limit=100):
    """All pages of a search."""
    found, cursor = [], None
    while True:
        page = await store.catalog.list_executions(TENANT, where, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return found


async def ids_of(store, where, **options):
    return [one.id for page in await pages(store, where, **options) for one in page.items]


async def with_args(store, *args, job="resize"):
    await defined(store, job)
    new = [an_execution(job, args=json.dumps(one, separators=(",", ":"))) for one in args]
    await store.queue.enqueue(TENANT, new)
    return [one.id for one in new]


@pytest.mark.parametrize(
    ("name", "value", "matching"),
    [
        ("order", "42", {0, 1, 2}),
        ("order", "42.0", {0, 2}),
        ("order", "4.2e1", {0, 2}),
        ("order", "true", {3, 4}),
        ("order", "1", {5}),
        ("order", "null", {6}),
        ("order", "", {7}),
        ("order.id", "42", {8, 9}),
        ("order.1", "42", {10}),
        ("order", "[1,42]", set()),
        ("order", "99999999999999999999999", {11}),
        ("order", "\x00", {12}),
        ("missing", "null", set()),
        ("order.id.x", "42", set()),
    ],
)
async def test_an_argument_is_found_by_its_value(store, name, value, matching):
    made = await with_args(
        store,
        {"order": 42},
        {"order": "42"},
        {"order": 42.0},
        {"order": True},
        {"order": "true"},
        {"order": 1},
        {"order": None},
        {"order": ""},
        {"order": {"id": 42}},
        {"order.id": "42"},
        {"order": [1, 42]},
        {"order": 99999999999999999999999},
        {"order": "\x00"},
        {"order": "\ud800", "big": 10**400},
    )

    found = await ids_of(store, by(args=((name, value),)))

    assert {made.index(id) for id in found} == matching


async def test_every_argument_of_a_search_must_match(store):
    made = await with_args(store, {"a": 1, "b": 2}, {"a": 1}, {"b": 2})

    assert await ids_of(store, by(args=(("a", "1"), ("b", "2")))) == made[:1]


def reference(args, name, value):
    """The rule once more, from the other end: all paths of a value, as texts."""

    def paths(inner, at):
        if isinstance(inner, dict):
            for key, one in inner.items():
                yield from paths(one, [*at, key])
        elif isinstance(inner, list):
            for place, one in enumerate(inner):
                yield from paths(one, [*at, str(place)])
        else:
            yield ".".join(at), inner

    for path, one in paths(args, []):
        if path == name:
            if isinstance(one, str):
                if one == value:
                    return True
            else:
                try:
                    read = json.loads(value)
                except ValueError:
                    continue
                if type(read) in (int, float) and type(one) in (int, float) and read == one:
                    return True
                if type(read) is type(one) and one in (True, False, None) and read is one:
                    return True
    return False


async def test_random_arguments_are_found_where_they_are(store):
    loop, number = asyncio.get_running_loop(), iter(range(10_000))

    async def check(documents, name, value):
        job = f"job-{next(number)}"
        await defined(store, job)
        new = [an_execution(job, args=json.dumps(one)) for one in documents]
        await store.queue.enqueue(TENANT, new)
        found = await ids_of(store, by(job=job, args=((name, value),)), limit=2)
        assert set(found) == {
            made.id for made, one in zip(new, documents, strict=True) if reference(one, name, value)
        }

    @settings(max_examples=25, deadline=None)
    @given(st.lists(ARGS, min_size=1, max_size=4), st.data())
    def search(documents, data):
        inside = [v for one in documents for v in one.values() if not isinstance(v, dict | list)]
        value = data.draw(st.sampled_from(inside) if inside else st.just("x"))
        text = value if isinstance(value, str) else json.dumps(value)
        name = data.draw(st.sampled_from([key for one in documents for key in one] or ["a"]))
        asyncio.run_coroutine_threadsafe(check(documents, name, text), loop).result()

    await asyncio.to_thread(search)


async def test_a_large_argument_is_searched_as_a_whole_and_left_out_of_the_list(store):
    large = {"text": "x" * (LIST_VALUE_BYTES_MAX + 1), "order": 42}
    (made, _) = await with_args(store, large, {"order": 43})

    (page,) = await pages(store, by(args=(("order", "42"),)))

    assert [(one.id, one.truncated) for one in page.items] == [(made, True)]


def failed(type, message, *names):
    return Failure(type=type, message=message, traceback="raise Elsewhere", names=names).to_json()


@pytest.mark.parametrize(
    ("error", "is_found"),
    [
        ("ConnectionResetError", True),
        ("connectionreset", True),  # in any case of letters, as text
        ("builtins.ConnectionResetError", True),
        ("OSError", True),  # an ancestor
        ("oserror", False),  # names of classes are exact
        ("TIMEOUT after 5%", True),
        ("5_", False),  # no pattern
        ("Elsewhere", False),  # in the traceback
        ("ConnectionResetError: timeout", True),
    ],
)
async def test_an_error_is_found_by_its_class_and_its_text(store, error, is_found):
    await defined(store, "resize")
    names = ("builtins.ConnectionResetError", "builtins.OSError")
    hands = await claimed(store)
    text = failed("ConnectionResetError", "Timeout after 5% of it", *names)
    await apply(store, hands, death(hands.one, error=text))
    await finished(store)

    assert await ids_of(store, by(error=error)) == ([hands.one.id] if is_found else [])


async def test_a_unique_key_is_found_also_after_its_end(store):
    await defined(store, "resize")
    (first,) = await finished(store, unique_key="order-42")
    new = [an_execution(unique_key=key) for key in ("order-42", "order-43")]
    await store.queue.enqueue(TENANT, new)

    assert await ids_of(store, by(unique_key="order-42")) == [new[0].id, first]


async def test_what_ended_within_a_time_is_found(store, clock):
    await defined(store, "resize")
    (early,) = await finished(store)
    await clock.advance(2 * 86400)
    begin = (await store.health()).now
    (late,) = await dead(store)
    (last,) = await finished(store)
    await clock.advance(2 * 86400)
    await store.queue.enqueue(TENANT, [an_execution()])

    assert await ids_of(store, by(ended_since=begin)) == [last, late]
    assert await ids_of(store, by(ended_until=begin)) == [early]
    assert await ids_of(store, by(ended_since=0.0, ended_until=begin + 86400)) == [
        last,
        late,
        early,
    ]
    unfinished = frozenset({State.QUEUED})
    assert await ids_of(store, by(ended_since=begin, states=unfinished)) == []


async def test_dead_letters_are_found_by_their_end(store, clock):
    await dead(store)
    await clock.advance(2 * 86400)
    begin = (await store.health()).now
    (late,) = await dead(store)

    for content in (Content(ended_since=begin), Content(ended_since=begin, ended_until=begin + 1)):
        where = ExecutionFilter(dead_letters=True, content=content)
        assert await ids_of(store, where) == [late]


async def test_the_executions_of_several_workers_are_found(store):
    await defined(store, "resize")
    hands = [await claimed(store) for _ in range(3)]
    await apply(store, hands[0], death(hands[0].one))

    where = by(workers=frozenset(one.worker for one in hands[:2]))

    assert await ids_of(store, where) == [hands[1].one.id, hands[0].one.id]


async def test_executions_are_found_that_had_not_ended_at_a_time(store, clock):
    await defined(store, "resize")
    await finished(store)
    await clock.advance(90_000)  # another day of history
    now = clock.now()
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))
    (waiting,) = await enqueued(store)

    assert await ids_of(store, by(active_since=now)) == [waiting, hands.one.id]
    assert await ids_of(store, by(active_since=clock.now() + 1)) == [waiting]


async def test_a_page_reads_a_bounded_number_and_its_cursor_goes_on(store):
    await defined(store, "resize")
    number = SCAN_ITEMS_MAX + 10
    new = [an_execution(args=f'{{"n":{n}}}') for n in range(number)]
    for start in range(0, number, 10_000):
        await store.queue.load(TENANT, iter(new[start : start + 10_000]))
    oldest = by(args=(("n", "0"),))

    first, second = await pages(store, oldest)

    assert first.items == () and new[9].id < UUID(first.next_cursor) <= new[10].id
    assert [one.id for one in second.items] == [new[0].id]


async def test_a_page_ends_at_its_bytes(store):
    await defined(store, "resize")
    text = "é" * (PAGE_BYTES_MAX // 20)  # two bytes each: ten of them fill a page
    new = [an_execution(args=f'{{"x":"{text}","n":{n}}}') for n in range(12)]
    await store.queue.enqueue(TENANT, new)

    found = await pages(store, by(args=(("n", "0"),)))

    assert [len(page.items) for page in found] == [0, 1]
    assert found[1].items[0].id == new[0].id


async def test_a_full_page_continues_behind_its_last_item(store):
    made = await with_args(store, *({"n": n % 2} for n in range(10)))

    found = await pages(store, by(args=(("n", "1"),)), limit=2)

    assert [one.id for page in found for one in page.items] == made[1::2][::-1]
    assert [len(page.items) for page in found] == [2, 2, 1]


async def test_what_is_searched_for_is_not_counted(store):
    with pytest.raises(UsageError, match="list them"):
        await store.catalog.count_executions(TENANT, by(unique_key="k"))


async def test_a_scope_hides_whether_something_outside_matches(store):
    """A page is the same whether or not an execution outside the scope would match."""
    await defined(store, "resize", "payroll")
    parent = an_execution()
    inside = an_execution(parent=parent.id, args='{"salary":1}')
    outside = an_execution("payroll", parent=parent.id, args='{"salary":9000}')
    await store.queue.enqueue(TENANT, [parent, inside, outside])
    scoped = ScopedStore(store, Scope(jobs=("resize",)))
    seen = [
        await scoped.catalog.list_executions(
            TENANT, by(parent=parent.id, args=(("salary", value),)), limit=1
        )
        for value in ("9000", "9001")
    ]

    assert seen[0] == seen[1]
    where = by(parent=parent.id, args=(("salary", "1"),))
    page = await scoped.catalog.list_executions(TENANT, where, limit=10)
    assert [one.id for one in page.items] == [inside.id]


async def test_a_cursor_of_an_id_that_never_was_is_fine(store):
    made = await with_args(store, {"n": 1})

    page = await store.catalog.list_executions(TENANT, by(args=(("n", "1"),)), cursor=str(mint()))

    assert [one.id for one in page.items] == made


async def test_executions_are_found_by_their_jobs_and_how_long_they_took(store, clock):
    await defined(store, "etl-load", "etl-clean", "report")
    made = {}
    for name, seconds in (("etl-load", 10.0), ("etl-clean", 100.0), ("report", 100.0)):
        hands = await claimed(store, job=name)
        await clock.advance(seconds)
        await apply(store, hands, after_success(hands.one, result=None, ran=seconds))
        made[name] = hands.one.id

    for where, names in (
        (by(job_prefix="etl-"), ["etl-clean", "etl-load"]),
        (by(jobs=frozenset({"report", "etl-load"})), ["report", "etl-load"]),
        (by(jobs=frozenset()), []),
        (by(longer_than=50.0), ["report", "etl-clean"]),
        (by(shorter_than=50.0), ["etl-load"]),
        (by(longer_than=50.0, job_prefix="etl-", states=frozenset(State)), ["etl-clean"]),
    ):
        assert await ids_of(store, where) == [made[name] for name in names]
