"""Durable functions whose worker dies, between any two calls and in the middle of every write."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from daybell import App, Client, Context, Retry
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.engine.events import Events
from daybell.engine.upkeep import Reaper
from daybell.engine.worker import Worker, WorkerOptions
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite.connection import InlineConnection
from tests.engine.virtual import VirtualClock, in_virtual_time, until
from tests.ports import WrappedStore
from tests.sdk.waiting import WAIT
from tests.stores import POSTGRES
from tests.sweeps import expire

ONCE = ["one", "two", "a", "b", "gone"]
LEASE = 15.0


@pytest.fixture(
    params=["sqlite", *(pytest.param(v, marks=pytest.mark.postgres) for v in POSTGRES.values())],
    ids=["sqlite", *POSTGRES],
)
async def url(request, tmp_path, servers):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'daybell.db'}"
        return
    async with servers.live(request.param) as url:
        yield url


async def test_a_kill_between_any_two_steps_makes_no_effect_happen_twice(url, tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.sdk.killed_app",
        str(tmp_path),
        env={"DAYBELL_DATABASE_URL": url, "PATH": ""},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(3 * WAIT):
        out, _ = await process.communicate()

    assert (process.returncode, out.strip()) == (0, b"9")
    effects = Counter((tmp_path / "effects").read_text().split())
    assert effects == Counter([*ONCE, "flaky", "flaky"])  # it is meant to fail once
    async with Client(url) as client:
        (execution,) = (await client.executions()).items
        assert execution.status is State.SUCCEEDED
        assert execution.result == ["one", "two", "a", "b", "flaky", "gone"]


class Mortal(WrappedStore):
    """A store as one process sees it, which dies at one of its calls that matter: before it was
    heard, or after it was done. A dead one says and hears nothing more.
    """

    def __init__(self, store: SqliteStore, *, at: int | None, is_heard: bool) -> None:
        super().__init__(store)
        self._left = at
        self._is_heard = is_heard
        self.is_dead = False
        self.calls: list[str] = []
        self.last_step: str | None = None

    def wrap(self, name: str, operation: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_dead:
                await asyncio.Event().wait()
            if name in ("steps", "record", "apply"):
                self.calls.append(name)
                if len(self.calls) == self._left:
                    self.is_dead = True
                    if name == "record":
                        self.last_step = kwargs["steps"][-1].name
                    if self._is_heard:
                        await operation(*args, **kwargs)
                    await asyncio.Event().wait()
            return await operation(*args, **kwargs)

        return call


def an_app(done: list[str]) -> App:
    app = App("memory://")

    async def effect(name: str) -> str:  # not in a thread, while which virtual time would pass
        done.append(name)
        return name

    async def flaky() -> str:
        if await effect("flaky") and done.count("flaky") < 2:
            raise ConnectionError("not yet")
        return "flaky"

    @app.task(retries=0, max_crashes=100)
    async def order(ctx: Context) -> list[str]:
        made = [await ctx.step("one", effect, "one")]
        begun = ctx.now()
        made.append(await ctx.step("two", effect, "two"))
        await ctx.sleep(0.5)
        made += await asyncio.gather(*(ctx.step(n, effect, n) for n in ("a", "b")))
        made.append(await ctx.step("flaky", flaky, retries=Retry.fixed(0.1)))
        event = await ctx.wait_for_event("go", timeout="1d")
        made.append(await ctx.step("gone", effect, event.data))
        assert ctx.now() >= begun
        return made

    return app


async def run_through(*, at: int | None, is_heard: bool) -> tuple[Mortal, list[str]]:
    """One execution with a worker that dies at that call, and another one that does not."""
    done: list[str] = []
    deaths = [] if at is None else [(at, is_heard)]
    views, result = await run_app(an_app(done), deaths)
    assert result == ["one", "two", "a", "b", "flaky", "gone"]
    return views[0], done


async def run_app(app: App, deaths: list[tuple[int, bool]]) -> tuple[list[Mortal], str | None]:
    """One execution of `order`, by workers that die at these calls, and in the end one that does
    not; answers what they saw of the store, and the result.
    """
    clock = VirtualClock()
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()
    views = [Mortal(store, at=at, is_heard=is_heard) for at, is_heard in deaths]
    views.append(Mortal(store, at=None, is_heard=False))
    sweeper = asyncio.ensure_future(sweep(store))
    with app.standing_in(lambda: Client(store)):
        handle = await app.tasks["order"].enqueue()
        await app.publish("go", "gone")
        for view in views:
            worker = Worker(
                view,  # type: ignore[arg-type]
                app.handlers,
                WorkerOptions(concurrency=1, lease=LEASE),
                clock=clock,
                mint=mint,
                events=Events(),
            )
            await worker.start()
            await until(lambda view=view: view.is_dead or _has_ended(store))
            if not view.is_dead:
                await worker.stop()
                break
            await store.queue.retire("default", worker.id)
            await Reaper(store, clock=clock, events=Events(), lease=LEASE).tick()
        execution = await handle.execution()
    sweeper.cancel()
    assert execution.status is State.SUCCEEDED, execution
    return views, execution.result


async def sweep(store: SqliteStore) -> None:
    """End the waits whose time is over, as any node does."""
    while True:
        await expire(store)
        await asyncio.sleep(0.1)


def _has_ended(store: SqliteStore) -> bool:
    assert isinstance(store.db.reader, InlineConnection)
    ((finished_at,),) = store.db.reader.run(lambda tx: tx.execute(_ENDED).fetchall())
    return finished_at is not None


_ENDED = "SELECT finished_at FROM execution"


@in_virtual_time
async def test_a_death_at_any_call_of_the_store_loses_nothing():
    whole, done = await run_through(at=None, is_heard=True)
    expected = Counter([*ONCE, "flaky", "flaky"])
    assert Counter(done) == expected and len(whole.calls) >= 12

    for at in range(1, len(whole.calls) + 1):
        _, done = await run_through(at=at, is_heard=True)
        assert Counter(done) == expected, f"the answer to call {at} was lost"

        mortal, done = await run_through(at=at, is_heard=False)
        # What was done and is on no record is the only thing that is done again.
        unheard = Counter(done) - expected
        assert sum(unheard.values()) <= 2 and expected <= Counter(done), f"call {at} was not made"
        if mortal.last_step in ONCE[:2]:
            assert unheard == Counter([mortal.last_step])


def a_random_app(seed: int, done: list[str]) -> App:
    """An app whose durable function makes calls of all kinds, as the seed decides."""
    chance = Random(seed)
    program = [chance.choice(["step", "sleep", "wait", "both", "fails", "time"]) for _ in range(6)]
    app = App("memory://")

    async def effect(name: str) -> str:
        done.append(name)
        return name

    async def fail(name: str) -> None:
        done.append(name)
        raise LookupError(name)

    @app.task(retries=0, max_crashes=100)
    async def order(ctx: Context) -> list[Any]:
        made: list[Any] = []
        for number, kind in enumerate(program):
            name = f"{kind}-{number}"
            match kind:
                case "step":
                    made.append(await ctx.step(name, effect, name))
                case "sleep":
                    await ctx.sleep(0.2)
                case "wait":
                    event = await ctx.wait_for_event("go", timeout=0.3)
                    made.append(None if event is None else event.data)
                case "both":
                    names = [f"{name}-{part}" for part in "ab"]
                    calls = [ctx.step(one, effect, one) for one in names]
                    made += (await asyncio.gather(*calls, ctx.sleep(0.1)))[:2]
                case "fails":
                    with pytest.raises(LookupError, match=name):
                        await ctx.step(name, fail, name)
                    made.append(round(ctx.random(), 6) > 2)
                case _:
                    made.append(ctx.now() is not None)
        return made

    return app


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_whatever_a_function_does_deaths_do_not_change_what_it_returns(seed: int):
    chance = Random(seed)
    done: list[str] = []
    _, expected = await run_app(a_random_app(seed, done), [])
    again: list[str] = []

    deaths = [(chance.randint(1, 6), chance.random() < 0.5) for _ in range(5)]
    _, result = await run_app(a_random_app(seed, again), deaths)

    assert result == expected
    # A death before a write was heard lets one step, or two at once, be done again; one that has
    # failed is tried again in any case, as long as nothing was built upon its failure.
    unheard = sum(not is_heard for _, is_heard in deaths)
    more = Counter(again) - Counter(done)
    assert Counter(done) <= Counter(again)
    assert sum(count for name, count in more.items() if "fails" not in name) <= 2 * unheard
