"""The nodes of a workflow's run, for a person."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import typer

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.client.node_waits import note_of, ways_to_end
from daybell.client.workflows import RunNode, WorkflowRun
from daybell.core.branching import condition_in_words
from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.errors import listed

IDS_MAX: Final = 20  # nodes whose ids are told
PARENTS_MAX: Final = 3  # that are named of each node


def echo_nodes(run: WorkflowRun | None, *, now: Instant, id: UUID, state: State) -> None:
    """Print how each node stands, those that come first before the others; nothing if it is no
    run.
    """
    if run is None:
        return
    parents: dict[str, list[str]] = {}
    for edge in run.edges:
        when = f" if {condition_in_words(edge.when, edge.child)}" if edge.when else ""
        parents.setdefault(edge.child, []).append(f"{edge.parent}{when}")
    typer.echo("")
    rows = [
        (
            one.name,
            one.status,
            listed(parents.get(one.name, []), most=PARENTS_MAX),
            _waited(one, now=now),
            show.moment(one.started_at) if one.started_at is not None else "",
            _took(one, now=now),
            _items(one),
            note_of(one),
        )
        for one in run.nodes
    ]
    columns = (
        Column("node", least=12, rank=0),
        Column("status", rank=0),
        Column("after", least=10, rank=5),
        Column("waited", rank=6),
        Column("started", rank=3),
        Column("took", rank=3),
        Column("items", rank=2),
        Column("note", least=12, rank=4),
    )
    show.echo_table(columns, rows, empty="no nodes")
    _echo_ids(run, id)
    typer.echo(f"{run.ended:,} of {show.count(run.total, 'node')} ended ({run.percent:g} %)")
    if state is State.SUCCEEDED and run.failed:
        typer.echo(show.printable(f"succeeded, with failed nodes: {listed(run.failed)}"))


def _echo_ids(run: WorkflowRun, id: UUID) -> None:
    """Print which executions the nodes are that have begun and not ended, and what they wait for a
    person to say.
    """
    begun = [one for one in run.nodes if one.is_begun and not one.is_ended]
    for node in begun[:IDS_MAX]:
        is_one = " waits" if node.execution is None else f" is execution {node.execution}"
        if node.execution is not None or node.waits:
            typer.echo(show.printable(f"{node.name}{is_one}{ways_to_end(node.waits)}"))
    if len(begun) > IDS_MAX:
        more = f"and {len(begun) - IDS_MAX:,} more"
        typer.echo(f"{more}; `daybell executions list --workflow {id}` has them all")


def _waited(node: RunNode, *, now: Instant) -> str:
    """How long it could have been started and was not."""
    if node.ready_at is None:
        return ""
    if node.started_at is not None:
        return show.length(max(0.0, node.started_at - node.ready_at))
    return "" if node.is_ended else f"{show.length(max(0.0, now - node.ready_at))} so far"


def _took(node: RunNode, *, now: Instant) -> str:
    """From its first start to its end; and in how many attempts, if there were several."""
    if node.started_at is None:
        return ""
    last = node.attempts[-1].attempt if node.attempts else 1
    if node.finished_at is not None:
        length = show.length(max(0.0, node.finished_at - node.started_at))
        return f"{length} in {last:,} attempts" if last > 1 else length
    so_far = f"{show.length(max(0.0, now - node.started_at))} so far"
    return "" if node.is_ended else f"{so_far}, attempt {last:,}" if last > 1 else so_far


def _items(node: RunNode) -> str:
    if node.items is None:
        return ""
    failed = f", {node.items.failed:,} failed" if node.items.failed else ""
    return f"{node.items.ended:,} of {node.items.total:,}{failed}"
