"""The app under test: tasks, workflow nodes, and the file of effects of each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds
from daybell.core.when import every, on_event
from daybell.engine.loop import SystemClock
from daybell.sdk.app import App
from daybell.sdk.context import Context

# Effects of tasks, recorded by the tasks themselves: a line for each start and each end. Each
# process appends to a file of its own. A line is one write, and only processes die, never the
# machine, so no sync is needed. Monotonic time is equal for all processes of a machine.

START: Final = "start"
END: Final = "end"  # it ran to its end, whatever was reported
FAIL: Final = "fail"  # it failed on purpose
STOP: Final = "stop"  # it was stopped, or was suspended
EXIT: Final = "exit"  # it ended its process, with all executions there
STEP: Final = "step"  # of a durable function; its number is the number of the call
ENDS: Final = frozenset({END, FAIL, STOP})
SUFFIX: Final = ".effects"


class Effect(msgspec.Struct, frozen=True, gc=False):
    """One line."""

    what: str
    execution: UUID
    attempt: int
    pid: int
    at: Seconds  # monotonic
    now: Instant  # of the machine's clock; for people
    number: int  # of the enqueue; of a step: its number


class Nuisance(Exception):
    """The error of a task that should fail."""


class Effects:
    """The file of one process."""

    def __init__(self, folder: Path) -> None:
        self._clock = SystemClock()
        # A process that starts afresh keeps its id.
        name = f"{os.getpid()}-{self._clock.monotonic():.6f}{SUFFIX}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, what: str, ctx: Context, number: int) -> None:
        at, now = self._clock.monotonic(), self._clock.now()
        line = f"{what} {ctx.id} {ctx.attempt} {os.getpid()} {at:.6f} {now:.6f} {number}\n"
        os.write(self._file, line.encode())

    @contextmanager
    def told(self, ctx: Context, number: int) -> Generator[None]:
        """Record the start of a task, and its end, if it has one."""
        self.tell(START, ctx, number)
        try:
            yield
        except Nuisance:
            self.tell(FAIL, ctx, number)
            raise
        except BaseException:
            self.tell(STOP, ctx, number)
            raise
        self.tell(END, ctx, number)


def read_effects(folder: Path) -> list[Effect]:
    """Read all lines, in the order of their times."""
    lines = (line for file in folder.glob(f"*{SUFFIX}") for line in _lines(file))
    return sorted(_parsed(lines), key=lambda effect: effect.at)


def _lines(file: Path) -> Iterator[str]:
    with file.open() as lines:
        yield from lines


def _parsed(lines: Iterable[str]) -> Iterator[Effect]:
    for line in lines:
        what, execution, attempt, pid, at, now, number = line.split()
        yield Effect(
            what, UUID(execution), int(attempt), int(pid), float(at), float(now), int(number)
        )


TENANT: Final = "daybell-chaos"
QUEUE: Final = "daybell-chaos"
EXITS: Final = "daybell-chaos-exits"  # of tasks that end their process; only a fleet runs these
FOLDER: Final = "DAYBELL_CHAOS_FOLDER"  # the folder for files of effects
# No execution should end dead because its workers were killed on purpose.
CRASHES_MAX: Final = 1000
STEP_SECONDS: Final = 0.1
SLICE_SECONDS: Final = 0.02
TICKING: Final = 40  # schedules of a job that may run beside itself
ALONE: Final = 10  # of one that may not
NO_NUMBER: Final = 0  # no enqueue has this number: a schedule fired it

app = App(tenant=TENANT, logs=False)
clock = SystemClock()


@cache
def effects() -> Effects:
    return Effects(Path(os.environ[FOLDER]))


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
async def quick(ctx: Context, number: int) -> None:
    """Do nothing."""
    with effects().told(ctx, number):
        pass


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    retries=Retry.fixed(0.2, retries=5, jitter=0),
)
async def flaky(ctx: Context, number: int, fails: int) -> None:
    """Fail so often, then succeed."""
    with effects().told(ctx, number):
        if ctx.failures < fails:
            raise Nuisance(f"{ctx.failures + 1} of {fails}")


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
async def long(ctx: Context, number: int, seconds: float) -> None:
    """Take some time, and report progress."""
    with effects().told(ctx, number):
        steps = max(1, round(seconds / STEP_SECONDS))
        for step in range(steps):
            await clock.sleep(STEP_SECONDS)
            ctx.progress(100 * (step + 1) / steps)


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
def threaded(ctx: Context, number: int, seconds: float) -> None:
    """The same in a thread, which can be interrupted between two slices."""
    with effects().told(ctx, number):
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            threading.Event().wait(SLICE_SECONDS)


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
async def keyed(ctx: Context, number: int) -> None:
    """Enqueued under a unique key: no two of a key are unfinished at a time."""
    with effects().told(ctx, number):
        await clock.sleep(STEP_SECONDS)


@app.task(queue=EXITS, max_crashes=CRASHES_MAX, store_result=False)
async def vanish(ctx: Context, number: int) -> None:
    """End the process at the first attempt, with exit code 0."""
    with effects().told(ctx, number):
        if ctx.attempt == 1:
            effects().tell(EXIT, ctx, number)
            os._exit(0)


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    schedule=[every(1 + n % 2, anchor=n / TICKING) for n in range(TICKING)],
    overlap="allow",
)
async def ticking(ctx: Context) -> None:
    """Do nothing, again and again."""
    with effects().told(ctx, NO_NUMBER):
        pass


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    schedule=[every(2, anchor=2 * n / ALONE) for n in range(ALONE)],
)
async def alone(ctx: Context) -> None:
    """Take some time, again and again, and never twice at a time."""
    with effects().told(ctx, NO_NUMBER):
        await clock.sleep(STEP_SECONDS)


SCHEDULED: Final = (ticking.name, alone.name)
HAPPENED: Final = "chaos.happened"


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    schedule=on_event(HAPPENED, where={"number": {"gt": 0}}),
)
async def listening(ctx: Context, event: dict[str, Any]) -> None:
    """Run for each event."""
    with effects().told(ctx, NO_NUMBER):
        pass


# Tasks of the workflows under faults, and a durable function, as a node or alone. A node returns
# the sum of its inputs plus one. So a result shows if all nodes before it have run, and once.

AGAIN: Final = Retry.fixed(0.2, retries=5, jitter=0)
STEPS: Final = ("first", "second", "third")  # of the durable function
BETWEEN_SECONDS: Final = 0.03  # between a step's effect and its end, where it may be killed
SLEEP_SECONDS: Final = 0.2
EVENT: Final = "chaos.went_on"


def weight(given: Any) -> int:
    """Return the sum of results. A node that did not run has none."""
    if isinstance(given, list):
        return sum(map(weight, cast("list[Any]", given)))
    if isinstance(given, dict):
        return cast("dict[str, int]", given)["weight"]
    return given or 0


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, retries=AGAIN)
async def part(ctx: Context, ups: list[Any], fails: int = 0, seconds: float = 0) -> int:
    """Take some time, fail so often, then add one."""
    with effects().told(ctx, NO_NUMBER):
        await clock.sleep(seconds)
        if ctx.failures < fails:
            raise Nuisance(f"{ctx.failures + 1} of {fails}")
        return 1 + weight(ups)


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def choose(ctx: Context, names: list[str]) -> list[str]:
    """Choose the next nodes."""
    with effects().told(ctx, NO_NUMBER):
        return names


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def spread(ctx: Context, ups: list[Any], count: int) -> list[int]:
    """Make a list for a mapped node: the sum of the inputs in its first item."""
    with effects().told(ctx, NO_NUMBER):
        return [weight(ups), *[0] * (count - 1)]


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def durable(
    ctx: Context, number: int = NO_NUMBER, ups: list[Any] | None = None
) -> dict[str, Any]:
    """Do some steps, with sleeps between them. The effect of a step names its attempt."""
    with effects().told(ctx, number):
        attempts: list[int] = []
        for place, name in enumerate(STEPS):
            attempts.append(await ctx.step(name, _leave, ctx, place))
            if place == 1:
                await ctx.sleep(SLEEP_SECONDS)
        return {"weight": 1 + weight(ups), "attempts": attempts}


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def durable_waiting(ctx: Context, number: int) -> dict[str, Any]:
    """Wait for two events that look alike, and then for a decision; do a step before each. Record
    the answers, too.
    """
    with effects().told(ctx, number):
        attempts: list[int] = []
        tokens: list[str | None] = []
        for place, name in enumerate(STEPS):
            attempts.append(await ctx.step(name, _leave, ctx, place))
            if place < 2:
                event = await ctx.wait_for_event(EVENT, match={"number": number})
                tokens.append(event.data["note"])
            else:
                tokens.append((await ctx.wait_for_approval()).note)
        return {"weight": 1, "attempts": attempts, "tokens": tokens}


async def _leave(ctx: Context, place: int) -> int:
    """Record the effect of a step."""
    effects().tell(STEP, ctx, place)
    await clock.sleep(BETWEEN_SECONDS)
    return ctx.attempt
