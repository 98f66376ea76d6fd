"""Child processes: number, age and limits; deaths, leftovers and stops. All are real."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from daybell.errors import RetryLater
from daybell.runners.processes import STILLBORN_MAX, FunctionLocation, Processes
from daybell.sdk.isolation import setup
from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners import isolated
from tests.runners.pools import SOON, Running, Started, a_pool, an_order_in_vain, failed, ran


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


async def test_a_task_with_devices_has_a_child_of_its_own():
    async with a_pool() as pool:
        found = [await ran(pool, isolated.devices, devices={"gpu": [n, 3]}) for n in range(2)]
        plain = await ran(pool, isolated.devices)

    assert [one[1:] for one in found] == [["0,3", {"gpu": [0, 3]}], ["1,3", {"gpu": [1, 3]}]]
    assert plain[1:] == [None, {}]
    assert len({found[0][0], found[1][0], plain[0]}) == 3


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


# Child processes that die: who is told, and who goes on in another.


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
        await until(lambda: pool.pids == [], within=60)

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
            await until(lambda pid=pid: pid not in [c.pid for c in pool._idle], within=60)
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


# What a task leaves behind in its child process, and what becomes of it.


@pytest.mark.parametrize(
    "function",
    [
        isolated.leave_a_timer,
        isolated.leave_work_in_a_pool,
        isolated.close_stdout,
        isolated.detach_stdout,
        isolated.redirect_stdout,
    ],
)
async def test_a_child_in_which_a_task_has_left_something_dangerous_is_replaced(function):
    async with a_pool(grace=SOON) as pool:
        pid = await ran(pool, function)

        after = Started(pool, isolated.print_and_log, text="heard")

        assert await after.result() != pid
        assert ("stdout", "", "heard") in after.running.said


@pytest.mark.parametrize(
    "function",
    [
        isolated.use_a_pool,
        isolated.use_a_thread,
        isolated.replace_streams,
        isolated.upset_logging,
    ],
)
async def test_what_can_be_put_right_after_a_task_is_and_the_child_stays(function):
    async with a_pool() as pool:
        pid = await ran(pool, function)

        after = Started(pool, isolated.print_and_log, text="heard")

        assert await after.result() == pid
        assert sorted(after.running.said) == [("stdout", "", "heard"), ("warning", "mine", "heard")]


async def test_what_a_coroutine_leaves_on_the_loop_is_cancelled(tmp_path):
    log = tmp_path / "log"
    async with a_pool() as pool:
        pid = await ran(pool, isolated.leave_a_coroutine, log=str(log))

        assert log.read_text() == "cancelled"
        assert await ran(pool, isolated.count_ticks) == [pid, 0]


async def test_how_what_was_left_on_the_loop_fails_is_logged_with_its_task():
    async with a_pool() as pool:
        started = Started(pool, isolated.leave_a_coroutine_that_fails)
        pid = await started.result()

        assert await ran(pool, isolated.whoami) == pid
    [(level, source, message)] = started.running.said
    assert (level, source) == ("error", "asyncio")
    assert "ValueError: on the way out" in message


async def test_a_child_with_something_on_its_loop_that_does_not_end_is_replaced():
    async with a_pool() as pool:
        pid = await ran(pool, isolated.leave_a_stubborn_coroutine)

        assert await ran(pool, isolated.whoami) != pid


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (isolated.close_everything, {}, "closed its line to the worker"),
        (isolated.babble, {"first": 0}, "wrote something of its own on its line"),
        (isolated.babble, {"first": 255}, "wrote something of its own on its line"),
    ],
)
async def test_a_task_that_meddles_with_the_line_fails(function, args, reason):
    async with a_pool() as pool:
        failure = await failed(pool, function, **args)

        assert reason in failure.message
        assert await ran(pool, isolated.whoami)


async def test_of_a_task_that_forks_one_is_heard():
    async with a_pool() as pool:
        started = Started(pool, isolated.fork_and_return)

        assert await started.result() == "parent"
        assert len(started.running.notes) == 1
        assert started.running.said == []
        assert await ran(pool, isolated.whoami) in pool.pids


async def test_what_a_task_forked_ends_with_its_child():
    async with a_pool() as pool:
        started = Started(pool, isolated.fork_and_leave)
        await started.result()
        (pid,) = await started.running.told()
        assert is_alive(pid)

    await until(lambda: not is_alive(pid), within=60)


async def test_an_alarm_of_one_task_does_not_hit_the_next():
    async with a_pool() as pool:
        await ran(pool, isolated.set_alarm)

        left, _ = await ran(pool, isolated.show_state)
        assert left == 0


# Tasks in child processes that are stopped: they may tidy up, and nothing of them stays.


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (isolated.wait, "interrupted, cancelled: True, finally"),
        (isolated.wait_async, "cancelled: True"),
    ],
)
async def test_what_is_stopped_may_tidy_up(function, told, tmp_path):
    async with a_pool() as pool:
        await ran(pool, isolated.take_term_over)  # which is taken back
        started = Started(pool, function, log=str(tmp_path / "log"))
        (pid,) = await started.running.told()

        started.task.cancel()

        failure = await started.failure()
        assert "isolated.py" in failure.traceback  # where it was
        assert (tmp_path / "log").read_text() == told
        assert await ran(pool, isolated.whoami) != pid


async def test_what_looks_whether_it_is_to_stop_may_return():
    async with a_pool() as pool:
        started = Started(pool, isolated.watch, ends=True)
        await started.running.told()

        started.task.cancel()

        assert await started.result() == "ended"


async def test_what_looks_and_goes_on_is_interrupted_before_it_is_killed():
    async with a_pool(grace=1.0) as pool:
        started = Started(pool, isolated.watch, ends=False)
        await started.running.told()

        started.task.cancel()

        failure = await started.failure()
        assert failure.type.endswith("Interrupted")


async def test_what_does_not_hear_is_killed_with_all_that_it_started():
    async with a_pool(grace=SOON) as pool:
        started = Started(pool, isolated.hang)
        (pid,) = await started.running.told()

        started.task.cancel()

        failure = await started.failure()
        assert failure.type == "ProcessDied"
        assert "did not end within 0.2 s of being told to, and was killed" in failure.message
        assert not is_alive(pid)


async def test_a_program_that_a_task_started_is_stopped_with_it():
    async with a_pool() as pool:
        started = Started(pool, isolated.hang_with_program)
        pids = await started.running.told()

        started.task.cancel()

        await started.failure()
        await until(lambda: not any(map(is_alive, pids)), within=60)


async def test_what_is_stopped_before_it_has_a_child_goes_back_uncharged():
    async with a_pool(grace=SOON) as pool:
        busy = Started(pool, isolated.hang)
        await busy.running.told()
        waiting = [Started(pool, isolated.whoami) for _ in range(2)]
        await asyncio.sleep(0)

        waiting[0].task.cancel()

        with pytest.raises(RetryLater):
            await waiting[0].task
        busy.task.cancel()
        await busy.failure()
        assert await waiting[1].result() in pool.pids


async def test_a_child_that_comes_when_nobody_waits_any_more_is_kept():
    async with a_pool() as pool:
        unwanted = Started(pool, isolated.whoami)
        await asyncio.sleep(0)
        unwanted.task.cancel()
        with pytest.raises(RetryLater):
            await unwanted.task

        assert await ran(pool, isolated.whoami) in pool.pids


async def test_a_child_is_not_lost_when_it_comes_together_with_a_stop():
    async with a_pool() as pool:
        first, second = (Started(pool, isolated.whoami) for _ in range(2))

        class Meddling(Running):
            """Has the second one stopped when the child was just handed to it."""

            @property
            def is_hopeless(self):
                return False

            @is_hopeless.setter
            def is_hopeless(self, _):
                second.task.cancel()

        first.running.__class__ = Meddling
        await first.result()

        with pytest.raises(RetryLater):
            await second.task
        assert await ran(pool, isolated.whoami) in pool.pids


async def test_what_is_stopped_before_its_child_has_begun_goes_back_uncharged():
    async with a_pool(grace=SOON) as pool:
        pid, started = await an_order_in_vain(pool)

        started.task.cancel()

        with pytest.raises(RetryLater):
            await asyncio.wait_for(started.task, 300)
        assert not is_alive(pid)
        assert await ran(pool, isolated.whoami) != pid
