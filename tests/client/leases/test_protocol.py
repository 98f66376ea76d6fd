"""The engine's types as JSON, and back: nothing is lost on the way."""

import msgspec
import pytest
from msgspec.structs import replace

from daybell.client import wire
from daybell.client.leases.protocol import (
    AttemptEnd,
    claim_answer,
    claim_of,
    end_of,
    lease_answer,
    log_lines_of,
    log_part_of,
    move_of,
    new_step_of,
    progress_of,
    renewal_of,
    report_of,
    step_answer,
    step_of,
    step_record_of,
    verdict_answer,
    verdict_of,
)
from daybell.core.event import NewStep, Step, StepKind
from daybell.core.execution import Failure, NewLogPart, Outcome, Priority, State, line_text
from daybell.core.ids import mint
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import (
    Ruling,
    Verdict,
    after_cancel,
    after_expiry,
    after_failure,
    after_interruption,
    after_release,
    after_retry_later,
    after_success,
    after_unknown,
    after_wait,
)
from daybell.core.retry import Retry
from daybell.core.worker import Claim, Renewal, Report, WorkerState
from daybell.errors import UsageError
from tests.engine.tasks import a_claimed

LOG = "\n".join(line_text(1.5, "info", "app", text) for text in ("one", 'two "quoted"\nlines'))
ERROR = Failure(type="Timeout", message="no answer", names=("a.Timeout", "Timeout")).to_json()


def over(message):
    """A message as the other side reads it."""
    return msgspec.json.decode(msgspec.json.encode(message), type=type(message))


def a_full_claim():
    return a_claimed(
        args='{"big": 12345678901234567890, "text": "\\ud83d\\ude00"}',
        priority=Priority.HIGH,
        created_at=1_700_000_000.123456,
        run_at=1_700_000_001.5,
        expires_at=1_700_000_100.25,
        scheduled_for=1_700_000_000.0,
        retries=0,
        timeout=2.5,
        checkpoint="null",
        cancel_requested=True,
        previous_success=1_600_000_000.0,
        node="a[3]",
        parent=mint(),
        failures=2,
        crashes=1,
    )


@pytest.mark.parametrize("claimed", [a_claimed(), a_full_claim()], ids=["plain", "full"])
def test_a_claim_arrives_as_it_was_sent(claimed):
    claim = Claim(lease=claimed.lease, now=5.25, executions=[claimed], next_due=6.5)

    assert claim_of(over(claim_answer(claim)), claimed.tenant) == claim


def ends(claimed):
    return [
        after_success(claimed, result='{"a": 1}', ran=0.5, log=LOG),
        after_success(claimed, result="null", ran=0.5),
        after_success(claimed, result=None, ran=0.5),
        after_failure(claimed, Retry(), error=ERROR, kinds=(), ran=1.0, jitter=0.5),
        after_failure(
            claimed, Retry(), error=ERROR, kinds=(), ran=1.0, jitter=0.5, permanent=True,
            checkpoint="[1]",
        ),
        after_failure(claimed, Retry(), error=ERROR, kinds=(), ran=1.0, jitter=0, timed_out=True),
        after_retry_later(claimed, delay=5.0, ran=1.0, reason="busy", checkpoint="{}"),
        after_retry_later(claimed, at=1_700_000_000.5, ran=1.0),
        after_wait(claimed, ran=1.0),
        after_unknown(claimed, delay=3.0),
        after_release(claimed, delay=1.0),
        after_interruption(claimed, ran=1.0),
        after_cancel(claimed),
        after_expiry(claimed),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(14))
@pytest.mark.parametrize(
    "claimed",
    [a_claimed(crashes=1, failures=2, gate="g", schedule=mint()), a_full_claim()],
    ids=["job", "node"],
)
def test_an_end_arrives_as_it_was_decided(claimed, number):
    move = ends(claimed)[number]
    if move.error is not None:  # in its full form
        move = replace(move, error=Failure.of_kept(move.error).to_json())

    assert move_of(over(end_of(move)), claimed, None, jitter=0.0) == move


def test_gate_schedule_run_and_counts_are_those_of_the_claim():
    claimed = a_claimed(gate="own", schedule=mint(), node="a", parent=mint(), failures=3, crashes=2)
    end = AttemptEnd(
        execution_id=claimed.id, attempt=1, lease_id=claimed.lease, outcome=Outcome.CANCELLED
    )

    move = move_of(end, claimed, None, jitter=0.0)

    assert (move.gate, move.schedule, move.run) == ("own", claimed.schedule, claimed.parent)
    assert (move.node, move.failures, move.crashes) == ("a", 3, 2)


@pytest.mark.parametrize(
    ("outcome", "more", "status", "delay"),
    [
        ("succeeded", {}, State.SUCCEEDED, 0.0),
        ("cancelled", {}, State.CANCELLED, 0.0),
        ("released", {}, State.QUEUED, 0.0),
        ("released", {"delay": 5.0}, State.SCHEDULED, 5.0),
        ("failed", {"error": {"type": "E"}}, State.RETRYING, 2.0),
        ("failed", {"error": {"type": "E"}, "delay": 60.0}, State.RETRYING, 60.0),
        ("failed", {"error": {"type": "E"}, "is_permanent": True}, State.DEAD, 0.0),
        ("failed", {"error": {"type": "Never"}}, State.DEAD, 0.0),
        ("timed_out", {"error": {"type": "Never"}}, State.RETRYING, 2.0),
    ],
)
def test_the_server_decides_what_the_worker_does_not(outcome, more, status, delay):
    claimed = a_claimed()
    retry = Retry(retries=3, backoff="fixed", base=2.0, jitter=0.0, never_on=("Never",))
    body = {
        "execution_id": str(claimed.id),
        "attempt": 1,
        "lease_id": str(claimed.lease),
        "outcome": outcome,
    }
    end = msgspec.convert({**body, **more}, AttemptEnd)

    move = move_of(end, claimed, JobDefinition(name="a", retry=retry), jitter=0.0)

    assert (move.target, move.delay) == (status, delay)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.SUCCEEDED, State.DEAD), (Outcome.RELEASED, State.SUCCEEDED), (Outcome.FAILED, None)],
)
def test_an_outcome_without_its_status_or_its_error_is_refused(outcome, status):
    claimed = a_claimed()
    end = AttemptEnd(
        execution_id=claimed.id,
        attempt=1,
        lease_id=claimed.lease,
        outcome=outcome,
        status=status,
    )

    with pytest.raises(UsageError):
        move_of(end, claimed, None, jitter=0.0)


def test_leases_verdicts_progress_and_logs_arrive_as_they_were_sent():
    worker, lease = mint(), mint()
    renewal = Renewal(
        now=1.5, lease_until=16.5, state=WorkerState.DRAINING, cancel=((mint(), 2),), returned=3
    )
    verdict = Verdict(mint(), 4, Ruling.STALE, "why", 5)
    report = Report(
        id=mint(), attempt=1, lease=lease, ran=0.5, progress=50.0, note="half", checkpoint="null"
    )
    part = NewLogPart(mint(), 1, lease, 2, LOG)

    assert renewal_of(over(lease_answer(worker, renewal))) == renewal
    assert verdict_of(over(verdict_answer(verdict))) == verdict
    assert report_of(over(progress_of(report))) == report
    assert log_part_of(over(log_lines_of(part))) == part


@pytest.mark.parametrize("result", [None, "null", '{"a": [1]}'])
def test_steps_arrive_as_they_were_sent(result):
    new = NewStep(
        id=mint(), attempt=1, lease=mint(), n=2, name="charge", kind=StepKind.WAIT, result=result,
        event="paid", match='{"order": 1}', timeout=5.0, ran=0.5,
    )  # fmt: skip
    step = Step(n=2, name="charge", kind=StepKind.STEP, result=result, started_at=1.5, wake_at=2.5)

    assert new_step_of(over(step_record_of(new))) == new
    answer = over(wire.RecordedSteps(items=[step_answer(step), None]))
    assert [step_of(one) for one in answer.items] == [step, None]
