"""SIGKILL of the leader at each of its awaits, while incidents open and close."""

import asyncio
import json
import os
import sys
from collections import Counter

import pytest

from daybell.core.subscription import SUBSCRIPTIONS, delivery_job
from daybell.core.views import ExecutionFilter
from tests.builders import TENANT, a_subscription, dead
from tests.store.test_admin_alerts import kept
from tests.store.test_admin_alerts_webhooks import HOOK

TO_ITS_END = 1_000_000


class Leaders:
    """Processes that lead, one after the other."""

    def __init__(self, process):
        self._process = process

    async def end_at(self, number):
        """True if one was killed at this await; False if it came to its end before."""
        self._process.stdin.write(f"{number}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), 300)
        return bool(int(line))


@pytest.fixture
async def leaders(place):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.leader", place.kind, place.url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=os.environ.copy(),
    )  # fmt: skip
    yield Leaders(process)
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()


async def sent(store, job):
    """How often each message was enqueued, by its type and subject."""
    where = ExecutionFilter(job=job)
    found, cursor = Counter(), None
    while True:
        page = await store.catalog.list_executions(TENANT, where, cursor=cursor)
        for one in page.items:
            event = json.loads(one.args)
            found[event["type"], event["data"].get("subject") or event["subject"]] += 1
        if (cursor := page.next_cursor) is None:
            return found


async def assert_once(store, leaders, number, subjects):
    """Kill a leader at an await, let another one finish the work, and look for exactly one message
    of each kind and subject.
    """
    was_killed = await leaders.end_at(number)
    assert not await leaders.end_at(TO_ITS_END)
    assert await sent(store, "alert:on-dead_letter") == dict.fromkeys(subjects, 1)
    return was_killed


@pytest.mark.all_only
async def test_a_leader_that_is_killed_at_any_await_leaves_one_message_each(store, leaders):
    await kept(store, to=HOOK)
    hooks = a_subscription(status=["dead"])
    await store.admin.put_record(TENANT, SUBSCRIPTIONS, hooks)
    subjects, jobs, is_killed = {}, [], True
    for number in range(10_000):
        if not is_killed:
            break
        job = f"job-{number}"
        jobs.append(job)
        ids = await dead(store, job=job)
        subjects["alert.open", job] = 1
        opening = await assert_once(store, leaders, number, subjects)
        await store.queue.discard(TENANT, ids)
        subjects["alert.close", job] = 1
        closing = await assert_once(store, leaders, number, subjects)
        is_killed = opening or closing

    assert len(jobs) > 5, "it was hardly ever killed"
    events = await sent(store, delivery_job("hooks"))
    assert events == {("execution.dead", job): 1 for job in jobs}
