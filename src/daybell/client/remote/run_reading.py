"""Runs of workflows, from the API's JSON back to what it was made of."""

from __future__ import annotations

from uuid import UUID

import msgspec

from daybell.client.events import approval_event
from daybell.client.remote.reading import Wire, identity, time
from daybell.client.workflows import ItemCounts, RunNode, WorkflowRun
from daybell.core import payload
from daybell.core.execution import AttemptSpan, Outcome, State
from daybell.core.graph import GraphEdge
from daybell.core.step import NodeWait


def run(of: Wire) -> WorkflowRun | None:
    """The nodes of an execution, if it is a workflow's run."""
    said = of.get("workflow")
    if said is None:
        return None
    return WorkflowRun(
        nodes=tuple(_node(one) for one in said["nodes"]),
        edges=tuple(GraphEdge(one["from"], one["to"], one["when"]) for one in said["edges"]),
        ended=said["progress"]["ended"],
        total=said["progress"]["total"],
        fail_fast=said["fail_fast"],
        max_running=said["max_running"],
    )


def _node(of: Wire) -> RunNode:
    return RunNode(
        name=of["name"],
        status=State(of["status"]),
        kind=of["kind"],
        runs=of["task"] or of["job"],
        rule=of["rule"],
        reason=of["reason"],
        execution=identity(of["execution_id"]),
        ready_at=time(of.get("ready_at")),
        started_at=time(of["started_at"]),
        finished_at=time(of["finished_at"]),
        items=None if of["items"] is None else msgspec.convert(of["items"], ItemCounts),
        run_at=time(of.get("run_at")),
        waits=tuple(_wait(one, of["name"]) for one in of.get("waits", ())),
        attempts=tuple(_span(one) for one in of.get("attempts", ())),
    )


def _wait(of: Wire, node: str) -> NodeWait:
    return NodeWait(
        execution=UUID(of["execution_id"]),
        label=of["node"],
        node=node,
        name=of["name"] if of["kind"] == "event" else approval_event(of["name"]),
        match=payload.encode(of["match"]),
        until=time(of["until"]),
    )


def _span(of: Wire) -> AttemptSpan:
    outcome = of["outcome"]
    return AttemptSpan(
        of["attempt"],
        None if outcome is None else Outcome(outcome),
        identity(of["worker_id"]),
        time(of["started_at"]),
        time(of["ended_at"]),
    )
