"""What answers say of a workflow's run, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from daybell.api.contract import protect_nulls
from daybell.api.rules import Id

Status = Literal[
    "waiting",
    "scheduled",
    "queued",
    "retrying",
    "running",
    "succeeded",
    "dead",
    "cancelled",
    "skipped",
]
Outcome = Literal["succeeded", "failed", "timed_out", "lost", "cancelled", "released"]

_EXAMPLE: dict[str, Any] = {
    "nodes": [
        {
            "name": "extract",
            "status": "succeeded",
            "reason": None,
            "execution_id": "019a8c20-1f40-7c55-9d02-3c7e8a1b2f67",
            "kind": "task",
            "task": "extract",
            "job": None,
            "rule": "all_success",
            "ready_at": "2026-11-16T08:59:58+00:00",
            "started_at": "2026-11-16T09:00:00+00:00",
            "finished_at": "2026-11-16T09:00:04+00:00",
            "items": None,
            "run_at": None,
            "waits": [],
            "attempts": [
                {
                    "attempt": 1,
                    "outcome": "failed",
                    "worker_id": "019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    "started_at": "2026-11-16T09:00:00+00:00",
                    "ended_at": "2026-11-16T09:00:01+00:00",
                },
                {
                    "attempt": 2,
                    "outcome": "succeeded",
                    "worker_id": "019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    "started_at": "2026-11-16T09:00:03+00:00",
                    "ended_at": "2026-11-16T09:00:04+00:00",
                },
            ],
        },
        {
            "name": "transform",
            "status": "running",
            "reason": None,
            "execution_id": None,
            "kind": "command",
            "task": None,
            "job": None,
            "rule": "all_success",
            "ready_at": "2026-11-16T09:00:04+00:00",
            "started_at": "2026-11-16T09:00:04+00:00",
            "finished_at": None,
            "items": {"total": 40, "ended": 12, "failed": 0},
            "run_at": None,
            "waits": [],
            "attempts": [],
        },
    ],
    "edges": [{"from": "extract", "to": "transform", "when": "result.rows > 0"}],
    "progress": {"ended": 1, "total": 2},
    "failed": [],
    "fail_fast": False,
    "max_running": 4,
}


class ItemCounts(BaseModel):
    """How far a mapped node is."""

    total: int
    ended: int
    failed: int


class NodeAttempt(BaseModel):
    """A try at a node: a bar of a chart. Its error is with the node's execution."""

    attempt: int
    outcome: Outcome | None = Field(description="null: it goes on.")
    worker_id: Id | None
    started_at: str | None = Field(description="null: it was claimed, and has not started.")
    ended_at: str | None


class NodeWait(BaseModel):
    """What a node waits for, or a node inside of it: `approve` or `signal` its execution."""

    execution_id: Id
    node: str = Field(description="Its own name: of an item, or in a run inside of this one.")
    kind: Literal["event", "approval"]
    name: str
    match: dict[str, Any] = Field(description="What the event's data must say.")
    until: str | None


class RunNode(BaseModel):
    """A node of a run, with the times that a chart needs."""

    name: str
    status: Status
    reason: str | None = Field(
        description="Why it did not run, or its error in short. Of one that was begun and has not"
        " ended: why it is away, such as `event`, `sleep` or `step_retry`. `quota`: it, or some of"
        " its items, wait for room in the tenant's quota `queued`."
    )
    execution_id: Id | None
    kind: str | None
    task: str | None
    job: str | None
    rule: str
    ready_at: str | None = Field(description="Since then it waited for room, or a worker.")
    started_at: str | None
    finished_at: str | None
    items: ItemCounts | None
    run_at: str | None = Field(description="Of one that was begun and waits: not before then.")
    waits: list[NodeWait] = Field(
        description="Events and decisions that it waits for. The first 1,000 of a run."
    )
    attempts: list[NodeAttempt] = Field(
        description="The newest 20 of each node, oldest first; fewer if more than a thousand nodes"
        " have begun. None of a mapped node: ask for its items as executions."
    )


class RunEdge(BaseModel):
    """A node that waits for another."""

    from_: str = Field(alias="from")
    to: str
    when: str | None


class RunProgress(BaseModel):
    """How many nodes have ended."""

    ended: int
    total: int


class WorkflowRun(BaseModel):
    """A run's nodes, those that come first before the others, and its edges."""

    model_config = ConfigDict(json_schema_extra={"examples": [protect_nulls(_EXAMPLE)]})

    nodes: list[RunNode]
    edges: list[RunEdge]
    progress: RunProgress
    failed: list[str] = Field(
        description="Nodes that failed, also in a run that succeeded since others dealt with it."
    )
    fail_fast: bool
    max_running: int | None
