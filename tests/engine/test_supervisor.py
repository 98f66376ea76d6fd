"""The supervisor by itself, with children that are one line of Python."""

import asyncio
import sys
from uuid import UUID

import pytest

from daybell.engine.loop import ManualClock, SystemClock
from daybell.engine.supervisor import DRAINED, WORDS_MAX, Supervisor, open_announcer
from tests.cli.terminal import is_alive, until

TIMEOUT = 90
# How a child says something: a worker's id, or that it has drained.
SAY = "import os\ndef say(word): os.write(int(os.environ['DAYBELL_ANNOUNCE']), word)\n"
DRAIN_INSIDE = f"say({DRAINED.bytes!r})"
DRAIN = f"{SAY}{DRAIN_INSIDE}\n"


def supervisor(
    code: str,
    count: int = 1,
    *,
    grace: float = 20.0,
    backoff: float = 0.01,
    clock=None,
    on_death=None,
):
    """One whose children run this code; they find their slot in sys.argv[1]."""
    return Supervisor(
        lambda slot: [sys.executable, "-c", code, str(slot)],
        count,
        clock=clock or SystemClock(),
        grace=grace,
        backoff=backoff,
        on_death=on_death,
    )


async def test_children_that_end_well_are_left_alone():
    watched = supervisor(DRAIN, 2)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 0


async def test_a_child_that_dies_is_started_again(tmp_path):
    marks = tmp_path / "marks"
    code = f"open({str(marks)!r}, 'a').write('x'); exit(len(open({str(marks)!r}).read()) < 4)"
    code = DRAIN + code
    watched = supervisor(code)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 3


async def test_the_wait_doubles_with_every_early_death(tmp_path, caplog):
    marks = tmp_path / "marks"
    code = f"open({str(marks)!r}, 'a').write('x'); exit(len(open({str(marks)!r}).read()) < 5)"
    code = DRAIN + code

    await asyncio.wait_for(supervisor(code).run(), TIMEOUT)

    waits = [float(record.args[-1]) for record in caplog.records if "again in" in record.msg]
    assert waits == [0.01, 0.02, 0.04, 0.08]


async def test_nonsense_at_the_first_start_ends_all(caplog):
    code = "import sys, time; sys.exit(2) if sys.argv[1] == '1' else time.sleep(60)"

    assert await asyncio.wait_for(supervisor(code, 2).run(), TIMEOUT) == 2
    assert "process 1 refused to start (exit code 2)" in caplog.text


async def test_a_child_that_came_up_and_ends_as_if_told_nonsense_is_started_again(tmp_path):
    first, may_end = tmp_path / "first", tmp_path / "may_end"
    code = SAY + (
        "import os, sys, time\n"
        f"if os.path.exists({str(first)!r}):\n    {DRAIN_INSIDE}; sys.exit(0)\n"
        f"open({str(first)!r}, 'w').close()\n"
        f"while not os.path.exists({str(may_end)!r}): time.sleep(0.01)\n"
        "sys.exit(2)"
    )
    clock = ManualClock()
    watched = supervisor(code, clock=clock)
    running = asyncio.create_task(watched.run())
    await asyncio.to_thread(until, first.exists)

    clock.advance(60)
    may_end.touch()

    assert await asyncio.wait_for(running, TIMEOUT) == 0
    assert watched.restarts == 1


async def test_nonsense_at_a_later_start_is_a_death_like_any_other(tmp_path):
    marks = tmp_path / "marks"
    code = DRAIN + (
        f"open({str(marks)!r}, 'a').write('x')\n"
        f"exit({{1: 1, 2: 2, 3: 0}}[len(open({str(marks)!r}).read())])"
    )
    watched = supervisor(code)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 2


async def test_one_childs_restart_does_not_hide_that_another_never_came_up(tmp_path):
    marks = tmp_path / "marks"
    code = (
        "import os, sys, time\n"
        "if sys.argv[1] == '1':\n"
        f"    open({str(marks)!r}, 'a').write('x')\n"
        f"    sys.exit(1) if len(open({str(marks)!r}).read()) < 2 else time.sleep(60)\n"
        f"while not os.path.exists({str(marks)!r}) or len(open({str(marks)!r}).read()) < 2:\n"
        "    time.sleep(0.01)\n"
        "sys.exit(2)"
    )
    # Time stands still: however slow the machine is, none of this took long.
    watched = supervisor(code, 2, clock=ManualClock())

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 2
    assert watched.restarts == 1


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_stopping_asks_first_and_kills_who_does_not_listen(is_deaf, tmp_path):
    ready = tmp_path / "ready"
    answer = "signal.SIG_IGN" if is_deaf else "lambda *_: sys.exit(0)"
    code = (
        f"import signal, sys, time; signal.signal(signal.SIGTERM, {answer});"
        f" open({str(ready)!r}, 'w').close(); time.sleep(60)"
    )
    watched = supervisor(code, grace=0.2 if is_deaf else TIMEOUT)
    running = asyncio.create_task(watched.run())
    await asyncio.to_thread(until, ready.exists)

    watched.stop()
    watched.stop()

    assert await asyncio.wait_for(running, TIMEOUT) == (1 if is_deaf else 0)


async def test_stopping_ends_the_wait_before_a_restart(caplog):
    watched = supervisor("exit(1)", backoff=3600)
    running = asyncio.create_task(watched.run())
    await asyncio.to_thread(until, lambda: "is started again in" in caplog.text)

    watched.stop()

    assert await asyncio.wait_for(running, TIMEOUT) == 0
    assert watched.restarts == 0


SAYS = f"{SAY}say(bytes(16) + bytes(15) + b'\\1'); "


async def test_the_workers_of_a_child_that_was_killed_are_known(tmp_path):
    first, buried = tmp_path / "first", []
    code = (
        f"{SAYS}f = {str(first)!r}\nif os.path.exists(f): {DRAIN_INSIDE}; exit(0)\n"
        "open(f, 'w').close(); os.kill(os.getpid(), 9)"
    )

    async def bury(workers):
        buried.append(workers)

    watched = supervisor(code, on_death=bury)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert buried == [[UUID(int=0), UUID(int=1)]], "the second ended well"


async def test_a_death_before_the_stop_is_no_failure_of_the_stop():
    async def stop_then(_workers):
        watched.stop()

    watched: Supervisor = supervisor(f"{SAYS}os.kill(os.getpid(), 9)", on_death=stop_then)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 0


async def test_the_workers_of_a_child_that_does_not_drain_in_time_are_known_too(tmp_path):
    ready, buried = tmp_path / "ready", []
    code = (
        f"{SAYS}import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f" open({str(ready)!r}, 'w').close(); time.sleep(60)"
    )

    async def bury(workers):
        buried.append(workers)

    watched = supervisor(code, grace=0.2, on_death=bury)
    running = asyncio.create_task(watched.run())
    await asyncio.to_thread(until, ready.exists)

    watched.stop()

    assert await asyncio.wait_for(running, TIMEOUT) == 1
    assert buried == [[UUID(int=0), UUID(int=1)]]


async def test_what_a_dead_child_has_left_behind_is_ended_before_anybody_is_told(tmp_path):
    left, found = tmp_path / "left", []
    code = (
        f"{SAYS}import subprocess, sys\nf = {str(left)!r}\n"
        f"if os.path.exists(f): {DRAIN_INSIDE}; exit(0)\n"
        "pid = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid\n"
        "open(f + '.new', 'w').write(str(pid)); os.rename(f + '.new', f)\n"
        "os.kill(os.getpid(), 9)"
    )

    async def bury(_):
        found.append(is_alive(int(left.read_text())))

    await asyncio.wait_for(supervisor(code, on_death=bury).run(), TIMEOUT)

    assert found == [False]


def test_nobody_is_told_where_there_is_no_supervisor():
    assert open_announcer({}) is open_announcer({"DAYBELL_ANNOUNCE": "x"}) is None


async def test_an_end_with_exit_code_0_is_a_death_unless_the_child_has_drained(tmp_path, caplog):
    first, buried = tmp_path / "first", []
    code = (
        f"{SAYS}f = {str(first)!r}\nif os.path.exists(f): {DRAIN_INSIDE}; exit(0)\n"
        "open(f, 'w').close(); os._exit(0)"
    )

    async def bury(workers):
        buried.append(workers)

    watched = supervisor(code, on_death=bury)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 1
    assert buried == [[UUID(int=0), UUID(int=1)]], "the second had drained"
    assert "ended with exit code 0 without having drained" in caplog.text


async def test_a_child_that_became_a_worker_after_it_had_drained_has_not(caplog):
    """A process that starts afresh is another worker in the same child."""
    watched = supervisor(f"{DRAIN}say(bytes(16))", backoff=3600)
    running = asyncio.create_task(watched.run())
    await asyncio.to_thread(until, lambda: running.done() or "again in" in caplog.text)

    assert not running.done()
    watched.stop()
    assert await asyncio.wait_for(running, TIMEOUT) == 0


async def test_stopping_believes_no_exit_code_0_either(tmp_path):
    ready, buried = tmp_path / "ready", []
    code = (
        f"{SAYS}import signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(0));"
        f" open({str(ready)!r}, 'w').close(); time.sleep(60)"
    )

    async def bury(workers):
        buried.append(workers)

    watched = supervisor(code, grace=TIMEOUT, on_death=bury)
    running = asyncio.create_task(watched.run())
    await asyncio.to_thread(until, ready.exists)

    watched.stop()

    assert await asyncio.wait_for(running, TIMEOUT) == 1
    assert buried == [[UUID(int=0), UUID(int=1)]]


async def test_a_child_may_say_more_than_a_pipe_holds():
    said = []

    async def bury(workers):
        said.append(workers)
        watched.stop()

    watched: Supervisor = supervisor(
        f"{SAY}import time\n"
        "for n in range(20_000):\n"
        "    while True:\n"
        "        try:\n"
        "            say(n.to_bytes(16)); break\n"
        "        except BlockingIOError:\n"
        "            time.sleep(0.001)\n"
        f"{DRAIN_INSIDE}; os._exit(7)",
        backoff=3600,
        on_death=bury,
    )

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert said == [[UUID(int=n) for n in range(20_000 - WORDS_MAX + 1, 20_000)]]
