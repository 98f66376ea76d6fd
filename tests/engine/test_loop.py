"""The loop around every tick."""

import asyncio
import inspect
import itertools
import logging
from typing import Any

import pytest

from daybell.engine.loop import AGAIN, BACKOFF_MAX_SECONDS, Loop
from daybell.errors import Unavailable
from tests.engine.virtual import VirtualClock, in_virtual_time, turns


class Ticks:
    """A tick that notes when it was run, and then does what is next on its list."""

    def __init__(self, *script: Any, then: Any = None):
        self._script = iter(script)
        self._then = then
        self.times: list[float] = []

    async def __call__(self):
        self.times.append(round(asyncio.get_running_loop().time(), 6))
        step: Any = next(self._script, self._then)
        if isinstance(step, BaseException):
            raise step
        return await step() if inspect.iscoroutinefunction(step) else step

    @property
    def gaps(self):
        return [round(b - a, 6) for a, b in itertools.pairwise(self.times)]


def a_loop(tick, *, interval=2.0, clock=None):
    return Loop("sweep", tick, interval=interval, clock=clock or VirtualClock())


@in_virtual_time
async def test_it_ticks_at_once_and_then_at_its_interval():
    ticks = Ticks()
    loop = a_loop(ticks)

    loop.start()
    await asyncio.sleep(5)
    await loop.stop()

    assert ticks.times == [0, 2, 4]


@in_virtual_time
async def test_a_tick_can_ask_for_the_next_one_sooner():
    ticks = Ticks(0.5, 0.25)
    loop = a_loop(ticks)

    loop.start()
    await asyncio.sleep(2.5)
    await loop.stop()

    assert ticks.times == [0, 0.5, 0.75]


@in_virtual_time
async def test_a_wake_up_while_idle_leads_to_one_tick():
    ticks = Ticks()
    loop = a_loop(ticks)
    loop.start()
    await asyncio.sleep(0.5)

    loop.wake()
    loop.wake()
    await asyncio.sleep(1)
    await loop.stop()

    assert ticks.times == [0, 0.5]


@in_virtual_time
async def test_wake_ups_while_a_tick_runs_lead_to_exactly_one_more():
    async def slowly():
        await asyncio.sleep(0.5)

    ticks = Ticks(slowly)
    loop = a_loop(ticks)
    loop.start()
    await asyncio.sleep(0.1)

    for _ in range(5):
        loop.wake()
    await asyncio.sleep(1.5)
    await loop.stop()

    assert ticks.times == [0, 0.5]


@in_virtual_time
async def test_a_wake_up_is_not_lost_between_a_tick_and_the_wait():
    loops: list[Loop] = []

    async def wake_myself():
        loops[0].wake()

    ticks = Ticks(wake_myself)
    loop = a_loop(ticks)
    loops.append(loop)
    loop.start()

    await turns()
    await loop.stop()

    assert ticks.times == [0, 0]


@in_virtual_time
async def test_errors_are_followed_by_growing_waits_up_to_five_seconds():
    ticks = Ticks(then=Unavailable("away"))
    loop = a_loop(ticks)

    loop.start()
    await asyncio.sleep(60)
    await loop.stop()

    # Half of each wait is left to chance; this clock rolls the middle.
    assert ticks.gaps[:6] == [0.075, 0.15, 0.3, 0.6, 1.2, 2.4]
    assert set(ticks.gaps[6:]) == {0.75 * BACKOFF_MAX_SECONDS}


@pytest.mark.parametrize(("roll", "longest"), [(0.0, 2.5), (1.0, 5.0)])
def test_the_wait_after_an_error_is_between_half_and_all_of_the_cap(roll, longest):
    class Clock(VirtualClock):
        def jitter(self):
            return roll

    @in_virtual_time
    async def gaps():
        ticks = Ticks(then=Unavailable("away"))
        loop = a_loop(ticks, clock=Clock())
        loop.start()
        await asyncio.sleep(60)
        await loop.stop()

        assert max(ticks.gaps) == longest

    gaps()


@in_virtual_time
async def test_wake_ups_do_not_hurry_a_failing_tick():
    ticks = Ticks(Unavailable("away"), Unavailable("away"))
    loop = a_loop(ticks)
    loop.start()

    for _ in range(40):
        loop.wake()
        await asyncio.sleep(0.005)
    await loop.stop()

    assert ticks.times == [0, 0.075]


@in_virtual_time
async def test_wake_ups_during_a_tick_that_fails_do_not_hurry_the_next():
    async def slowly_fail():
        await asyncio.sleep(0.5)
        raise Unavailable("away")

    ticks = Ticks(slowly_fail)
    loop = a_loop(ticks)
    loop.start()
    await turns()

    loop.wake()
    await asyncio.sleep(1)
    await loop.stop()

    assert ticks.times == [0, 0.575]


@in_virtual_time
async def test_a_failing_loop_stops_at_once():
    loop = a_loop(Ticks(then=Unavailable("away")))
    loop.start()
    await asyncio.sleep(30)
    began = asyncio.get_running_loop().time()

    await loop.stop()

    assert asyncio.get_running_loop().time() == began


@in_virtual_time
async def test_a_store_that_is_away_is_logged_once_and_so_is_its_return(caplog):
    caplog.set_level(logging.INFO)
    loop = a_loop(Ticks(Unavailable("no route"), Unavailable("no route"), Unavailable("no route")))

    loop.start()
    await asyncio.sleep(5)
    await loop.stop()

    assert caplog.messages == ["sweep: no route; trying again", "sweep works again"]


@in_virtual_time
async def test_other_errors_are_logged_with_their_traceback_each_time(caplog):
    loop = a_loop(Ticks(ValueError("odd"), ValueError("odd")))

    loop.start()
    await asyncio.sleep(5)
    await loop.stop()

    assert caplog.messages == ["sweep failed; trying again"] * 2
    assert "ValueError: odd" in caplog.text and "Traceback" in caplog.text


@in_virtual_time
async def test_a_tick_whose_connection_was_torn_down_does_not_end_the_loop():
    ticks = Ticks(asyncio.CancelledError())
    loop = a_loop(ticks)

    loop.start()
    await asyncio.sleep(1)
    await loop.stop()

    assert ticks.times == [0, 0.075]


@in_virtual_time
async def test_a_loop_that_is_cancelled_itself_ends():
    ticks = Ticks(then=asyncio.Event().wait)
    loop = a_loop(ticks)
    loop.start()
    await turns()
    passing = asyncio.ensure_future(loop.pass_once())
    await turns()

    for task in asyncio.all_tasks():
        if task.get_name() == "sweep":
            task.cancel()
    await passing
    await loop.stop()

    assert ticks.times == [0]


@in_virtual_time
async def test_stop_lets_the_tick_that_runs_end():
    ended = []

    async def slowly():
        await asyncio.sleep(10)
        ended.append(True)

    loop = a_loop(Ticks(then=slowly))
    loop.start()
    await asyncio.sleep(1)

    await loop.stop()

    assert ended == [True]
    assert asyncio.get_running_loop().time() == 10


@in_virtual_time
async def test_a_tick_with_more_to_do_runs_again_at_once_and_lets_others_run():
    ticks = Ticks(then=AGAIN)
    loop = a_loop(ticks)
    loop.start()

    await turns(100)
    await loop.stop()

    assert len(ticks.times) > 10
    assert set(ticks.times) == {0}


@in_virtual_time
async def test_passing_once_returns_when_a_tick_has_ended_well_or_not():
    ticks = Ticks(None, Unavailable("away"))
    loop = a_loop(ticks, interval=3600.0)
    loop.start()
    await turns()

    await loop.pass_once()
    assert len(ticks.times) == 2
    await loop.pass_once()
    assert ticks.gaps == [0, 0.075]
    await loop.stop()
    await loop.pass_once()

    assert len(ticks.times) == 3
