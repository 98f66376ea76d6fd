"""A durable function that is killed between any two of its calls, and the worker that starts again.

    python -m tests.sdk.killed_app FOLDER

The program forks a worker; when that is killed it tells the store so, as a supervisor does, and
forks another one, until the execution has ended. Everything is imported once, before.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from daybell import App, Context, Retry
from daybell.cli.roles.startup import retire_dead_workers
from daybell.client import Client
from daybell.settings import Settings

app = App()
CALLS = 8
LEASE = 15.0


def effect(folder: str, name: str) -> str:
    """What a step does: one line, which no two processes can mix up."""
    file = os.open(f"{folder}/effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{name}\n".encode())
    os.close(file)
    return name


def flaky(folder: str) -> str:
    if effect(folder, "flaky") and Path(f"{folder}/effects").read_text().count("flaky") < 2:
        raise ConnectionError("not yet")
    return "flaky"


def die_once(folder: str, position: int) -> None:
    with suppress(FileExistsError):
        os.close(os.open(f"{folder}/death-{position}", os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(retries=0, max_crashes=100)
async def order(ctx: Context, folder: str) -> list[str]:
    die_once(folder, 0)
    made = [await ctx.step("one", effect, folder, "one")]
    die_once(folder, 1)
    begun = ctx.now()
    die_once(folder, 2)
    made.append(await ctx.step("two", effect, folder, "two"))
    die_once(folder, 3)
    await ctx.sleep(0.05)
    die_once(folder, 4)
    made += await asyncio.gather(*(ctx.step("at once", effect, folder, n) for n in ("a", "b")))
    die_once(folder, 5)
    made.append(await ctx.step("flaky", flaky, folder, retries=Retry.fixed(0.01)))
    die_once(folder, 6)
    event = await ctx.wait_for_event("go")
    die_once(folder, 7)
    made.append(await ctx.step("last", effect, folder, str(event.data)))
    die_once(folder, 8)
    assert ctx.now() >= begun
    return made


async def work() -> None:
    """Run until nothing is left to do; the process may end at any moment."""
    async with app, app.worker(concurrency=1):
        while True:
            found = await app.client().executions(limit=1)
            if found.items[0].finished_at is not None:
                return
            await asyncio.sleep(0.01)


async def begin(folder: str) -> None:
    async with app:
        await order.enqueue(folder)
        await app.publish("go", "gone")  # before anything waits for it


async def mourn() -> None:
    url = Settings.load().database_url
    async with Client(url) as client:
        dead = [one.worker_id for one in await client.workers()]
    await retire_dead_workers(dead, url=url, tenant="default", lease=LEASE)


def main(folder: str) -> None:
    asyncio.run(begin(folder))
    deaths = 0
    while True:
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                asyncio.run(work())
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.stdout.write(f"{deaths}\n")
            sys.stdout.flush()
            sys.exit(os.WEXITSTATUS(status))
        deaths += 1
        asyncio.run(mourn())


if __name__ == "__main__":
    main(sys.argv[1])
