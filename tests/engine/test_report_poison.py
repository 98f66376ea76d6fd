"""Ends that break the store in a way that it does not know itself."""

import asyncio
import json

import pytest

from daybell.core.execution import State
from daybell.core.limits import CLAIM_BATCH_MAX
from tests.builders import claim, claimed, enqueued, look, states, success
from tests.engine.test_report import Bench, a_bench
from tests.engine.virtual import VirtualClock, in_virtual_time, seconds, turns, until

MANY = 2000


class Choking:
    """Has the store of a bench raise what no store should, for the moves that break it."""

    def __init__(self, bench: Bench, breaks):
        self._apply = bench.store.store.apply
        self.breaks = breaks
        self.count = 0
        bench.store.store.apply = self.apply

    async def apply(self, tenant, *, worker, transitions, wait=True):
        self.count += 1
        if any(self.breaks(move) for move in transitions):
            raise RuntimeError("a fault that the store does not know of")
        return await self._apply(tenant, worker=worker, transitions=transitions)


async def a_finish_loop(count, breaks):
    """A completer with so many ends, a store that some of them break, and the loop around it."""
    clock = VirtualClock()
    bench = await a_bench(min(count, CLAIM_BATCH_MAX), clock=clock)
    if count > CLAIM_BATCH_MAX:
        more = await claimed(bench.store, count - CLAIM_BATCH_MAX, worker=bench.hands.worker)
        bench.hands.executions.extend(more.executions)
        bench.leases.answer(more.lease, len(more.executions))
    choking = Choking(bench, breaks(bench))
    bench.add_all()
    bench.loop.start()
    return bench, choking, bench.loop


@pytest.mark.parametrize("place", [0, 1, 1234, MANY - 1])
def test_an_end_that_breaks_the_store_fails_and_delays_nobody(place):
    @in_virtual_time
    async def run():
        def breaks(bench):
            poison = bench.ids[place]
            return lambda move: move.id == poison and move.target is State.SUCCEEDED

        bench, choking, loop = await a_finish_loop(MANY, breaks)
        await until(lambda: len(bench.completer) == 0, within=1)

        dead = await look(bench.store, bench.ids[place])
        assert (dead.state, dead.reason) == (State.DEAD, "permanent")
        assert dead.error is not None
        assert "a fault that the store does not know of" in json.loads(dead.error)["message"]
        others = bench.ids[:place] + bench.ids[place + 1 :]
        assert set(await states(bench.store, others)) == {State.SUCCEEDED}
        assert choking.count < 20  # found by halves
        assert bench.leases.known() == []

        [later], now = await enqueued(bench.store, 1), seconds()
        one = (await claim(bench.store, 1, worker=bench.hands.worker)).one
        bench.completer.add(one, success(one))
        await turns()
        assert await states(bench.store, [later]) == [State.SUCCEEDED]
        await loop.stop()
        assert seconds() == now

    run()


@in_virtual_time
async def test_many_ends_that_break_the_store_delay_nobody_either():
    def breaks(bench):
        poisons = set(bench.ids[40:60])
        return lambda move: move.id in poisons and move.target is State.SUCCEEDED

    bench, _, loop = await a_finish_loop(200, breaks)
    await until(lambda: len(bench.completer) == 0, within=1)
    await loop.stop()

    ended = await states(bench.store, bench.ids)
    assert ended == [State.SUCCEEDED] * 40 + [State.DEAD] * 20 + [State.SUCCEEDED] * 140


@in_virtual_time
async def test_an_end_that_breaks_the_store_whatever_is_written_of_it_is_given_up(caplog):
    def breaks(bench):
        poison = bench.ids[7]
        return lambda move: move.id == poison

    bench, _, loop = await a_finish_loop(MANY, breaks)
    await until(lambda: len(bench.completer) == 0, within=1)
    await loop.stop()

    others = bench.ids[:7] + bench.ids[8:]
    assert set(await states(bench.store, others)) == {State.SUCCEEDED}
    assert await states(bench.store, [bench.ids[7]]) == [State.RUNNING]
    assert bench.leases.known() == []  # so the next renewal hands it back
    assert f"the end of {bench.ids[7]} (resize) breaks the store, even" in caplog.text


@pytest.mark.parametrize("count", [1, 2, MANY])
def test_while_everything_breaks_the_store_nothing_is_given_up_and_it_is_left_in_peace(count):
    @in_virtual_time
    async def run():
        bench, choking, loop = await a_finish_loop(count, lambda bench: lambda move: True)
        await asyncio.sleep(600)
        assert choking.count < 1000  # a handful for each try, and those are seconds apart
        assert len(bench.completer) == count

        choking.breaks = lambda move: False
        await until(lambda: len(bench.completer) == 0, within=6)
        await loop.stop()

        assert set(await states(bench.store, bench.ids)) == {State.SUCCEEDED}
        assert bench.leases.known() == []

    run()


@pytest.mark.parametrize("faults", [1, 2])
async def test_what_breaks_the_store_for_a_moment_only_is_written_as_it_is(faults):
    bench = await a_bench(1)
    bench.store.fail("apply", *[RuntimeError("a passing thing")] * faults)
    bench.add_all()

    await bench.completer.tick()

    assert await states(bench.store, bench.ids) == [State.SUCCEEDED]
    assert len(bench.completer) == 0 and bench.leases.known() == []
