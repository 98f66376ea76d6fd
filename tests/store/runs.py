"""Runs of workflows to test with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from daybell.core.execution import State
from daybell.core.workflow.rules import ParentCounts, Rule
from daybell.core.workflow.run import ORDER_STEP, NewNode, Node, NodeState, Plan, RunDetail, Spec
from daybell.store.protocol import Store
from tests.builders import (
    TENANT,
    Hands,
    a_job,
    an_execution,
    apply,
    claim,
    death,
    look,
    registered,
    success,
)

SETTINGS = json.dumps({"nodes": [{"name": "a", "task": "a"}], "edges": []})


def a_plan(
    graph: Mapping[str, Sequence[str]],
    *,
    rules: Mapping[str, str] | None = None,
    when: Mapping[tuple[str, str], str] | None = None,
    specs: Mapping[str, Spec] | None = None,
    **options: Any,
) -> Plan:
    """A plan of nodes by name, each with its children. What is only a child has none."""
    rules, when, specs = rules or {}, when or {}, specs or {}
    names = dict.fromkeys([*graph, *(child for each in graph.values() for child in each)])
    parents = dict.fromkeys(names, 0)
    for children in graph.values():
        for child in children:
            parents[child] += 1
    nodes: list[NewNode] = []
    for place, name in enumerate(names):
        spec = specs.get(name, Spec(needs="task"))
        node = Node(
            label=name,
            order=place * ORDER_STEP,
            state=NodeState.WAITING if parents[name] else NodeState.READY,
            rule=Rule(rules.get(name, "all_success")),
            parents=ParentCounts(parents[name]),
            edges=tuple((child, when.get((name, child))) for child in graph.get(name, ())),
            is_wanted=True,
            is_map=spec.map is not None,
        )
        nodes.append(NewNode(node, msgspec.json.encode(spec).decode()))
    return Plan(tuple(nodes), **options)


def a_mapped_plan(**options: Any) -> Plan:
    """list → each, mapped over its result → join."""
    mapped = Spec(
        needs="task", args='{"x": {"item": true}}', outputs=("list",), map='{"output": "list"}'
    )
    joined = Spec(needs="task", args='{"all": {"output": "each"}}', outputs=("each",))
    return a_plan(
        {"list": ["each"], "each": ["join"]}, specs={"each": mapped, "join": joined}, **options
    )


async def waiting_run(
    store: Store, *, job: str = "etl", tenant: str = TENANT, **options: Any
) -> UUID:
    """An execution of a workflow that nobody has begun."""
    of_job = {key: options.pop(key) for key in ("overlap", "queue", "priority") if key in options}
    new = a_job(job, kind="workflow", settings=SETTINGS, **of_job)
    await store.catalog.define_jobs(tenant, [new])
    (answer,) = await store.queue.enqueue(tenant, [an_execution(job, **options)])
    return answer.id


async def taken_run(store: Store, *, tenant: str = TENANT, **options: Any) -> Hands:
    """The same in the hands of a worker."""
    await waiting_run(store, tenant=tenant, **options)
    queues = [options.get("queue", "default")]
    return await claim(store, 1, tenant=tenant, kinds=("workflow",), queues=queues)


async def begun(store: Store, plan: Plan, *, tenant: str = TENANT, **options: Any) -> UUID:
    """A run that has begun."""
    hands = await taken_run(store, tenant=tenant, **options)
    assert await store.runs.expand(tenant, worker=hands.worker, claimed=hands.one, plan=plan)
    return hands.one.id


async def take(store: Store, limit: int = 500, **options: Any) -> Hands:
    """What can be started now, in one worker's hands."""
    return await claim(store, limit, kinds=("task", "workflow"), **options)


def labels(hands: Hands) -> list[str]:
    return sorted(str(one.node) for one in hands.executions)


async def end(
    store: Store,
    hands: Hands,
    *,
    failing: Sequence[str] = (),
    results: Mapping[str, Any] | None = None,
    tenant: str = TENANT,
) -> None:
    """Report all that is in these hands: dead for those that fail."""
    moves = [
        msgspec.structs.replace(death(one), run=one.parent, node=one.node)
        if one.node in failing
        else success(one, result=json.dumps((results or {}).get(str(one.node), one.node)))
        for one in hands.executions
    ]
    assert await apply(store, hands, *moves, tenant=tenant) == []


async def run_to_end(
    store: Store,
    *,
    failing: Sequence[str] = (),
    results: Mapping[str, Any] | None = None,
    tenant: str = TENANT,
) -> list[list[str]]:
    """Do whatever can be done until nothing is left; answers what was done together."""
    rounds: list[list[str]] = []
    worker = await registered(store, tenant=tenant)
    while True:
        hands = await take(store, worker=worker, tenant=tenant)
        if not hands.executions:
            return rounds
        rounds.append(labels(hands))
        await end(store, hands, failing=failing, results=results, tenant=tenant)


async def nodes(store: Store, run: UUID, *, tenant: str = TENANT) -> dict[str, State]:
    """How the nodes of a run are shown."""
    return {one.node.label: one.state for one in (await detail(store, run, tenant)).nodes}


async def reasons(store: Store, run: UUID, *, tenant: str = TENANT) -> dict[str, str]:
    """Why nodes ended as they did; of those that say nothing, an empty text."""
    return {
        one.node.label: one.node.reason or "" for one in (await detail(store, run, tenant)).nodes
    }


async def detail(store: Store, run: UUID, tenant: str = TENANT) -> RunDetail:
    found = await store.runs.get_run(tenant, run)
    assert found is not None, "it has not begun"
    return found


async def state(store: Store, run: UUID, *, tenant: str = TENANT) -> State:
    return (await look(store, run, tenant=tenant)).state
