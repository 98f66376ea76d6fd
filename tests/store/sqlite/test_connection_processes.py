"""Processes on one file: writing at once, killed in the middle, out of room."""

import asyncio
import sys
from collections import defaultdict
from itertools import chain
from pathlib import Path
from uuid import UUID

from daybell.core.execution import State
from daybell.core.views import ExecutionFilter
from tests.builders import TENANT, defined, states

ROOT = Path(__file__).parents[3]
EVERYTHING = ExecutionFilter()
SECONDS = 60


async def start(task, path):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.sqlite.children", task, path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )


async def told(process):
    """All that a process tells until it ends."""
    output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0
    return output.decode().splitlines()


def is_intact(connection):
    return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_processes_that_write_at_once_lose_nothing(store, path, raw):
    await defined(store)
    running = [await start("enqueue", path) for _ in range(3)]

    lines = await asyncio.gather(*(told(process) for process in running))

    ids = [UUID(word) for line in chain(*lines) for word in line.split()]
    assert len(ids) == len(set(ids)) == 3 * 5 * 53
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: len(ids)}
    assert set(await states(store, ids)) == {State.QUEUED}
    assert is_intact(raw)


async def test_a_killed_process_loses_nothing_that_was_acknowledged(store, path, raw):
    await defined(store)
    acknowledged: dict[str, list[UUID]] = defaultdict(list)

    for lines in (1, 20, 50, 90):
        process = await start("live", path)
        assert process.stdout
        for _ in range(lines):
            line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
            what, *ids = line.decode().split()
            acknowledged[what] += map(UUID, ids)
        process.kill()
        await process.wait()

        assert is_intact(raw)

    assert acknowledged["enqueued"] and acknowledged["finished"]
    assert len(await states(store, acknowledged["enqueued"])) == len(acknowledged["enqueued"])
    assert set(await states(store, acknowledged["finished"])) == {State.SUCCEEDED}


async def test_a_commit_that_fails_is_told_to_all_and_nothing_of_it_is_kept(store, path, raw):
    await defined(store)

    lines = await told(await start("fill", path))

    answers = defaultdict(set)
    for line in lines:
        what, id = line.split()
        answers[what].add(UUID(id))
    assert answers["failed"], "the limit was not reached"
    kept = await store.catalog.list_executions(TENANT, EVERYTHING)
    assert {one.id for one in kept.items} == answers["enqueued"]
    assert is_intact(raw)
