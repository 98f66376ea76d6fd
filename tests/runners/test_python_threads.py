"""Threads for functions that block: results, errors, contexts and interruptions."""

import asyncio
import contextvars
import functools
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from daybell.runners.python import Interrupted, ThreadCall, Threads
from tests.engine.virtual import until

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def spin(*, until: threading.Event) -> None:
    """Run in Python, where an interruption can be heard."""
    while not until.is_set():
        pass


class Busy:
    """A function that runs until it is interrupted or told to end."""

    def __init__(self):
        self.is_running, self.may_end = threading.Event(), threading.Event()
        self.raised: BaseException | None = None

    def __call__(self):
        self.is_running.set()
        try:
            spin(until=self.may_end)
        except BaseException as error:
            self.raised = error
            raise
        return "ended"


async def test_a_function_runs_in_another_thread():
    assert await Threads().run(threading.get_ident) != threading.get_ident()


async def test_an_error_is_raised_to_the_caller_as_it_is():
    error = LookupError("no such thing")

    def fail():
        raise error

    with pytest.raises(LookupError) as raised:
        await Threads().run(fail)
    assert raised.value is error


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_what_would_end_a_program_does_not_end_a_thread(kind):
    threads = Threads(limit=1)

    async def run():
        def fail():
            raise kind

        try:
            await threads.run(fail)
        except BaseException as error:
            return error

    assert isinstance(await run(), kind)
    assert await threads.run(lambda: 1) == 1


async def test_stop_iteration_becomes_an_error_that_can_be_raised():
    with pytest.raises(RuntimeError, match="the task raised StopIteration"):
        await Threads().run(lambda: next(iter([])))


async def test_a_function_that_raises_cancelled_error_is_over():
    def fail():
        raise asyncio.CancelledError

    async with asyncio.timeout(300):
        with pytest.raises(asyncio.CancelledError):
            await Threads().run(fail)


async def test_context_variables_are_carried_over_and_stay_inside():
    colour.set("red")

    def change():
        before = colour.get()
        colour.set("blue")
        return before

    assert await Threads().run(change) == "red"
    assert colour.get() == "red"


async def test_idle_threads_are_used_again():
    threads = Threads()

    names = {await threads.run(lambda: threading.current_thread().name) for _ in range(20)}

    # One that has just answered may not be idle yet, and then another is made.
    assert len(names) < 10


async def test_as_many_threads_as_are_busy_at_once_but_no_more_than_the_limit():
    threads = Threads(limit=3)
    together = threading.Barrier(3)

    async with asyncio.timeout(300):
        await asyncio.gather(*(threads.run(together.wait) for _ in range(9)))

    assert threads._count == 3


async def test_cancelling_interrupts_what_runs_in_python():
    busy = Busy()
    running = asyncio.ensure_future(Threads().run(busy))
    await until(busy.is_running.is_set, within=60)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(running), 300)

    assert isinstance(busy.raised, Interrupted)


async def test_with_patience_a_function_that_ends_by_itself_is_not_interrupted():
    busy = Busy()
    running = asyncio.ensure_future(Threads().run(busy, patience=lambda: 60.0))
    await until(busy.is_running.is_set, within=60)

    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    busy.may_end.set()

    assert await asyncio.wait_for(running, 300) == "ended"
    assert busy.raised is None


@pytest.mark.parametrize("how", ["the patience was short", "it has ended early", "cancelled again"])
async def test_a_function_is_interrupted_when_patience_has_ended(how):
    busy, asked = Busy(), asyncio.Event()
    patience = 0.01 if how == "the patience was short" else 60.0

    def ask() -> float:
        asked.set()
        return patience

    running = asyncio.ensure_future(Threads().run(busy, patience=ask))
    await until(busy.is_running.is_set, within=60)
    running.cancel()
    await asyncio.wait_for(asked.wait(), 300)
    if how == "cancelled again":
        running.cancel()
    elif how == "it has ended early":
        patience = 0.0

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(running), 300)
    await until(lambda: busy.raised is not None, within=60)
    assert isinstance(busy.raised, Interrupted)


async def test_cancelling_waits_for_what_blocks_and_keeps_its_result():
    is_running, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def block():
        is_running.set()
        may_end.wait(300)
        has_ended.set()
        try:
            return "ended"
        except Interrupted:
            return "interrupted"

    running = asyncio.ensure_future(Threads().run(block))
    await until(is_running.is_set, within=60)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    may_end.set()
    (answer,) = await asyncio.gather(running, return_exceptions=True)

    # The interruption waits, too: it is raised as soon as Python goes on.
    assert answer == "interrupted" or isinstance(answer, asyncio.CancelledError)


def test_what_blocks_although_it_was_stopped_does_not_keep_a_loop_from_being_closed():
    is_running, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def block():
        is_running.set()
        may_end.wait(300)
        has_ended.set()

    async def stop_it():
        running = asyncio.ensure_future(Threads().run(block))
        await until(is_running.is_set, within=60)
        running.cancel()
        await asyncio.sleep(0)
        assert not running.done()

    asyncio.run(stop_it())

    assert not has_ended.is_set()
    may_end.set()


async def test_what_has_not_begun_ends_at_once_when_it_is_cancelled_and_never_runs():
    threads, busy, ran = Threads(limit=1), Busy(), []
    first = asyncio.ensure_future(threads.run(busy))
    await until(busy.is_running.is_set, within=60)
    second = asyncio.ensure_future(threads.run(lambda: ran.append(1)))
    await asyncio.sleep(0)

    second.cancel()
    await asyncio.wait([second], timeout=300)
    is_over, is_first_over = second.done(), first.done()
    busy.may_end.set()

    assert is_over and second.cancelled() and not is_first_over
    assert await first == "ended"
    assert await threads.run(lambda: "well") == "well"
    assert not ran


async def test_what_was_cancelled_before_it_began_lets_go_of_its_arguments():
    class Argument:
        pass

    threads, busy, argument = Threads(limit=1), Busy(), Argument()
    first = asyncio.ensure_future(threads.run(busy))
    await until(busy.is_running.is_set, within=60)
    second = asyncio.ensure_future(threads.run(functools.partial(id, argument)))
    await asyncio.sleep(0)
    seen = weakref.ref(argument)

    second.cancel()
    await asyncio.wait([second])
    del argument, second
    gc.collect()

    assert seen() is None
    busy.may_end.set()
    await first


async def test_an_interruption_never_hits_the_next_function():
    """Interrupt at all sorts of moments, the very end among them; the thread must go on."""
    threads = Threads(limit=1)
    outcomes = set()

    for count in range(300):
        ending = threading.Event()

        def short(ending=ending):
            ending.set()

        running = asyncio.ensure_future(threads.run(short))
        while not ending.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(count % 5):
            pass
        running.cancel()
        async with asyncio.timeout(300):
            (answer,) = await asyncio.gather(running, return_exceptions=True)
        outcomes.add(type(answer))
        assert await threads.run(lambda: "well") == "well"

    assert outcomes <= {type(None), asyncio.CancelledError}


async def test_an_interruption_that_comes_after_the_end_does_nothing():
    call = ThreadCall(lambda: 5)
    await asyncio.to_thread(call.run)
    call.interrupt()
    await call.wait()

    assert call.outcome == (5, None)


INTERRUPTED_THEN_TRACED = """
import asyncio, sys, threading
from daybell.runners.python import Threads

async def main():
    begun, may_end = threading.Event(), threading.Event()

    def spin():
        begun.set()
        while not may_end.is_set():
            pass

    running = asyncio.ensure_future(Threads().run(spin))
    while not begun.is_set():
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

asyncio.run(main())
sys.settrace(lambda *_: None)
(lambda: None)()  # a call looks for interruptions before it begins
sys.settrace(None)
print("ended")
"""


def test_an_interruption_leaves_nothing_behind_that_stops_a_tracer():
    """A debugger or a measurement of coverage would hang, and all else run more slowly."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_THEN_TRACED],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert ended.stdout == "ended\n", ended.stderr


def test_a_loop_that_is_closed_is_no_reason_for_a_thread_to_die():
    threads, busy = Threads(limit=1), Busy()

    async def leave():
        asyncio.get_running_loop().create_future()
        call = ThreadCall(busy)
        threads._submit(call)
        await until(busy.is_running.is_set, within=60)

    asyncio.run(leave())
    busy.may_end.set()

    assert asyncio.run(threads.run(lambda: 1)) == 1
