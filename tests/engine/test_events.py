"""The end of a run is told by whoever has ended its last node, and costs next to nothing."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.lifecycle import Ruling, Verdict
from daybell.core.workflow.run import Spec
from daybell.engine.events import (
    AFTER_SECONDS,
    ASKED_MAX,
    QUIET_SECONDS,
    Ended,
    Events,
    RunBegun,
    RunEnded,
    RunEndObserver,
    WorkerLost,
)
from daybell.engine.lease import Leases
from daybell.engine.loop import ManualClock
from tests.builders import TENANT, apply, death, success
from tests.engine.faults import faulty
from tests.engine.tasks import a_store
from tests.engine.test_report import a_completer
from tests.store.runs import a_plan, begun, take, taken_run


class World:
    """Somebody who ends nodes, and is told of runs."""

    def __init__(self, store, clock):
        self.store, self.clock = store, clock
        self.events = Events()
        self.told: list[RunEnded] = []
        self.events.observe(self._hear)
        self.ends = RunEndObserver(store, events=self.events, clock=clock)

    @property
    def looks(self) -> int:
        return len(self.store.asked("list_executions"))

    def _hear(self, event):
        if isinstance(event, RunEnded):
            self.told.append(event)

    async def end(self, *, failing=(), limit=500):
        """End all nodes that can be claimed, or so many, and hear of it."""
        hands = await take(self.store, limit)
        moves = [
            replace(death(one), run=one.parent, node=one.node)
            if one.node in failing
            else success(one)
            for one in hands.executions
        ]
        assert await apply(self.store, hands, *moves) == []
        for one, move in zip(hands.executions, moves, strict=True):
            self.ends(Ended(one, move))

    async def look(self, *, after=QUIET_SECONDS):
        self.clock.advance(after)
        await self.ends.tick()
        return [(event.run.id, event.run.state) for event in self.told]


async def a_world():
    clock = ManualClock()
    return World(faulty(await a_store(clock)), clock)


async def test_the_last_node_s_end_is_followed_by_that_of_the_run():
    world = await a_world()
    run = await begun(world.store, a_plan({"a": ["b"], "b": []}))

    await world.end()
    assert await world.look() == []
    await world.end()

    assert await world.look() == [(run, State.SUCCEEDED)]
    assert await world.look() == [(run, State.SUCCEEDED)], "once"


async def test_a_dead_run_is_told_with_its_error():
    world = await a_world()
    run = await begun(world.store, a_plan({"a": []}))

    await world.end(failing=["a"])

    assert await world.look() == [(run, State.DEAD)]
    assert "a failed" in (world.told[0].run.error or "")


async def test_nobody_looks_while_nodes_end_one_after_the_other():
    world = await a_world()
    names = [f"n{n}" for n in range(20)]
    chain = {name: [after] for name, after in pairwise(names)}
    run = await begun(world.store, a_plan(chain))

    for _ in names:
        await world.end()
        await world.look(after=QUIET_SECONDS / 2)

    assert world.looks == 0
    assert await world.look() == [(run, State.SUCCEEDED)]
    assert world.looks == 1


async def test_who_has_not_ended_it_says_nothing():
    world = await a_world()
    other = World(world.store, world.clock)
    run = await begun(world.store, a_plan({"a": ["b"], "b": []}))

    await world.end()
    world.clock.advance(AFTER_SECONDS + 0.1)
    await other.end()

    assert await world.look() == []
    assert await other.look() == [(run, State.SUCCEEDED)]


async def test_a_dead_run_is_told_once_of_two_who_ended_its_nodes_at_nearly_the_same_time():
    world = await a_world()
    other = World(world.store, world.clock)
    run = await begun(world.store, a_plan({"a": ["b", "c"]}))

    await world.end(failing=["a"])
    world.clock.advance(0.01)
    later = await begun(world.store, a_plan({"a": [], "b": []}))
    await world.end(failing=["a"], limit=1)
    world.clock.advance(0.01)
    await other.end(failing=["b"])

    assert await other.look() == [(later, State.DEAD)]
    assert await world.look() == [(run, State.DEAD)]


async def test_of_many_that_are_dead_nobody_asks_who_tells_them():
    world = await a_world()
    other = World(world.store, world.clock)
    runs = [await begun(world.store, a_plan({"a": ["b"]})) for _ in range(ASKED_MAX + 1)]
    await world.end()
    world.clock.advance(0.01)
    await other.end(failing=["b"])

    await other.look()
    before = world.looks
    told = await world.look()

    assert sorted(told) == sorted((run, State.DEAD) for run in runs)
    assert world.looks == before + 1


async def test_a_run_that_is_a_node_ends_the_one_around_it():
    world = await a_world()
    outer = await begun(world.store, a_plan({"inner": []}))
    hands = await take(world.store)
    inner = replace(hands.one, kind="workflow")
    plan = a_plan({"a": []})
    assert await world.store.runs.expand(TENANT, worker=hands.worker, claimed=inner, plan=plan)

    await world.end()

    assert await world.look() == [(hands.one.id, State.SUCCEEDED)]
    assert await world.look() == [(hands.one.id, State.SUCCEEDED), (outer, State.SUCCEEDED)]


async def test_a_run_that_ends_as_it_begins_is_told_by_who_began_it():
    world = await a_world()
    hands = await taken_run(world.store)
    plan = a_plan({"each": []}, specs={"each": Spec(needs="task", map="[]")})
    assert await world.store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=plan)

    world.ends(RunBegun(hands.one))

    assert await world.look() == [(hands.one.id, State.SUCCEEDED)]


async def test_who_has_only_begun_a_run_does_not_tell_its_end():
    world = await a_world()
    other = World(world.store, world.clock)
    hands = await taken_run(world.store)
    plan = a_plan({"a": []})
    assert await world.store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=plan)

    world.ends(RunBegun(hands.one))
    world.clock.advance(QUIET_SECONDS / 2)
    await other.end()

    assert await world.look() == []
    assert await other.look() == [(hands.one.id, State.SUCCEEDED)]


async def test_only_ends_that_were_made_count():
    world = await a_world()
    await begun(world.store, a_plan({"a": []}))
    one = (await take(world.store)).one
    stale = Verdict(one.id, one.attempt, Ruling.STALE)

    world.ends(Ended(one, success(one), stale))
    world.ends(Ended(replace(one, node=None), success(replace(one, node=None))))
    await world.look()
    assert world.looks == 0

    world.ends(WorkerLost(one, replace(death(one), run=one.parent, node=one.node)))
    await world.look()
    assert world.looks == 1


async def test_who_hears_only_of_trouble_hears_of_all_nodes():
    world, heard = await a_world(), []
    await begun(world.store, a_plan({"a": []}))
    hands = await take(world.store)
    world.events.observe(heard.append, only_trouble=True)
    leases = Leases(on_named=lambda: None)
    completer = a_completer(world.store, worker=hands.worker, leases=leases, events=world.events)

    completer.add(hands.one, success(hands.one))
    await completer.tick()

    assert [event.claimed for event in heard] == [hands.one]


async def test_who_hears_only_of_trouble_hears_of_all_runs_that_begin():
    world, heard = await a_world(), []
    hands = await taken_run(world.store)
    world.events.observe(heard.append, only_trouble=True)
    leases = Leases(on_named=lambda: None)
    leases.answer(hands.lease, 1)
    completer = a_completer(world.store, worker=hands.worker, leases=leases, events=world.events)
    run: Any = SimpleNamespace(is_expanded=True)

    completer.add(hands.one, success(hands.one), run)

    assert heard == [RunBegun(hands.one)]
