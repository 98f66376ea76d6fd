"""The supervisor by itself, with children that are one line of Python."""

import asyncio
import sys

import pytest

from daybell.engine.clock import SystemClock
from daybell.engine.supervisor import Supervisor
from tests.cli.terminal import until

TIMEOUT = 30


def supervisor(code: str, count: int = 1, *, grace: float = 20.0, backoff: float = 0.01):
    """One whose children run this code; they find their slot in sys.argv[1]."""
    return Supervisor(
        lambda slot: [sys.executable, "-c", code, str(slot)],
        count,
        clock=SystemClock(),
        grace=grace,
        backoff=backoff,
    )


async def test_children_that_end_well_are_left_alone():
    watched = supervisor("pass", 2)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 0


async def test_a_child_that_dies_is_started_again(tmp_path):
    marks = tmp_path / "marks"
    code = f"open({str(marks)!r}, 'a').write('x'); exit(len(open({str(marks)!r}).read()) < 4)"
    watched = supervisor(code)

    assert await asyncio.wait_for(watched.run(), TIMEOUT) == 0
    assert watched.restarts == 3


async def test_the_wait_doubles_with_every_early_death(tmp_path, caplog):
    marks = tmp_path / "marks"
    code = f"open({str(marks)!r}, 'a').write('x'); exit(len(open({str(marks)!r}).read()) < 5)"

    await asyncio.wait_for(supervisor(code).run(), TIMEOUT)

    waits = [float(record.args[2]) for record in caplog.records if "again in" in record.msg]
    assert waits == [0.01, 0.02, 0.04, 0.08]


async def test_nonsense_at_the_first_start_ends_all():
    code = "import sys, time; sys.exit(2) if sys.argv[1] == '1' else time.sleep(60)"

    assert await asyncio.wait_for(supervisor(code, 2).run(), TIMEOUT) == 2


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


async def test_stopping_ends_the_wait_before_a_restart():
    watched = supervisor("exit(1)", backoff=60)
    running = asyncio.create_task(watched.run())
    await asyncio.sleep(0)

    watched.stop()

    assert await asyncio.wait_for(running, TIMEOUT) in (0, 1)
