"""A whole cluster: schedulers, workers and clients on one store, through one seed's weather."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock
from uuid import UUID

from daybell.client import Client
from daybell.core.execution import TERMINAL, State
from daybell.core.ids import mint
from daybell.core.job import NewJob
from daybell.core.monitoring.stats import StatQuery
from daybell.core.subscription import SUBSCRIPTIONS, Subscription
from daybell.engine import worker as worker_module
from daybell.engine.attempt import Handlers
from daybell.engine.events import Events
from daybell.engine.loop import AGAIN
from daybell.engine.scheduler import Scheduler
from daybell.engine.upkeep import Outbox, Upkeep
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import DaybellError
from tests.simulation import schedules
from tests.simulation.chance import seeded_ids, stream
from tests.simulation.checker import GATE_CAPACITY, Checker
from tests.simulation.clients import GATES, QUEUES, Customer
from tests.simulation.clocks import HostClock, StoreClock
from tests.simulation.effects import Effects
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.pacemaker import SimulatedPacemaker
from tests.simulation.places import TENANT, Place
from tests.simulation.schedules import KINDS
from tests.simulation.tasks import ALL_JOBS, SimulatedTasks
from tests.simulation.weather import LEASE, draw
from tests.simulation.world import Port, World, run
from tests.sweeps import fold_stats, set_gates

SCHEDULERS: Final = 3
WORKERS: Final = 5
CLIENTS: Final = 3
WORK_SECONDS: Final = 25.0  # in which clients ask for things, and the weather is bad
CLOCK_STEP: Final = 20.0  # seconds back, at most; forwards half as much again
# From then on, everything ends within this time: an execution may be lost max_crashes times, each
# for a lease, the reaper's patience of a lease and a sweep, and the store's clock may have been
# set back; the rest is the work itself.
ENDS_SECONDS: Final = 3 * (2 * LEASE + 3) + 2 * CLOCK_STEP + 40
# In some seeds the clock jumps forward at the end of the work, and back when the weather clears up:
# for longer than a scheduler may take to notice.
CLOCK_JUMP: Final = 40.0
CLOCK_JUMP_CHANCE: Final = 0.3
ACTIONS: Final = 17
# A call may be under way for longer than a lease, the next come after a pause, and then the poll.
FIRED_SECONDS: Final = 1.5 * LEASE + 12


@dataclass
class Outcome:
    """What became of a seed."""

    seed: int
    failure: str | None
    seen: Counter[str]
    points: set[str]
    executions: int
    steps: int
    seconds: float  # simulated
    trace: Callable[..., list[str]]
    flags: str = ""  # that it takes to see it again


@dataclass
class Slot:
    """A place in the cluster that is filled by one process after another."""

    name: str
    life: Callable[[Slot], Awaitable[None]]
    lives: int = 0
    process: Process | None = None
    clock: HostClock | None = None
    worker: Worker | None = None
    term: asyncio.Event | None = None
    broken: str | None = None  # for good
    is_well: bool = field(default=False)  # for good


class Cluster:
    """Starts processes, starts them again, and has storms come over them."""

    checker: type[Checker] = Checker
    ends_seconds: float = ENDS_SECONDS
    needs: tuple[str, ...] = ("task", "http")
    is_told = True  # there is a subscription to the ends and retries of executions

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = stream(seed, "cluster")
        self.loop = SimulatedLoop(stream(seed, "loop"))
        clock = StoreClock(self.loop)
        place = Place(clock.now)
        weather = draw(stream(seed, "weather"), seconds=WORK_SECONDS)
        self.world = World(
            self.loop, place, clock, stream(seed, "world"), weather, checker=self.checker
        )
        self.world.on_death = self._restart
        self.effects = Effects(self.world)
        self.is_liveness = seed % 3 == 0
        # As some workers have it, and some have not.
        self.has_pacemakers = self._chance.random() < 0.5
        self.ends_itself = self._chance.random() < 0.5
        self.known: list[UUID] = []
        self.scheduled = schedules.draw(stream(seed, "schedules"))
        self.slots = [Slot(f"scheduler-{n + 1}", self._schedule) for n in range(SCHEDULERS)]
        self.slots += [Slot(f"worker-{n + 1}", self._work) for n in range(WORKERS)]
        self._clients_left = CLIENTS
        self._is_calm = False

    def run(self) -> Outcome:
        """Live through the seed."""
        world, loop = self.world, self.loop
        with seeded_ids(self.seed, loop.time):
            self._prepare()
            world.begin()
            for slot in self.slots:
                self._start(slot)
            for number in range(CLIENTS):
                process = Process(f"client-{number + 1}")
                loop.start(process, lambda process=process: self._ask(process))
            for at, storm in world.weather.storms:
                self._at(at, self._storm, storm)
            # Either has every lease end, or shows what keeps one.
            sure = "block at work" if self.has_pacemakers else "freeze at work"
            self._at(self._chance.uniform(3, WORK_SECONDS - 2 * LEASE), self._storm, sure)
            for _ in range(2):
                self._at(self._chance.uniform(3, WORK_SECONDS), self._storm, "term at work")
            self._at(WORK_SECONDS, self._calm)
            ends_seconds = self.ends_seconds
            if self._chance.random() < CLOCK_JUMP_CHANCE:
                ends_seconds += CLOCK_JUMP
                self._at(WORK_SECONDS - LEASE, world.step_clock, CLOCK_JUMP)
                self._at(WORK_SECONDS, world.step_clock, -CLOCK_JUMP)
            loop.run(until=WORK_SECONDS + ends_seconds, done=self._is_over)
            if world.failure is None:
                self._check_end()
            outcome = self._outcome()
            loop.bury()
            world.place.close()
        return outcome

    def _prepare(self) -> None:
        world, store = self.world, self.world.place.store
        asyncio._set_running_loop(self.loop)
        run(store.open())
        jobs = [NewJob(id=mint(), definition=definition) for definition in ALL_JOBS.values()]
        run(store.catalog.define_jobs(TENANT, jobs))
        if self.is_told:
            hooks = Subscription(name="hooks", url="http://127.0.0.1:1", types=("execution.*",))
            run(store.admin.put_record(TENANT, SUBSCRIPTIONS, hooks))
        run(set_gates(store, TENANT, dict.fromkeys(GATES, GATE_CAPACITY)))
        client = Client(store)
        for name in self.scheduled:
            args = schedules.args_of(name, "first")
            rule, name_there = KINDS[name].rule, schedules.NAME
            run(client.schedule(name, rule, args=args, name=name_there, overlap_by="job"))
        world.checker.ticks.schedules = world.place.schedules()
        asyncio._set_running_loop(None)

    def _is_over(self) -> bool:
        rows = self.world.checker.rows
        is_over = self._is_calm and all(row.state in TERMINAL for row in rows.values())
        return is_over and not self._clients_left

    def _check_end(self) -> None:
        world = self.world
        world.checker.at_the_end()
        world.checker.statistics(self._count_ends())
        if self.is_told:
            world.checker.events()
        left = [row for row in world.checker.rows.values() if row.state not in TERMINAL]
        if left or self._clients_left:
            world.fail(f"{len(left)} executions do not end, such as {left[:1]}")

    def _count_ends(self) -> dict[State, int]:
        """The ends in the statistics, when the last of them are added."""
        store = self.world.place.store
        query = StatQuery(since=0.0, until=9e9 // 3600 * 3600, step=3600)
        asyncio._set_running_loop(self.loop)
        while run(fold_stats(store)):
            pass
        outbox = Outbox(store, mint=mint)
        while run(outbox.tick()) is AGAIN:
            pass
        rows = run(store.catalog.read_stats(TENANT, query, with_unfinished=False))
        asyncio._set_running_loop(None)
        tallies = rows.tallies.values()
        return {state: sum(int(one.value(state) or 0) for one in tallies) for state in TERMINAL}

    def _outcome(self) -> Outcome:
        world = self.world
        return Outcome(
            self.seed,
            world.failure,
            world.checker.seen,
            world.points,
            len(world.checker.rows),
            self.loop.steps,
            self.loop.time(),
            world.trace.lines,
        )

    def _at(self, when: float, callback: Callable[..., None], *args: Any) -> None:
        self.loop.call_at(when, callback, *args, context=self.loop.world.context)

    def _after(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self._at(self.loop.time() + seconds, callback, *args)

    # Processes.

    def _start(self, slot: Slot) -> None:
        if slot.process is not None and not slot.process.is_dead:
            return
        slot.lives += 1
        slot.process = process = Process(slot.name)
        slot.clock = HostClock(self.loop, stream(self.seed, f"{slot.name}.{slot.lives}"))
        slot.worker, slot.term = None, process.context.run(asyncio.Event)
        self.world.note(process, "begins", slot.lives)
        self.loop.start(process, lambda: self._live(slot, process))

    async def _live(self, slot: Slot, process: Process) -> None:
        try:
            await slot.life(slot)
        except DaybellError as error:
            self.world.note(process, "exits:", type(error).__name__)
        except Exception as error:
            self.world.fail(f"{slot.name} dies of {error!r}")
        if not process.is_dead:
            self.world.note(process, "exits")
            self.loop.kill(process)
            self._restart(process)

    def _restart(self, process: Process) -> None:
        """A supervisor starts what has died."""
        for slot in self.slots:
            if slot.process is process and slot.broken != "dead":
                self._after(self._chance.uniform(0.1, 3), self._start, slot)

    async def _work(self, slot: Slot) -> None:
        assert slot.process and slot.clock
        process = slot.process
        port: Any = Port(self.world, process)
        options = self._options(slot)
        tasks = self._tasks(Client(port))
        pacemaker = SimulatedPacemaker(self.world, process, slot.clock)
        worker = slot.worker = Worker(
            port,
            tasks,
            options,
            clock=slot.clock,
            mint=mint,
            events=Events(),
            pacemaker=pacemaker if self.has_pacemakers else None,
            on_stuck=(lambda: self._end_itself(process)) if self.ends_itself else None,
        )
        slot.term = worker.is_draining  # SIGTERM, and what the store asks for
        await worker.start()
        await slot.term.wait()
        self.world.checker.draining.add(slot.process)
        await worker.stop()

    def _options(self, slot: Slot) -> WorkerOptions:
        return WorkerOptions(
            name=slot.name,
            queues=",".join(QUEUES),
            kinds=self.needs,
            concurrency=4,
            lease=LEASE,
            drain_timeout=2.0,
        )

    def _tasks(self, client: Client) -> Handlers:
        """What a worker knows to run."""
        return SimulatedTasks(self.world, self.effects, client)

    def _end_itself(self, process: Process) -> None:
        self.world.checker.seen["ended itself"] += 1
        self.world.crash(process, "by itself")

    async def _schedule(self, slot: Slot) -> None:
        assert slot.process and slot.clock and slot.term
        port: Any = Port(self.world, slot.process)
        upkeep = Upkeep(port, clock=slot.clock, mint=mint, events=Events(), lease=LEASE)
        scheduler = Scheduler(port, clock=slot.clock, mint=mint, events=Events())
        upkeep.start()
        scheduler.start()
        await slot.term.wait()
        await scheduler.stop()
        await upkeep.stop()

    async def _ask(self, process: Process) -> None:
        chance = stream(self.seed, process.name)
        port = Port(self.world, process)
        customer = Customer(process.name, port, chance, self.known, self.scheduled)
        for _ in range(ACTIONS):
            await asyncio.sleep(chance.expovariate(ACTIONS / (WORK_SECONDS - 5)))
            await customer.act()
        await asyncio.sleep(max(0.0, WORK_SECONDS - self.loop.time()))
        await customer.tidy()
        await self._until_fired()
        await customer.silence()
        # Some tasks wait for nothing but this.
        stuck = [row.id for row in self.world.checker.rows.values() if row.job == "stuck"]
        await customer.cancel_all(stuck)
        self._clients_left -= 1

    async def _until_fired(self) -> None:
        """Wait until everything is fired that is due when the weather clears up, and no schedule
        stands ahead of the clock.
        """
        since, deadline = self.world.clock.now(), self.loop.time() + FIRED_SECONDS
        ticks = self.world.checker.ticks
        while silent := ticks.late(since) or ticks.ahead():
            if self.loop.time() > deadline:
                self.world.fail(f"no scheduler fires {silent[0]}")
            await asyncio.sleep(0.5)

    # Weather.

    def _storm(self, kind: str) -> None:
        if self._is_calm:
            return
        chance, slots = self._chance, self.slots
        if kind.endswith("at work"):
            slots = [one for one in slots if self.effects.is_at_work(one.process)] or slots
        slot = chance.choice(slots)
        process = slot.process
        self.world.note(slot.name, "is struck by", kind)
        match kind:
            case "outage":
                self._outage(chance.uniform(0.3, 2) * LEASE)
            case "store clock":
                self.world.step_clock(chance.uniform(-CLOCK_STEP, 1.5 * CLOCK_STEP))
            case "host clock" if slot.clock is not None:
                slot.clock.sleep_through(chance.uniform(0, 60))
            case "cut":
                self._cut(slot, self.world.cut_off, chance.uniform(0.2, 2) * LEASE)
            case "mute":
                self._cut(slot, self.world.muted, chance.uniform(0.2, 2) * LEASE)
            case "crash" if process is not None:
                self.world.crash(process, "in a storm")
            case "freeze" | "freeze at work" if process is not None and not process.is_dead:
                self.world.freeze(process, chance.uniform(0.8, 3) * LEASE)
            case "block at work" if process is not None and not process.is_dead:
                self.world.freeze(process, chance.uniform(0.8, 2) * LEASE, threads=False)
            case "term" | "term at work" if slot.term is not None:
                slot.term.set()
                if chance.random() < 0.3 and process is not None:  # and again: now
                    self._after(chance.uniform(0, 3), self.world.crash, process, "while draining")
            case _:
                pass

    def _outage(self, seconds: float) -> None:
        self.world.is_away = True
        self._after(seconds, self._end_outage, seconds)

    def _end_outage(self, seconds: float) -> None:
        self.world.is_away = False
        if seconds > LEASE:
            self.world.checker.seen["long outage"] += 1

    def _cut(self, slot: Slot, names: set[str], seconds: float) -> None:
        names.add(slot.name)
        self._after(seconds, self._mend, slot, names)

    def _mend(self, slot: Slot, names: set[str]) -> None:
        if slot.broken is None:
            names.discard(slot.name)

    def _calm(self) -> None:
        """The weather clears up. In liveness mode, only over one scheduler and one worker: the
        others stay broken for good.
        """
        self.world.calm()
        self._is_calm = True
        healthy = {"scheduler-1", "worker-1"}
        for slot in self.slots:
            if self.is_liveness and slot.name not in healthy:
                self._break(slot)
            elif slot.process is not None and slot.process.is_frozen:
                self.world.thaw(slot.process)

    def _break(self, slot: Slot) -> None:
        slot.broken = self._chance.choice(("dead", "frozen", "cut off", "muted", "dying"))
        self.world.note(slot.name, "stays", slot.broken)
        assert slot.process is not None
        match slot.broken:
            case "dead":
                self.world.crash(slot.process, "for good")
            case "frozen":
                self.loop.freeze(slot.process)
            case "cut off":
                self.world.cut_off.add(slot.name)
            case "muted":
                self.world.muted.add(slot.name)
            case _:
                self._die_again(slot)

    def _die_again(self, slot: Slot) -> None:
        if slot.process is not None:
            self.world.crash(slot.process, "again and again")
        self._after(self._chance.uniform(2, 10), self._die_again, slot)


class NoWatch:
    """In place of the thread that looks for a blocked loop: there is none to look at."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


def simulate(seed: int, kind: type[Cluster] = Cluster) -> Outcome:
    """Run one seed."""
    gc_was_on = gc.isenabled()
    gc.disable()  # when it runs depends on what ran before
    logging.disable(logging.CRITICAL)  # of errors there are many, and they are meant
    try:
        with mock.patch.object(worker_module, "LoopWatch", NoWatch):
            return kind(seed).run()
    finally:
        logging.disable(logging.NOTSET)
        if gc_was_on:
            gc.enable()
