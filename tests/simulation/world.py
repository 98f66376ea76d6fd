"""The store, the ways to it, and their faults.

A call is a message to the store and a message back. The caller may be dead or frozen by the time it
arrives: it is applied all the same. That causes most of the difficulties of a distributed system.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from daybell.errors import DaybellError, Unavailable
from tests.engine.virtual import EPOCH
from tests.ports import PORTS, operation_of
from tests.simulation.checker import Checker
from tests.simulation.clocks import StoreClock
from tests.simulation.loop import Process, SimulatedLoop, forever
from tests.simulation.places import Place
from tests.simulation.trace import Trace
from tests.simulation.weather import CALM, LEASE, Weather
from tests.sweeps import name_of

ABOUT_WORK = ("enqueue", "claim", "apply", "renew", "register", "cancel", "lost", "revive", "fire")
TELLS_TIME = ("claim", "renew", "register", "lost")


@dataclass
class Call:
    """An operation that a process asked for."""

    process: Process
    operation: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: asyncio.Future[Any]
    steps_known: int  # steps of the store's clock that the caller may know of


class World:
    """The state that the processes share."""

    def __init__(
        self,
        loop: SimulatedLoop,
        place: Place,
        clock: StoreClock,
        chance: Random,
        weather: Weather,
        checker: type[Checker] = Checker,
    ) -> None:
        self.loop = loop
        self.place = place
        self.clock = clock
        self.weather = weather
        self.trace = Trace()
        self.failure: str | None = None
        self.checker = checker(place, clock.now, loop.time, self.fail)
        self.is_away = False
        self.cut_off: set[str] = set()  # names of processes that do not reach the store
        self.muted: set[str] = set()  # names of those that reach it, and never receive an answer
        self.on_death: Callable[[Process], None] = lambda process: None
        self.points: set[str] = set()  # where processes were killed
        self._chance = chance
        self._listeners: dict[int, tuple[Process, Callable[[], None], Callable[[], None]]] = {}
        self._clocks: dict[Process, Callable[[], None]] = {}  # schedulers, and their wake-ups
        self._steps_left = self._until_crash()
        loop.before_step = self._before_step
        loop.on_error = self.fail

    def begin(self) -> None:
        """From now on commits can fail."""
        self.place.breaks_commit = lambda: self._strikes(self.weather.full_disk)

    def fail(self, what: str) -> None:
        """Record a broken promise. The first one counts; others are its consequences."""
        if self.failure is None:
            self.failure = what
            self.note("world", "VIOLATION", what)
            self.loop.stop()

    def note(self, who: str | Process, what: str, *details: Any) -> None:
        self.trace.add(self.loop.time(), str(who), what, *details)

    def calm(self) -> None:
        """Stop all random faults."""
        self.weather = CALM
        self.is_away = False
        self.cut_off.clear()
        self.muted.clear()
        self.note("world", "calm")

    def crash(self, process: Process, where: str) -> None:
        """Kill a process, as SIGKILL does."""
        if not process.is_dead:
            self.points.add(where)
            self.note(process, "dies", where)
            self.checker.died(process)
            self.loop.kill(process)
            self.on_death(process)

    def freeze(self, process: Process, seconds: float, *, threads: bool = True) -> None:
        """Freeze a process for so long, as SIGSTOP does; or only its main loop."""
        self.loop.freeze(process, threads=threads)
        self._later(seconds, self.thaw, process)

    def thaw(self, process: Process) -> None:
        if not process.is_dead:
            self.note(process, "thaws")
            self.loop.thaw(process)

    def step_clock(self, seconds: float) -> None:
        """Set the store's clock forwards or back."""
        self.checker.clock_steps.append((self.loop.time(), seconds))
        self.clock.step(seconds)

    def _before_step(self, process: Process) -> None:
        """Kill the process between any two awaits, by chance."""
        if not self._steps_left or process is self.loop.world or not self._can_crash(process):
            return
        self._steps_left -= 1
        if self._steps_left == 0:
            self._steps_left = self._until_crash()
            self.crash(process.main, "at a step")

    def _until_crash(self) -> int:
        mean = self.weather.steps_to_crash
        return self._chance.randint(1, 2 * mean) if mean else 0

    def _can_crash(self, process: Process) -> bool:
        return self.weather is not CALM and not process.name.startswith("client")

    # The way of a call.

    async def ask(self, process: Process, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Make a call to the store, as a process."""
        operation = name_of(operation, kwargs)
        if self._dies(process, f"{operation}.before"):
            await forever()
        if self._strikes(self.weather.freeze_points.get(operation, 0.0)):
            self.note(process, "freezes before it asks for", operation)
            self.freeze(process.main, self._chance.uniform(1.2, 2.5) * LEASE)
            await asyncio.sleep(0)  # it stands here until it thaws, and then continues normally
        known = process.main.steps_known
        call = Call(process, operation, args, kwargs, self.loop.create_future(), known)
        sent = self.loop.time()
        self._later(self._delay(), self._arrive, call)
        answer = await call.answer
        if operation in TELLS_TIME:
            process.main.steps_known = max(process.main.steps_known, call.steps_known)
        if self._dies(process, f"{operation}.answered"):
            await forever()
        if operation in ("register", "renew"):
            self.checker.renewed(process.main, _worker_of(call), sent)
        return answer

    def _dies(self, process: Process, point: str) -> bool:
        chance = self.weather.crash_points.get(point, 0.0)
        if chance and self._can_crash(process) and self._strikes(chance):
            self.crash(process.main, point)
        return process.is_dead

    def _arrive(self, call: Call) -> None:
        """Handle the arrival of the message at the store."""
        if self.is_away or call.process.main.name in self.cut_off:
            # Refused at once, or without an answer until patience ends.
            self._later(self._chance.choice((0.01, 1.0, 3.0)), self._refuse, call, "away")
        elif self._strikes(self.weather.error_before):
            self._later(self._delay(), self._refuse, call, "error before")
        else:
            self._serve(call)

    def _serve(self, call: Call) -> None:
        error: BaseException | None = None
        answer = None
        before = self.checker.before(call)
        try:
            answer = self._perform(call)
        except DaybellError as raised:
            error = raised
        except Exception as raised:
            self.fail(f"{call.operation} raised {raised!r}")
            return
        if call.operation in ABOUT_WORK or error is not None:
            self.note(call.process, call.operation, _shown(call, answer, error))
        self.checker.judge(call, before, answer, error)
        call.steps_known = len(self.checker.clock_steps)
        if error is None:
            self._tell(call.operation)
        self._reply(call, answer, error)

    def _perform(self, call: Call) -> Any:
        if call.operation == "listen":
            return self._listen(call.process, *call.args, **call.kwargs)
        if call.operation == "listen_schedules":
            self._clocks[call.process] = call.args[0]
            return _nothing_to_stop
        operation = "upkeep" if "sweeps" in call.kwargs else call.operation
        return run(operation_of(self.place.store, operation)(*call.args, **call.kwargs))

    def _reply(self, call: Call, answer: Any, error: BaseException | None) -> None:
        chance = self.weather.crash_points.get(f"{call.operation}.committed", 0.0)
        if chance and self._can_crash(call.process) and self._strikes(chance):
            self.crash(call.process.main, f"{call.operation}.committed")
        elif self._loses_answer(call):
            self.checker.answer_lost(call, error)
            self._later(self._delay(), self._refuse, call, "error after")
        elif error is not None:
            self._later(self._delay(), self._raise, call, error)
        else:
            self._later(self._delay(), self._answer, call, answer)

    def _loses_answer(self, call: Call) -> bool:
        if call.process.main.name in self.cut_off | self.muted:
            return True
        chance = self.weather.lost_answers.get(call.operation, 0.0)
        return self._strikes(max(self.weather.error_after, chance))

    def _answer(self, call: Call, answer: Any) -> None:
        if not call.answer.done():
            if not call.process.is_dead:
                self.checker.answered(call, answer)
            call.answer.set_result(answer)

    def _refuse(self, call: Call, why: str) -> None:
        self.note(call.process, call.operation, "has no answer:", why)
        self._raise(call, Unavailable(f"simulated: {why}"))

    def _raise(self, call: Call, error: BaseException) -> None:
        if not call.answer.done() and not call.process.is_dead:
            call.answer.set_exception(error)

    def _later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self.loop.call_later(seconds, callback, *args, context=self.loop.world.context)

    def _delay(self) -> float:
        if self._strikes(self.weather.slow):
            return self._chance.uniform(1, 1.5 * LEASE)
        return self._chance.random() * self.weather.latency

    def _strikes(self, chance: float) -> bool:
        return chance > 0 and self._chance.random() < chance

    # Notifications for waiting processes.

    def _listen(
        self,
        process: Process,
        tenant: str,
        queues: Any,
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        key = len(self._listeners)
        self._listeners[key] = process, wake, ask or _nothing

        async def stop() -> None:
            self._listeners[key] = process, _nothing, _nothing

        return stop

    def _tell(self, operation: str) -> None:
        """Wake processes that may be affected, unless the notification is lost."""
        for process, wake, ask in self._listeners.values():
            hear = {"enqueue": wake, "cancel": ask, "drain": ask}.get(operation)
            if hear and not process.is_dead and not self._strikes(self.weather.lost_wakeup):
                self.loop.call_later(self._delay(), hear, context=process.context)
        for process, wake in self._clocks.items() if self.checker.has_news else ():
            if not process.is_dead and not self._strikes(self.weather.lost_wakeup):
                self.loop.call_later(self._delay(), wake, context=process.context)


class Port:
    """The store and its ports, as one process sees them."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def __getattr__(self, operation: str) -> Any:
        if operation in PORTS:
            return self
        ask = functools.partial(self._world.ask, self._process, operation)
        setattr(self, operation, ask)
        return ask

    async def open(self) -> None:
        """Do nothing: calls fail, connections do not."""

    async def close(self) -> None:
        """Do nothing, see above."""


def run(operation: Any) -> Any:
    """Run an operation that never waits."""
    try:
        operation.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("an operation of the store waits for something")


def _worker_of(call: Call) -> UUID:
    return call.kwargs["worker"] if call.operation == "renew" else call.args[1].id


def _shown(call: Call, answer: Any, error: BaseException | None) -> tuple[Any, ...]:
    """Return the details of a call for the trace."""
    if error is not None:
        return (type(error).__name__,)
    match call.operation:
        case "claim":
            return tuple((one.id, one.attempt) for one in answer.executions)
        case "apply":
            moves = call.kwargs["transitions"]
            made = tuple((move.id, move.attempt, str(move.target)) for move in moves)
            return (*made, *(("but", v.id, v.attempt, str(v.ruling)) for v in answer))
        case "enqueue":
            return tuple((one.id, one.created) for one in answer)
        case "fire":
            ticks = (tick for one in call.args[0] for tick in one.ticks)
            return (*answer, *((str(one.decision), one.at - EPOCH) for one in ticks))
        case "cancel" | "revive":
            return tuple(zip(call.args[1], map(str, answer), strict=True))
        case "lost":
            return tuple((one.claimed.id, one.claimed.attempt) for one in answer.executions)
        case "renew":
            return (call.kwargs["worker"], answer.returned)
        case _:
            return ()


def _nothing() -> None:
    pass


async def _nothing_to_stop() -> None:
    pass
