"""The jobs of `daybell dev --demo`: one of each kind.

Written like the app of a user. It enqueues a few executions when a worker starts, and a few more
every few seconds, never more than the worker finishes. Two tasks have schedules, and so has a job
without code, if commands are allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count
from typing import Final

from daybell.core.when import cron, every
from daybell.engine.loop import SystemClock
from daybell.errors import DaybellError
from daybell.sdk.app import App
from daybell.sdk.context import Context

ROUND_SECONDS: Final = 5.0
BACKLOG_MAX: Final = 30  # pending executions; beyond that a round is skipped
DEAD_LETTERS_MAX: Final = 5
STEPS: Final = 5
QUEUE: Final = "demo"
MAIL_QUEUE: Final = "demo-mail"

app = App()
clock = SystemClock()


@app.task(queue=QUEUE)
async def greet(name: str) -> str:
    """Return a greeting at once."""
    return f"Hello, {name}"


@app.task(queue=QUEUE)
def add(left: int, right: int) -> int:
    """Add two numbers, in a thread: the function is no coroutine."""
    return left + right


@app.task(queue=QUEUE, timeout="1m")
async def report(ctx: Context) -> str:
    """Take three seconds, and report progress."""
    for step in range(1, STEPS + 1):
        await clock.sleep(0.6)
        ctx.progress(100 * step / STEPS, f"page {step} of {STEPS}")
        ctx.log.info("page %d of %d", step, STEPS)
    return f"{STEPS} pages"


@app.task(queue=QUEUE, retries={"delays": ["1s", "2s"]})
async def fetch(ctx: Context, url: str) -> str:
    """Fail twice, and succeed at the second retry."""
    if ctx.failures < 2:
        raise ConnectionError(f"{url} does not answer")
    return f"fetched {url} at the third try"


@app.task(queue=QUEUE, retries=0)
async def charge(card: str) -> None:
    """Fail for good, and become a dead letter."""
    raise ValueError(f"card {card} has expired")


@app.task(queue=MAIL_QUEUE)
async def remind(name: str) -> str:
    """Run after a delay."""
    return f"reminded {name}"


@app.task(queue=MAIL_QUEUE, priority="low")
async def newsletter(issue: int) -> None:
    """Run with low priority, after all others."""
    await clock.sleep(0.1)


@app.task(queue=MAIL_QUEUE, priority="high")
async def password_reset(name: str) -> None:
    """Run with high priority, before the newsletter."""
    await clock.sleep(0.1)


@app.task(queue=QUEUE, schedule=every("10s"))
async def heartbeat(ctx: Context) -> str:
    """Run on a schedule: every ten seconds."""
    return f"for {ctx.scheduled_for:%H:%M:%S}"


@app.task(queue=QUEUE, schedule=cron("* * * * *", tz="Europe/Berlin", jitter="5s"))
async def digest(ctx: Context) -> str:
    """Run on a schedule: every minute, with the time of the last success."""
    since = "ever" if ctx.previous_success is None else f"{ctx.previous_success:%H:%M:%S}"
    return f"what is new since {since}"


@app.task(queue=QUEUE)
async def collect_orders() -> list[int]:
    """Return the prices of three orders: the first node of a workflow."""
    await clock.sleep(0.3)
    return [1200, 450, 80]


@app.task(queue=QUEUE, retries={"delays": ["1s"]})
async def convert(ctx: Context, cents: int) -> float:
    """Convert the price of one order: a node per item. One of them fails at first."""
    await clock.sleep(0.2)
    if cents == 450 and ctx.failures == 0:
        raise ConnectionError("the bank does not answer")
    return cents / 100


@app.task(queue=QUEUE)
def add_up(convert: list[float]) -> float:
    """Add up the results of all items."""
    return sum(convert)


@app.task(queue=QUEUE)
async def publish(collect_orders: list[int], add_up: float) -> str:
    """Return the result of the run: the last node."""
    return f"{len(collect_orders)} orders, {add_up:.2f} in all"


with app.workflow("orders", queue=QUEUE, description="A workflow.") as orders:
    _ = convert.map(collect_orders.output) >> add_up >> publish
    _ = collect_orders >> publish


async def enqueue_round(number: int) -> None:
    """Enqueue one of each, unless enough executions wait."""
    client = await app.open()
    pending = 0
    for queue in (QUEUE, MAIL_QUEUE):
        pending += (await client.count(status="pending", queue=queue)).total
    if pending > BACKLOG_MAX:
        return
    await newsletter.enqueue_many([{"issue": number}] * 2)
    await password_reset.enqueue("Ada")
    await greet.enqueue(f"visitor {number}")
    await add.enqueue(number, right=1)
    await remind.options(delay="3s").enqueue("Grace")
    if number % 2:
        await report.options(unique_key="report").enqueue()
        address = f"https://example.org/{number}"
        await fetch.enqueue(url=address)
        await orders.options(unique_key="orders").enqueue()
    if number % 4 == 1:
        dead = await client.dead_letters(job=charge.name, limit=DEAD_LETTERS_MAX)
        if len(dead.items) < DEAD_LETTERS_MAX:
            await charge.enqueue("4242")


async def declare_command() -> None:
    """Declare a job without code, scheduled every half minute."""
    if "command" not in app.handlers.kinds:
        return
    client = await app.open()
    await client.apply_job(
        "machine",
        author="demo",
        command="uname -a",
        queue=QUEUE,
        schedule=every("30s"),
        description="A command: the name of the system.",
    )
    await client.trigger("machine")


async def enqueue_rounds() -> None:
    """Enqueue round after round until the worker stops. If the store is away, wait for it."""
    with contextlib.suppress(DaybellError):
        await declare_command()
    for number in count(1):
        with contextlib.suppress(DaybellError):
            await enqueue_round(number)
        await clock.sleep(ROUND_SECONDS)


_rounds: set[asyncio.Task[None]] = set()


@app.on_start
async def begin() -> None:
    _rounds.add(asyncio.get_running_loop().create_task(enqueue_rounds()))


@app.on_stop
async def end() -> None:
    while _rounds:
        task = _rounds.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
