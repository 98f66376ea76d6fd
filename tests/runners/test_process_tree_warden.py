"""The warden: no command outlives its worker, however that ends, and no warden does."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daybell.runners.command_processes import WardenClient
from daybell.runners.process_tree import CommandRegistry, ProcessTree, kill_trees, read_process
from tests.cli.terminal import is_alive, until
from tests.engine.virtual import until as until_on_loop
from tests.runners.running_commands import SECONDS, Job, some_commands

ROOT = Path(__file__).parents[2]
# A child in its session, one that ignores SIGTERM in another session, and one without a parent.
LINE = (
    "echo $$; sleep 1000 & echo $!; "
    """setsid sh -c "trap '' TERM; echo \\$\\$; sleep 1000; sleep 1000" & """
    "(setsid sh -c 'echo $$; exec sleep 1000' & ) ; wait; sleep 1000"
)
WORKER = """
import asyncio, os, signal, sys
from tests.engine.virtual import until
from tests.runners.running_commands import Job, some_commands

async def main(line, end):
    async with some_commands() as commands:
        jobs = [Job(commands, line, shell=True) for _ in range(2)]
        # One that carries no mark any more: the warden knows its number.
        jobs.append(Job(commands, "echo $$; exec env -i sleep 1000", shell=True))
        said = lambda: " ".join(job.said for job in jobs).split()
        await until(lambda: len(said()) == 9, within=60)
        print(*said(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if end == "exec":
            os.execv("/bin/sh", ["sh", "-c", "echo afresh; read x"])
        if end == "fork" and os.fork() == 0:
            signal.pause()  # with all files of the worker
        if end == "fork":
            print("forked", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


def wardens(worker: int) -> list[int]:
    """The wardens of a worker."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            is_warden = any(b"runners.process_tree" in word for word in words)
            if is_warden and str(worker).encode() in words:
                found.append(int(folder.name))
    return [pid for pid in found if is_alive(pid)]


@pytest.fixture
def worker():
    """Starts a process with three commands; answers it and their processes."""
    started: list[subprocess.Popen[str]] = []

    def start(end: str) -> tuple[subprocess.Popen[str], list[int]]:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, LINE, end],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(worker)
        assert worker.stdout is not None
        assert select.select([worker.stdout], [], [], SECONDS)[0]
        pids = [int(word) for word in worker.stdout.readline().split()]
        assert len(pids) == 9 and all(map(is_alive, pids))
        return worker, pids

    yield start
    for one in started:
        for pid in [one.pid, *wardens(one.pid)]:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        one.communicate()


@pytest.mark.parametrize("end", ["kill", "exec", "fork"])
def test_no_command_and_no_warden_outlives_its_worker(worker, end):
    started, pids = worker(end)
    assert len(wardens(started.pid)) == 1

    started.stdin.write("\n")
    started.stdin.flush()

    until(lambda: not any(map(is_alive, pids)))
    until(lambda: not wardens(started.pid))
    if end == "exec":  # the same process, with another program
        assert started.poll() is None
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        # What the first program had started itself, and nobody has buried: its three commands.
        assert len(children) <= 3


async def test_a_warden_that_was_killed_is_followed_by_one_that_knows_all():
    async with some_commands() as commands:
        job = Job(commands, "echo $$; exec sleep 1000", shell=True)
        await until_on_loop(lambda: job.said, within=SECONDS)
        [first] = wardens(os.getpid())

        os.kill(first, signal.SIGKILL)
        await until_on_loop(lambda: set(wardens(os.getpid())) - {first}, within=SECONDS)
        assert await Job(commands, "echo still").output() == "still"
        assert is_alive(int(job.said))

        line = commands._warden._line
        assert line is not None
        # As if the worker were gone: the second one has been told of what the first one knew.
        line.shutdown(1)
        await until_on_loop(lambda: not is_alive(int(job.said)), within=SECONDS)
        assert (await job.failure()).message.startswith("the command was killed by SIGKILL")


async def test_a_warden_hears_of_a_command_before_it_starts_and_of_its_end(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(WardenClient, "_say", lambda _, line: said.append(line))
    async with some_commands() as commands:
        await Job(commands, "true").result()
        said.clear()
        job = Job(commands, "echo $$; exec sleep 1000", shell=True)
        await until_on_loop(lambda: job.said, within=SECONDS)
        started = read_process(int(job.said))
        job.stop()
        await job.ended()
        await Job(commands, "no-such-program").failure()

    assert started is not None
    mark = f"{job.run.claimed.id}/1"
    assert said[:3] == [f"+{mark}", f"={mark} {started.pid} {started.start}", f"-{mark}"]
    assert [line[0] for line in said[3:]] == ["+", "-"]


async def test_a_warden_is_started_when_the_first_command_is_and_ends_with_the_last_worker():
    async with some_commands() as commands:
        assert wardens(os.getpid()) == []
        await asyncio.gather(*(Job(commands, "true").result() for _ in range(5)))
        assert len(wardens(os.getpid())) == 1

    await until_on_loop(lambda: not wardens(os.getpid()), within=SECONDS)


async def test_a_warden_cannot_be_asked_to_leave():
    async with some_commands() as commands:
        await Job(commands, "true").result()
        [warden] = wardens(os.getpid())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(warden, number)
        assert await Job(commands, "echo on").output() == "on"
        assert wardens(os.getpid()) == [warden]
        assert os.getsid(warden) != os.getsid(0)
        files = {os.readlink(f"/proc/{warden}/fd/{name}") for name in ("0", "1", "2")}
        assert len(os.listdir(f"/proc/{warden}/fd")) == 4  # and its worker
        assert {name for name in files if not name.startswith("socket:")} == {"/dev/null"}


async def test_a_warden_that_stands_still_holds_nobody_up():
    async with some_commands() as commands:
        await Job(commands, "true").result()
        [warden] = wardens(os.getpid())
        os.kill(warden, signal.SIGSTOP)
        unsaid = commands._warden
        while not unsaid._unsent:  # until its line is full
            unsaid._say("-" + "x" * 1000)
        assert await Job(commands, "echo on").output() == "on"
        os.kill(warden, signal.SIGCONT)
        await until_on_loop(lambda: not unsaid._unsent, within=SECONDS)


async def test_without_a_warden_nothing_is_started(monkeypatch, tmp_path):
    monkeypatch.setattr("daybell.runners.command_processes.WARDEN_COMMAND", ("false",))
    async with some_commands() as commands:
        job = Job(commands, ["touch", str(tmp_path / "trace")])

        failure = await job.failure()

    assert "could not be started: the warden of commands did not start" in failure.message
    assert not job.run.is_hopeless
    assert not list(tmp_path.iterdir())


def test_a_ledger_knows_what_is_expected_has_begun_and_is_gone():
    ledger = CommandRegistry()

    for part in (b"+a/1\n+b/1\n=b/", b"1 10 200\n", b"+c/1\n-a/1\n-nobody\n=c/1 11"):
        ledger.read(part)

    assert {(tree.mark, tree.pid, tree.start) for tree in ledger.trees.values()} == {
        ("b/1", 10, 200),
        ("c/1", None, None),
    }


def test_what_is_on_its_way_when_the_worker_dies_is_ended_when_it_arrives(monkeypatch):
    """Between fork and exec a process does not carry its mark."""
    mark = "DAYBELL_EXECUTION_ID=m DAYBELL_ATTEMPT=1"
    late = subprocess.Popen(["sh", "-c", f"read x; {mark} exec sleep 1000"], stdin=subprocess.PIPE)
    assert late.stdin is not None
    really_select, rounds = select.select, 0

    def pause(*wait):
        nonlocal rounds
        rounds += 1
        if rounds == 5 and late.stdin is not None:
            late.stdin.write(b"\n")
            late.stdin.close()
        really_select(*wait)

    monkeypatch.setattr("daybell.runners.process_tree.select.select", pause)
    monkeypatch.setattr("daybell.runners.process_tree.QUIET_ROUNDS_STARTING", 20)

    kill_trees([ProcessTree("m/1")])

    assert late.wait(SECONDS) == -signal.SIGKILL
