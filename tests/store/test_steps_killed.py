"""SIGKILL of a publisher at each of its statements: an event and its executions, or neither."""

import asyncio
import os
import sys

from daybell.core.views import ExecutionFilter
from daybell.core.when import on_event
from tests.builders import TENANT, an_event
from tests.store.test_schedules_events import listening


async def recorded(store):
    """The ids of the events on record, and those of the events of executions."""
    events, executions, cursor = [], [], None
    while True:
        page = await store.runs.list_events(TENANT, cursor=cursor)
        events += [one.id for one in page.items]
        if (cursor := page.next_cursor) is None:
            break
    while True:
        page = await store.catalog.list_executions(TENANT, ExecutionFilter(), cursor=cursor)
        executions += [one.args.partition('"id":"')[2].partition('"')[0] for one in page.items]
        if (cursor := page.next_cursor) is None:
            return sorted(events), sorted(executions)


async def test_an_event_and_its_execution_both_exist_or_neither(place, crowd):
    store, other, *_ = crowd
    (schedule,) = await listening(store, when=[on_event("paid")])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.publisher", place.kind, place.url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=os.environ.copy(),
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    killed, kept, ids = 0, 0, []
    # Every other await of PostgreSQL: each takes a fork with a new connection.
    for number in range(0, 200, 2 if place.kind.startswith("postgres") else 1):
        ids.append(f"event-{number}")
        process.stdin.write(f"{number} event-{number}\n".encode())
        was_killed = int(await asyncio.wait_for(process.stdout.readline(), 300))
        events, executions = await recorded(store)
        assert events == executions, number
        kept += ids[-1] in events

        again = [one.runs.publish(TENANT, an_event("paid", id=ids[-1])) for one in (store, other)]
        answers = await asyncio.gather(*again)

        assert answers[0].executions == answers[1].executions != ()
        assert await recorded(store) == (sorted(ids), sorted(ids)), number
        killed += was_killed
        if not was_killed:
            break
    process.stdin.close()
    await process.wait()

    assert killed > 3, "it was hardly ever killed"
    assert kept >= 1
    assert len(await store.schedules.list_ticks(TENANT, schedule, limit=500)) == len(ids)
