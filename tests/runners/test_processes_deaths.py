"""Child processes that die: who is told, and who goes on in another."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from daybell.runners.processes import STILLBORN_MAX, Processes
from daybell.sdk.isolation import setup
from tests.engine.virtual import until
from tests.runners import isolated
from tests.runners.pools import Started, a_pool, an_order_in_vain, failed, ran


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "was killed by SIGKILL (by somebody, or by the system because memory was"),
        (signal.SIGSEGV, "was killed by SIGSEGV (a crash in code that is not Python"),
        (signal.SIGUSR1, "was killed by SIGUSR1"),
        (signal.SIGRTMIN + 3, "was killed by signal 37"),
    ],
)
async def test_a_signal_that_ends_a_child_is_named(number, reason):
    async with a_pool() as pool:
        failure = await failed(pool, isolated.kill, number=number)

        assert failure.type == "ProcessDied"
        assert reason in failure.message
        assert await ran(pool, isolated.whoami)


async def test_only_the_worker_stops_a_task():
    async with a_pool() as pool:
        # As systemd does to all processes of a service: the worker drains meanwhile.
        await ran(pool, isolated.kill, number=signal.SIGTERM)

        assert len(pool.pids) == 1


@pytest.mark.parametrize("code", [0, 7])
async def test_an_exit_code_is_told(code):
    async with a_pool() as pool:
        failure = await failed(pool, isolated.leave, code=code)

    assert failure.message == (
        f"the task's process ended with exit code {code}, in the middle of the task"
    )
    assert failure.names == ("ProcessDied",)


async def test_a_child_that_dies_while_idle_is_not_used():
    async with a_pool() as pool:
        pid = await ran(pool, isolated.whoami)

        os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.pids == [], within=30)

        assert await ran(pool, isolated.whoami) != pid


async def four_idle(pool: Processes, folder: Path) -> list[int]:
    """The ids of four children, the one that is used next first."""
    fifos = [folder / "one", folder / "other"]
    for fifo in fifos:
        os.mkfifo(fifo)
    meeting = [
        Started(pool, isolated.meet, fifo=str(fifo), mode=mode) for fifo in fifos for mode in "rw"
    ]
    await asyncio.gather(*(started.result() for started in meeting))
    pids = [child.pid for child in reversed(pool._idle)]
    assert len(pids) == 4
    return pids


async def test_idle_children_that_have_just_died_cost_the_tasks_nothing(tmp_path):
    async with a_pool(children=4) as pool:
        dead = await four_idle(pool, tmp_path)

        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        pids = await asyncio.gather(*(ran(pool, isolated.whoami) for _ in range(4)))

        assert not set(dead) & set(pids)


async def test_a_task_outlives_any_number_of_idle_children_that_die_before_they_begin(tmp_path):
    async with a_pool(children=4) as pool:
        pids = await four_idle(pool, tmp_path)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        started = Started(pool, isolated.whoami)
        for pid in pids:
            await until(lambda pid=pid: pid not in [c.pid for c in pool._idle], within=30)
            os.kill(pid, signal.SIGKILL)

        assert await started.result() not in pids


async def test_a_child_that_dies_with_an_order_it_has_not_begun_is_replaced():
    async with a_pool() as pool:
        pid, started = await an_order_in_vain(pool)

        os.kill(pid, signal.SIGKILL)

        assert await started.result() != pid


async def test_a_process_that_cannot_be_started_is_that_tasks_failure():
    pool = Processes(["/no/such/python"], setup=setup)

    with pytest.raises(FileNotFoundError):
        await ran(pool, isolated.whoami)
    await pool.close()


async def test_a_program_that_ends_at_once_is_that_tasks_failure():
    pool = Processes([sys.executable, "-c", "print('no'); exit(3)"], setup=setup)

    started = Started(pool, isolated.whoami)

    assert (await started.failure()).message == (
        "the task's process ended with exit code 3, before it had begun with the task"
    )
    assert started.running.said == [("stdout", "", "no")] * STILLBORN_MAX
    await pool.close()
