"""Reports to the store: ends in groups, broken ends, progress, and ends not yet written."""

import asyncio
import json

import pytest

from daybell.core.execution import State
from daybell.core.lifecycle import Ruling, Verdict, after_success
from daybell.core.limits import APPLY_BATCH_MAX, CLAIM_BATCH_MAX
from daybell.engine.claim import POLL_SECONDS
from daybell.engine.events import Ended, Events, Started
from daybell.engine.lease import Leases
from daybell.engine.loop import AGAIN, Loop, ManualClock
from daybell.engine.report import UNWRITTEN_MAX, Completer
from daybell.errors import Unavailable
from tests.builders import TENANT, claim, claimed, death, enqueued, look, states, success
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker, counts, quick
from tests.engine.virtual import VirtualClock, in_virtual_time, seconds, turns, until


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
    assert bench.leases.known() == [] and "cannot be stored" in caplog.text
    assert [event.claimed.id for event in bench.events] == [*bench.ids[1:], bad.id]


async def test_an_end_that_is_refused_twice_is_left_to_the_lease():
    bench = await a_bench(1)
    [bad] = bench.hands.executions
    refusals = 0
    apply = bench.store.store.queue.apply

    async def refuse(tenant, *, worker, transitions, wait=True):
        nonlocal refusals
        refusals += 1
        verdicts = await apply(tenant, worker=worker, transitions=[])
        return verdicts + [Verdict(m.id, m.attempt, Ruling.REFUSED, "no") for m in transitions]

    bench.store.store.queue.apply = refuse
    bench.completer.add(bad, success(bad))

    for _ in range(5):
        await bench.completer.tick()

    assert refusals == 2 and len(bench.completer) == 0


async def test_a_report_that_comes_too_late_is_counted_and_logged(caplog):
    bench = await a_bench(2)
    late, good = bench.hands.executions
    await bench.store.queue.release(TENANT, worker=bench.hands.worker, leases=[bench.hands.lease])
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
    await bench.store.queue.cancel(TENANT, bench.ids)
    bench.add_all()

    await bench.completer.tick()

    assert [event.verdict.ruling for event in bench.events] == [Ruling.CANCELLED]
    assert await states(bench.store, bench.ids) == [State.CANCELLED]
    assert bench.leases.known() == []


async def test_an_observer_of_trouble_hears_of_failures_and_not_of_successes():
    bench, heard = await a_bench(2), []
    bench.completer._events = Events()
    bench.completer._events.observe(heard.append, only_trouble=True)
    good, bad = bench.hands.executions

    bench.completer.add(good, success(good))
    bench.completer.add(bad, death(bad))
    await bench.completer.tick()

    assert [(type(event), event.claimed.id) for event in heard] == [(Ended, bad.id)]


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


# Ends that break the store in a way that it does not know itself.

MANY = 2000


class Choking:
    """Has the store of a bench raise what no store should, for the moves that break it."""

    def __init__(self, bench: Bench, breaks):
        self._apply = bench.store.store.queue.apply
        self.breaks = breaks
        self.count = 0
        bench.store.store.queue.apply = self.apply

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


# What others see of a run: progress, notes, its start and its end.


@in_virtual_time
async def test_long_runs_are_shown_and_short_ones_are_not_written():
    async def task(running):
        if running.claimed.job == "long":
            running.report(progress=40, note="half way")
            await asyncio.sleep(3)

    store = faulty(await a_store())
    [long] = await enqueued(store, job="long")
    await enqueued(store, 20, job="short")
    worker = a_worker(store, Tasks(long=task, short=task))
    await worker.start()
    await asyncio.sleep(1)

    shown = await look(store, long)
    assert (shown.progress, shown.note, shown.started_at) == (
        40,
        "half way",
        VirtualClock().now() - 1,
    )
    assert {len(asked["reports"]) for asked in store.asked("report")} == {1}
    await worker.stop()


@in_virtual_time
async def test_what_a_run_shows_is_sent_again_if_it_could_not_be_written():
    async def task(running):
        running.report(note="once", checkpoint="[1]")
        await asyncio.sleep(3)

    store = faulty(await a_store())
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=task))
    store.fail("report", Unavailable("1"), Unavailable("2"))
    await worker.start()
    await asyncio.sleep(2)

    shown = await look(store, id)
    assert (shown.note, shown.checkpoint) == ("once", "[1]")
    assert store.count("report") == 3
    await worker.stop()


@in_virtual_time
async def test_a_note_that_cannot_be_kept_does_not_hide_the_others():
    async def task(running):
        running.report(note="\0" if running.claimed.job == "bad" else "fine")
        await asyncio.sleep(3)

    store = faulty(await a_store())
    ids = await enqueued(store, 3, job="good")
    await enqueued(store, 1, job="bad")
    worker = a_worker(store, Tasks(good=task, bad=task))
    await worker.start()
    await asyncio.sleep(2)

    assert [(await look(store, id)).note for id in ids] == ["fine"] * 3
    await worker.stop()


@in_virtual_time
async def test_the_progress_of_a_short_run_is_written_with_its_end_and_a_bad_note_is_left_out(
    caplog,
):
    async def task(running):
        note = "\ud800" if running.claimed.job == "bad" else "done"
        running.report(progress=100, note=note, checkpoint="[1]")

    store = faulty(await a_store())
    ids = [*await enqueued(store, job="good"), *await enqueued(store, job="bad")]
    worker = a_worker(store, Tasks(good=task, bad=task))
    await worker.start()
    await asyncio.sleep(1)

    good, bad = [await look(store, id) for id in ids]
    assert (good.state, good.progress, good.note) == (State.SUCCEEDED, 100, "done")
    assert (bad.state, bad.progress, bad.note) == (State.SUCCEEDED, 100, None)
    assert good.checkpoint == bad.checkpoint == "[1]"
    assert store.count("report") == 0
    assert "the note of" in caplog.text
    await worker.stop()


@in_virtual_time
async def test_observers_hear_of_starts_and_ends():
    heard = []
    events = Events()
    events.observe(lambda event: heard.append((type(event), event.claimed.id)))
    store = await a_store()
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=quick), events=events)

    await worker.start()
    await until(lambda: len(heard) == 2)
    await worker.stop()

    assert heard == [(Started, id), (Ended, id)]


# Ends that are not written yet: a worker that is killed leaves only so many to be run again.

CONCURRENCY = 50
COUNT = 4 * APPLY_BATCH_MAX


class Unwritten:
    """A task that shows progress, and counts the ends in its worker that are not written."""

    def __init__(self):
        self.most = self.runs = 0

    async def __call__(self, running):
        self.runs += 1
        running.report(progress=50.0)
        await asyncio.sleep(0)
        self.most = max(self.most, len(self.worker.current.completer) + 1)

    async def start(self, store):
        await enqueued(store, COUNT)
        self.worker = a_worker(store, Tasks(resize=self), concurrency=CONCURRENCY)
        await self.worker.start()


async def drained(store, task):
    await until(lambda: task.runs >= COUNT and not len(task.worker.current.completer), within=60)
    assert await counts(store) == {State.SUCCEEDED: COUNT}


@in_virtual_time
async def test_a_worker_on_a_slow_store_starts_no_more_than_a_batch_ahead_of_its_reports():
    store, task = faulty(await a_store()), Unwritten()
    store.delay = lambda operation: 2.0 if operation == "apply" else 0.0
    await task.start(store)

    await drained(store, task)

    assert APPLY_BATCH_MAX / 2 < task.most <= APPLY_BATCH_MAX + CONCURRENCY
    assert task.runs == COUNT  # none was given back and run again
    await task.worker.stop()


@in_virtual_time
async def test_a_store_that_writes_quickly_may_have_more_on_their_way_but_not_without_end():
    store, task = faulty(await a_store()), Unwritten()
    store.delay = lambda operation: 0.1 if operation == "apply" else 0.0
    await task.start(store)

    await drained(store, task)

    assert APPLY_BATCH_MAX < task.most <= UNWRITTEN_MAX + CONCURRENCY
    await task.worker.stop()


@in_virtual_time
async def test_a_worker_whose_reports_are_not_answered_stops_starting_and_goes_on_afterwards():
    store, task = faulty(await a_store()), Unwritten()
    answering = store.hold("apply")
    await task.start(store)
    await asyncio.sleep(10)

    assert APPLY_BATCH_MAX <= task.runs <= APPLY_BATCH_MAX + CONCURRENCY
    answering.set()
    await drained(store, task)
    assert task.most <= UNWRITTEN_MAX + CONCURRENCY
    await task.worker.stop()


@in_virtual_time
async def test_a_worker_whose_reports_fail_stops_starting_and_goes_on_afterwards():
    store, task = faulty(await a_store()), Unwritten()
    store.fail("apply", *(Unavailable("no room on the disk") for _ in range(10)))
    await task.start(store)
    await until(lambda: store.count("apply") == 8)

    assert APPLY_BATCH_MAX <= task.runs <= APPLY_BATCH_MAX + CONCURRENCY
    await drained(store, task)
    await task.worker.stop()


@in_virtual_time
async def test_a_worker_that_was_held_up_hears_of_what_came_meanwhile():
    store, task = faulty(await a_store()), Unwritten()
    answering = store.hold("apply")
    await enqueued(store, APPLY_BATCH_MAX + CONCURRENCY)
    task.worker = a_worker(store, Tasks(resize=task), concurrency=2 * APPLY_BATCH_MAX)
    await task.worker.start()
    await until(lambda: task.runs == APPLY_BATCH_MAX + CONCURRENCY)
    await enqueued(store, 1)
    await asyncio.sleep(POLL_SECONDS / 4)
    asked = store.count("claim")

    answering.set()

    await until(lambda: task.runs == APPLY_BATCH_MAX + CONCURRENCY + 1, within=POLL_SECONDS / 4)
    assert store.count("claim") > asked
    await task.worker.stop()
