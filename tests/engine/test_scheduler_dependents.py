"""Firing and letting go what depends on other jobs, by a clock that the test moves."""

import asyncio

import pytest

from daybell.client import Client
from daybell.client import schedules as room
from daybell.client.backfill import backfill
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Decision
from daybell.core.units import from_iso, to_datetime, to_iso
from daybell.core.when import after, after_any, cron
from daybell.engine.events import Events, Fired
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import (
    DEPENDENTS_IDLE_SECONDS,
    DEPENDENTS_POLL_SECONDS,
    REST_SECONDS_MAX,
    THOROUGH_SECONDS,
    THOROUGH_SECONDS_MAX,
    Scheduler,
)
from tests.builders import TENANT, apply, claim, death, success
from tests.engine.faults import faulty
from tests.engine.tasks import a_store

TWO = from_iso("2026-06-01T02:00:00+00:00")
DAILY = cron("0 2 * * *")


@pytest.fixture
def clock():
    return ManualClock(TWO - 60)


@pytest.fixture
async def client(clock):
    store = faulty(await a_store(clock))
    async with Client(store) as opened:
        yield opened


@pytest.fixture
def scheduler(client, clock):
    return Scheduler(client.store, clock=clock, mint=mint, events=Events())


async def turn(scheduler):
    """What a scheduler does when it is woken."""
    await scheduler.tick()
    return await scheduler.dependents.tick()


async def end(client, job, how=success):
    """Run what is queued of a job to this end; answers how many that were."""
    hands = await claim(client.store)
    mine = [one for one in hands.executions if one.job == job]
    assert len(mine) == len(hands.executions), "others can be claimed, too"
    await apply(client.store, hands, *map(how, mine))
    return len(mine)


async def run(client, job, how=success):
    await client.enqueue(job)
    assert await end(client, job, how) == 1


async def of(client, job):
    page = await client.executions(job=job)
    return [(str(one.status), one.reason) for one in page.items]


async def ticks(client, job):
    [schedule] = await room.schedules(client, job)
    found = await client.store.schedules.list_ticks(TENANT, schedule.id)
    return [(one.decision, one.reason) for one in found]


async def test_without_a_schedule_it_fires_when_each_has_succeeded(client, clock, scheduler):
    await client.define("extract")
    await client.define("clean")
    await run(client, "extract")  # before there was anybody to fire
    clock.advance(1)
    await client.define("load", schedule=after("extract", "clean"), args={"into": "sales"})

    clock.advance(1)
    await run(client, "clean")
    assert await turn(scheduler) == DEPENDENTS_POLL_SECONDS
    assert await of(client, "load") == []

    clock.advance(1)
    await run(client, "extract")
    decided = clock.now()
    clock.advance(1)
    await turn(scheduler)
    await turn(scheduler)
    [one] = (await client.executions(job="load")).items
    assert (one.status, one.args) == (State.QUEUED, {"into": "sales"})
    assert one.scheduled_for == to_datetime(decided)

    await end(client, "load")
    clock.advance(1)
    await run(client, "extract")  # again; but clean has not
    await turn(scheduler)
    assert await of(client, "load") == [("succeeded", None)]


async def test_any_success_fires_a_job_that_comes_after_any(client, clock, scheduler):
    await client.define("orders")
    await client.define("returns")
    await run(client, "orders")  # before there was anybody to fire
    clock.advance(1)
    await client.define("report", schedule=after_any("orders", "returns"), args={"day": 1})
    await turn(scheduler)
    assert await of(client, "report") == []

    for job in ("returns", "orders"):
        clock.advance(1)
        await run(client, job, death)
        await turn(scheduler)
        clock.advance(1)
        await run(client, job)
        ended = clock.now()
        clock.advance(1)
        await turn(scheduler)
        await turn(scheduler)
        one, *_ = (await client.executions(job="report")).items
        assert (one.status, one.args) == (State.QUEUED, {"day": 1})
        assert one.scheduled_for == to_datetime(ended)
        await end(client, "report")

    assert await of(client, "report") == [("succeeded", None)] * 2


async def test_a_job_is_fired_by_each_schedule_of_a_list(client, clock, scheduler):
    await client.define("orders")
    await client.define("report", schedule=[after_any("orders"), DAILY])

    clock.advance(1)
    await run(client, "orders")
    clock.advance(1)
    await turn(scheduler)
    await end(client, "report")
    clock.advance(60)
    await turn(scheduler)
    await end(client, "report")

    found = (await client.executions(job="report")).items
    assert [one.scheduled_for for one in found] == [to_datetime(TWO), to_datetime(TWO - 59)]


async def test_a_failure_fires_it_only_if_that_was_asked_for(client, clock, scheduler):
    await client.define("orders")
    await client.define("report", schedule=after_any("orders"))
    await client.define("alarm", schedule=after_any("orders"), on_dependency_failure="run")

    clock.advance(1)
    await run(client, "orders", death)
    await turn(scheduler)

    assert await of(client, "report") == []
    assert await of(client, "alarm") == [("queued", None)]


async def test_what_any_fires_waits_for_the_dependencies_of_its_job(client, clock, scheduler):
    await client.define("orders")
    await client.define("audit")
    await client.define("report", schedule=after_any("orders"), dependencies=["audit"])

    clock.advance(1)
    await run(client, "orders")
    await turn(scheduler)
    assert await of(client, "report") == [("waiting", "dependencies")]
    clock.advance(1)
    await run(client, "audit")
    await turn(scheduler)

    assert await of(client, "report") == [("queued", None)]


async def test_a_success_while_it_runs_is_not_lost(client, clock, scheduler):
    await client.define("orders")
    await client.define("report", schedule=[after_any("orders"), cron("0 5 * * *")])
    clock.advance(1)
    await run(client, "orders")
    await turn(scheduler)
    running = await claim(client.store)

    clock.advance(1)
    await run(client, "orders")
    await turn(scheduler)
    assert await of(client, "report") == [("waiting", "overlap"), ("running", None)]
    await apply(client.store, running, *map(success, running.executions))

    assert await end(client, "report") == 1


async def test_what_succeeds_several_times_fires_once_a_round(client, clock, scheduler):
    await client.define("extract")
    await client.define("clean")
    await client.define("load", dependencies=["extract", "clean"])
    for _ in range(3):
        clock.advance(1)
        await run(client, "extract")
    clock.advance(1)
    await run(client, "clean")

    for _ in range(3):
        await turn(scheduler)

    assert await of(client, "load") == [("queued", None)]


async def test_a_round_that_comes_while_it_runs_waits_for_its_turn(client, clock, scheduler):
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    for _ in range(3):
        clock.advance(1)
        await client.enqueue("extract")
        hands = await claim(client.store)
        await apply(
            client.store, hands, *(success(one) for one in hands.executions if one.job != "load")
        )
        await turn(scheduler)

    assert sorted(await of(client, "load")) == [
        ("running", None),
        ("skipped", "overlap"),
        ("waiting", "overlap"),
    ]


@pytest.mark.parametrize(
    ("policy", "fires", "on_record"),
    [
        ("wait", [], []),
        ("skip", [("skipped", "upstream_failed")], [(Decision.SKIPPED, "upstream_failed")]),
        ("run", [("queued", None)], [(Decision.FIRED, None)]),
    ],
)
async def test_a_dependency_that_failed_fires_by_rule(
    client, clock, scheduler, policy, fires, on_record
):
    await client.define("extract")
    await client.define("load", dependencies=["extract"], on_dependency_failure=policy)
    clock.advance(1)
    await run(client, "extract", death)

    await turn(scheduler)
    await turn(scheduler)

    assert await of(client, "load") == fires
    assert await ticks(client, "load") == on_record


async def test_a_retried_dead_letter_fires_who_waits(client, clock, scheduler):
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    clock.advance(1)
    await run(client, "extract", death)
    [letter] = (await client.executions(job="extract")).items
    await turn(scheduler)

    await client.store.queue.revive(TENANT, [letter.execution_id])
    await end(client, "extract")
    await turn(scheduler)

    assert await of(client, "load") == [("queued", None)]


async def two_dailies(client, **options):
    await client.define("extract", schedule=DAILY)
    await client.define("load", schedule=DAILY, dependencies=["extract"], **options)


async def test_with_a_schedule_it_fires_at_its_time_and_starts_after_the_others(
    client, clock, scheduler
):
    await two_dailies(client)
    await run(client, "extract")  # a minute before: not the one that is due at two
    clock.advance(60)

    await turn(scheduler)
    assert await of(client, "load") == [("waiting", "dependencies")]

    clock.advance(300)
    await end(client, "extract")
    assert await turn(scheduler) == DEPENDENTS_POLL_SECONDS
    assert await of(client, "load") == [("queued", None)]


async def test_a_tick_is_not_let_go_before_that_of_its_dependency_has_fired(client, clock):
    await two_dailies(client)
    await run(client, "extract")
    clock.advance(60)
    scheduler = Scheduler(client.store, clock=clock, mint=mint, events=Events())
    due = await client.store.schedules.due_schedules()
    [id] = [one.id for one in due.schedules if one.job == "load"]
    [load] = [one for one in scheduler.plan(due) if one.schedule == id]
    await client.store.schedules.fire([load])  # another scheduler has the other one in its hands

    await scheduler.dependents.tick()

    assert await of(client, "load") == [("waiting", "dependencies")]


@pytest.mark.parametrize(
    ("policy", "becomes"),
    [
        ("wait", ("waiting", "dependencies")),
        ("skip", ("skipped", "upstream_failed")),
        ("run", ("queued", None)),
    ],
)
async def test_a_tick_whose_dependency_failed(client, clock, scheduler, policy, becomes):
    await two_dailies(client, on_dependency_failure=policy)
    clock.advance(60)
    await turn(scheduler)
    await end(client, "extract", death)

    await turn(scheduler)

    assert await of(client, "load") == [becomes]


async def test_a_newer_success_lets_go_what_waits_after_a_failure(client, clock, scheduler):
    await two_dailies(client)
    clock.advance(60)
    await turn(scheduler)
    await end(client, "extract", death)
    await turn(scheduler)
    clock.advance(600)

    await run(client, "extract")
    await turn(scheduler)

    assert await of(client, "load") == [("queued", None)]


async def test_who_takes_the_dependency_away_lets_go_what_waits(client, clock, scheduler):
    await two_dailies(client)
    clock.advance(60)
    await turn(scheduler)

    await client.define("load", schedule=DAILY)
    await scheduler.dependents.tick()

    assert await of(client, "load") == [("queued", None)]


async def test_people_do_not_wait(client, clock, scheduler):
    await two_dailies(client)

    await client.trigger("load")

    assert await of(client, "load") == [("queued", None)]


async def test_a_schedule_that_was_added_waits_too(client, clock, scheduler):
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    await room.schedule(client, "load", DAILY)
    clock.advance(60)

    await turn(scheduler)

    assert await of(client, "load") == [("waiting", "dependencies")]


async def test_a_backfill_waits_for_what_was_due_at_its_ticks(client, clock, scheduler):
    await two_dailies(client)
    clock.advance(60)
    await turn(scheduler)
    await end(client, "extract", death)
    clock.advance(86_400)
    await turn(scheduler)
    await end(client, "extract")
    await turn(scheduler)
    await end(client, "load")

    # A day later the first night is made up for: load not before extract.
    filled = await backfill(client, "load", TWO, TWO + 1, only="all")
    again = await backfill(client, "extract", TWO, TWO + 1, only="all")
    assert [len(filled.ticks), len(again.ticks)] == [1, 1]
    await turn(scheduler)
    found = await client.execution(filled.ticks[0].execution)
    assert (found.status, found.reason) == (State.WAITING, "dependencies")

    await end(client, "extract")
    await turn(scheduler)
    found = await client.execution(filled.ticks[0].execution)
    assert found.status is State.QUEUED


async def test_what_happens_during_a_pause_fires_nothing(client, clock, scheduler):
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    await client.pause("load")
    clock.advance(1)
    await run(client, "extract")
    clock.advance(1)

    await client.resume("load")
    await turn(scheduler)
    assert await of(client, "load") == []

    clock.advance(1)
    await run(client, "extract")
    await turn(scheduler)
    assert await of(client, "load") == [("queued", None)]


async def test_who_has_nothing_to_look_after_asks_rarely(client, clock, scheduler):
    await client.define("extract", schedule=DAILY)

    assert await scheduler.dependents.tick() is None

    assert client.store.count("dependents") == 1
    assert client.store.count("ended_since") + client.store.count("upstream") == 0
    assert DEPENDENTS_IDLE_SECONDS >= 5


async def test_now_and_then_no_success_is_overlooked(client, clock, scheduler, monkeypatch):
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    asked, ended_since = [], client.store.schedules.ended_since

    async def spy(tenant, jobs, *, thoroughly):
        asked.append(thoroughly)
        return await ended_since(tenant, jobs, thoroughly=thoroughly)

    monkeypatch.setattr(client.store.schedules, "ended_since", spy)
    for _ in range(3):
        await scheduler.dependents.tick()
        clock.advance(THOROUGH_SECONDS / 2)

    assert asked == [True, False, True]  # the first after nobody may have looked for long


async def test_a_look_that_stood_still_is_followed_by_a_short_rest(
    client, clock, scheduler, monkeypatch
):
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    asked, ended_since = [], client.store.schedules.ended_since
    took = [3600, 2, 0, 0]

    async def slow(tenant, jobs, *, thoroughly):
        clock.advance(took[len(asked)])
        asked.append(thoroughly)
        return await ended_since(tenant, jobs, thoroughly=thoroughly)

    monkeypatch.setattr(client.store.schedules, "ended_since", slow)
    waits = [await scheduler.dependents.tick() for _ in range(3)]
    clock.advance(THOROUGH_SECONDS_MAX)
    await scheduler.dependents.tick()

    assert waits == [REST_SECONDS_MAX, 20, DEPENDENTS_POLL_SECONDS]
    assert asked == [True, False, False, True]


async def test_many_are_looked_at_in_pages(client, clock, scheduler, monkeypatch):
    monkeypatch.setattr("daybell.engine.scheduler.DEPENDENTS_BATCH_MAX", 2)
    await client.define("extract")
    for n in range(5):
        await client.define(f"load-{n}", dependencies=["extract"])
    clock.advance(1)
    await run(client, "extract")

    waits = [await scheduler.dependents.tick() for _ in range(3)]

    assert waits == [0.0, 0.0, DEPENDENTS_POLL_SECONDS]
    assert [await of(client, f"load-{n}") for n in range(5)] == [[("queued", None)]] * 5


async def test_of_several_schedulers_one_fires(client, clock):
    events, heard = Events(), []
    events.observe(heard.append)
    crowd = [Scheduler(client.store, clock=clock, mint=mint, events=events) for _ in range(4)]
    await client.define("extract")
    await client.define("load", dependencies=["extract"])
    clock.advance(1)
    await run(client, "extract")
    clock.advance(2)

    await asyncio.gather(*(one.dependents.tick() for one in crowd))

    assert await of(client, "load") == [("queued", None)]
    [fired] = [one for one in heard if isinstance(one, Fired)]
    assert (fired.job, fired.late) == ("load", 2.0)


async def test_after_a_round_what_is_waited_for_is_since_then(client, clock, scheduler):
    await client.define("extract")
    await client.define("load", schedule=after("extract"))
    before = (await room.standing(client, "load")).waits_for
    clock.advance(1)
    await run(client, "extract")
    fired = clock.now()
    await turn(scheduler)

    [told] = (await room.standing(client, "load")).waits_for

    assert before[0].detail == "has not succeeded yet"
    assert not told.is_met
    assert told.detail == f"has not succeeded since this job was fired last, at {to_iso(fired)}"
