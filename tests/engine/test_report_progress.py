"""What others see of a run: progress, notes, its start and its end."""

import asyncio

from daybell.engine.events import Ended, Events, Started
from daybell.errors import Unavailable
from tests.builders import enqueued, look
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker, quick
from tests.engine.virtual import VirtualClock, in_virtual_time, until


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
