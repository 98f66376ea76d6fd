"""Child processes: how many there are, how long they live, and their limits. All are real."""

import asyncio
import os

from daybell.runners.processes import FunctionLocation
from daybell.sdk.isolation import setup
from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners import isolated
from tests.runners.pools import SOON, Started, a_pool, failed, ran


async def test_a_child_is_another_process_and_is_used_again():
    async with a_pool() as pool:
        first = await ran(pool, isolated.whoami)

        assert first != os.getpid()
        assert pool.pids == [first]
        assert await ran(pool, isolated.whoami_async) == first
    assert not is_alive(first)


async def test_there_are_as_many_children_as_are_busy_up_to_the_limit(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with a_pool(children=2) as pool:
        one = Started(pool, isolated.meet, fifo=str(fifo), mode="r")
        other = Started(pool, isolated.meet, fifo=str(fifo), mode="w")

        assert {await one.result(), await other.result()} == set(pool.pids)
        more = await asyncio.gather(*(ran(pool, isolated.whoami) for _ in range(10)))
        assert set(more) <= set(pool.pids)
        assert len(pool.pids) == 2


async def test_a_plain_function_runs_as_in_a_script():
    async with a_pool() as pool:
        assert await ran(pool, isolated.where) == [True, False]
        assert await ran(pool, isolated.heed_alarm) == "rang"
        assert await ran(pool, isolated.environment) == setup().path


async def test_a_child_is_replaced_after_so_many_tasks():
    async with a_pool(runs_max=2) as pool:
        pids = [await ran(pool, isolated.whoami) for _ in range(5)]

    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_an_idle_child_ends_after_a_while():
    async with a_pool(idle=SOON) as pool:
        pid = await ran(pool, isolated.whoami)

        await until(lambda: not is_alive(pid), within=60)
        assert pool.pids == []
        assert await ran(pool, isolated.whoami) != pid


async def test_arguments_and_results_of_any_permitted_size_pass():
    text = "ä\x00 " * 100_000
    async with a_pool() as pool:
        assert await ran(pool, isolated.echo, text=text) == text


async def test_a_memory_limit_is_for_one_task_and_starts_from_what_is_there():
    async with a_pool() as pool:
        pid = await ran(pool, isolated.grow, megabytes=150)
        _, before = await ran(pool, isolated.show_state)
        assert await ran(pool, isolated.grow, memory_limit=100_000_000, megabytes=50) == pid
        assert await ran(pool, isolated.show_state) == [0, before]

        failure = await failed(pool, isolated.grow, memory_limit=100_000_000, megabytes=150)

        assert failure.type == "MemoryLimit"
        assert failure.message == "the task needed more memory than its memory_limit of 100MB"
        assert "builtins.MemoryError" in failure.names
        assert await ran(pool, isolated.grow, megabytes=150) != pid


async def test_a_function_that_is_not_there_is_named():
    place = FunctionLocation(isolated.__name__, isolated.__file__, "gone")
    async with a_pool() as pool:
        failure = await failed(pool, place)

    assert failure.message.startswith("there is no gone in tests.runners.isolated when")
