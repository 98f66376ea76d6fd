"""What answers say of a workflow's run, for the OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

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


class ItemCounts(BaseModel):
    """How far a mapped node is."""

    total: int
    ended: int
    failed: int


class RunNode(BaseModel):
    """A node of a run, with the times that a chart needs."""

    name: str
    status: Status
    reason: str | None = Field(description="Why it did not run, or failed.")
    execution_id: str | None
    kind: str | None
    task: str | None
    job: str | None
    rule: str
    started_at: str | None
    finished_at: str | None
    items: ItemCounts | None


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

    nodes: list[RunNode]
    edges: list[RunEdge]
    progress: RunProgress
    fail_fast: bool
    max_running: int | None
