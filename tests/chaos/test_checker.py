"""The checker reports broken promises. A rule that cannot fail guards nothing."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from daybell.chaos import recovery
from daybell.chaos.checker import RULES, History, ScheduleHistory, check_history, count_decisions
from daybell.chaos.fleet import FLEET, WORKER, FleetEvent, find_tracebacks
from daybell.chaos.load import Cancel, Publication, Submission, SubmissionTry
from daybell.chaos.recovery import Sample, Trouble
from daybell.chaos.tasks import END, NO_NUMBER, STOP
from daybell.core.execution import Execution, State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, TickRecord
from tests.chaos.histories import ADA, BOB, ID, RAN, a_call, a_history, an_execution, line


def test_a_good_history_has_no_violations():
    assert check_history(a_history()) == []


OTHER = mint()
KEYED = {
    ID: an_execution(unique_key="k"),
    OTHER: an_execution(OTHER, unique_key="k", args='{"number":2}'),
}
SCHEDULE = mint()
FIRED = an_execution(job="alone", schedule=SCHEDULE, scheduled_for=10.0, args="{}")
SAME_TICK = {ID: FIRED, OTHER: replace(FIRED, id=OTHER)}
NEXT_TICK = {ID: FIRED, OTHER: replace(FIRED, id=OTHER, scheduled_for=12.0)}


def a_tick(at: float, execution: UUID | None = None, until: float | None = None) -> TickRecord:
    return TickRecord(
        schedule=SCHEDULE,
        at=at,
        decision=Decision.FIRED if execution else Decision.MISSED,
        reason=None,
        until=until,
        execution=execution,
    )


def a_course(*ticks: TickRecord, **fields) -> ScheduleHistory:
    known = {"name": "s", "rule": '{"every": "2s"}', "first": 10.0, "last": 18.0, "ticks": ticks}
    return ScheduleHistory(**(known | fields))


def of_schedules(course: ScheduleHistory, **parts) -> History:
    return a_history(**({"calls": [], "executions": {ID: FIRED}, "courses": [course]} | parts))


def an_end_of(event: str) -> Execution:
    args = f'{{"event":{{"id":"{event}"}}}}'
    return an_execution(job="listening", schedule=SCHEDULE, args=args)


BY_EVENT = {ID: an_end_of("run-1")}
FIRED_TWICE = BY_EVENT | {OTHER: replace(BY_EVENT[ID], id=OTHER)}


def a_publication(*answers: list[UUID]) -> Publication:
    return Publication(number=1, run="run", answers=list(answers))


def a_bulk(*answers: tuple[int, list[UUID]]) -> Submission:
    tries = [
        SubmissionTry(pid=ADA, asked_at=1.0, ended_at=1.1, status=status, ids=ids)
        for status, ids in answers
    ]
    return Submission(key="k", job="quick", numbers=range(1, 2), tries=tries)


TICKED = [line("start", 1.0, number=NO_NUMBER), line(END, 2.0, number=NO_NUMBER)]
BAD = {
    "tick doubled": [of_schedules(a_course(last=10.0), executions=SAME_TICK)],
    "tick lost": [
        of_schedules(a_course(a_tick(10.0, ID), a_tick(14.0, until=16.0))),
        of_schedules(a_course(last=10.0, is_stuck=True)),
        of_schedules(a_course()),
    ],
    "tick not run": [
        of_schedules(a_course(a_tick(10.0, ID)), executions={}),
        of_schedules(a_course(a_tick(10.0, ID)), executions={ID: replace(FIRED, state=State.DEAD)}),
        of_schedules(
            a_course(a_tick(10.0, ID)), executions={ID: replace(FIRED, scheduled_for=12.0)}
        ),
    ],
    "ran beside itself": [
        of_schedules(
            a_course(last=10.0),
            executions=NEXT_TICK,
            effects=[*TICKED, line("start", 1.5, id=OTHER, pid=BOB, number=NO_NUMBER)],
        )
    ],
    "lost": [
        a_history(executions={}, effects=[]),
        a_history(executions={ID: an_execution(state=State.RUNNING)}, effects=[]),
        a_history(executions={ID: an_execution(state=State.DEAD)}),
    ],
    "started twice": [
        a_history(effects=[line("start", 0.5, pid=BOB), *RAN]),
        a_history(effects=[line("start", 0.5), *RAN]),
    ],
    "never asked for": [
        a_history(calls=[a_call(None, number=2)]),
        a_history(calls=[], executions={}),
    ],
    "enqueued twice": [a_history(executions={ID: an_execution(), OTHER: an_execution(OTHER)})],
    "kept twice": [a_history(doubled=[ID])],
    "answered otherwise": [
        a_history(submissions=[a_bulk((202, [ID]), (202, [OTHER]))]),
        a_history(submissions=[a_bulk((409, []))]),
    ],
    "fired otherwise": [
        a_history(publications=[a_publication([ID])]),  # nothing was fired
        a_history(
            publications=[a_publication([ID])],
            executions=BY_EVENT | {OTHER: replace(BY_EVENT[ID], id=OTHER)},
        ),
        a_history(publications=[a_publication([OTHER])], executions=BY_EVENT),
        a_history(executions=BY_EVENT),  # by an event that was not published
    ],
    "fleet ended": [a_history(happenings=[FleetEvent(1.0, "ended by itself (0)", ADA, FLEET)])],
    "worker missing": [a_history(missing=["fleet-8-2"])],
    "succeeded without running": [
        a_history(effects=[]),
        a_history(effects=[line("start", 1.0), line(STOP, 2.0)]),
        a_history(executions={ID: an_execution(attempt=2)}),
    ],
    "started after success": [a_history(effects=[*RAN, line("start", 3.0, attempt=2)])],
    "ran although cancelled": [
        a_history(
            cancels=[Cancel(id=ID, answer="cancelled", answered_at=0.9)],
            executions={ID: an_execution(state=State.CANCELLED)},
        ),
        a_history(cancels=[Cancel(id=ID, answer="requested", answered_at=1.5)]),
        a_history(cancels=[Cancel(id=ID, answer="unknown", answered_at=1.5)]),
    ],
    "cancelled unasked": [a_history(executions={ID: an_execution(state=State.CANCELLED)})],
    "two of a key": [
        a_history(
            calls=[a_call(), a_call(OTHER, 2)],
            executions=KEYED,
            effects=[
                line("start", 1.0),
                line("start", 1.5, id=OTHER, number=2),
                line(END, 2.0),
                line(END, 2.5, id=OTHER, number=2),
            ],
        )
    ],
    "ran side by side": [
        a_history(
            executions={ID: an_execution(attempt=2)},
            effects=[
                line("start", 1.0),
                line("start", 4.0, attempt=2, pid=BOB),
                line(STOP, 4.5),
                line(END, 5.0, attempt=2, pid=BOB),
            ],
        )
    ],
}


@pytest.mark.parametrize(
    ("rule", "history"), [(rule, history) for rule, many in BAD.items() for history in many]
)
def test_the_checker_notices(rule, history):
    assert rule in {violation.rule for violation in check_history(history)}


def test_ticks_that_are_fired_once_or_in_a_range_that_was_missed_are_as_promised():
    course = a_course(a_tick(10.0, ID), a_tick(12.0, until=16.0))

    assert check_history(of_schedules(course, effects=TICKED)) == []
    assert count_decisions([course]) == {"fired": 1, "missed": 1}


def test_every_rule_is_shown_something_bad():
    assert {rule.__name__.strip("_").replace("_", " ") for rule in RULES} == set(BAD)


def test_an_event_that_is_answered_again_names_the_same_execution():
    twice = a_publication([ID], [ID])

    assert check_history(a_history(publications=[twice], executions=BY_EVENT)) == []


def test_a_request_may_be_answered_again_and_a_store_may_be_away():
    bulk = a_bulk((0, []), (503, []), (202, [ID]), (202, [ID]))

    assert check_history(a_history(submissions=[bulk])) == []


def test_a_worker_without_a_supervisor_may_end():
    ended = FleetEvent(1.0, "ended by itself (0)", ADA, WORKER)

    assert check_history(a_history(happenings=[ended])) == []


def test_a_frozen_process_may_go_on_when_it_wakes_up():
    (history,) = BAD["ran side by side"]
    asleep = [FleetEvent(1.5, "frozen", ADA), FleetEvent(4.4, "resumed", ADA)]

    assert check_history(a_history(**vars_of(history), happenings=asleep)) == []


def vars_of(history: History):
    return {"executions": history.executions, "effects": history.effects}


def test_an_error_that_nobody_expected_is_found_in_the_logs(tmp_path):
    (tmp_path / "worker-1.log").write_text(
        "12:00:00 WARNING daybell.engine: claim: away; trying again\n"
        "12:00:01 ERROR   daybell.engine: claim\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "    1 / 0\n"
        "ZeroDivisionError: division by zero\n"
        "12:00:02 INFO    daybell.cli: stopped\n"
    )

    assert list(find_tracebacks(tmp_path)) == ["worker-1: ZeroDivisionError: division by zero"]


KILLED = a_history(
    executions={ID: an_execution(attempt=2)},
    effects=[
        line("start", 1.0),
        line("start", 9.0, attempt=2, pid=BOB),
        line(END, 9.5, attempt=2, pid=BOB),
    ],
    happenings=[FleetEvent(2.0, "killed", ADA)],
)


def test_what_waits_for_too_long_after_its_worker_was_killed_is_noticed():
    (orphan,) = recovery.find_orphans(KILLED, troubles=[], within=6.0)

    assert orphan.waited == 7.0
    assert [one.rule for one in recovery.find_late_orphans([orphan], within=6.0)] == [
        "restarted late"
    ]
    assert not list(recovery.find_late_orphans([orphan], within=7.5))


def test_what_waits_for_the_store_too_counts_from_when_that_is_well_again():
    happenings = [*KILLED.happenings, FleetEvent(4.0, "delay", length=1.0)]
    disturbed = a_history(**vars_of(KILLED), happenings=happenings, calls=[a_call()])

    troubles = recovery.find_troubles(disturbed, [], lengths={"delay": 0.0})
    (orphan,) = recovery.find_orphans(disturbed, troubles=troubles, within=6.0)

    assert troubles == [Trouble(4.0, 6.0)]  # a second, and one until all clients ask again
    assert (orphan.counted_from, orphan.waited) == (6.0, 3.0)
    assert not list(recovery.find_late_orphans([orphan], within=3.0))
    assert list(recovery.find_late_orphans([orphan], within=2.9))


@pytest.mark.parametrize(("since", "until"), [(0.0, 1.9), (9.1, 20.0)])
def test_trouble_before_and_after_is_no_excuse(since, until):
    (orphan,) = recovery.find_orphans(KILLED, troubles=[Trouble(since, until)], within=6.0)

    assert orphan.waited == 7.0


def test_trouble_that_comes_when_it_is_too_late_is_no_excuse():
    (orphan,) = recovery.find_orphans(KILLED, troubles=[Trouble(8.1, 8.5)], within=6.0)

    assert list(recovery.find_late_orphans([orphan], within=6.0))


def test_who_was_lost_twice_before_it_started_again_has_twice_the_time():
    effects = [line("start", 1.0), line("start", 9.0, attempt=3, pid=BOB)]
    twice = a_history(effects=effects, happenings=KILLED.happenings)

    (orphan,) = recovery.find_orphans(twice, troubles=[], within=4.0)

    assert (orphan.losses, orphan.waited) == (2, 3.5)


@pytest.mark.parametrize(("attempt", "is_suspect"), [(3, False), (4, True)])
def test_losses_without_a_start_make_a_suspect_too(attempt, is_suspect):
    effects = [line("start", 1.0), line("start", 99.0, attempt=attempt, pid=BOB)]
    often = a_history(effects=effects, happenings=KILLED.happenings)

    found = recovery.find_orphans(often, troubles=[], within=4.0)

    assert bool(list(recovery.find_late_orphans(found, within=4.0))) is not is_suspect


def test_an_enqueue_that_is_slow_or_fails_and_a_backlog_show_trouble():
    calls = [a_call(asked_at=3.0, answered_at=3.1), a_call(None, asked_at=5.0, answered_at=5.2)]
    slow = a_call(asked_at=4.0, answered_at=4.9)
    samples = [Sample(7.0, 0), Sample(8.0, 500), Sample(9.0, 0)]

    found = recovery.find_troubles(a_history(calls=[*calls, slow]), samples, lengths={})

    assert found == [Trouble(4.0, 4.9), Trouble(5.0, 5.2), Trouble(8.0, 9.0)]


def test_troubles_that_overlap_are_one():
    assert recovery.merge_troubles([Trouble(3, 5), Trouble(1, 4), Trouble(6, 7)]) == [
        Trouble(1, 5),
        Trouble(6, 7),
    ]


def test_what_follows_a_return_of_the_database_is_told():
    samples = [Sample(2.0, 400), Sample(3.0, 900), Sample(4.0, 300), Sample(15.0, 0)]

    (found,) = recovery.find_returns(samples, [0.5, 1.4, 1.6], [1.0], few=100)
    (stuck,) = recovery.find_returns(samples[:2], [], [1.0], few=100)
    (calm,) = recovery.find_returns(samples, [], [1.0], few=900)

    assert (found.backlog, found.shrinks) == (900, 3.0)
    assert (calm.backlog, calm.shrinks) == (900, 0.0)
    assert found.first_start == pytest.approx(0.4)
    assert stuck.shrinks is None


@pytest.mark.parametrize(
    ("backlogs", "is_stuck"), [([400, 500, 600], True), ([400, 900, 50], False)]
)
def test_a_backlog_that_only_grows_is_noticed(backlogs, is_stuck):
    samples = [Sample(2.0 * turn, backlog) for turn, backlog in enumerate(backlogs, 1)]

    assert bool(list(recovery.find_stuck_returns(samples, [1.0], few=300))) is is_stuck


def test_a_backlog_that_grows_in_the_next_outage_is_not_held_against_the_last():
    samples = [Sample(2.0, 400), Sample(3.0, 350), Sample(5.0, 900)]

    assert list(recovery.find_stuck_returns(samples, [1.0], few=300))
    assert not list(recovery.find_stuck_returns(samples, [1.0], few=300, away_at=[0.5, 4.0]))
    (found,) = recovery.find_returns(samples, [], [1.0], few=300, away_at=[4.0])
    assert (found.backlog, found.shrinks) == (400, 2.0)
