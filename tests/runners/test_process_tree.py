"""Ending commands with all that they have started, whatever that does to get away."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from shlex import quote

import pytest
import uvloop

from daybell.engine.attempt import Stop
from daybell.runners import command_processes as commands_module
from daybell.runners import command_processes as program_module
from daybell.runners import process_tree
from daybell.runners.process_tree import (
    ProcessTree,
    SystemProcess,
    read_process,
    send_signal,
    take_snapshot,
)
from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners.running_commands import SECONDS, Job, some_commands

LONG = 600.0  # a grace that a test would not wait for
DEAF = "trap '' TERM; "
# Each prints the number of a process that would run for long, and how it tries to get away.
ESCAPES = {
    "a child": "sleep 1000 & echo $!; ",
    "a deaf child": "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); sleep 1000; sleep 1000) & ",
    "a session of its own": "setsid sh -c 'echo $$; exec sleep 1000' & ",
    "a deaf session": """setsid sh -c "trap '' TERM; echo \\$\\$; sleep 1000; sleep 1000" & """,
    "an orphan": "(setsid sh -c 'echo $$; exec sleep 1000' & ) ; ",
    "a deaf orphan": """(setsid sh -c "trap '' TERM; echo \\$\\$; sleep 999; sleep 999" & ) ; """,
    "no environment": "env -i setsid sh -c 'echo $$; exec sleep 1000' & ",
}
ALL = "".join(ESCAPES.values())


@pytest.fixture
async def commands():
    async with some_commands() as commands:
        yield commands


async def pids_of(job: Job, count: int) -> list[int]:
    """The numbers that a command prints, once they are there."""
    await until(lambda: job.said.count("\n") >= count - 1 and job.said, within=SECONDS)
    pids = [int(word) for word in job.said.split()]
    assert len(pids) == count and all(map(is_alive, pids))
    return pids


def marked(job: Job) -> list[int]:
    """All live processes that carry the mark of an execution."""
    sight, claimed = take_snapshot(), job.run.claimed
    assert sight is not None
    return sight.marked.get(process_tree.make_mark(claimed.id, claimed.attempt), [])


def assert_gone(job: Job, pids: list[int]) -> None:
    assert [pid for pid in pids if is_alive(pid)] == []
    assert marked(job) == []


async def test_after_timeout_and_grace_nothing_is_left_of_what_ignores_and_escapes(commands):
    job = Job(commands, DEAF + ALL + "wait; sleep 1000", shell=True, grace=0.2)
    pids = await pids_of(job, len(ESCAPES))
    loop = asyncio.get_running_loop()
    began = loop.time()

    job.stop(Stop.TIMEOUT)
    await job.ended()

    assert_gone(job, pids)
    assert loop.time() - began >= 0.2
    message = (await job.failure()).message
    assert message.startswith("when it was stopped, the command was killed by SIGKILL:\n")


async def test_what_hears_sigterm_ends_at_once_and_may_clean_up(commands):
    clean = "trap 'echo cleaned; exit 0' TERM; "
    job = Job(commands, clean + ESCAPES["a session of its own"] + "wait", shell=True, grace=LONG)
    pids = await pids_of(job, 1)

    job.stop(Stop.CANCEL)
    await job.ended()

    assert_gone(job, pids)
    assert "cleaned" in job.said
    assert (
        "when it was stopped, the command ended with exit code 0:\n"
        in (await job.failure()).message
    )


CLEANING = "trap 'echo cleaning; sh -c \"sleep 0.3; echo cleaned\"; exit 0' TERM; echo $$; "


@pytest.mark.parametrize(
    "command",
    [
        f"{CLEANING} while :; do sleep 0.02; done",
        f"sh -c {quote(f'{CLEANING} sleep 999; echo too far')} && true",
    ],
    ids=["its own handler", "that of a program which it runs"],
)
async def test_what_a_handler_of_sigterm_starts_gets_none(commands, command):
    job = Job(commands, command, shell=True, grace=LONG)
    pids = await pids_of(job, 1)

    job.stop(Stop.CANCEL)
    await job.ended()

    assert_gone(job, pids)
    assert job.said.split()[1:] == ["cleaning", "cleaned"]


async def test_what_a_handler_leaves_running_is_told_when_the_command_has_ended(commands, tmp_path):
    ready = tmp_path / "ready"
    left = f"trap 'echo told; exit' TERM; : > {ready}; while :; do sleep 0.02; done"
    handler = f"setsid sh -c {quote(left)} & while [ ! -e {ready} ]; do sleep 0.02; done; exit 0"
    script = f"trap {quote(handler)} TERM; echo $$; while :; do sleep 0.02; done"
    job = Job(commands, script, shell=True, grace=LONG)
    pids = await pids_of(job, 1)

    job.stop(Stop.CANCEL)
    await job.ended()

    assert_gone(job, pids)
    assert job.said.split()[1:] == ["told"]


async def test_what_a_handler_leaves_running_is_killed_after_the_grace(commands):
    handler = 'trap "" TERM; setsid sh -c "echo deaf; sleep 999; sleep 999" & exit 0'
    script = f"trap {quote(handler)} TERM; echo $$; while :; do sleep 0.02; done"
    job = Job(commands, script, shell=True, grace=0.4)
    pids = await pids_of(job, 1)

    job.stop(Stop.CANCEL)
    await job.ended()

    assert_gone(job, pids)
    assert job.said.split()[1:] == ["deaf"]


@pytest.mark.parametrize("why", [Stop.ABANDON, Stop.CANCEL])
async def test_without_patience_it_is_killed_at_once(commands, why):
    grace = 0 if why is Stop.CANCEL else LONG
    job = Job(
        commands, "trap 'echo heard' TERM; echo $$; while :; do :; done", shell=True, grace=grace
    )
    pids = await pids_of(job, 1)

    job.stop(why)
    await job.ended()

    assert_gone(job, pids)
    assert "heard" not in job.said


async def test_a_lease_that_is_lost_ends_the_grace_of_what_was_stopped_before(commands):
    job = Job(
        commands, "trap 'echo heard' TERM; echo $$; while :; do :; done", shell=True, grace=LONG
    )
    pids = await pids_of(job, 1)
    job.stop(Stop.TIMEOUT)
    await until(lambda: "heard" in job.said, within=SECONDS)

    job.run.stop = Stop.ABANDON  # as the executor does when the lease is lost
    await job.ended()

    assert_gone(job, pids)


async def test_what_forks_while_it_is_ended_is_ended(commands):
    # Each dies of SIGTERM, after it has started another one in a session of its own.
    script = "trap 'setsid sh -c \"$S\" & exit' TERM; echo $$; while :; do sleep 0.01; done"
    job = Job(commands, 'exec sh -c "$S"', shell=True, env={"S": script}, grace=0.3)
    pids = await pids_of(job, 1)

    job.stop()
    await job.ended()

    assert_gone(job, pids)


async def test_what_a_command_leaves_behind_is_ended_with_it(commands, monkeypatch):
    monkeypatch.setattr(commands_module, "LEFTOVERS_SECONDS", 0.1)
    monkeypatch.setattr("daybell.runners.command.LEFTOVERS_SECONDS", 0.1)
    # Only what still carries the mark: where a daemon's ancestors are gone, that is all there is.
    ways = {name: way for name, way in ESCAPES.items() if name != "no environment"}
    job = Job(commands, "".join(ways.values()) + "sleep 0.1; echo done", shell=True)

    output = await job.output()

    *pids, done = output.split()
    assert (len(pids), done) == (len(ways), "done")
    assert_gone(job, [int(pid) for pid in pids])
    assert [line for level, line in job.log if level == "warning"] == [
        f"{len(ways) + 3} processes that it left running had to be ended"  # the deaf have a child
    ]


async def test_what_ends_by_itself_a_moment_later_is_let_do_so(commands):
    job = Job(commands, "(trap 'echo told' TERM; sleep 0.05; echo the end) & ", shell=True)

    assert await job.output() == "the end"
    assert [level for level, _ in job.log] == ["stdout"]


async def test_a_pipe_that_somebody_else_holds_keeps_no_execution_running(commands, monkeypatch):
    monkeypatch.setattr(commands_module, "LAST_WORDS_SECONDS", 0.05)
    held: list[int] = []

    class Watched(commands_module.Stream):
        def start(self) -> None:
            held.append(os.dup(self.writer))
            super().start()

    monkeypatch.setattr(commands_module, "Stream", Watched)

    assert await Job(commands, "echo hello").output() == "hello"

    for fd in held:
        os.close(fd)


async def test_a_command_that_is_stopped_before_it_is_started_never_is(commands, tmp_path):
    job = Job(commands, ["touch", str(tmp_path / "trace")])
    for _ in range(3):  # the warden is not even up
        await asyncio.sleep(0)
    job.stop()
    await job.ended()

    assert job.task.cancelled()
    assert not list(tmp_path.iterdir())


async def test_what_cancels_it_without_a_reason_ends_it_and_hears_of_its_cancellation(commands):
    job = Job(commands, "echo $$; exec sleep 1000", shell=True)
    pids = await pids_of(job, 1)

    job.task.cancel()
    await job.ended()

    assert_gone(job, pids)
    assert job.task.cancelled()


async def test_only_what_belongs_to_the_command_is_ended(commands):
    other = Job(commands, "echo $$; exec sleep 1000", shell=True)
    same_id = {"id": other.run.claimed.id, "attempt": 2}
    job = Job(commands, "echo $$; exec sleep 1000", shell=True, claimed=same_id)
    bystander = await asyncio.create_subprocess_exec("sleep", "1000")
    await pids_of(job, 1)
    others = await pids_of(other, 1)

    job.stop()
    await job.ended()

    assert is_alive(others[0]) and is_alive(bystander.pid) and is_alive(os.getppid())
    bystander.kill()
    await bystander.wait()
    other.stop()
    await other.ended()


def test_a_number_that_another_process_has_taken_is_not_signalled():
    me = read_process(os.getpid())
    assert me is not None
    reused = me._replace(start=me.start - 1)

    send_signal([reused], signal.SIGKILL)  # or this test has never ended


def sight_of(*processes: SystemProcess, **marks: str) -> process_tree.ProcessSnapshot:
    return process_tree.ProcessSnapshot(
        processes, {int(pid[1:]): mark for pid, mark in marks.items()}
    )


def a_process(pid: int, parent: int = 1, **fields) -> SystemProcess:
    fields = {"group": pid, "session": pid, "start": 100, "is_dead": False} | fields
    return SystemProcess(pid=pid, parent=parent, **fields)


ROOT = a_process(10)


@pytest.mark.parametrize(
    ("processes", "marks", "members"),
    [
        ([ROOT], {}, [10]),
        ([ROOT, a_process(11, 10), a_process(12, 11), a_process(13, 2)], {}, [10, 11, 12]),
        ([a_process(11, session=10)], {}, [11]),  # the command itself is buried
        ([a_process(11, group=10)], {}, [11]),
        ([ROOT._replace(is_dead=True), a_process(11, session=10)], {}, [11]),
        ([ROOT._replace(start=101), a_process(11, session=10)], {}, []),  # the number is another's
        ([a_process(11), a_process(12, 11)], {"p11": "m"}, [11, 12]),
        ([a_process(11), a_process(12)], {"p11": "m", "p12": "other"}, [11]),
        ([a_process(11, start=99)], {"p11": "m"}, []),  # older than the command
        ([a_process(os.getpid(), 10), ROOT], {}, [10]),  # whoever looks is never one of them
    ],
)
def test_who_belongs_to_a_command(processes, marks, members):
    tree = ProcessTree("m", 10, 100)

    assert sorted(one.pid for one in tree.members(sight_of(*processes, **marks))) == members


def test_what_was_seen_to_belong_to_a_command_is_remembered():
    tree = ProcessTree("m", 10, 100)
    tree.members(sight_of(ROOT, a_process(11, 10)))

    # It has lost its parent and everything else, and has a child in its own session.
    now = sight_of(a_process(11), a_process(12, session=11), a_process(13))
    assert sorted(one.pid for one in tree.members(now)) == [11, 12]
    taken = sight_of(a_process(11, start=200), a_process(12, session=11, start=200))
    assert tree.members(taken) == []


async def test_where_processes_are_not_shown_the_group_is_ended(commands, monkeypatch):
    monkeypatch.setattr(commands_module, "take_snapshot", lambda _: None)
    deaf = Job(commands, DEAF + ESCAPES["a child"] + "wait; sleep 1000", shell=True, grace=0.1)
    leaving = Job(commands, ESCAPES["a child"], shell=True)
    deaf_pids, [left] = await pids_of(deaf, 1), (await leaving.output()).split()

    deaf.stop()
    await deaf.ended()

    # What a group is sent reaches each when the system comes to it.
    await until(lambda: not any(map(is_alive, deaf_pids)), within=SECONDS)
    await until(lambda: not is_alive(int(left)), within=SECONDS)


async def test_the_end_is_heard_of_where_processes_have_no_files(commands, monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr(program_module.os, "pidfd_open", refuse)

    assert await Job(commands, "echo hello").output() == "hello"
    job = Job(commands, DEAF + ESCAPES["a deaf orphan"] + "wait; sleep 1000", shell=True, grace=0.1)
    pids = await pids_of(job, 1)
    job.stop()
    await job.ended()
    assert_gone(job, pids)


def test_it_works_the_same_on_the_loop_that_workers_have():
    async def stopped() -> None:
        async with some_commands() as commands:
            assert await Job(commands, "cat", stdin="hello").output() == "hello"
            job = Job(commands, DEAF + ALL + "wait; sleep 1000", shell=True, grace=0.1)
            pids = await pids_of(job, len(ESCAPES))
            job.stop()
            await job.ended()
            assert_gone(job, pids)

    uvloop.run(stopped())


async def test_two_hundred_at_once(commands):
    before = len(os.listdir("/proc/self/fd"))
    jobs = [Job(commands, ["sh", "-c", "echo $$; read x"], stdin="x\n") for _ in range(100)]
    jobs += [Job(commands, ["sh", "-c", "echo $$; sleep 1000"], grace=5) for _ in range(100)]
    endless = jobs[100:]
    turns = 0
    while not all(job.said for job in jobs):
        turns += 1
        await asyncio.sleep(0.001)

    assert {(await job.result())["exit_code"] for job in jobs[:100]} == {0}
    for job in endless:
        job.stop()
    for job in endless:
        await job.ended()

    assert_gone(endless[0], [int(job.said) for job in jobs])
    assert turns > 5  # the loop has gone on meanwhile; how often is up to a busy machine
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # the warden's line


async def test_more_commands_than_files_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(commands_module.resource, "getrlimit", lambda _: (128 + 2 * 5, 4096))
    async with some_commands() as commands:
        first = [Job(commands, "sh -c 'echo $$; sleep 1000'") for _ in range(2)]
        for job in first:
            await pids_of(job, 1)
        third = Job(commands, "echo third")
        async with some_commands() as others:
            await Job(others, "echo what others do meanwhile").result()
        assert not third.task.done()
        for job in first:
            job.stop()
            await job.ended()

        assert await third.output() == "third"


MEMORY = """
import asyncio, resource
from tests.runners.running_commands import Job, some_commands

async def main():
    async with some_commands() as commands:
        await Job(commands, "seq 100000").result()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for line in ("yes | head -c 104857600", "head -c 20000000 /dev/zero"):
            result = await Job(commands, line, shell=True).result()
            assert result["exit_code"] == 0, result
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_maxrss - before, int(used.ru_utime))

asyncio.run(main())
"""


async def test_a_hundred_megabytes_of_output_take_no_memory_and_little_time():
    root = Path(__file__).parents[2]
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MEMORY, cwd=root, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(worker.communicate(), 2 * SECONDS)

    assert worker.returncode == 0
    memory, seconds = map(int, out.split())
    assert memory < 8 * 1024  # in KiB
    assert seconds < 10  # of processor time; ten times less as a rule
