"""Workflows that a test runs by hand, node by node, on any store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daybell.core.workflow.graph import Graph
from daybell.store.protocol import Store
from tests.builders import TENANT, Hands, claim, registered
from tests.store.runs import end, labels

KINDS = ("task", "command", "http", "workflow")
ETL: dict[str, Any] = {
    "nodes": [
        {"name": "extract", "task": "resize"},
        {"name": "a", "task": "resize", "args": {"rows": {"output": "extract"}}},
        {"name": "b", "task": "resize", "args": {"row": {"item": True}}, "map": [1, 2, 3]},
        {"name": "load", "command": ["load", {"output": "a"}, {"output": "b"}]},
        {"name": "tell", "task": "resize", "rule": "one_failed"},
    ],
    "edges": [["extract", "b"], ["a", "tell"], {"from": "b", "to": "tell", "when": "len(result)"}],
}


async def work(
    store: Store,
    *,
    failing: Sequence[str] = (),
    results: Mapping[str, Any] | None = None,
    rounds: int = 100,
) -> list[list[str]]:
    """Do whatever can be done, so many times over; answers which nodes were done together."""
    done: list[list[str]] = []
    worker = await registered(store)
    for _ in range(rounds):
        hands = await claim(store, 500, kinds=KINDS, worker=worker)
        if not hands.executions:
            break
        runs = [one for one in hands.executions if one.kind == "workflow"]
        for one in runs:
            job = await store.catalog.get_job(TENANT, one.job, version=one.version)
            plan = Graph.from_settings(job.definition.settings).plan()
            assert await store.runs.expand(TENANT, worker=worker, claimed=one, plan=plan)
        nodes = Hands(worker, [one for one in hands.executions if one not in runs], hands.lease)
        if nodes.executions:
            done.append(labels(nodes))
            await end(store, nodes, failing=failing, results=results)
    return done
