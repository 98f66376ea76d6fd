"""A task that blocks the event loop is noticed and named."""

import asyncio
import logging
import threading

from daybell.engine.loop import ManualClock
from daybell.engine.worker import BLOCKED_SECONDS, LoopWatch
from tests.engine.tasks import a_claimed


async def test_a_loop_that_turns_is_left_alone(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: a_claimed("resize"))

    for _ in range(3):
        watch.look(asyncio.get_running_loop(), threading.get_ident())
        clock.advance(BLOCKED_SECONDS / 2)
        await asyncio.sleep(0)  # the loop turns

    assert watch.blocked == 0
    assert not caplog.records


async def test_a_task_that_keeps_the_loop_from_turning_is_named_once(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: a_claimed("resize"))

    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            watch.look(asyncio.get_running_loop(), threading.get_ident())
            clock.advance(BLOCKED_SECONDS)

    assert watch.blocked == 1
    (record,) = caplog.records
    assert "the task 'resize' has blocked the event loop" in record.getMessage()
    assert "test_worker_watch.py" in record.getMessage()
    assert "Make it a plain `def`" in record.getMessage()


async def test_nobody_is_told_to_change_the_code_of_a_job_without_code(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: a_claimed("alive", kind="http"))

    with caplog.at_level(logging.WARNING):
        watch.look(asyncio.get_running_loop(), threading.get_ident())
        clock.advance(BLOCKED_SECONDS)
        watch.look(asyncio.get_running_loop(), threading.get_ident())

    (record,) = caplog.records
    assert "the job 'alive' (http) has blocked the event loop" in record.getMessage()
    assert "def" not in record.getMessage().partition("\n")[0]


async def test_it_warns_again_after_the_loop_has_turned(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: None)
    loop, ident = asyncio.get_running_loop(), threading.get_ident()

    for _ in range(2):
        watch.look(loop, ident)
        clock.advance(BLOCKED_SECONDS)
        watch.look(loop, ident)
        await asyncio.sleep(0)

    assert watch.blocked == 2
