"""Alerts: rules, incidents with one message each, and the facts that the leader evaluates."""

import asyncio
import dataclasses
import importlib
import json
import random

import pytest
from msgspec.structs import replace

from daybell.core.alerts.incidents import IncidentMove, Message, MoveKind, messages_for
from daybell.core.alerts.notifications import JobNotification
from daybell.core.alerts.rules import ALERT_RULES, AlertRule, message_job
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from daybell.core.views import ExecutionFilter
from daybell.core.when import Calendar, cron
from daybell.engine.alerts import Alerts
from daybell.errors import AlertNotFound, DuplicateKey, QuotaExceeded, UsageError, VersionConflict
from daybell.store.sqlite import SqliteStore
from tests.builders import (
    TENANT,
    a_job,
    a_report,
    a_schedule,
    a_tick,
    a_worker,
    add_tenants,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    fired,
    limit,
    put,
    registered,
    success,
)
from tests.stores import ManualClock
from tests.sweeps import fold_all

TO = ["json://127.0.0.1:1/a"]


def a_rule(on="dead_letter", **fields):
    return AlertRule.parse({"name": f"on-{on}", "on": on, "to": TO, **fields})


async def kept(store, on="dead_letter", tenant=TENANT, **fields):
    """A rule that the store has."""
    return await store.admin.put_record(tenant, ALERT_RULES, a_rule(on, **fields))


def opening(rule, subject="resize", *, kind=MoveKind.OPEN, title="title", **fields):
    """A move that opens an incident, with its message."""
    jobs, sent = messages_for(rule, Message("open", title, "body", 0.0), mint)
    return IncidentMove(
        kind=kind,
        id=mint(),
        rule=rule.name,
        subject=subject,
        jobs=jobs,
        messages=sent,
        **fields,
    )


async def incidents(store, *, tenant=TENANT, **where):
    return list((await store.admin.list_incidents(tenant, **where)).items)


async def opened(store, **where):
    return await incidents(store, is_open=True, **where)


async def messages(store, rule="on-dead_letter", tenant=TENANT):
    """The titles of the messages of a rule, oldest first."""
    where = ExecutionFilter(job=message_job(rule))
    found = (await store.catalog.list_executions(tenant, where)).items
    return [json.loads(one.args)["title"] for one in reversed(found)]


async def evaluated(store, rounds=1):
    """Evaluate all rules, in a process of its own."""
    for _ in range(rounds):
        await Alerts(store, mint=mint).tick()


async def closing(store, kind=MoveKind.CLOSE, **fields):
    """A move of the only open incident."""
    (incident,) = await opened(store)
    return IncidentMove(
        kind=kind,
        id=incident.id,
        rule=incident.rule,
        subject=incident.subject,
        version=incident.version,
        **fields,
    )


# Rules.


async def test_a_rule_is_kept_replaced_listed_and_deleted(store):
    first = await kept(store)
    same = await kept(store)
    changed = await kept(store, repeat="1h")
    await kept(store, "paused")

    assert (first.version, same.version, changed.version) == (1, 1, 2)
    assert (await store.admin.get_record(TENANT, ALERT_RULES, first.name)).rule.repeat == 3600.0
    page = await store.admin.list_records(TENANT, ALERT_RULES, limit=1)
    assert [one.name for one in page.items] == ["on-dead_letter"]
    rest = await store.admin.list_records(TENANT, ALERT_RULES, cursor=page.next_cursor)
    assert [one.name for one in rest.items] == ["on-paused"]
    await store.admin.delete_record(TENANT, ALERT_RULES, first.name, expect=2)
    with pytest.raises(AlertNotFound):
        await store.admin.get_record(TENANT, ALERT_RULES, first.name)
    with pytest.raises(AlertNotFound):
        await store.admin.delete_record(TENANT, ALERT_RULES, first.name)


async def test_a_rule_that_is_at_another_version_is_not_replaced(store):
    await kept(store)

    with pytest.raises(DuplicateKey):
        await store.admin.put_record(TENANT, ALERT_RULES, a_rule(), expect=0)
    with pytest.raises(VersionConflict):
        await store.admin.put_record(TENANT, ALERT_RULES, a_rule(count=None), expect=7)
    with pytest.raises(VersionConflict):
        await store.admin.delete_record(TENANT, ALERT_RULES, "on-dead_letter", expect=7)


async def test_a_tenant_has_a_limited_number_of_rules(store):
    assert ALERT_RULES.most is not None
    assert ALERT_RULES.most > 2
    few = dataclasses.replace(ALERT_RULES, most=2)
    for name in ("a", "b"):
        await store.admin.put_record(TENANT, few, a_rule(name=name))

    with pytest.raises(UsageError):
        await store.admin.put_record(TENANT, few, a_rule(name="c"))
    changed = a_rule(name="b", repeat="1h")
    assert (await store.admin.put_record(TENANT, few, changed)).version == 2


# Incidents.


async def test_an_incident_opens_once_with_one_message_however_many_try(store, crowd):
    rule = (await kept(store)).rule

    made = await asyncio.gather(
        *(one.admin.move_incident(TENANT, opening(rule)) for one in crowd for _ in range(3))
    )

    assert sum(made) == len(await opened(store)) == len(await messages(store)) == 1


async def test_an_incident_closes_once_with_one_message_however_many_try(store, crowd):
    rule = (await kept(store)).rule
    await store.admin.move_incident(TENANT, opening(rule))
    move = await closing(store)

    made = await asyncio.gather(
        *(
            one.admin.move_incident(
                TENANT,
                replace(
                    opening(rule, title="end"), kind=move.kind, id=move.id, version=move.version
                ),
            )
            for one in crowd
            for _ in range(3)
        )
    )

    assert sum(made) == 1
    assert await opened(store) == []
    assert await messages(store) == ["title", "end"]


async def test_a_move_of_an_incident_that_has_changed_writes_nothing(store):
    await store.admin.move_incident(TENANT, opening((await kept(store)).rule))
    late = await closing(store, MoveKind.ACKNOWLEDGE, by="ada")
    assert await store.admin.move_incident(TENANT, late)

    assert not await store.admin.move_incident(TENANT, late)
    (incident,) = await opened(store)
    assert (incident.version, incident.acknowledged_by) == (2, "ada")


async def test_facts_from_before_an_incident_closed_do_not_open_it_again(store, clock):
    rule = (await kept(store)).rule
    read_at = clock.now()
    await clock.advance(1)
    await store.admin.move_incident(TENANT, opening(rule))
    await store.admin.move_incident(TENANT, await closing(store))

    assert not await store.admin.move_incident(TENANT, opening(rule, read_at=read_at))
    assert await store.admin.move_incident(TENANT, opening(rule, read_at=clock.now() + 1))


async def test_an_event_is_recorded_once(store, clock):
    rule = (await kept(store)).rule
    event = {"kind": MoveKind.RECORD, "mark": "m", "read_at": clock.now() + 1}

    made = [await store.admin.move_incident(TENANT, opening(rule, **event)) for _ in range(2)]

    assert made == [True, False]
    assert await opened(store) == []
    assert len(await incidents(store, is_open=False)) == len(await messages(store)) == 1


async def test_a_message_without_room_in_the_quota_leaves_no_incident(store):
    rule = (await kept(store)).rule
    await enqueued(store)
    await limit(store, queued=1)

    with pytest.raises(QuotaExceeded):
        await store.admin.move_incident(TENANT, opening(rule))
    assert await opened(store) == []


async def test_a_message_that_waits_for_room_is_sent_when_there_is_some(store):
    await dead(store)
    await kept(store)
    await enqueued(store)
    await limit(store, queued=1)
    await evaluated(store)
    assert [one.notified_at for one in await opened(store)] == [None]

    await limit(store, queued=100)
    await evaluated(store, rounds=2)

    assert len(await messages(store)) == 1


async def test_incidents_are_listed_newest_first_by_rule_and_state(store):
    rules = [(await kept(store, name=name)).rule for name in ("a", "b")]
    for rule in rules:
        await store.admin.move_incident(TENANT, opening(rule))
    (newest, oldest) = await incidents(store)

    assert (newest.rule, oldest.rule) == ("b", "a")
    assert await incidents(store, rule="a") == [oldest]
    assert await incidents(store, is_open=False) == []
    page = await store.admin.list_incidents(TENANT, limit=1)
    assert page.items == (newest,)
    assert await incidents(store, cursor=page.next_cursor) == [oldest]


async def test_old_incidents_are_removed(store, clock):
    rule = (await kept(store)).rule
    await store.admin.move_incident(TENANT, opening(rule))
    await store.admin.move_incident(TENANT, await closing(store))
    await clock.advance(91 * 86400)

    await store.admin.move_incident(TENANT, opening(rule, "other"))

    assert [one.subject for one in await incidents(store)] == ["other"]


async def test_the_work_has_the_rules_and_open_incidents_of_all_tenants(store):
    await add_tenants(store, ["acme"])
    for tenant in (TENANT, "acme"):
        rule = (await kept(store, tenant=tenant)).rule
        await store.admin.move_incident(tenant, opening(rule))

    work = await store.admin.alert_work()

    assert {one.tenant for one in work.rules} == {one.tenant for one in work.incidents}
    assert {one.tenant for one in work.rules} == {TENANT, "acme"}


# Rules from the facts to the messages.


async def test_a_dead_letter_opens_an_incident_and_its_retry_closes_it(store):
    await kept(store)
    ids = await dead(store)
    await evaluated(store, rounds=3)
    (incident,) = await opened(store)
    assert incident.subject == "resize"
    assert await messages(store) == ["[ALERT] on-dead_letter: resize"]

    await store.queue.discard(TENANT, ids)
    await evaluated(store, rounds=3)

    assert await opened(store) == []
    assert (await messages(store))[1:] == ["[RECOVERED] on-dead_letter: resize"]


async def test_a_second_dead_letter_is_news(store, clock):
    await kept(store)
    for _ in range(2):
        await dead(store)
        await clock.advance(1)
        await evaluated(store, rounds=2)

    assert len(await opened(store)) == 1
    assert [one.split()[0] for one in await messages(store)] == ["[ALERT]", "[STILL"]


async def test_failures_in_a_row_end_with_a_success(store, clock):
    await kept(store, "failures", count=2)
    await dead(store)
    await evaluated(store)
    assert await opened(store) == []

    await clock.advance(1)
    await dead(store)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["resize"]

    await clock.advance(1)
    await finished(store)
    await evaluated(store)
    assert await opened(store) == []
    assert len(await messages(store, "on-failures")) == 2


async def test_a_failure_rate_counts_the_ends_of_its_window(store, clock):
    await kept(store, "failure_rate", rate=0.5, count=4, within="1h")
    await finished(store, 2)
    await dead(store, 2)
    await fold_all(store)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["all jobs"]

    await clock.advance(7200)
    await evaluated(store)
    assert await opened(store) == []


async def test_a_run_is_missed_that_no_scheduler_fires(store, clock):
    await put(store, a_schedule(next_at=clock.now() + 60))
    await kept(store, "missed_run", grace="10m")
    await clock.advance(600)
    await evaluated(store)
    assert await opened(store) == []

    await clock.advance(61)
    await evaluated(store)

    assert "no scheduler has fired it" in (await opened(store))[0].detail


async def test_a_run_is_missed_that_has_not_succeeded_in_time(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await kept(store, "missed_run", grace="10m")
    await fired(store, schedule, next_at=clock.now() + 86400)
    await clock.advance(601)
    await evaluated(store)
    assert len(await opened(store)) == 1

    hands = await claim(store)
    await apply(store, hands, *map(success, hands.executions))
    await evaluated(store)

    assert await opened(store) == []
    assert len(await messages(store, "on-missed_run")) == 2


async def test_a_tick_that_a_rule_skips_is_not_missed(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule, overlap="skip")
    await kept(store, "missed_run", grace="10m")
    await fired(store, schedule)
    hands = await claim(store)
    await clock.advance(60)
    await fired(store, schedule, next_at=clock.now() + 86400)
    await apply(store, hands, *map(success, hands.executions))
    await clock.advance(3600)
    await evaluated(store)

    assert await opened(store) == []


async def test_a_paused_schedule_raises_nothing(store, clock):
    await put(store, a_schedule(next_at=clock.now() + 60))
    await kept(store, "missed_run")
    await store.schedules.pause_job(TENANT, "resize")
    await clock.advance(86400)
    await evaluated(store)

    assert await opened(store) == []


async def test_a_schedule_that_has_ended_raises_nothing(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await kept(store, "missed_run")
    await fired(store, schedule, a_tick(clock.now(), schedule=schedule.id), next_at=None)
    await clock.advance(86400)
    await evaluated(store)

    assert await opened(store) == []


async def test_a_start_is_late_until_a_worker_takes_it(store, clock):
    await kept(store, "late_start", grace="5m")
    await enqueued(store)
    await clock.advance(301)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["resize"]

    await claim(store)
    await evaluated(store)
    assert await opened(store) == []


async def started(store):
    """An execution whose worker has reported its start."""
    hands = await claimed(store)
    report = a_report(hands.one, ran=0.0)
    assert await store.queue.report(TENANT, worker=hands.worker, reports=[report]) == []


async def test_a_run_is_too_long_by_a_fixed_grace(store, clock):
    await kept(store, "long_run", grace="5m")
    await started(store)
    await clock.advance(299)
    await evaluated(store)
    assert await opened(store) == []

    await clock.advance(2)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["resize"]


@pytest.mark.parametrize(("runs", "is_long"), [(19, False), (20, True)])
async def test_a_learnt_grace_needs_twenty_runs(store, clock, runs, is_long):
    await kept(store, "long_run", factor=2)
    hands = await claimed(store, runs)
    await clock.advance(100)
    await apply(store, hands, *(success(one, ran=100.0) for one in hands.executions))
    await fold_all(store)
    await started(store)
    await clock.advance(180)
    await evaluated(store)
    assert await opened(store) == []

    await clock.advance(60)
    await evaluated(store)
    assert bool(await opened(store)) is is_long


async def test_a_queue_is_too_old_unless_it_is_paused(store, clock):
    await kept(store, "queue_age", grace="5m")
    await enqueued(store)
    await clock.advance(301)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["default"]

    await store.catalog.pause_queue(TENANT, "default", paused=True)
    await evaluated(store)
    assert await opened(store) == []


async def test_a_queue_a_kind_and_a_task_without_a_worker_are_named(store, clock):
    await kept(store, "no_worker", grace="1m")
    await enqueued(store)
    await clock.advance(61)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["queue default"]

    worker = a_worker(queues=("default",), kinds=("command",))
    await store.queue.register(TENANT, worker, lease=3600.0)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["queue default, kind task"]

    worker = a_worker(queues=("default",), tasks={"other": "default"})
    await store.queue.register(TENANT, worker, lease=3600.0)
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["queue default, task resize"]

    worker = a_worker(queues=("default",), tasks={"resize": "default"})
    await store.queue.register(TENANT, worker, lease=3600.0)
    await evaluated(store)
    assert await opened(store) == []


async def test_lost_workers_are_counted_by_their_executions(store, clock):
    await kept(store, "lost_workers", within="15m")
    await evaluated(store)
    assert await opened(store) == []
    hands = await claimed(store)
    await clock.advance(3600)
    await store.queue.lost(since=clock.now() - 3600)
    lost = (await store.queue.lost()).executions
    moves = [
        after_loss(
            one.claimed,
            max_crashes=one.max_crashes,
            retry=one.retry,
            is_begun=True,
            is_excused=False,
            is_sole=False,
            is_proven=False,
        )
        for one in lost
    ]
    assert moves
    await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)
    await fold_all(store)
    await evaluated(store)

    assert [one.subject for one in await opened(store)] == ["all jobs"]


async def test_a_job_that_its_failures_have_paused_is_named(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule, pause_after_failures=1)
    await kept(store, "paused")
    await fired(store, schedule)
    await evaluated(store)
    assert await opened(store) == []

    hands = await claim(store)
    await apply(store, hands, *map(death, hands.executions))
    await evaluated(store)
    assert [one.subject for one in await opened(store)] == ["resize"]

    await store.schedules.resume_job(TENANT, "resize")
    await evaluated(store)
    assert await opened(store) == []


async def test_a_job_that_a_person_has_paused_is_not(store, clock):
    await put(store, a_schedule(next_at=clock.now(), pause_after=1), pause_after_failures=1)
    await kept(store, "paused")
    await store.schedules.pause_job(TENANT, "resize", note="holidays")
    await evaluated(store)

    assert await opened(store) == []


# Silences, acknowledgement, repetition.


async def test_a_silenced_rule_opens_incidents_and_sends_when_the_silence_ends(store, clock):
    rule = (await kept(store)).rule
    silenced = replace(rule, silenced_until=clock.now() + 3600, silence_reason="deploy")
    await store.admin.put_record(TENANT, ALERT_RULES, silenced)
    await dead(store)
    await evaluated(store)
    assert len(await opened(store)) == 1
    assert await messages(store) == []

    await clock.advance(3601)
    await evaluated(store, rounds=2)
    assert len(await messages(store)) == 1


async def test_an_incident_that_ended_in_a_silence_sends_nothing(store, clock):
    rule = (await kept(store)).rule
    await store.admin.put_record(
        TENANT, ALERT_RULES, replace(rule, silenced_until=clock.now() + 3600)
    )
    ids = await dead(store)
    await evaluated(store)
    await store.queue.discard(TENANT, ids)
    await clock.advance(3601)
    await evaluated(store)

    assert await opened(store) == []
    assert await messages(store) == []


async def test_an_open_incident_is_repeated_until_it_is_acknowledged(store, clock):
    await kept(store, repeat="1h")
    await dead(store)
    await evaluated(store)
    await clock.advance(3599)
    await evaluated(store)
    assert len(await messages(store)) == 1
    await clock.advance(1)
    await evaluated(store, rounds=2)
    assert len(await messages(store)) == 2

    assert await store.admin.move_incident(
        TENANT, await closing(store, MoveKind.ACKNOWLEDGE, by="ada")
    )
    await clock.advance(7200)
    await evaluated(store)
    assert len(await messages(store)) == 2


async def test_incidents_of_a_rule_that_is_gone_close_without_a_message(store):
    await kept(store)
    await dead(store)
    await evaluated(store)
    await store.admin.delete_record(TENANT, ALERT_RULES, "on-dead_letter")
    await evaluated(store)

    assert await opened(store) == []
    assert len(await messages(store)) == 1


async def test_a_message_that_cannot_be_sent_raises_no_alert(store):
    await kept(store)
    await dead(store)
    await evaluated(store)
    await dead_messages(store)
    await evaluated(store)

    assert [one.subject for one in await opened(store)] == ["resize"]


async def dead_messages(store):
    """Let the messages that wait die."""
    worker = await registered(store)
    hands = await claim(store, worker=worker, kinds=("notify",))
    assert hands.executions
    await apply(store, hands, *map(death, hands.executions))


async def test_several_leaders_send_one_message_each(store, crowd):
    await kept(store)
    ids = await dead(store)
    leaders = [Alerts(one, mint=mint) for one in crowd]
    await asyncio.gather(*(one.tick() for one in leaders))
    await store.queue.discard(TENANT, ids)
    await asyncio.gather(*(one.tick() for one in leaders))

    assert len(await incidents(store)) == 1
    assert len(await messages(store)) == 2


# Notifications of jobs.


async def test_notifications_of_a_job_are_rules(store, clock):
    await defined(store, "other")
    job = a_job(notifications=(JobNotification(("dead", "succeeded"), tuple(TO)),))
    await store.catalog.define_jobs(TENANT, [job])
    await dead(store)
    await dead(store, job="other")
    await clock.advance(1)
    await finished(store)
    await evaluated(store, rounds=2)

    assert [one.subject for one in await opened(store)] == ["resize"]
    assert len(await messages(store, "resize/1/dead")) == 1
    assert len(await messages(store, "resize/1/succeeded")) == 1

    await clock.advance(1)
    await finished(store)
    await evaluated(store, rounds=2)
    assert len(await messages(store, "resize/1/succeeded")) == 2


async def test_a_success_from_before_the_notification_is_no_news(store, clock):
    await finished(store)
    await clock.advance(1)
    job = a_job(notifications=(JobNotification(("succeeded",), tuple(TO)),))
    await store.catalog.define_jobs(TENANT, [job])
    await evaluated(store)

    assert await messages(store, "resize/1/succeeded") == []


# A leader that ends in the middle.


class Killed(Exception):
    """The end of a process between two statements."""


def dies(monkeypatch, store, when):
    """Let the next transaction that moves an incident end before or after its message."""
    module = "daybell.store.postgres.catalog" if hasattr(store, "context") else SQLITE
    name = "enqueue_on" if hasattr(store, "context") else "launch_all"
    original = getattr(importlib.import_module(module), name)

    async def later(*args, **options):
        if when == "after":
            await original(*args, **options)
        raise Killed

    def now(*args, **options):
        if when == "after":
            original(*args, **options)
        raise Killed

    monkeypatch.setattr(f"{module}.{name}", later if hasattr(store, "context") else now)


SQLITE = "daybell.store.sqlite.admin"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_leader_that_dies_while_an_incident_moves_leaves_one_message_each(
    store, monkeypatch, when
):
    await kept(store)
    ids = await dead(store)
    for step, word in enumerate(("[ALERT]", "[RECOVERED]")):
        with monkeypatch.context() as patch:
            dies(patch, store, when)
            with pytest.raises(Killed):
                await evaluated(store)
        assert len(await messages(store)) == step
        assert len(await opened(store)) == step

        await evaluated(store, rounds=2)

        assert (await messages(store))[step:] == [f"{word} on-dead_letter: resize"]
        await store.queue.discard(TENANT, ids)


# A year of schedules.


YEAR = 366 * 86400


RULES = [
    pytest.param(cron("30 2 * * *", tz="Europe/Berlin"), id="a gap and a fold"),
    pytest.param(
        cron("0 9 * * *", tz="America/New_York", calendar=Calendar(country="US")), id="closed days"
    ),
    pytest.param(cron("0 */12 * * *", tz="Australia/Lord_Howe"), id="half an hour"),
]


@pytest.mark.parametrize("rule", RULES)
async def test_in_a_year_each_missed_run_raises_an_alert_and_nothing_else_does(rule):
    clock = ManualClock()
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()
    await a_year(store, clock, rule)
    await store.close()


@pytest.mark.all_only
@pytest.mark.parametrize("rule", RULES)
async def test_in_a_year_on_each_store_each_missed_run_raises_an_alert(store, clock, rule):
    await a_year(store, clock, rule)


async def a_year(store, clock, rule):
    at = rule.next_after(clock.now())
    schedule = a_schedule(rule=rule.to_json(), next_at=at)
    await put(store, schedule, overlap="allow")
    await kept(store, "missed_run", grace="1h", to=None)
    alerts, expected, seen, end = Alerts(store, mint=mint), 0, 0, clock.now() + YEAR
    is_open, chance = False, random.Random(rule.to_json())
    while at is not None and at < end:
        following = rule.next_after(at)
        await clock.advance(at - clock.now())
        outcome = chance.choices(["succeeds", "dies", "fires late"], [20, 1, 1])[0]
        if outcome != "fires late":
            await fired(store, schedule, next_at=following)
            hands = await claim(store)
            move = success if outcome == "succeeds" else death
            await apply(store, hands, *map(move, hands.executions))
        await clock.advance(3599)
        await alerts.tick()
        assert bool(await opened(store)) is (is_open and outcome != "succeeds")
        await clock.advance(2)
        await alerts.tick()
        expected += outcome != "succeeds" and not is_open
        is_open = outcome != "succeeds"
        assert bool(await opened(store)) is is_open, (outcome, at)
        if outcome == "fires late":
            await fired(store, schedule, next_at=following)
            hands = await claim(store)
            await apply(store, hands, *map(success, hands.executions))
            await alerts.tick()
            is_open = False
            assert await opened(store) == []
        seen, at = seen + 1, following
    assert seen > 200
    assert expected > 5
