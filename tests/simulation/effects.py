"""Effects of tasks: the log of every start, step and end of a task's body."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from daybell.core.execution import Claimed
from daybell.core.lifecycle import SUSPECT_CRASHES
from daybell.engine.execute import PROBATION_SECONDS, group_size
from tests.simulation.loop import PROCESS, Process
from tests.simulation.weather import LEASE
from tests.simulation.world import World


@dataclass(eq=False)
class Body:
    """A running task."""

    claimed: Claimed
    process: Process
    worker: UUID
    goes_on: bool  # also when it must not any more
    began: float


class Effects:
    """The running tasks, and their permission to run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at_work: dict[UUID, list[Body]] = {}

    def begin(self, claimed: Claimed, *, goes_on: bool) -> Body:
        world, checker, start = self._world, self._world.checker, (claimed.id, claimed.attempt)
        process = PROCESS.get()
        world.note(process, "starts", claimed.id, claimed.attempt, claimed.job)
        if start not in checker.given:
            world.fail(f"{start} is started, and no claim was ever answered with it")
            world.loop.stop()
        if start in checker.started:
            world.fail(f"attempt {claimed.attempt} of {claimed.id} is started twice")
        checker.started.add(start)
        age = world.loop.time() - checker.renewals[checker.given[start][0]]
        if age > LEASE:
            # Unlike a step of a task that was frozen: a new one must not begin.
            world.fail(f"{process} begins {start} {age:.3f} s after its last good renewal")
        worker = checker.given.get(start, (claimed.id,))[0]
        body = Body(claimed, process, worker, goes_on, world.loop.time())
        if claimed.crashes >= SUSPECT_CRASHES:
            self._note_company(body)
        for other in self._at_work.setdefault(claimed.id, []):
            self._check_pair(other, body)
        self._at_work[claimed.id].append(body)
        return body

    def step(self, body: Body) -> None:
        """Check that a body may still make a step."""
        world, time = self._world, self._world.loop.time()
        age = time - world.checker.renewals[body.worker]
        is_back = body.process.thawed_at == time and time - body.process.frozen_at > LEASE
        if is_back:
            kept = age <= LEASE
            world.checker.seen["loop stood still" if kept else "frozen at work"] += 1
        if age <= LEASE or body.goes_on or body.process.thawed_at == time:
            # Allowed, or the process was frozen and learns in this moment that it is not.
            return
        world.fail(
            f"{body.process} works on attempt {body.claimed.attempt} of {body.claimed.id},"
            f" {age:.3f} s after its last good renewal"
        )

    def end(self, body: Body, how: str) -> None:
        self._world.note(body.process, "ends", body.claimed.id, body.claimed.attempt, how)
        self._at_work[body.claimed.id].remove(body)

    def is_at_work(self, process: Process | None) -> bool:
        return any(body.process is process for bodies in self._at_work.values() for body in bodies)

    def count_of(self, worker: UUID, job: str) -> int:
        """Return how many executions of a job a worker is at work on."""
        bodies = (body for bodies in self._at_work.values() for body in bodies)
        return sum((body.worker, body.claimed.job) == (worker, job) for body in bodies)

    def _note_company(self, body: Body) -> None:
        """Record which suspects a worker has run side by side: none of them ends dead for it."""
        checker = self._world.checker
        for other in (one for bodies in self._at_work.values() for one in bodies):
            if other.worker != body.worker or other.claimed.crashes < SUSPECT_CRASHES:
                continue
            is_on_probation = body.began - other.began < PROBATION_SECONDS
            if is_on_probation and min(group_size(body.claimed), group_size(other.claimed)) == 1:
                self._world.fail(f"{body.claimed.id} begins beside {other.claimed.id}")
            for one in (body, other):
                checker.company.add((one.claimed.id, one.claimed.attempt))
            checker.seen["company"] += 1

    def _check_pair(self, one: Body, other: Body) -> None:
        """Check two tasks that run one execution: allowed only if the store has taken it from the
        earlier attempt, because its worker was silent.
        """
        late, current = sorted((one, other), key=lambda body: body.claimed.attempt)
        if late.process.is_dead or late.goes_on:
            return
        if not self._world.checker.is_dead(late.worker):
            self._world.fail(
                f"{current.process} is at work on attempt {current.claimed.attempt} of"
                f" {current.claimed.id}, and {late.process} on attempt {late.claimed.attempt}"
                " under a lease that holds"
            )
