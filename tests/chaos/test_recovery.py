"""The rules about recovery report violations, and accept allowed delays."""

import pytest
from msgspec.structs import replace

from daybell.chaos import recovery
from daybell.chaos.checker import ScheduleHistory
from daybell.chaos.faults import Kind
from daybell.chaos.fleet import FleetEvent
from daybell.chaos.load import Submission, SubmissionTry
from daybell.chaos.recovery import Window
from daybell.chaos.tasks import EXIT
from daybell.core.ids import mint
from daybell.core.schedule import Decision, TickRecord
from daybell.core.worker import Worker, WorkerState
from tests.chaos.histories import ADA, BOB, a_history, an_execution, line

FAULT = Window(10.0, 17.0)
OLD, NEW = mint(), mint()
SCHEDULE = mint()
KNOWN = {OLD: an_execution(OLD, created_at=9.0), NEW: an_execution(NEW, created_at=12.0)}


def rules(found) -> list[str]:
    return [one.rule for one in found]


# Ada's process started nothing new after it went deaf; executions that it had claimed do not count.
STUCK = [
    line("start", 9.5, id=OLD),
    line("start", 10.5, id=OLD, attempt=2),
    line("start", 13.0, id=NEW, pid=BOB),
]


def test_a_worker_that_stays_deaf_is_noticed():
    history = a_history(effects=STUCK, executions=KNOWN)

    (found,) = recovery.deaf_workers(history, FAULT, within=7.0)

    assert found.rule == "deaf for too long"
    assert str(ADA) in found.what


def test_a_worker_that_starts_something_new_in_time_is_not_deaf():
    history = a_history(effects=[*STUCK, line("start", 16.0, id=NEW, pid=ADA)], executions=KNOWN)

    assert not list(recovery.deaf_workers(history, FAULT, within=7.0))


@pytest.mark.parametrize("what", ["killed", "frozen", "drained", "ended by itself (0)"])
def test_a_worker_to_which_something_else_happens_is_not_blamed(what):
    history = a_history(effects=STUCK, executions=KNOWN, happenings=[FleetEvent(12.0, what, ADA)])

    assert not list(recovery.deaf_workers(history, FAULT, within=7.0))


def test_a_worker_that_a_task_ends_is_not_blamed():
    history = a_history(effects=[*STUCK, line(EXIT, 13.5, id=NEW)], executions=KNOWN)

    assert not list(recovery.deaf_workers(history, FAULT, within=7.0))


def test_a_window_that_the_end_of_the_load_cuts_short_is_not_judged():
    history = a_history(
        effects=STUCK,
        executions=KNOWN,
        happenings=[FleetEvent(10.0, Kind.DEAF, length=7.0)],
        over_at=15.0,
    )

    (window,) = recovery.windows(history, Kind.DEAF, lease=2.0)

    assert window == Window(10.0, 15.0)
    assert not list(recovery.deaf_workers(history, window, within=7.0))


@pytest.mark.parametrize(("length", "is_judged"), [(0.3, True), (0.5, False)])
def test_a_window_in_which_the_machine_stalled_is_not_judged(length, is_judged):
    history = a_history(
        happenings=[
            FleetEvent(10.0, Kind.SLOW, length=7.0),
            FleetEvent(12.0, recovery.STALL, length=length),
            FleetEvent(30.0, recovery.STALL, length=9.0),
        ]
    )

    assert len(list(recovery.windows(history, Kind.SLOW, lease=2.0))) == is_judged
    assert recovery.count_unjudged(history, lease=2.0) == (not is_judged)


def a_bulk(*tries: SubmissionTry) -> Submission:
    return Submission(key="k", job="quick", numbers=range(1, 2), tries=list(tries))


def a_try(asked_at: float, ended_at: float, status: int = 202) -> SubmissionTry:
    return SubmissionTry(pid=ADA, asked_at=asked_at, ended_at=ended_at, status=status)


def test_a_server_that_stays_deaf_is_noticed():
    deaf = a_history(submissions=[a_bulk(a_try(9.0, 9.1), a_try(11.0, 16.5, 503))])
    back = a_history(submissions=[a_bulk(a_try(11.0, 14.0, 503), a_try(14.2, 14.3))])

    assert rules(recovery.deaf_servers(deaf, FAULT, within=7.0)) == ["deaf for too long"]
    assert not list(recovery.deaf_servers(back, FAULT, within=7.0))


def test_an_answer_that_takes_too_long_is_noticed():
    late = a_history(submissions=[a_bulk(a_try(20.0, 30.5, 0))])
    killed = replace(late, happenings=[FleetEvent(25.0, "killed", ADA)])
    away = a_history(submissions=[a_bulk(a_try(20.0, 29.5, 503))])
    stalled = replace(late, happenings=[FleetEvent(25.0, recovery.STALL, length=1.0)])
    starved = a_history(submissions=[a_bulk(replace(a_try(20.0, 30.5, 0), starved=1.0))])

    assert rules(recovery.late_answers(late)) == ["answered late"]
    assert not list(recovery.late_answers(killed))
    assert not list(recovery.late_answers(away))
    assert not list(recovery.late_answers(stalled))
    assert not list(recovery.late_answers(starved))


def fired_at(*times: float):
    ids = [mint() for _ in times]
    return a_history(
        effects=[],
        executions={
            id: an_execution(id, created_at=at, schedule=SCHEDULE)
            for id, at in zip(ids, times, strict=True)
        },
        courses=[a_course()],
    )


def a_missed_tick(at: float) -> TickRecord:
    return TickRecord(
        schedule=SCHEDULE,
        at=at,
        decision=Decision.MISSED,
        reason=None,
        until=at + 1,
        execution=None,
    )


def a_course(*ticks: TickRecord) -> ScheduleHistory:
    return ScheduleHistory(name="s", rule='{"every": "2s"}', first=10.0, last=18.0, ticks=ticks)


def test_schedules_that_are_silent_behind_a_held_commit_are_noticed():
    (found,) = recovery.silent_schedules(fired_at(9.0, 10.5, 14.0, 16.0), FAULT, within=3.0)

    assert found.rule == "schedules silent"
    assert "for 3.5 s" in found.what
    assert not list(recovery.silent_schedules(fired_at(9.0, 11.0, 13.0, 15.5), FAULT, within=3.0))


def test_schedules_that_never_fire_again_are_noticed():
    assert rules(recovery.silent_schedules(fired_at(9.0), FAULT, within=7.0)) == []
    assert rules(recovery.silent_schedules(fired_at(9.0), FAULT, within=6.9)) == [
        "schedules silent"
    ]


def test_a_tick_that_is_missed_behind_a_held_commit_is_noticed():
    def missed(at: float) -> list[str]:
        history = a_history(effects=[], courses=[a_course(a_missed_tick(at))])
        return rules(recovery.missed_ticks(history, FAULT))

    assert missed(11.0) == ["tick missed"]
    assert missed(9.0) == []  # it was due before
    assert missed(18.0) == []


def a_worker(started_at: float, lease_until: float) -> Worker:
    return Worker(
        id=mint(),
        tenant="t",
        name="worker-1",
        host="",
        pid=ADA,
        version="",
        queues=(),
        kinds=(),
        labels={},
        resources={},
        capacity=1,
        state=WorkerState.DEAD,
        started_at=started_at,
        renewed_at=started_at,
        lease_until=lease_until,
        running=0,
    )


AGAIN = [a_worker(1.0, 11.0), a_worker(13.0, 16.5), a_worker(16.8, 99.0)]
ASLEEP = [FleetEvent(9.5, "frozen", ADA), FleetEvent(12.5, "resumed", ADA)]


def test_a_lease_that_is_lost_to_a_slow_store_is_noticed():
    history = a_history(effects=[], workers=AGAIN, happenings=ASLEEP)

    (found,) = recovery.lost_leases(history, FAULT, lease=2.0)

    assert found.rule == "lease lost"
    assert "6.5 s after" in found.what


def test_a_lease_that_a_frozen_worker_loses_once_is_its_due():
    history = a_history(effects=[], workers=[AGAIN[0], a_worker(13.0, 99.0)], happenings=ASLEEP)

    assert not list(recovery.lost_leases(history, FAULT, lease=2.0))


def test_all_rules_are_asked():
    happenings = [FleetEvent(10.0, kind, length=7.0) for kind in (Kind.DEAF, Kind.HOLD, Kind.SLOW)]
    history = a_history(
        effects=STUCK,
        executions=KNOWN,
        happenings=happenings,
        workers=[a_worker(1.0, 12.0), a_worker(13.0, 99.0)],
        submissions=[a_bulk(a_try(11.0, 21.5, 0))],
        courses=[a_course(a_missed_tick(11.0))],
    )

    assert set(rules(recovery.judge_service(history, lease=2.0))) == {
        "deaf for too long",
        "schedules silent",
        "tick missed",
        "lease lost",
        "answered late",
    }


@pytest.mark.parametrize(
    ("at", "is_judged"), [(3.0, True), (8.0, False), (12.0, False), (18.0, True)]
)
def test_a_fault_beside_an_absence_of_the_store_is_left_out(at, is_judged):
    history = a_history(
        happenings=[
            FleetEvent(10.0, Kind.HOLD, length=7.0),
            FleetEvent(at, Kind.RESTART, length=1.0),
        ]
    )

    assert len(list(recovery.windows(history, Kind.HOLD, lease=2.0))) == is_judged
    assert recovery.count_unjudged(history, lease=2.0) == (not is_judged)
