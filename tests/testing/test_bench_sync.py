"""A bench in tests without an event loop."""

import contextvars
import inspect
import threading

import pytest

from daybell import App, UsageError
from daybell.core.execution import State
from daybell.testing import START, Bench, EndlessRun, SyncBench

here = contextvars.ContextVar("here", default="nowhere")


def test_plain_functions_run_in_the_test_s_own_thread(app: App, bench: Bench):
    seen = []

    @app.task
    def plain():
        seen.append((threading.current_thread(), here.get()))

    token = here.set("the test")
    plain.sync.enqueue()
    bench.sync.run_due()
    here.reset(token)

    assert seen == [(threading.current_thread(), "the test")]


def test_enqueueing_running_and_moving_the_clock(app: App, bench: Bench):
    @app.task
    def first(n: int):
        second.options(delay="1h").sync.enqueue(n + 1)

    @app.task
    async def second(n: int) -> int:
        return n

    first.sync.enqueue(1)
    assert [run.task for run in bench.sync.run_due()] == ["first"]
    assert bench.enqueued(second) == [{"n": 2}]
    assert [run.result for run in bench.sync.advance("1h")] == [2]
    assert bench.sync.advance_to(START.replace(hour=20)) == []
    assert bench.now == START.replace(hour=20)
    assert bench.sync.run(second, 5) == 5


def test_run_raises_the_exception_itself(app: App, bench: Bench):
    error = SystemExit(3)

    @app.task
    def ends():
        raise error

    with pytest.raises(SystemExit) as caught:
        bench.sync.run(ends)

    assert caught.value is error
    assert bench.sync.run_due() == []  # the background loop is still there


def test_ctrl_c_in_a_task_ends_the_test(app: App, bench: Bench):
    @app.task
    def interrupted():
        raise KeyboardInterrupt

    interrupted.sync.enqueue()

    with pytest.raises(KeyboardInterrupt):
        bench.sync.run_due()
    assert bench.sync.run_due() == []


def test_waiting_for_a_handle_runs_its_execution(app: App, bench: Bench):
    @app.task
    def outer() -> int:
        return inner.sync.enqueue(20).result() + 1

    @app.task
    def inner(n: int) -> int:
        return n * 2

    assert inner.sync.enqueue(1).result() == 2
    assert bench.sync.run(outer) == 41  # its thread waits, so inner has another
    with pytest.raises(TimeoutError, match="advance"):
        inner.options(delay="1h").sync.enqueue(1).result()


def test_threads_are_not_gathered_by_many_benches(app: App):
    @app.task
    def plain():
        pass

    @app.task
    def waits():
        plain.sync.enqueue().result()

    def use():
        with Bench(app) as bench:
            bench.sync.run(waits)
            plain.sync.enqueue().result()

    use()
    before = threading.active_count()
    for _ in range(20):
        use()

    # A pool that all share may start one more when its threads are busy; 20 would be gathered.
    assert threading.active_count() < before + 10


def test_an_endless_chain_is_stopped(app: App, bench: Bench):
    @app.task
    def again() -> None:
        again.sync.enqueue()

    again.sync.enqueue()

    with pytest.raises(EndlessRun):
        bench.sync.run_due(limit=10)


async def test_it_is_refused_inside_an_event_loop(app: App, bench: Bench):
    with pytest.raises(UsageError, match=r"without \.sync"):
        bench.sync.run_due()


def test_two_apps_have_two_benches(app: App):
    other = App("postgresql://nobody@127.0.0.1:1/nowhere")

    @app.task
    def left():
        right.sync.enqueue()

    @other.task
    def right():
        pass

    with Bench(app) as one, Bench(other) as two:
        one.sync.run(left)
        assert (len(one.executions()), len(two.executions())) == (1, 1)
        assert [run.state for run in two.sync.run_due()] == [State.SUCCEEDED]


def test_every_method_that_is_awaited_has_a_twin_that_waits():
    awaited = {
        name: list(inspect.signature(method).parameters.values())
        for name, method in vars(Bench).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }

    for name, parameters in awaited.items():
        assert list(inspect.signature(getattr(SyncBench, name)).parameters.values()) == parameters
    assert awaited
