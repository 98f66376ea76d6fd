"""Ends on their way to the store."""

import asyncio
import json

import pytest

from daybell.core.execution import State
from daybell.core.lifecycle import Ruling, Verdict, after_success
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.engine.events import Events
from daybell.engine.lease import Leases
from daybell.engine.loop import AGAIN, Loop, ManualClock
from daybell.engine.report import Completer
from daybell.errors import Unavailable
from tests.builders import TENANT, claim, claimed, enqueued, look, states, success
from tests.engine.faults import faulty
from tests.engine.tasks import a_store
from tests.engine.virtual import VirtualClock, in_virtual_time, turns


async def written(_):
    """Take reports, and keep nothing."""


def a_completer(store, *, worker, leases, events, wake=lambda: None):
    """A completer that wakes no loop unless one is given."""
    return Completer(
        store,
        tenant=TENANT,
        worker=worker,
        leases=leases,
        events=events,
        write=written,
        wake=wake,
        on_returned=lambda: None,
        on_written=lambda: None,
    )


class Bench:
    """A completer for what one worker has claimed."""

    def __init__(self, store, hands):
        self.store = store
        self.hands = hands
        self.leases = Leases(on_named=lambda: None)
        self.leases.answer(hands.lease, len(hands.executions))
        self.events = []
        events = Events()
        events.observe(self.events.append)
        self.loop = Loop("finish", self._finish, interval=60.0, clock=VirtualClock())
        self.completer = a_completer(
            store, worker=hands.worker, leases=self.leases, events=events, wake=self.loop.wake
        )

    async def _finish(self):
        return await self.completer.tick()

    @property
    def ids(self):
        return [one.id for one in self.hands.executions]

    def add_all(self):
        for one in self.hands.executions:
            self.completer.add(one, success(one))

    def groups(self):
        return [len(asked["transitions"]) for asked in self.store.asked("apply")]


async def a_bench(count, *, clock=None):
    store = faulty(await a_store(clock or ManualClock()))
    return Bench(store, await claimed(store, count))


async def test_ends_are_written_and_their_leases_left():
    bench = await a_bench(3)
    one, *others = bench.hands.executions

    bench.completer.add(one, success(one))
    assert await bench.completer.tick() is None
    assert bench.leases.known() == [bench.hands.lease]
    for other in others:
        bench.completer.add(other, success(other))
    await bench.completer.tick()

    assert await states(bench.store, bench.ids) == [State.SUCCEEDED] * 3
    assert bench.leases.known() == [] and len(bench.completer) == 0
    assert [event.claimed.id for event in bench.events] == bench.ids


async def test_with_nothing_to_write_the_store_is_left_alone():
    bench = await a_bench(1)

    assert await bench.completer.tick() is None

    assert bench.groups() == []


@in_virtual_time
async def test_the_next_group_gathers_while_one_is_written():
    bench = await a_bench(50, clock=VirtualClock())
    loop = bench.loop
    loop.start()
    await turns()
    gate = bench.store.hold("apply")

    for one in bench.hands.executions:
        bench.completer.add(one, success(one))
        await turns(3)
    gate.set()
    await loop.pass_once()
    await loop.pass_once()
    await loop.stop()

    assert bench.groups() == [1, 49]
    assert await states(bench.store, bench.ids) == [State.SUCCEEDED] * 50
    assert asyncio.get_running_loop().time() == 0


async def test_of_many_that_wait_two_groups_are_on_their_way_at_once():
    bench = await a_bench(1)
    [one] = bench.hands.executions
    for _ in range(2 * APPLY_BATCH_MAX + 1):
        bench.completer.add(one, success(one))
    gate = bench.store.hold("apply")

    writing = asyncio.create_task(bench.completer.tick())
    await turns(3)
    assert bench.groups() == [APPLY_BATCH_MAX, APPLY_BATCH_MAX]
    gate.set()

    assert await writing == AGAIN
    assert await bench.completer.tick() is None
    assert bench.groups()[2:] == [1]


async def test_a_group_is_never_larger_than_the_store_takes():
    bench = await a_bench(1)
    [one] = bench.hands.executions
    for _ in range(APPLY_BATCH_MAX + 1):
        bench.completer.add(one, success(one))

    assert await bench.completer.tick() == AGAIN
    assert await bench.completer.tick() is None

    assert bench.groups() == [APPLY_BATCH_MAX, 1]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_nothing_is_lost_while_the_store_is_away_and_the_order_is_kept(is_committed):
    bench = await a_bench(20)
    bench.store.fail("apply", Unavailable("1"), Unavailable("2"), after=is_committed)
    first, *others = bench.hands.executions
    bench.completer.add(first, success(first))

    for other in others[:10]:
        bench.completer.add(other, success(other))
        if bench.store.count("apply") < 2:
            with pytest.raises(Unavailable):
                await bench.completer.tick()
    for other in others[10:]:
        bench.completer.add(other, success(other))
    await bench.completer.tick()

    sent = [move.id for move in bench.store.asked("apply")[-1]["transitions"]]
    assert sent == bench.ids
    assert await states(bench.store, bench.ids) == [State.SUCCEEDED] * 20
    assert [event.verdict for event in bench.events] == [None] * 20
    assert bench.completer.stale == 0 and bench.leases.known() == []


async def test_what_the_store_cannot_keep_ends_as_a_failed_attempt(caplog):
    bench = await a_bench(3)
    bad, *good = bench.hands.executions
    bench.completer.add(bad, after_success(bad, result='"\0"', ran=1.5))
    for one in good:
        bench.completer.add(one, success(one))

    assert await bench.completer.tick() == AGAIN
    await bench.completer.tick()

    dead = await look(bench.store, bad.id)
    assert dead.error is not None
    error = json.loads(dead.error)
    assert (dead.state, dead.reason, dead.failures) == (State.DEAD, "permanent", 1)
    assert "NUL" in error["message"] and error["type"] == "PayloadError"
    assert await states(bench.store, bench.ids[1:]) == [State.SUCCEEDED] * 2
    assert bench.leases.known() == [] and "cannot be kept" in caplog.text
    assert [event.claimed.id for event in bench.events] == [*bench.ids[1:], bad.id]


async def test_an_end_that_is_refused_twice_is_left_to_the_lease():
    bench = await a_bench(1)
    [bad] = bench.hands.executions
    refusals = 0
    apply = bench.store.store.apply

    async def refuse(tenant, *, worker, transitions, wait=True):
        nonlocal refusals
        refusals += 1
        verdicts = await apply(tenant, worker=worker, transitions=[])
        return verdicts + [Verdict(m.id, m.attempt, Ruling.REFUSED, "no") for m in transitions]

    bench.store.store.apply = refuse
    bench.completer.add(bad, success(bad))

    for _ in range(5):
        await bench.completer.tick()

    assert refusals == 2 and len(bench.completer) == 0


async def test_a_report_that_comes_too_late_is_counted_and_logged(caplog):
    bench = await a_bench(2)
    late, good = bench.hands.executions
    await bench.store.release(TENANT, worker=bench.hands.worker, leases=[bench.hands.lease])
    again = await claim(bench.store, 1)
    bench.add_all()

    await bench.completer.tick()

    assert bench.completer.stale == 2
    assert f"attempt 1 of {late.id} (resize) came too late" in caplog.text
    assert "it is at attempt 2 now" in caplog.text
    assert [event.verdict.ruling for event in bench.events] == [Ruling.STALE] * 2
    assert (await look(bench.store, again.one.id)).state is State.RUNNING
    assert bench.leases.known() == []
    assert good.id in bench.ids


async def test_what_was_cancelled_meanwhile_is_told_so():
    bench = await a_bench(1)
    await bench.store.cancel(TENANT, bench.ids)
    bench.add_all()

    await bench.completer.tick()

    assert [event.verdict.ruling for event in bench.events] == [Ruling.CANCELLED]
    assert await states(bench.store, bench.ids) == [State.CANCELLED]
    assert bench.leases.known() == []


async def test_an_observers_error_hurts_nobody(caplog):
    bench = await a_bench(2)

    def broken(event):
        raise ValueError("an observer's own affair")

    bench.completer._events.observe(broken)
    bench.add_all()
    await bench.completer.tick()

    assert await states(bench.store, bench.ids) == [State.SUCCEEDED] * 2
    assert "an observer failed on Ended" in caplog.text


async def test_a_claim_and_its_end_leave_no_lease_behind():
    bench = await a_bench(1)
    await enqueued(bench.store, 1)

    bench.leases.ask(bench.hands.lease)
    bench.leases.answer(bench.hands.lease, 0)

    assert bench.leases.known() == []
