"""What a run leads to, whatever its task does."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.failure import Described
from daybell.core.retry import Retry
from daybell.engine.clock import ManualClock
from daybell.engine.executor import Executor
from daybell.engine.run import GRACE_SECONDS, Host, Stop
from daybell.errors import InvalidArguments, PayloadError, PermanentError, RetryLater
from daybell.store.ids import mint
from daybell.store.memory import MemoryStore
from tests.engine.tasks import Task, Tasks, a_claimed, deaf, endless, quick
from tests.engine.virtual import VirtualClock, in_virtual_time, turns

NO_JITTER = Retry(jitter=0.0)


class Ends(list):
    """What the executor reported, and how often it said that a slot is free."""

    freed = 0

    def add(self, claimed, move, _):
        self.append((claimed, move))

    def free(self):
        self.freed += 1


def an_executor(*, clock=None, **tasks):
    ends = Ends()
    clock, known = clock or VirtualClock(), Tasks(**tasks)
    host = Host(clock, mask=known.mask, mask_json=known.mask_json, begin=MemoryStore().begin)
    executor = Executor(
        known, worker=mint(), host=host, clock=clock, finish=ends.add, freed=ends.free
    )
    return executor, ends


def fence(claimed):
    return claimed.id, claimed.attempt


async def the_end_of(claimed, function, *, clock=None, **options):
    """What one run of this function as a task leads to."""
    task = Task(function, retry=NO_JITTER, **options)
    executor, ends = an_executor(clock=clock, **{claimed.job: task})
    executor.start(claimed)
    await executor.wait()
    [(ended, move)] = ends
    assert ended is claimed
    assert (move.id, move.attempt, move.lease) == (claimed.id, claimed.attempt, claimed.lease)
    assert ends.freed == 1 and len(executor) == 0
    return move


def raising(error):
    async def task(_):
        raise error

    return task


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
        running.report(checkpoint='{"token": "hunter2"}')
        raise RetryLater(delay="5m")

    async def answer(running):
        return '["hunter2"]'

    told, answered = await the_end_of(a_claimed(), tell), await the_end_of(a_claimed(), answer)

    assert told.checkpoint == '{"token": "***"}'
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
async def test_a_task_that_takes_too_long_has_timed_out_and_is_retried():
    move = await the_end_of(a_claimed(), endless, timeout=30.0)

    error = json.loads(move.error)
    assert (move.target, move.outcome, move.failures) == (State.RETRYING, Outcome.TIMED_OUT, 1)
    assert move.ran == 30
    assert error["type"] == "TimeoutError" and "timeout of 30 s" in error["message"]
    assert "in endless" in error["traceback"]  # where it was


@in_virtual_time
async def test_the_executions_own_timeout_wins_over_the_tasks():
    move = await the_end_of(a_claimed(timeout=2.0), endless, timeout=30.0)

    assert move.ran == 2


@in_virtual_time
async def test_a_task_in_time_is_not_stopped_by_its_timeout_later():
    executor, ends = an_executor(resize=Task(quick, timeout=1.0))
    executor.start(a_claimed())
    await executor.wait()

    await asyncio.sleep(2)

    assert [move.target for _, move in ends] == [State.SUCCEEDED]


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Stop.TIMEOUT, Outcome.TIMED_OUT),
        (Stop.CANCEL, Outcome.CANCELLED),
        (Stop.RELEASE, Outcome.RELEASED),
    ],
)
def test_what_a_stopped_task_raises_on_its_way_out_means_the_stop(why, outcome):
    async def task(_):
        try:
            await endless(_)
        except asyncio.CancelledError:
            raise RuntimeError("connection lost") from None

    @in_virtual_time
    async def run():
        claimed = a_claimed(timeout=60.0)
        executor, ends = an_executor(resize=task)
        executor.start(claimed)
        await turns()

        assert executor.stop({fence(claimed)}, why)
        await executor.wait()

        assert [move.outcome for _, move in ends] == [outcome]

    run()


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Stop.TIMEOUT, Outcome.TIMED_OUT),
        (Stop.CANCEL, Outcome.CANCELLED),
        (Stop.RELEASE, Outcome.RELEASED),
    ],
)
def test_a_task_that_returns_because_it_was_stopped_has_not_succeeded(why, outcome):
    async def task(running):
        running.report(checkpoint='{"row": 7}')
        with contextlib.suppress(asyncio.CancelledError):
            await endless(running)
        return '"half of it"'

    @in_virtual_time
    async def run():
        claimed = a_claimed(timeout=60.0)
        executor, ends = an_executor(resize=task)
        executor.start(claimed)
        await turns()

        assert executor.stop({fence(claimed)}, why)
        await executor.wait()

        [(_, move)] = ends
        assert (move.outcome, move.result) == (outcome, None)
        assert move.checkpoint == (None if why is Stop.CANCEL else '{"row": 7}')

    run()


@in_virtual_time
async def test_a_cancelled_run_ends_as_cancelled():
    claimed = a_claimed()
    executor, ends = an_executor(resize=endless)
    executor.start(claimed)
    await asyncio.sleep(3)

    assert executor.stop({fence(claimed)}, Stop.CANCEL)
    assert not executor.stop({fence(claimed)}, Stop.CANCEL)
    await executor.wait()

    [(_, move)] = ends
    assert (move.target, move.outcome, move.ran) == (State.CANCELLED, Outcome.CANCELLED, 3)


@in_virtual_time
async def test_a_released_run_goes_back_uncharged_with_its_checkpoint():
    async def task(running):
        running.report(checkpoint='{"page": 7}')
        await endless(running)

    claimed = a_claimed(failures=1)
    executor, ends = an_executor(resize=task)
    executor.start(claimed)
    await turns()

    executor.stop_all(Stop.RELEASE)
    await executor.wait()

    [(_, move)] = ends
    assert (move.target, move.outcome) == (State.QUEUED, Outcome.RELEASED)
    assert (move.failures, move.checkpoint) == (1, '{"page": 7}')


@in_virtual_time
async def test_of_abandoned_runs_nothing_is_reported_whatever_they_do():
    async def returns(_):
        try:
            await endless(_)
        except asyncio.CancelledError:
            return '"done all the same"'

    async def raises(_):
        try:
            await endless(_)
        finally:
            raise RetryLater(delay=1)

    executor, ends = an_executor(endless=endless, returns=returns, raises=raises)
    for job in ("endless", "returns", "raises"):
        executor.start(a_claimed(job))
    await turns()

    executor.stop_all(Stop.ABANDON)
    await executor.wait()

    assert ends == [] and ends.freed == 3


@in_virtual_time
async def test_what_was_stopped_for_another_reason_can_still_be_abandoned():
    claimed = a_claimed()
    executor, ends = an_executor(resize=deaf)
    executor.start(claimed)
    await turns()
    executor.stop({fence(claimed)}, Stop.CANCEL)

    executor.stop_all(Stop.ABANDON)
    await executor.wait()

    assert ends == []


@pytest.mark.parametrize(
    ("why", "ended"),
    [(Stop.CANCEL, [State.CANCELLED]), (Stop.RELEASE, [State.QUEUED]), (Stop.ABANDON, [])],
)
def test_a_run_can_be_stopped_before_its_first_step(why, ended):
    @in_virtual_time
    async def run():
        ran = []
        claimed = a_claimed()
        executor, ends = an_executor(resize=lambda running: ran.append(running))
        executor.start(claimed)

        assert executor.stop({fence(claimed)}, why)
        await asyncio.wait_for(executor.wait(), 1)

        assert [move.target for _, move in ends] == ended
        assert [move.ran for _, move in ends] == [None] * len(ended)
        assert ran == []

    run()


@in_virtual_time
async def test_a_task_that_goes_on_after_it_was_stopped_can_be_forsaken():
    claimed = a_claimed()
    executor, ends = an_executor(resize=deaf, other=endless)
    executor.start(claimed)
    executor.start(a_claimed("other"))
    await turns()
    executor.stop({fence(claimed)}, Stop.RELEASE)
    await turns()

    executor.forsake()
    assert [move.target for _, move in ends] == [State.QUEUED]
    await asyncio.sleep(4000)

    assert len(ends) == 1 and ends.freed == 1 and len(executor) == 1


@pytest.mark.parametrize(
    ("why", "outcome"), [(Stop.TIMEOUT, Outcome.TIMED_OUT), (Stop.CANCEL, Outcome.CANCELLED)]
)
def test_a_task_that_ignores_its_stop_does_not_keep_its_slot(why, outcome, caplog):
    @in_virtual_time
    async def run():
        claimed = a_claimed(timeout=1800.0)
        executor, ends = an_executor(resize=deaf)
        executor.start(claimed)
        await turns()
        executor.stop({fence(claimed)}, why)

        await asyncio.sleep(GRACE_SECONDS - 0.1)
        assert ends == []
        await asyncio.wait_for(executor.wait(), 0.2)

        assert [move.outcome for _, move in ends] == [outcome]
        assert ends.freed == 1 and len(executor) == 0
        assert f"{claimed.id} (resize) was stopped and goes on running" in caplog.text
        await asyncio.sleep(4000)  # until it ends after all
        assert len(ends) == 1 and ends.freed == 1

    run()


@in_virtual_time
async def test_a_task_that_takes_too_long_and_ignores_it_does_not_keep_its_slot_either():
    move = await the_end_of(a_claimed(timeout=30.0), deaf)

    assert (move.outcome, move.ran) == (Outcome.TIMED_OUT, 30 + GRACE_SECONDS)


@pytest.mark.parametrize("grace", [0.0, 3.0, 30.0])
def test_what_has_a_grace_of_its_own_is_waited_for_until_that_is_over(grace, caplog):
    """And a second more, in which it is made to end."""

    @in_virtual_time
    async def run():
        patience: list[float] = []

        async def takes_its_time(running):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                patience.append(running.patience)
                await asyncio.sleep(running.patience + 0.9)
                raise

        slow = Task(takes_its_time, retry=NO_JITTER, timeout=60.0, grace=grace)
        executor, ends = an_executor(resize=slow)
        executor.start(a_claimed())
        await executor.wait()

        [(_, move)] = ends
        assert (move.outcome, patience) == (Outcome.TIMED_OUT, [grace])
        assert move.ran == pytest.approx(60 + grace + 0.9)
        assert caplog.text == ""
        deaf_one = await the_end_of(a_claimed(timeout=60.0), deaf, grace=grace)
        assert deaf_one.ran == 60 + max(GRACE_SECONDS, grace + 1)

    run()


@in_virtual_time
async def test_what_is_described_elsewhere_is_told_without_our_own_code_around_it():
    async def command(_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Described.as_text("CommandFailed", "killed by SIGTERM: step 3") from None

    move = await the_end_of(a_claimed(timeout=1.0), command)

    told = json.loads(move.error)
    assert told["type"] == "TimeoutError"
    assert "CommandFailed: killed by SIGTERM: step 3" in told["traceback"]
    assert "File " not in told["traceback"]


@pytest.mark.parametrize(
    ("why", "patience"),
    [
        (Stop.TIMEOUT, 30.0),
        (Stop.CANCEL, 30.0),
        (Stop.RELEASE, GRACE_SECONDS / 2),  # a worker that stops waits for no longer than that
        (Stop.ABANDON, 0.0),  # others may run it already
    ],
)
def test_how_long_what_is_stopped_may_take_is_up_to_the_reason(why, patience):
    @in_virtual_time
    async def run():
        told: list[float] = []

        async def asked(running):
            try:
                await asyncio.Event().wait()
            finally:
                told.append(running.patience)

        claimed = a_claimed()
        executor, _ = an_executor(resize=Task(asked, grace=30.0))
        executor.start(claimed)
        await turns()
        executor.stop({fence(claimed)}, why)
        await executor.wait()
        assert told == [patience]

    run()


@in_virtual_time
async def test_a_task_that_hears_of_its_stop_is_not_forsaken(caplog):
    claimed = a_claimed()
    executor, ends = an_executor(resize=endless)
    executor.start(claimed)
    await turns()
    executor.stop({fence(claimed)}, Stop.CANCEL)
    await executor.wait()

    await asyncio.sleep(2 * GRACE_SECONDS)

    assert len(ends) == 1 and ends.freed == 1 and caplog.text == ""


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
        await asyncio.wait_for(executor.wait(), 10)

        [(_, move)] = ends
        assert (move.target, move.failures) == (State.RETRYING, 1)
        assert "failed in the worker itself" in caplog.text

    run()


@in_virtual_time
async def test_a_running_task_knows_that_it_is_to_stop():
    seen = []

    async def task(running):
        seen.append(running.is_cancelled)
        try:
            await endless(running)
        finally:
            seen.append(running.is_cancelled)

    executor, _ = an_executor(resize=task)
    executor.start(a_claimed())
    await turns()
    executor.stop_all(Stop.RELEASE)
    await executor.wait()

    assert seen == [False, True]
