"""What a person is told of each start and end."""

import io
import re

from msgspec.structs import replace

from daybell.cli.roles.narration import Narrator
from daybell.core.execution import Claimed, State
from daybell.core.ids import mint
from daybell.core.lifecycle import Transition, after_retry_later
from daybell.core.schedule import Decision, Firing, Tick
from daybell.engine.events import Ended, Fired, RunEnded, Started
from daybell.engine.loop import SystemClock
from daybell.store.open import store_for
from tests.builders import claimed, enqueued, look
from tests.cli.terminal import Running, daybell

LATER = """\
from daybell import App, RetryLater

app = App()

@app.task
async def poll() -> None:
    raise RetryLater("busy", delay="90m")
"""


def test_what_put_itself_off_says_until_when(tmp_path):
    (tmp_path / "app.py").write_text(LATER)

    with Running("dev", "app:app", "--port", "0", folder=tmp_path) as running:
        running.wait_for("is up after")
        daybell("jobs", "trigger", "poll", folder=tmp_path)

        running.wait_for(r"scheduled +\S+ poll in 1 h 30 min: busy")


async def test_the_reason_and_the_moment_are_told():
    store = store_for("memory://")
    await store.open()
    (one,) = (await claimed(store)).executions
    later = after_retry_later(one, delay=60.0, ran=0.1)
    at = after_retry_later(one, at=4_000_000_000.0, ran=0.1)

    assert told(replace(later, reason="busy"), one).endswith("resize in 1 min 0 s: busy\n")
    assert re.search(r"resize at 2096-10-0\d \d\d:\d\d:\d\d\n$", told(at, one))


def told(move: Transition, one: Claimed) -> str:
    """The line for an attempt that ended so."""
    out = io.StringIO()
    Narrator(SystemClock(), out=out)(Ended(one, move))
    return out.getvalue()


async def test_the_end_of_a_run_is_told_and_on_workers_only_if_it_failed():
    store = store_for("memory://")
    await store.open()
    (id,) = await enqueued(store)
    ended = replace(await look(store, id), state=State.DEAD, started_at=5.0, finished_at=6.5)
    failed = replace(ended, error='{"type": "NodesFailed", "message": "load failed"}')
    lines = [
        (out := io.StringIO(), Narrator(SystemClock(), out=out, quiet=q)) for q in (False, True)
    ]

    for _, narrator in lines:
        narrator(RunEnded(failed))
        narrator(RunEnded(replace(ended, state=State.SUCCEEDED)))

    dead, succeeded = lines[0][0].getvalue().splitlines()
    assert dead.endswith(f"dead       {id} resize after 1.5 s: NodesFailed: load failed")
    assert succeeded.endswith(f"succeeded  {id} resize after 1.5 s")
    assert lines[1][0].getvalue().splitlines()[0].endswith("NodesFailed: load failed")
    assert "succeeded" not in lines[1][0].getvalue()


async def test_a_node_that_runs_another_job_is_told_with_its_workflow():
    store = store_for("memory://")
    await store.open()
    (one,) = (await claimed(store)).executions
    outer = replace(one, id=mint(), job="outer", kind="workflow")
    inner = replace(one, id=mint(), job="cond", kind="workflow", parent=outer.id, node="choose")
    within = replace(one, id=mint(), job="cond", parent=inner.id, node="full")
    out = io.StringIO()
    narrator = Narrator(SystemClock(), out=out)

    for each in (outer, inner, within, replace(inner, parent=mint())):
        narrator(Started(each))

    said = [line.split(maxsplit=3)[3] for line in out.getvalue().splitlines()]
    assert said == ["outer", "outer, choose", "cond, full", "cond, choose"]


def test_ticks_that_were_missed_are_told_and_others_are_not():
    out = io.StringIO()
    missed = Tick(
        at=60.0, until=240.0, count=4, decision=Decision.MISSED, reason="nobody was there"
    )
    one = Tick(at=60.0, until=60.0, decision=Decision.MISSED)
    narrator = Narrator(SystemClock(), out=out, quiet=True)

    for tick in (missed, one, Tick(at=300.0)):
        firing = Firing(tenant="default", schedule=mint(), expect=60.0, next_at=None, ticks=(tick,))
        narrator(Fired(firing, 1.0, "report"))

    first, second = out.getvalue().splitlines()
    assert re.search(r"missed +\S+ report 4 ticks from 19\S+ \S+ to 19\S+ \S+: nobody", first)
    assert re.search(r"missed +\S+ report 1 tick from 19\S+ \S+$", second)
