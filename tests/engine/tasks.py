"""Tasks to run, and engine parts to run them with, made in a line each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from daybell.core.execution import Claimed, Priority, State
from daybell.core.ids import mint
from daybell.core.lifecycle import Transition
from daybell.core.masking import NO_MASKS, Masks
from daybell.core.placement import Site
from daybell.core.retry import Retry
from daybell.core.views import ExecutionFilter
from daybell.engine.attempt import Attempt, AttemptHost
from daybell.engine.claim import (
    AHEAD_MAX,
    CLAIM_MAX,
    Dispatcher,
    Placement,
    Queues,
    TaskRouting,
)
from daybell.engine.events import Events
from daybell.engine.execute import Executor
from daybell.engine.lease import Leases, Pacemaker
from daybell.engine.worker import Worker, WorkerOptions
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, registered
from tests.engine.virtual import VirtualClock

Function = Callable[[Attempt], Awaitable[str | None]]


@dataclass
class Task:
    """A handler that is a function."""

    function: Function
    retry: Retry = field(default_factory=Retry)
    timeout: float | None = None
    grace: float = 0.0
    goes_on: bool = False
    starts_once: bool = False

    async def run(self, running: Attempt) -> str | None:
        return await self.function(running)


class Tasks:
    """Handlers by name."""

    def __init__(self, **tasks: Task | Function) -> None:
        self._tasks = {
            name: task if isinstance(task, Task) else Task(task) for name, task in tasks.items()
        }

    @property
    def told(self) -> dict[str, str]:
        """What a worker with these tells others."""
        return dict.fromkeys(self._tasks, "default")

    def find(self, claimed: Claimed) -> Task | None:
        return self._tasks.get(claimed.job)

    async def ask(self, claimed: Claimed) -> Task | None:
        return None

    def lacking(self, claimed: Claimed) -> str | None:
        return f"task:{claimed.job}"

    def mask(self, text: str) -> str:
        return text.replace("hunter2", "***")

    @property
    def settings(self) -> Masks:
        return NO_MASKS


async def quick(_: Attempt) -> None:
    """A task that does nothing."""


async def endless(_: Attempt) -> None:
    """A task that runs until it is stopped."""
    await asyncio.Event().wait()


async def deaf(_: Attempt) -> None:
    """A task that runs on whatever it is told, for an hour."""
    ends_at = asyncio.get_running_loop().time() + 3600
    while (left := ends_at - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


class Log:
    """A task that writes down who ran it."""

    def __init__(self) -> None:
        self.ran: list[UUID] = []

    async def __call__(self, running: Attempt) -> None:
        self.ran.append(running.claimed.id)
        await asyncio.sleep(0)


def a_claimed(job: str = "resize", **options: Any) -> Claimed:
    fields: dict[str, Any] = {
        "id": mint(),
        "attempt": 1,
        "lease": mint(),
        "tenant": TENANT,
        "job": job,
        "version": 1,
        "kind": "task",
        "queue": "default",
        "priority": Priority.NORMAL,
        "args": "{}",
        "failures": 0,
        "crashes": 0,
        "created_at": 0.0,
        "run_at": 0.0,
    }
    return Claimed(**(fields | options))


async def a_store(clock: Any = None) -> SqliteStore:
    """An open store in memory on the same time as everything else."""
    store = SqliteStore.in_memory(clock=(clock or VirtualClock()).now)
    await store.open()
    return store


async def counts(store: Any) -> dict[State, int]:
    """How many executions there are in each state."""
    return await store.catalog.count_executions(TENANT, ExecutionFilter())


@dataclass
class Heard:
    """What the parts of a bench call; a test may put its own in their place."""

    woken: Callable[[], None] = lambda: None
    named: Callable[[], object] = lambda: None
    lost: Callable[[], None] = lambda: None


@dataclass
class Bench:
    """A dispatcher and its executor, with everything that ended."""

    dispatcher: Dispatcher
    executor: Executor
    leases: Leases
    worker: UUID
    ends: list[tuple[Claimed, Transition]]
    heard: Heard


async def a_bench(
    store: Any,
    tasks: Tasks,
    *,
    concurrency: int = 10,
    ahead: float = 0.0,
    queues: str = "",
    clock: Any = None,
    site: Site | None = None,
) -> Bench:
    """A dispatcher of a registered worker; nobody ticks but the test."""
    worker = await registered(store)
    heard, clock = Heard(), clock or VirtualClock()
    leases = Leases(on_named=lambda: heard.named())
    ends: list[tuple[Claimed, Transition]] = []

    def freed() -> None:
        dispatcher.fill()

    async def written(_: object) -> None:
        pass

    async def announced(*_: object) -> float:
        return 0.0

    async def routed_nowhere(*_: object) -> None:
        return None

    def give_back(claimed: Claimed, _: float) -> None:
        raise AssertionError(f"{claimed.id} is given back")

    executor = Executor(
        tasks,
        worker=worker,
        host=AttemptHost(clock, mask=tasks.mask, begin=store.queue.begin),
        clock=clock,
        finish=lambda *end: ends.append(end[:2]),
        freed=freed,
        write=written,
        announce=announced,
        route=routed_nowhere,
        lose=lambda: heard.lost(),
    )
    routing = TaskRouting(store, tenant=TENANT, clock=clock)
    dispatcher = Dispatcher(
        store,
        executor,
        tenant=TENANT,
        worker=worker,
        queues=Queues.parse(queues),
        placement=Placement(
            store,
            site=site or Site(),
            kinds=("task",),
            clock=clock,
            has_near=site is not None and site.seat is not None,
        ),
        concurrency=concurrency,
        leases=leases,
        clock=clock,
        mint=mint,
        events=Events(),
        elsewhere=lambda _: routing,
        ahead=ahead,
        wake=lambda: heard.woken(),
        room=lambda: AHEAD_MAX + CLAIM_MAX,
        give_back=give_back,
        lose=lambda: heard.lost(),
    )
    return Bench(dispatcher, executor, leases, worker, ends, heard)


def a_worker(
    store: Any,
    tasks: Tasks,
    *,
    clock: Any = None,
    events: Events | None = None,
    pacemaker: Pacemaker | None = None,
    on_stuck: Callable[[], None] | None = None,
    **options: Any,
) -> Worker:
    return Worker(
        store,
        tasks,
        WorkerOptions(tasks=tasks.told, **options),
        clock=clock or VirtualClock(),
        mint=mint,
        events=events or Events(),
        pacemaker=pacemaker,
        on_stuck=on_stuck,
    )
