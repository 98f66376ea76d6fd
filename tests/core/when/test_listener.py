"""The ticks that new events give the schedules that listen to them."""

from uuid import UUID

from daybell.core.event import Event
from daybell.core.execution import Enqueued
from daybell.core.schedule import Decision, Schedule
from daybell.core.when import on_event
from daybell.core.when.listener import EventPlan, execution_id

ID = UUID(int=7)


def an_event(n=0, *, at=100.0):
    return Event(id=str(n), source="s", name="e", data=str(n), received_at=at)


def a_listener(rule=None, **options):
    rule = on_event("e").to_json() if rule is None else rule
    return Schedule(ID, "default", "index", rule, None, event="e", **options)


def planned(events, *, last=None, **options):
    plan = EventPlan()
    plan.learn(a_listener(**options), last)
    for number, event in enumerate(events):
        plan.add(ID, number, event)
    return plan


def test_events_of_one_moment_have_ticks_and_ids_in_their_order():
    plan = planned([an_event(n) for n in range(50)], last=100.0)

    times = [tick.at for _, tick in plan.ticks]
    assert times == sorted(set(times))
    assert times[0] > 100.0
    assert times[-1] < 100.001
    ids = [new.id for new in plan.executions]
    assert ids == sorted(set(ids))
    assert {(id.version, id.variant) for id in ids} == {(7, "specified in RFC 4122")}


def test_a_tick_is_never_before_the_last_one_on_record():
    (_, tick), *_ = planned([an_event(at=100.0)], last=5000.0).ticks

    assert tick.at > 5000.0


def test_the_id_of_an_execution_is_that_of_its_event_and_schedule():
    first = execution_id(ID, an_event(1), 100.0)

    assert first == execution_id(ID, an_event(1), 100.0)
    assert first not in {
        execution_id(ID, an_event(2), 100.0),
        execution_id(UUID(int=8), an_event(1), 100.0),
    }


def test_a_skipped_execution_and_a_pause_are_counted():
    plan = planned([an_event(n) for n in range(3)])
    skipped = plan.executions[1].id
    plan.settle({new.id: Enqueued(new.id, skipped=new.id == skipped) for new in plan.executions})

    (one,) = plan.listeners.values()
    assert (one.fired, one.skipped, one.missed, one.last_at) == (2, 1, 0, one.ticks[2].at)
    assert one.ticks[1].decision is Decision.SKIPPED
    paused = planned([an_event()], is_paused=True)
    paused.settle({})
    (one,) = paused.listeners.values()
    assert (one.fired, one.missed, one.last_at, paused.executions) == (0, 1, None, [])


def test_an_unreadable_rule_accepts_nothing_and_stops_nothing():
    plan = EventPlan()

    assert not plan.accepts(a_listener('{"event":5}'), 1, an_event())
    assert not plan.accepts(a_listener('{"every":"5m"}'), 1, an_event())
    assert plan.accepts(a_listener(), 1, an_event())
