"""Workflows in a cluster: graphs that a seed draws, their tasks, and those who start and stop them.

python -m tests.simulation --flows --seed 123 --trace
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from daybell.client import Client
from daybell.core.execution import Claimed, State
from daybell.core.ids import mint
from daybell.core.job import JobDefinition, NewJob
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.progress import advance
from daybell.core.workflow.rules import Rule
from daybell.engine.attempt import Handler, Handlers
from daybell.errors import Unavailable
from daybell.runners.workflow import WorkflowHandler
from daybell.store import run_driver
from tests.core.workflow.graph_strategies import CONDITIONS, Story
from tests.core.workflow.graphs import Reference
from tests.simulation.chance import stream
from tests.simulation.cluster import Outcome
from tests.simulation.effects import Effects
from tests.simulation.flow_checker import FlowChecker
from tests.simulation.narrow import PATIENCE, NarrowCluster, Work
from tests.simulation.places import TENANT
from tests.simulation.tasks import Unmasked
from tests.simulation.weather import POINTS
from tests.simulation.world import run

FLOWS: Final = 3  # workflows of a seed
INNER: Final = "inner"
LARGE: Final = 0.05  # of all seeds have a graph of up to 200 nodes
# Rules that are answered before all parents have ended: what a map is over may not be there yet.
EARLY: Final = (Rule.ALWAYS, Rule.ONE_SUCCESS, Rule.ONE_FAILED)
RESULTS: Final = ("1", "0", "null", "[1,2]", "[]", "[1,2,3,4,5]")


def draw_story(chance: Random, *, nodes_max: int, inner: Story | None = None) -> Story:
    """A workflow, and how each of its executions would end."""
    count = chance.randint(1, nodes_max)
    density = chance.choice((0.05, 0.2, 0.6)) if count < 50 else 0.03
    failing = chance.choice((0.0, 0.05, 0.3))
    names = [f"n{number}" for number in range(count)]
    outcomes: dict[str, State] = {}
    results: dict[str, str] = {}
    nodes: list[dict[str, Any]] = []
    edges: list[Any] = []
    for place, name in enumerate(names):
        node: dict[str, Any] = {"name": name, "task": "t"}
        results[name] = chance.choice(RESULTS)
        if inner is not None and chance.random() < 0.1:
            node = {"name": name, "job": INNER}
            _take_over(inner, name, outcomes, results)
        elif chance.random() < 0.2:
            lists = [{"output": chance.choice(names[:place])}] if place else []
            node["map"] = chance.choice([*lists, list(range(chance.randint(0, 5)))])
        rules = [*Rule, *[Rule.ALL_SUCCESS] * 9]
        if "output" in str(node.get("map")):
            rules = [rule for rule in rules if rule not in EARLY]
        node["rule"] = str(chance.choice(rules))
        if "task" in node:
            for label in (name, *(f"{name}[{n}]" for n in range(5))):
                if chance.random() < failing:
                    outcomes[label] = State.DEAD
        nodes.append(node)
        for parent in names[:place]:
            if chance.random() < density:
                when = chance.choice(CONDITIONS)
                edges.append({"from": parent, "to": name, "when": when} if when else [parent, name])
    graph = Graph.parse(
        {
            "nodes": nodes,
            "edges": edges,
            "fail_fast": chance.random() < 0.15,
            "max_running": chance.choice((None, None, 1, 2, 7)),
        }
    )
    return Story(graph, outcomes, results)


def _take_over(
    inner: Story, name: str, outcomes: dict[str, State], results: dict[str, str]
) -> None:
    """A node that is a workflow ends as that one does."""
    reference = Reference(inner.graph, inner.outcomes, inner.results).evaluate()
    if reference.is_lost:
        outcomes[name] = State.DEAD
    results[name] = json.dumps(reference.result)


def draw_stories(chance: Random) -> dict[str, Story]:
    """The workflows of a seed by name; one of them is in the others."""
    inner = draw_story(chance, nodes_max=5)
    # What fails fast may skip what a reference would run.
    inner = Story(replace(inner.graph, fail_fast=False), inner.outcomes, inner.results)
    stories = {INNER: inner}
    for number in range(FLOWS):
        is_large = chance.random() < LARGE
        nodes_max = 200 if is_large else chance.choice((4, 12, 25))
        stories[f"flow-{number}"] = draw_story(chance, nodes_max=nodes_max, inner=inner)
    return stories


def definition_of(name: str, story: Story) -> JobDefinition:
    settings = json.dumps(story.graph.to_settings())
    return JobDefinition(name=name, kind="workflow", settings=settings, max_crashes=PATIENCE)


@dataclasses.dataclass
class NodeTask(Work):
    """Runs a node."""

    story: Story

    def name_of(self, claimed: Claimed) -> bytes:
        return f"{claimed.job} {claimed.node}".encode()

    def seconds(self, dice: int) -> float:
        return (dice % 20) / 20

    def is_hopeless(self, claimed: Claimed, dice: int) -> bool:
        assert claimed.node is not None
        return self.story.outcomes.get(claimed.node) is State.DEAD

    def result_of(self, claimed: Claimed) -> str:
        assert claimed.node is not None
        return self.story.results.get(claimed.node, "1")


class FlowTasks(Unmasked):
    """All workflows and their nodes, as a worker knows them."""

    def __init__(self, effects: Effects, stories: dict[str, Story]) -> None:
        self._runs = {
            name: WorkflowHandler(definition_of(name, story)) for name, story in stories.items()
        }
        self._nodes = {name: NodeTask(effects, story) for name, story in stories.items()}

    def find(self, claimed: Claimed) -> Handler | None:
        return (self._runs if claimed.kind == "workflow" else self._nodes)[claimed.job]

    async def ask(self, claimed: Claimed) -> Handler | None:
        return self.find(claimed)


class FlowCluster(NarrowCluster):
    """A cluster that runs workflows, and nothing else."""

    checker = FlowChecker
    actions = 6
    needs = ("task", "workflow")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = stream(seed, "flows")
        self.stories = draw_stories(chance)
        checker = self.world.checker
        assert isinstance(checker, FlowChecker)
        checker.stories = self.stories
        checker.quota = self._quota = stream(seed, "quota").choice((None, 3, 8))
        # So few rows at a time, and so few times before it is left to others.
        self._batch = chance.choice((1, 3, 1_000))
        self._rounds = chance.choice((1, 20))
        weather = self.world.weather
        weather.freeze_points["expand"] = chance.choice((0.0, 0.2))
        weather.lost_answers["expand"] = chance.choice((0.0, 0.3))
        weather.crash_points |= {
            f"expand.{point}": chance.choice((0.0, 0.0, 0.1)) for point in POINTS
        }

    def run(self) -> Outcome:
        defaults = {**(advance.__kwdefaults__ or {}), "limit": self._batch}
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(advance, "__kwdefaults__", defaults))
            stack.enter_context(mock.patch.object(run_driver, "ADVANCE_ROUNDS", self._rounds))
            return dataclasses.replace(super().run(), flags=" --flows")

    def _prepare(self) -> None:
        store = self.world.place.store
        asyncio._set_running_loop(self.loop)
        run(store.open())
        definitions = [definition_of(name, story) for name, story in self.stories.items()]
        run(
            store.catalog.define_jobs(
                TENANT, [NewJob(id=mint(), definition=one) for one in definitions]
            )
        )
        run(store.admin.set_quotas(TENANT, queued=self._quota))
        asyncio._set_running_loop(None)

    def _tasks(self, client: Client) -> Handlers:
        return FlowTasks(self.effects, self.stories)

    def _check_end(self) -> None:
        super()._check_end()
        checker, store = self.world.checker, self.world.place.store
        assert isinstance(checker, FlowChecker)
        asyncio._set_running_loop(self.loop)
        checker.check_runs(lambda tenant, id: run(store.runs.get_run(tenant, id)))
        asyncio._set_running_loop(None)

    async def _act(self, client: Client, chance: Random) -> None:
        if self.known and chance.random() < 0.2:
            await client.cancel(chance.choice(self.known[-3:]))
        elif self.known and chance.random() < 0.2:
            await client.store.queue.revive(TENANT, [chance.choice(self.known)])
        elif chance.random() < 0.1:
            workers = await client.workers()
            if workers:
                await client.drain_worker(chance.choice(workers).worker_id)
        else:
            name = f"flow-{chance.randrange(FLOWS)}"
            with suppress(Unavailable):
                self.known.append((await client.enqueue(name)).id)
