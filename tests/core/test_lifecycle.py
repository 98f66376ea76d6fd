"""The life of an execution: the table, each decision, and what holds over any sequence of them."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.execution import PENDING, TERMINAL, Claimed, Outcome, Priority, State
from daybell.core.ids import mint
from daybell.core.lifecycle import (
    TRANSITIONS,
    Occasion,
    Transition,
    after_cancel,
    after_expiry,
    after_failure,
    after_loss,
    after_release,
    after_retry_later,
    after_success,
    is_expired,
    target,
)
from daybell.core.retry import Retry
from daybell.errors import IllegalTransition

NEW = {State.WAITING, State.SCHEDULED, State.QUEUED}  # where an execution can begin
ERROR = '{"type": "ValueError"}'
KINDS = ("builtins.ValueError", "builtins.Exception")


def a_claimed(**options) -> Claimed:
    options.setdefault("failures", 0)
    options.setdefault("crashes", 0)
    options.setdefault("attempt", 1)
    return Claimed(
        id=mint(),
        lease=mint(),
        tenant="default",
        job="resize",
        version=1,
        kind="task",
        queue="default",
        priority=Priority.NORMAL,
        args="{}",
        created_at=0.0,
        run_at=0.0,
        **options,
    )


def failed(claimed: Claimed, policy: Retry, **options) -> Transition:
    options.setdefault("kinds", KINDS)
    return after_failure(claimed, policy, error=ERROR, ran=1.0, jitter=0.0, **options)


def reachable(start: set[State]) -> set[State]:
    seen, todo = set(start), list(start)
    while todo:
        source = todo.pop()
        for (state, _), end in TRANSITIONS.items():
            if state is source and end not in seen:
                seen.add(end)
                todo.append(end)
    return seen


def test_every_state_is_waiting_running_or_over():
    assert PENDING | TERMINAL | {State.RUNNING} == set(State)
    assert not PENDING & TERMINAL


def test_every_state_can_be_reached_from_a_new_execution():
    assert reachable(NEW) == set(State)


@pytest.mark.parametrize("state", list(State))
def test_every_state_can_come_to_an_end(state):
    assert reachable({state}) & TERMINAL


def test_what_is_over_has_no_way_out_but_from_dead_to_revived():
    ways_out = [(source, event) for source, event in TRANSITIONS if source in TERMINAL]

    assert ways_out == [(State.DEAD, Occasion.REVIVED)]


def test_only_what_is_queued_can_be_claimed():
    claims = {source for source, event in TRANSITIONS if event is Occasion.CLAIMED}

    assert claims == {State.QUEUED}
    assert {source for (source, _), end in TRANSITIONS.items() if end is State.RUNNING} == claims


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_whatever_is_not_over_can_be_cancelled(state):
    assert target(state, Occasion.CANCELLED) is State.CANCELLED


@pytest.mark.parametrize("event", list(Occasion))
def test_every_event_happens_somewhere(event):
    assert any(known is event for _, known in TRANSITIONS)


@pytest.mark.parametrize("source", list(State))
@pytest.mark.parametrize("event", list(Occasion))
def test_what_is_not_in_the_table_is_illegal(source, event):
    if (source, event) in TRANSITIONS:
        assert target(source, event) is TRANSITIONS[source, event]
    else:
        with pytest.raises(IllegalTransition, match=str(source)):
            target(source, event)


def test_a_decision_carries_the_guard_and_the_gate():
    claimed = a_claimed(attempt=7, failures=2, crashes=1, gate="narrow")
    decisions = [
        after_success(claimed, result=None, ran=0.0),
        failed(claimed, Retry()),
        failed(claimed, Retry(retries=0)),
        after_retry_later(claimed, ran=0.0),
        after_release(claimed),
        after_loss(claimed, max_crashes=9),
        after_loss(claimed, max_crashes=1),
        after_cancel(claimed),
        after_expiry(claimed),
    ]

    for move in decisions:
        assert (move.id, move.attempt, move.lease) == (claimed.id, 7, claimed.lease)
        assert move.gate == "narrow"


def test_a_success_ends_with_its_result():
    move = after_success(a_claimed(failures=2), result="1", ran=3.0)

    assert (move.target, move.outcome) == (State.SUCCEEDED, Outcome.SUCCEEDED)
    assert (move.result, move.ran, move.error) == ("1", 3.0, None)
    assert move.failures == 2


def test_a_failure_waits_as_the_policy_says():
    policy = Retry.delays("10s", "60s", jitter=0.0)

    first = failed(a_claimed(), policy)
    second = failed(a_claimed(failures=1), policy)

    assert (first.target, first.outcome) == (State.RETRYING, Outcome.FAILED)
    assert (first.delay, second.delay) == (10.0, 60.0)
    assert (first.failures, second.failures) == (1, 2)
    assert (first.error, first.ran, first.reason) == (ERROR, 1.0, None)


def test_a_failure_after_the_last_retry_is_a_death():
    move = failed(a_claimed(failures=2), Retry.delays("10s", "60s"))

    assert (move.target, move.outcome) == (State.DEAD, Outcome.FAILED)
    assert (move.failures, move.reason, move.error) == (3, "retries_used_up", ERROR)


def test_a_permanent_failure_is_a_death_at_once():
    move = failed(a_claimed(), Retry(retries=9), permanent=True)

    assert (move.target, move.reason, move.failures) == (State.DEAD, "permanent", 1)


def test_an_error_that_the_policy_excludes_is_a_death_at_once():
    move = failed(a_claimed(), Retry.exponential(never_on=[ValueError]))

    assert (move.target, move.reason) == (State.DEAD, "permanent")


def test_a_timeout_is_retried_whatever_errors_the_policy_lists():
    move = failed(a_claimed(), Retry.exponential(retry_on=[KeyError]), timed_out=True, kinds=())

    assert (move.target, move.outcome) == (State.RETRYING, Outcome.TIMED_OUT)


def test_a_failure_hands_its_checkpoint_to_the_next_attempt():
    assert failed(a_claimed(), Retry(), checkpoint="[1]").checkpoint == "[1]"


def test_coming_back_later_is_not_charged():
    move = after_retry_later(a_claimed(failures=1), delay=5.0, ran=1.0, checkpoint="[1]")
    moment = after_retry_later(a_claimed(), at=99.0, ran=1.0)

    assert (move.target, move.outcome) == (State.SCHEDULED, Outcome.RELEASED)
    assert (move.delay, move.failures, move.checkpoint) == (5.0, 1, "[1]")
    assert moment.at == 99.0


def test_a_release_is_not_charged():
    move = after_release(a_claimed(failures=1, crashes=1), delay=5.0)

    assert (move.target, move.outcome, move.delay) == (State.QUEUED, Outcome.RELEASED, 5.0)
    assert (move.failures, move.crashes, move.ran) == (1, 1, None)


def test_a_loss_is_counted_as_a_crash_and_names_itself():
    move = after_loss(a_claimed(failures=1), max_crashes=3)

    assert (move.target, move.outcome) == (State.QUEUED, Outcome.LOST)
    assert (move.failures, move.crashes) == (1, 1)
    assert json.loads(move.error or "")["type"] == "WorkerLost"


@pytest.mark.parametrize(
    ("crashes", "state"), [(2, State.QUEUED), (5, State.QUEUED), (6, State.DEAD)]
)
def test_a_suspect_that_had_company_is_tried_a_few_times_more(crashes, state):
    move = after_loss(a_claimed(crashes=crashes), max_crashes=3, is_sole=False)

    assert (move.target, move.crashes) == (state, crashes + 1)


def test_one_crash_too_many_is_a_death():
    move = after_loss(a_claimed(crashes=2), max_crashes=3)

    assert (move.target, move.outcome) == (State.DEAD, Outcome.LOST)
    assert (move.crashes, move.reason) == (3, "worker_lost")


def test_a_job_that_must_not_start_twice_is_dead_with_its_first_worker():
    move = after_loss(a_claimed(), max_crashes=3, retry=False)

    assert (move.target, move.reason) == (State.DEAD, "worker_lost")


def test_the_end_of_an_excused_worker_is_charged_only_where_one_start_is_promised():
    spared = after_loss(a_claimed(crashes=2), max_crashes=3, is_excused=True)
    once = after_loss(a_claimed(), max_crashes=3, retry=False, is_excused=True)

    assert (spared.target, spared.outcome, spared.crashes) == (State.QUEUED, Outcome.RELEASED, 2)
    assert (once.target, once.crashes) == (State.DEAD, 1)


def test_a_task_that_obeys_is_cancelled():
    move = after_cancel(a_claimed(), ran=2.0)

    assert (move.target, move.outcome, move.ran) == (State.CANCELLED, Outcome.CANCELLED, 2.0)


def test_what_is_claimed_too_late_is_skipped():
    claimed = a_claimed(expires_at=100.0)

    move = after_expiry(claimed)

    assert (move.target, move.reason) == (State.SKIPPED, "expired")
    assert [is_expired(claimed, now=now) for now in (99.9, 100.0)] == [False, True]
    assert not is_expired(a_claimed(), now=1e12)


# What may happen to a running execution, as decisions of a claimed one.
HAPPENINGS = {
    "success": lambda claimed, policy, crashes: after_success(claimed, result=None, ran=0.0),
    "failure": lambda claimed, policy, crashes: failed(claimed, policy),
    "timeout": lambda claimed, policy, crashes: failed(claimed, policy, timed_out=True),
    "permanent": lambda claimed, policy, crashes: failed(claimed, policy, permanent=True),
    "later": lambda claimed, policy, crashes: after_retry_later(claimed, delay=1.0, ran=0.0),
    "release": lambda claimed, policy, crashes: after_release(claimed),
    "loss": lambda claimed, policy, crashes: after_loss(claimed, max_crashes=crashes),
    "cancel": lambda claimed, policy, crashes: after_cancel(claimed),
    "expiry": lambda claimed, policy, crashes: after_expiry(claimed),
    "revival": None,
}
EVENTS = {
    State.SUCCEEDED: Occasion.SUCCEEDED,
    State.RETRYING: Occasion.RETRYING,
    State.DEAD: Occasion.EXHAUSTED,
    State.SCHEDULED: Occasion.SNOOZED,
    State.QUEUED: Occasion.HANDED_BACK,
    State.CANCELLED: Occasion.CANCELLED,
    State.SKIPPED: Occasion.EXPIRED,
}


def step(state, claimed, happening, policy, max_crashes):
    """One thing happens, if it can; what the execution is then."""
    if HAPPENINGS[happening] is None:
        if state is not State.DEAD:
            return state, claimed
        raised = msgspec.structs.replace(
            claimed, attempt=claimed.attempt + 1, failures=0, crashes=0
        )
        return target(state, Occasion.REVIVED), raised
    if state in TERMINAL:
        return state, claimed
    if state is not State.QUEUED:
        state = target(state, Occasion.DUE)
    state = target(state, Occasion.CLAIMED)
    move = HAPPENINGS[happening](claimed, policy, max_crashes)
    end = target(state, EVENTS[move.target])
    assert end is move.target
    attempt = claimed.attempt + (end not in TERMINAL)
    return end, msgspec.structs.replace(
        claimed, attempt=attempt, failures=move.failures, crashes=move.crashes
    )


@settings(derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(HAPPENINGS)), max_size=40),
    st.integers(0, 5),
    st.integers(1, 4),
)
def test_whatever_happens_the_counts_keep_their_bounds(happenings, retries, max_crashes):
    policy = Retry.fixed(1.0, retries=retries)
    state, claimed = State.QUEUED, a_claimed()

    for happening in happenings:
        before, attempt = state, claimed.attempt
        state, claimed = step(state, claimed, happening, policy, max_crashes)

        assert claimed.attempt >= attempt
        assert claimed.failures <= retries + 1
        assert claimed.crashes <= max_crashes
        if before in TERMINAL and state is not before:
            assert (before, happening) == (State.DEAD, "revival")


@settings(derandomize=True)
@given(st.integers(0, 30), st.integers(1, 10))
def test_failing_for_ever_comes_to_an_end(retries, max_crashes):
    policy = Retry.fixed(1.0, retries=retries)
    for happening, tries in (("failure", retries + 1), ("loss", max_crashes)):
        state, claimed = State.QUEUED, a_claimed()
        for _ in range(tries):
            assert state not in TERMINAL
            state, claimed = step(state, claimed, happening, policy, max_crashes)

        assert state is State.DEAD


@settings(derandomize=True)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 9))
def test_a_way_back_never_lies_in_the_past(jitter, failures):
    move = after_failure(
        a_claimed(failures=failures),
        Retry(retries=20),
        error=ERROR,
        kinds=(),
        ran=0.0,
        jitter=jitter,
    )

    assert move.target is State.RETRYING
    assert move.delay >= 0
