"""What a run leads to, whatever its task does."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from daybell.core.execution import DescribedError, Outcome, State
from daybell.core.retry import Retry
from daybell.engine.loop import ManualClock
from daybell.errors import InvalidArguments, PayloadError, PermanentError, RetryLater
from tests.engine.ends import an_executor, raising, the_end_of
from tests.engine.tasks import a_claimed, deaf, quick
from tests.engine.virtual import in_virtual_time


@in_virtual_time
async def test_a_task_that_returns_has_succeeded_with_its_result_and_its_duration():
    async def task(_):
        await asyncio.sleep(2)
        return '{"answer": 42}'

    move = await the_end_of(a_claimed(failures=2), task)

    assert (move.target, move.outcome) == (State.SUCCEEDED, Outcome.SUCCEEDED)
    assert (move.result, move.ran, move.failures) == ('{"answer": 42}', 2, 2)


@in_virtual_time
async def test_a_task_without_a_result_has_succeeded_too():
    move = await the_end_of(a_claimed(), quick)

    assert (move.target, move.result) == (State.SUCCEEDED, None)


@in_virtual_time
async def test_an_exception_keeps_type_message_and_traceback_and_is_retried():
    async def calculate(_):
        raise ZeroDivisionError("by nothing")

    move = await the_end_of(a_claimed(), calculate)

    error = json.loads(move.error)
    assert (move.target, move.outcome, move.failures) == (State.RETRYING, Outcome.FAILED, 1)
    assert move.delay == 1.0
    assert (error["type"], error["message"]) == ("ZeroDivisionError", "by nothing")
    assert "in calculate" in error["traceback"]


@in_virtual_time
async def test_a_retry_function_gets_the_error_of_the_task():
    class Busy(Exception):
        seconds = 40

    def wait(failures: int, error: Busy) -> int:
        return error.seconds * failures

    policy = Retry.function(wait)
    timed_out = Retry.function(lambda failures, error: 9 if isinstance(error, TimeoutError) else 1)

    move = await the_end_of(a_claimed(failures=1), raising(Busy()), retry=policy)
    late = await the_end_of(a_claimed(), lambda _: asyncio.sleep(99), retry=timed_out, timeout=5)

    assert move.delay == 80
    assert late.delay == 9


@in_virtual_time
async def test_a_retry_function_that_fails_is_logged(caplog):
    policy = Retry.function(lambda failures, error: 1 / 0)

    move = await the_end_of(a_claimed(), raising(ValueError()), retry=policy)

    assert (move.target, move.delay) == (State.RETRYING, 1.0)
    assert "its retry function failed, so the default wait is used: ZeroDivisionError" in (
        caplog.text
    )


@in_virtual_time
async def test_the_last_failure_ends_it():
    move = await the_end_of(a_claimed(failures=3), raising(ValueError()))

    assert (move.target, move.reason, move.failures) == (State.DEAD, "retries_used_up", 4)


@in_virtual_time
async def test_the_executions_own_retries_win_over_the_tasks():
    more = await the_end_of(a_claimed(failures=3, retries=4), raising(ValueError()))
    none = await the_end_of(a_claimed(retries=0), raising(ValueError()))

    assert (more.target, none.target) == (State.RETRYING, State.DEAD)


@in_virtual_time
async def test_a_permanent_error_is_not_retried():
    move = await the_end_of(a_claimed(), raising(PermanentError("no such customer")))

    assert (move.target, move.reason) == (State.DEAD, "permanent")
    assert json.loads(move.error)["message"] == "no such customer"


@in_virtual_time
async def test_what_its_handler_calls_hopeless_ends_it_with_the_reason():
    async def handler(running):
        running.is_hopeless = True
        raise PayloadError("result: a socket is no JSON")

    move = await the_end_of(a_claimed(), handler)

    assert (move.target, move.reason) == (State.DEAD, "permanent")
    assert json.loads(move.error)["message"] == "result: a socket is no JSON"


@pytest.mark.parametrize("error", [PayloadError("of its own"), InvalidArguments("of its own")])
def test_an_error_of_ours_out_of_the_task_itself_is_retried_like_any_other(error):
    @in_virtual_time
    async def run():
        move = await the_end_of(a_claimed(), raising(error))

        assert (move.target, move.outcome) == (State.RETRYING, Outcome.FAILED)

    run()


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("own"), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_a_task_that_raises_what_ends_programs_only_fails(error):
    @in_virtual_time
    async def run():
        move = await the_end_of(a_claimed(), raising(error))

        assert (move.target, move.outcome) == (State.RETRYING, Outcome.FAILED)
        assert json.loads(move.error)["type"].endswith(type(error).__name__)

    run()


@in_virtual_time
async def test_an_exception_that_cannot_be_shown_fails_like_any_other():
    class Broken(Exception):
        def __str__(self):
            raise SystemExit

    move = await the_end_of(a_claimed(), raising(Broken()))

    assert move.target is State.RETRYING
    assert "__str__ raised SystemExit" in json.loads(move.error)["message"]


@in_virtual_time
async def test_retry_later_is_no_failure():
    at = datetime(2030, 1, 1, tzinfo=UTC)

    delayed = await the_end_of(a_claimed(failures=1), raising(RetryLater(delay="5m")))
    timed = await the_end_of(a_claimed(), raising(RetryLater(at=at)))

    assert (delayed.target, delayed.outcome) == (State.SCHEDULED, Outcome.RELEASED)
    assert (delayed.delay, delayed.at, delayed.failures) == (300, None, 1)
    assert (timed.target, timed.at) == (State.SCHEDULED, at.timestamp())


@in_virtual_time
async def test_the_reason_to_retry_later_is_masked():
    asked = RetryLater("hunter2 was refused", delay="5m")

    move = await the_end_of(a_claimed(), raising(asked))

    assert move.reason == "*** was refused"


@in_virtual_time
async def test_secrets_are_taken_out_of_results_and_checkpoints():
    async def tell(running):
        running.hide(["hunter22"])
        running.report(checkpoint='{"token": "hunter22"}')
        raise RetryLater(delay="5m")

    async def answer(running):
        running.hide(["hunter22"])
        return '["hunter22"]'

    told, answered = await the_end_of(a_claimed(), tell), await the_end_of(a_claimed(), answer)

    assert told.checkpoint == '{"token":"***"}'
    assert answered.result == '["***"]'


@pytest.mark.parametrize(
    "asked",
    [
        {"delay": "soon"},
        {"delay": -1},
        {"at": float("nan")},
        {"at": datetime(2030, 1, 1)},  # noqa: DTZ001
    ],
)
def test_retry_later_at_no_time_fails(asked):
    @in_virtual_time
    async def run():
        move = await the_end_of(a_claimed(), raising(RetryLater(**asked)))

        assert (move.target, move.outcome, move.failures) == (State.RETRYING, Outcome.FAILED, 1)

    run()


@in_virtual_time
async def test_what_is_described_elsewhere_is_told_without_our_own_code_around_it():
    async def command(_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise DescribedError.as_text("CommandFailed", "killed by SIGTERM: step 3") from None

    move = await the_end_of(a_claimed(timeout=1.0), command)

    told = json.loads(move.error)
    assert told["type"] == "TimeoutError"
    assert "CommandFailed: killed by SIGTERM: step 3" in told["traceback"]
    assert "File " not in told["traceback"]


@in_virtual_time
async def test_a_task_unknown_here_goes_back_for_longer_and_longer():
    executor, ends = an_executor()
    for attempt in (1, 2, 5, 6, 100_000):
        executor.start(a_claimed("unheard_of", attempt=attempt))
    await executor.wait()

    assert {move.outcome for _, move in ends} == {Outcome.RELEASED}
    assert [move.delay for _, move in ends] == [2, 4, 32, 60, 60]
    assert {(move.target, move.reason) for _, move in ends} == {(State.SCHEDULED, "unknown_task")}
    assert {(move.failures, move.ran) for _, move in ends} == {(0, None)}


@in_virtual_time
async def test_what_has_expired_is_skipped():
    ran = []

    async def task(running):
        ran.append(running.claimed.job)

    clock = ManualClock()
    executor, ends = an_executor(clock=clock, late=task, early=task)
    executor.start(a_claimed("late", expires_at=clock.now()))
    executor.start(a_claimed("early", expires_at=clock.now() + 0.1))
    await executor.wait()

    assert [(move.target, move.reason) for _, move in ends] == [
        (State.SKIPPED, "expired"),
        (State.SUCCEEDED, None),
    ]
    assert ran == ["early"]


@in_virtual_time
async def test_what_was_cancelled_before_its_start_is_not_started():
    move = await the_end_of(a_claimed(cancel_requested=True), raising(AssertionError("it ran")))

    assert (move.target, move.ran, move.error) == (State.CANCELLED, None, None)


@in_virtual_time
async def test_the_checkpoint_is_kept_on_failure():
    async def task(running):
        running.report(checkpoint="[1]")
        running.report(checkpoint="[2]", progress=50)
        raise ValueError

    move = await the_end_of(a_claimed(), task)

    assert move.checkpoint == "[2]"


@pytest.mark.parametrize("task", [raising(ValueError("odd")), deaf], ids=["fails", "is deaf"])
def test_a_handler_that_cannot_be_asked_does_not_hurt_the_worker(task, caplog):
    class Broken:
        timeout = 1.0
        grace = 0.0

        @property
        def retry(self):
            raise SystemExit("a policy from hell")

        async def run(self, running):
            await task(running)

    @in_virtual_time
    async def run():
        executor, ends = an_executor()
        executor._handlers = type("Handlers", (), {"find": lambda self, job: Broken()})()  # type: ignore

        executor.start(a_claimed())
        await asyncio.wait_for(executor.wait(), 300)

        [(_, move)] = ends
        assert (move.target, move.failures) == (State.RETRYING, 1)
        assert "failed in the worker itself" in caplog.text

    run()
