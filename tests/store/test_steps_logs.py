"""What tasks said: kept in parts, by whoever runs them."""

import pytest
from msgspec.structs import replace

from daybell.core.execution import LAST, Line, LogPart, NewLogPart, join_lines, line_text, lines_of
from daybell.core.ids import mint
from daybell.core.limits import PAGE_BYTES_MAX
from daybell.core.logs import FoundPart, LogPlace
from daybell.core.views import Retention
from daybell.errors import UsageError
from tests.builders import LEASE, TENANT, add_tenants, apply, claim, death, enqueued, retry, success
from tests.sweeps import retain

DAY = 86_400


def a_part(claimed, text="hello", number=1):
    return NewLogPart(claimed.id, claimed.attempt, claimed.lease, number, text)


async def test_parts_are_read_in_the_order_of_attempt_and_number(store, clock):
    await enqueued(store, 2)
    first = await claim(store, 2)
    one, other = first.executions
    parts = [a_part(one, "c", 2), a_part(other, "x"), a_part(one, "b", 1)]
    await store.queue.write_log(TENANT, worker=first.worker, parts=parts)
    await apply(store, first, retry(one, delay=0.0))
    again = await claim(store)
    await store.queue.write_log(TENANT, worker=again.worker, parts=[a_part(again.one, "d")])

    assert await store.catalog.read_log(TENANT, one.id) == [
        LogPart(1, 1, "b"),
        LogPart(1, 2, "c"),
        LogPart(2, 1, "d"),
    ]
    assert await store.catalog.read_log(TENANT, one.id, after=(1, 1), limit=1) == [
        LogPart(1, 2, "c")
    ]
    assert await store.catalog.read_log(TENANT, one.id, after=(2, 1)) == []


async def test_a_log_outlives_the_end(store, clock):
    await enqueued(store)
    hands = await claim(store)
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[a_part(hands.one)])
    await apply(store, hands, success(hands.one))

    assert await store.catalog.read_log(TENANT, hands.one.id) == [LogPart(1, 1, "hello")]


async def test_the_last_part_of_every_attempt_comes_with_its_end(store, clock):
    (id,) = await enqueued(store)
    first = await claim(store)
    await store.queue.write_log(TENANT, worker=first.worker, parts=[a_part(first.one, "a")])
    await apply(store, first, replace(retry(first.one, delay=0.0), log="b"))
    second = await claim(store)
    await apply(store, second, replace(death(second.one), log="c"))
    parts = [LogPart(1, 1, "a"), LogPart(1, LAST, "b"), LogPart(2, LAST, "c")]
    assert await store.catalog.read_log(TENANT, id) == parts

    await store.queue.revive(TENANT, [id])
    assert await store.catalog.read_log(TENANT, id) == parts
    third = await claim(store)
    await apply(store, third, replace(success(third.one), log="d"))

    assert await store.catalog.read_log(TENANT, id) == [*parts, LogPart(3, LAST, "d")]
    assert await store.catalog.read_log(TENANT, id, after=(2, LAST)) == [LogPart(3, LAST, "d")]


async def test_a_dead_letters_log_is_there_after_it_is_discarded(store, clock):
    (id,) = await enqueued(store)
    hands = await claim(store)
    await apply(store, hands, replace(death(hands.one), log="c"))
    await store.queue.discard(TENANT, [id])

    assert await store.catalog.read_log(TENANT, id) == [LogPart(1, LAST, "c")]


async def test_what_was_cancelled_keeps_its_log(store, clock):
    (id,) = await enqueued(store)
    hands = await claim(store)
    await store.queue.cancel(TENANT, [id])
    await apply(store, hands, replace(success(hands.one), log="c"))

    assert await store.catalog.read_log(TENANT, id) == [LogPart(1, LAST, "c")]


async def test_a_part_that_is_sent_again_is_there_once(store, clock):
    await enqueued(store)
    hands = await claim(store)
    for text in ("first", "second"):
        await store.queue.write_log(TENANT, worker=hands.worker, parts=[a_part(hands.one, text)])

    assert [part.number for part in await store.catalog.read_log(TENANT, hands.one.id)] == [1]


async def test_what_was_given_to_others_is_not_written_about(store, clock):
    await enqueued(store)
    hands = await claim(store)
    await clock.advance(LEASE + 1)
    (lost,) = (await store.queue.lost()).executions
    await store.queue.apply(
        TENANT, worker=lost.worker, transitions=[retry(lost.claimed, delay=0.0)]
    )

    await store.queue.write_log(TENANT, worker=hands.worker, parts=[a_part(hands.one)])

    assert await store.catalog.read_log(TENANT, hands.one.id) == []


async def test_only_its_own_worker_under_its_own_lease_writes_about_an_execution(store, clock):
    await enqueued(store)
    hands = await claim(store)
    other = NewLogPart(hands.one.id, 1, mint(), 1, "hello")
    await store.queue.write_log(TENANT, worker=mint(), parts=[a_part(hands.one)])
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[other])
    await store.queue.write_log(
        TENANT, worker=hands.worker, parts=[NewLogPart(hands.one.id, 2, hands.lease, 1, "hello")]
    )

    assert await store.catalog.read_log(TENANT, hands.one.id) == []


async def test_logs_of_other_tenants_and_of_nobody_are_empty(store, clock):
    await add_tenants(store, ["acme"])
    await enqueued(store)
    hands = await claim(store)
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[a_part(hands.one)])

    assert await store.catalog.read_log("acme", hands.one.id) == []
    assert await store.catalog.read_log(TENANT, mint()) == []
    assert (await store.catalog.read_logs("acme", [hands.one.id])).items == ()
    with pytest.raises(UsageError):
        await store.catalog.read_log(TENANT, hands.one.id, limit=0)


async def test_logs_of_several_executions_are_read_in_their_order(store, clock):
    ids = await enqueued(store, 4)
    hands = await claim(store, 4)
    one, other, third, _ = hands.executions
    parts = [a_part(other, "o2", 2), a_part(other, "o1"), a_part(one, "n"), a_part(third, "t")]
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[*parts, parts[0]])
    ends = [retry(other, delay=0.0), success(one), death(third)]
    await apply(store, hands, *(replace(end, log="end") for end in ends))

    async def read(*which, start=None):
        page = await store.catalog.read_logs(TENANT, [ids[n] for n in which], start=start)
        assert page.next_cursor is None
        return page.items

    own = [LogPart(1, 1, "o1"), LogPart(1, 2, "o2"), LogPart(1, LAST, "end")]
    of_other = tuple(FoundPart(other.id, part) for part in own)
    of_one = tuple(FoundPart(one.id, LogPart(1, *of)) for of in ((1, "n"), (LAST, "end")))
    of_third = tuple(FoundPart(third.id, LogPart(1, *of)) for of in ((1, "t"), (LAST, "end")))
    assert await read(3) == ()
    assert await read(1, 3, 0, 2) == of_other + of_one + of_third
    assert await read(2, 0, 1) == of_third + of_one + of_other
    assert await read(1, 0, start=LogPlace(other.id, 1, 2)) == of_other[1:] + of_one
    assert await read(0, start=LogPlace(other.id, 1, 2)) == of_one


async def test_a_page_of_logs_ends_at_its_bytes(store, clock):
    ids = await enqueued(store, 2)
    hands = await claim(store, 2)
    text = "é" * (PAGE_BYTES_MAX // 6)  # two bytes each: two of them fit into a page
    parts = [a_part(one, text, n) for one in hands.executions for n in range(1, 4)]
    for part in parts:
        await store.queue.write_log(TENANT, worker=hands.worker, parts=[part])

    found, cursor = [], None
    while True:
        start = cursor and LogPlace.parse(cursor)
        rest = ids[ids.index(start.execution) :] if start else ids
        page = await store.catalog.read_logs(TENANT, rest, start=start)
        new = [(one.execution, one.part.number) for one in page.items]
        found += new[1:] if cursor else new
        if page.next_cursor is None:
            break
        assert len(new) == 2
        cursor = page.next_cursor
    assert found == [(part.id, part.number) for part in parts]
    with pytest.raises(UsageError):
        await store.catalog.read_logs(TENANT, ids * 501)


async def test_logs_go_when_they_are_old(store, clock):
    await enqueued(store)
    hands = await claim(store)
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[a_part(hands.one)])
    await apply(store, hands, success(hands.one))
    policy = Retention(finished=2 * DAY, ticks=2 * DAY, workers=2 * DAY)

    await clock.advance(DAY)
    await retain(store, policy)
    assert await store.catalog.read_log(TENANT, hands.one.id)
    await clock.advance(4 * DAY)
    await retain(store, policy)
    assert await store.catalog.read_log(TENANT, hands.one.id) == []


def test_whatever_a_line_says_it_stays_one_line():
    said = [
        Line(1.5, "info", "shop", "two\nlines\r\u2028"),
        Line(2.5, "stdout", "", 'a "quoted" \x00 and half a pair \ud800'),
        Line(3.5, "error", "shop", "x" * 100_000),
    ]
    texts = [line_text(line.at, line.level, line.source, line.message) for line in said]
    kept = list(lines_of(join_lines(texts)))

    assert kept[0] == said[0]
    assert kept[1].message.startswith('a "quoted" \x00 and half a pair ')
    assert len(kept[2].message) < 9_000
    assert kept[2].message.endswith("(100,000 characters)")
