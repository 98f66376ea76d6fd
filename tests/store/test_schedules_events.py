"""Schedules that events fire: once, through the gates of other ticks, with the event."""

import asyncio

import msgspec
import pytest

from daybell.client.when import build_added_schedule, build_declared_schedules
from daybell.core import payload
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.job import JobDefinition, NewJob
from daybell.core.limits import EVENT_BATCH_MAX
from daybell.core.schedule import Decision, Overlap
from daybell.core.views import ExecutionFilter
from daybell.core.when import cron, on_event
from daybell.errors import UsageError
from tests.builders import TENANT, add_tenants, an_event, claimed

UPLOADED = "file.uploaded"


async def listening(store, name="index", *, when=None, args="{}", tenant=TENANT, **options):
    """A job that an event fires; return its schedules."""
    rules = when or [on_event(UPLOADED)]
    definition = JobDefinition(
        name=name, schedules=tuple(one.to_json() for one in rules), args=args, **options
    )
    now = (await store.health()).now
    new = build_declared_schedules(definition, tenant=tenant, now=now)
    await store.catalog.define_jobs(
        tenant, [NewJob(id=mint(), definition=definition, schedules=new)]
    )
    return [one.id for one in new]


def uploaded(data=None, **fields):
    return an_event(UPLOADED, data=payload.encode(data), **fields)


async def ticks(store, schedule, tenant=TENANT):
    return (await store.schedules.list_ticks(tenant, schedule))[::-1]


async def found(store, tenant=TENANT, **where):
    page = await store.catalog.list_executions(tenant, ExecutionFilter(**where))
    return list(page.items)[::-1]


async def test_an_event_fires_the_jobs_that_listen_to_its_name(store):
    (first,), (second,) = await listening(store, "index"), await listening(store, "scan")
    await listening(store, "other", when=[on_event("file.deleted")])

    answer = await store.runs.publish(TENANT, uploaded({"path": "a.csv"}))

    made = await found(store)
    assert sorted(one.id for one in made) == list(answer.executions)
    assert {one.job for one in made} == {"index", "scan"}
    assert {one.state for one in made} == {State.QUEUED}
    event = payload.decode(made[0].args)["event"]
    assert (event["name"], event["data"]) == (UPLOADED, {"path": "a.csv"})
    for schedule in (first, second):
        (tick,) = await ticks(store, schedule)
        assert (tick.decision, tick.execution in answer.executions) == (Decision.FIRED, True)
        (one,) = await store.schedules.list_schedules(TENANT, ids=[schedule])
        assert (one.fired, one.last_at, one.event) == (1, tick.at, UPLOADED)


async def test_an_event_that_comes_again_fires_nothing_and_names_its_executions(store):
    (schedule,) = await listening(store)
    event = uploaded()
    first = await store.runs.publish(TENANT, event)

    again = await store.runs.publish(TENANT, event)

    assert (again.created, again.executions) == (False, first.executions)
    assert len(await ticks(store, schedule)) == len(await found(store)) == 1


async def test_an_event_that_comes_to_several_callers_at_once_fires_once(store):
    await listening(store)
    event = uploaded()

    answers = await asyncio.gather(*(store.runs.publish(TENANT, event) for _ in range(8)))

    assert sum(one.created for one in answers) == 1
    assert len({one.executions for one in answers}) == 1
    assert len(await found(store)) == 1


async def test_different_events_at_once_all_fire(store):
    (schedule,) = await listening(store)
    events = [uploaded({"n": n}) for n in range(8)]

    await asyncio.gather(*(store.runs.publish(TENANT, event) for event in events))

    made = await found(store)
    assert sorted(payload.decode(one.args)["event"]["data"]["n"] for one in made) == [*range(8)]
    assert len({tick.at for tick in await ticks(store, schedule)}) == 8


async def test_a_filter_decides_which_events_fire(store):
    (schedule,) = await listening(store, when=[on_event(UPLOADED, where={"size": {"gt": 0}})])

    for data in ({"size": 0}, {"size": "1"}, {}, None, [1], {"size": 1}):
        await store.runs.publish(TENANT, uploaded(data))

    (made,) = await found(store)
    assert payload.decode(made.args)["event"]["data"] == {"size": 1}
    assert len(await ticks(store, schedule)) == 1


async def test_parts_of_the_event_fill_the_arguments(store):
    args = payload.encode({"path": {"event": "data.file.path"}, "by": {"event": "source"}, "n": 1})
    await listening(store, args=args)

    await store.runs.publish(TENANT, uploaded({"file": {"path": "a"}}, source="/s3"))
    await store.runs.publish(TENANT, uploaded({"file": None}, source="/s3"))

    made = [payload.decode(one.args) for one in await found(store)]
    assert made == [{"path": "a", "by": "/s3", "n": 1}, {"path": None, "by": "/s3", "n": 1}]


async def test_events_do_not_skip_each_other_unless_the_job_says_so(store):
    await listening(store, "free")
    (strict,) = await listening(store, "strict", overlap=Overlap.SKIP)

    first = await store.runs.publish(TENANT, uploaded(1))
    second = await store.runs.publish(TENANT, uploaded(2))

    states = [one.state for one in await found(store, job="free")]
    assert states == [State.QUEUED, State.QUEUED]
    states = {one.id: one.state for one in await found(store, job="strict")}
    assert sorted(states.values()) == [State.QUEUED, State.SKIPPED]
    assert all(id in (*first.executions, *second.executions) for id in states)
    decisions = [(tick.decision, tick.reason) for tick in await ticks(store, strict)]
    assert decisions == [(Decision.FIRED, None), (Decision.SKIPPED, "overlap")]
    (one,) = await store.schedules.list_schedules(TENANT, ids=[strict])
    assert (one.fired, one.skipped) == (1, 1)


async def test_in_a_list_with_times_only_the_times_skip_by_default(store):
    rules = [cron("0 9 * * *"), on_event(UPLOADED)]
    _, schedule = await listening(store, when=rules)

    for n in range(3):
        await store.runs.publish(TENANT, uploaded(n))

    assert [one.decision for one in await ticks(store, schedule)] == [Decision.FIRED] * 3
    assert {one.state for one in await found(store)} == {State.QUEUED}


async def test_a_queue_of_one_runs_events_one_after_the_other(store):
    await listening(store, overlap=Overlap.QUEUE_ALL)

    answers = await store.runs.publish_many(TENANT, [uploaded(n) for n in range(3)])

    states = [one.state for one in await found(store)]
    assert states == [State.QUEUED, State.WAITING, State.WAITING]
    assert [len(one.executions) for one in answers] == [1, 1, 1]


async def test_a_paused_job_records_the_event_as_missed(store):
    (schedule,) = await listening(store)
    await store.schedules.pause_job(TENANT, "index")

    answer = await store.runs.publish(TENANT, uploaded("while paused"))

    assert (answer.created, answer.executions) == (True, ())
    assert await found(store) == []
    (tick,) = await ticks(store, schedule)
    assert (tick.decision, tick.reason, tick.execution) == (Decision.MISSED, "paused", None)
    (event,) = await store.runs.firing_events(TENANT, schedule, [tick.at])
    assert event.data == '"while paused"'
    await store.schedules.resume_job(TENANT, "index")
    await store.runs.publish(TENANT, uploaded("later"))
    (one,) = await store.schedules.list_schedules(TENANT, ids=[schedule])
    assert (one.missed, one.fired) == (1, 1)


async def test_a_deleted_job_listens_no_more(store):
    await listening(store)
    await store.catalog.delete_job(TENANT, "index")

    answer = await store.runs.publish(TENANT, uploaded())

    assert (answer.created, answer.executions) == (True, ())


async def test_a_new_definition_fires_as_it_says(store):
    await listening(store)
    await store.runs.publish(TENANT, uploaded(1))
    (schedule,) = await listening(store, queue="other", when=[on_event(UPLOADED, where={"n": 1})])

    await store.runs.publish(TENANT, uploaded({"n": 2}))
    await store.runs.publish(TENANT, uploaded({"n": 1}))

    assert [one.queue for one in await found(store)] == ["default", "other"]
    assert len(await ticks(store, schedule)) == 2


async def test_an_event_of_another_tenant_fires_nothing_here(store):
    await add_tenants(store, "b")
    await listening(store)

    await store.runs.publish("b", uploaded())

    assert await found(store) == []


async def test_a_signal_fires_nothing(store):
    await listening(store)
    hands = await claimed(store, 1)

    await store.runs.publish(TENANT, uploaded(execution=hands.executions[0].id))

    assert [one.id for one in await found(store)] == [hands.executions[0].id]


async def test_a_batch_is_all_or_nothing(store):
    await listening(store)
    good, bad = uploaded(1), msgspec.structs.replace(uploaded(2), source="")

    with pytest.raises(UsageError):
        await store.runs.publish_many(TENANT, [good, bad])
    with pytest.raises(UsageError):
        await store.runs.publish_many(TENANT, [uploaded()] * (EVENT_BATCH_MAX + 1))

    assert await found(store) == []
    assert not (await store.runs.list_events(TENANT)).items


async def test_a_batch_fires_in_its_order_and_each_event_once(store):
    (schedule,) = await listening(store)
    events = [uploaded(n) for n in range(40)]

    answers = await store.runs.publish_many(TENANT, [*events, *events[:3]])

    assert [one.created for one in answers] == [True] * 40 + [False] * 3
    assert [one.executions for one in answers[40:]] == [one.executions for one in answers[:3]]
    made = sorted(await found(store), key=lambda one: one.id)
    assert [payload.decode(one.args)["event"]["data"] for one in made] == [*range(40)]
    records = await ticks(store, schedule)
    events_found = await store.runs.firing_events(TENANT, schedule, [one.at for one in records])
    assert [one.data for one in events_found] == [str(n) for n in range(40)]


async def test_a_schedule_added_at_run_time_listens_too(store):
    await store.catalog.define_jobs(
        TENANT, [NewJob(id=mint(), definition=JobDefinition(name="index"))]
    )
    now = (await store.health()).now
    new = build_added_schedule(
        JobDefinition(name="index"),
        on_event(UPLOADED),
        tenant=TENANT,
        now=now,
        args='{"a": 1}',
        name="mine",
    )
    await store.schedules.put_schedules(TENANT, [new])

    for n in range(2):
        await store.runs.publish(TENANT, uploaded(n))

    made = await found(store)
    assert [one.state for one in made] == [State.QUEUED, State.QUEUED]
    assert payload.decode(made[0].args)["a"] == 1
