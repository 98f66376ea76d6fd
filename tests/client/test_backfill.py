"""Running what the past should have run, on every store."""

import asyncio

import pytest

from daybell.client import Client
from daybell.client import backfill as room
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import backfill_gate
from daybell.core.when import at, every
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from daybell.errors import JobNotFound, QuotaExceeded, UsageError
from tests.builders import an_execution, apply, claim, death, success
from tests.engine.faults import faulty
from tests.stores import KINDS, open_place

HOUR = 3600.0


@pytest.fixture(params=KINDS)
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def client(store):
    """A client with an hourly job that never ran."""
    made = Client(store)
    await made.define("report", schedule=every("1h"), args={"day": 1})
    return made


def hours(place, count):
    """The last so many full hours, oldest first."""
    last = place.clock.now() // HOUR * HOUR
    return [last - HOUR * back for back in reversed(range(count))]


def ticks_of(answer):
    return [one.at for one in answer.ticks]


async def test_a_backfill_over_the_quota_is_refused_as_a_whole(client, place):
    wanted = hours(place, 3)
    await client.update_tenant("default", queued=2)

    with pytest.raises(QuotaExceeded, match="2 unfinished executions"):
        await room.backfill(client, "report", wanted[0], wanted[-1] + 1)

    assert (await client.executions()).items == ()


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(client, place):
    wanted = hours(place, 3)

    answer = await room.backfill(client, "report", wanted[0], wanted[-1] + 1, dry_run=True)

    assert ticks_of(answer) == wanted
    assert (answer.looked_at, answer.created, answer.is_dry_run) == (3, 0, True)
    assert (await client.executions()).items == ()


async def test_each_missing_tick_runs_as_the_schedule_would_have(client, place):
    wanted = hours(place, 2)

    answer = await room.backfill(client, "report", wanted[0], wanted[-1] + 1)

    (schedule,) = await room.schedules(client, "report")
    found = [(await client.execution(one.execution)) for one in answer.ticks]
    assert answer.created == 2
    assert [one.scheduled_for.timestamp() for one in found] == wanted
    assert [one.args for one in found] == [{"day": 1}] * 2
    assert {one.schedule_id for one in found} == {schedule.id}


async def test_so_many_run_at_a_time_whatever_the_overlap_rule(client, place):
    wanted = hours(place, 4)

    await room.backfill(client, "report", wanted[0], wanted[-1] + 1, concurrency=2)

    counts = (await client.count(job="report")).executions
    assert (counts[State.QUEUED], counts[State.WAITING]) == (2, 2)


@pytest.mark.parametrize(("order", "first"), [("oldest", 0), ("newest", -1)])
async def test_they_run_in_the_order_asked_for(client, store, place, order, first):
    wanted = hours(place, 3)
    await room.backfill(client, "report", wanted[0], wanted[-1] + 1, order=order)

    ran = []
    for _ in wanted:
        hands = await claim(store)
        ran.append(hands.one.scheduled_for)
        await apply(store, hands, success(hands.one))

    assert ran == (wanted if first == 0 else wanted[::-1])


async def test_what_ran_is_not_run_again_and_what_failed_can_be(client, store, place):
    wanted = hours(place, 2)
    span = wanted[0], wanted[-1] + 1
    await room.backfill(client, "report", *span, concurrency=2)
    hands = await claim(store, limit=2)
    failed, fine = sorted(hands.executions, key=lambda one: one.scheduled_for or 0)
    await apply(store, hands, death(failed), success(fine))

    missing = await room.backfill(client, "report", *span, dry_run=True)
    again = await room.backfill(client, "report", *span, only="failed", dry_run=True)
    everything = await room.backfill(client, "report", *span, only="all", dry_run=True)

    assert ticks_of(missing) == []
    assert ticks_of(again) == wanted[:1]
    assert ticks_of(everything) == wanted


async def test_two_backfills_at_once_do_not_double(client, place):
    wanted = hours(place, 5)
    span = wanted[0], wanted[-1] + 1

    answers = await asyncio.gather(
        *(room.backfill(client, "report", *span, only="all") for _ in range(3))
    )

    assert sum(answer.created for answer in answers) == 5
    assert (await client.count(job="report")).total == 5


async def test_a_tick_that_ends_while_another_backfill_is_made_is_not_doubled(client, store, place):
    await place.clock.advance(1)  # a backfill is of what is over
    (tick,) = hours(place, 1)
    other, busy = mint(), faulty(store)
    (schedule,) = await room.schedules(client, "report")
    await store.admin.lead(
        "backfill default", holder=other, lease=60.0
    )  # one that has looked already

    second = asyncio.create_task(Client(busy).backfill("report", tick, tick + 1))
    while True:
        await asyncio.sleep(0)
        if busy.count("lead") or second.done():
            break
    gate = backfill_gate(other)
    new = an_execution("report", gate=gate, schedule=schedule.id, scheduled_for=tick)
    await store.queue.enqueue("default", [new])
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))
    await store.admin.resign("backfill default", holder=other)

    assert (await second).items == []
    assert len((await client.executions()).items) == 1


async def test_who_dies_while_he_makes_a_backfill_does_not_stop_the_next(client, store, place):
    (tick,) = hours(place, 1)
    await store.admin.lead("backfill default", holder=mint(), lease=60.0)
    await place.clock.advance(61)

    answer = await room.backfill(client, "report", tick, tick + 1)

    assert answer.created == 1
    assert await store.admin.list_leaders() == []


async def test_what_is_still_to_be_fired_is_left_to_the_schedulers(client, store, place):
    began = place.clock.now()
    await place.clock.advance(3 * HOUR)
    due = [tick for tick in hours(place, 4) if tick > began]
    span = began - 2 * HOUR, place.clock.now() + HOUR

    before = await room.backfill(client, "report", *span, dry_run=True)
    clock = ManualClock(place.clock.now())
    await Scheduler(store, clock=clock, mint=mint, events=Events()).tick()
    after = await room.backfill(client, "report", *span, dry_run=True)

    assert not set(ticks_of(before)) & set(due)
    # Only the latest was made up for; the others were missed.
    assert [tick for tick in ticks_of(after) if tick in due] == due[:-1]


async def test_what_a_pause_left_out_can_be_run(client, place):
    await client.pause("report")
    await place.clock.advance(3 * HOUR)

    answer = await room.backfill(client, "report", place.clock.now() - 2 * HOUR, place.clock.now())

    assert answer.created == 2


async def test_a_tick_of_this_moment_is_past_once_it_is_decided_on(client, place):
    soon = place.clock.now() + 60
    await client.define("once", schedule=at(soon))
    await place.clock.advance(60)

    due = await room.backfill(client, "once", soon - 60, soon + 60, dry_run=True)
    await client.pause("once")
    await client.resume("once")
    missed = await room.backfill(client, "once", soon - 60, soon + 60, dry_run=True)

    assert (ticks_of(due), ticks_of(missed)) == ([], [soon])


async def test_ticks_of_several_schedules_are_run_in_one_order(client, place):
    await client.define("both", schedule=[every("1h"), every("1h", anchor=1800.0)])
    since = hours(place, 1)[0] - HOUR

    answer = await room.backfill(client, "both", since, since + HOUR, dry_run=True)

    assert ticks_of(answer) == [since, since + 1800]
    assert [one.name for one in answer.ticks] == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"since": 2000.0, "until": 1000.0}, "until", "not before until"),
        ({"since": "2099-01-01", "until": "2099-02-01"}, "since", "in the future"),
        ({"since": "2020-01-01", "until": "2026-01-01"}, "until", "shorter ranges"),
        ({"only": "some"}, "only", "missing, failed, all"),
        ({"order": "random"}, "order", "oldest, newest"),
        ({"concurrency": 0}, "concurrency", "from 1"),
    ],
)
async def test_what_cannot_be_is_refused(client, options, field, said):
    span = {"since": "2026-01-01", "until": "2026-01-02"}

    with pytest.raises(UsageError, match=said) as caught:
        await room.backfill(client, "report", **(span | options))

    assert caught.value.field == field


async def test_a_job_without_times_cannot_be_backfilled(client):
    await client.define("by_hand")
    await client.define("poll", schedule=every("1m", mode="delay"))
    span = "2026-01-01", "2026-01-02"

    with pytest.raises(UsageError, match="has no schedule"):
        await room.backfill(client, "by_hand", *span)
    with pytest.raises(UsageError, match="depend on what ran"):
        await room.backfill(client, "poll", *span)
    with pytest.raises(JobNotFound):
        await room.backfill(client, "sned", *span)


async def test_one_that_fired_for_the_last_time_is_backfilled_up_to_now(client, place):
    soon = place.clock.now() + 60
    await client.define("once", schedule=at(soon))
    await client.pause("once")
    await place.clock.advance(120)
    await client.resume("once")

    answer = await room.backfill(client, "once", soon - 60, soon + 3600, dry_run=True)

    assert ticks_of(answer) == [soon]
