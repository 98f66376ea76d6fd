"""The steps of an execution, for a person."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.client.moments import status_of
from daybell.client.node_waits import short_name
from daybell.core import payload
from daybell.core.execution import Execution
from daybell.core.failure import Failure
from daybell.core.step import Step, StepKind


def echo_steps(steps: Sequence[Step], execution: Execution) -> None:
    """Print what a durable function has done, and what it waits for; nothing if that is nothing."""
    if not steps:
        return
    typer.echo("")
    rows = [
        (
            step.n,
            step.kind,
            short_name(step.name) if step.kind is StepKind.WAIT else step.name,
            status_of(step, execution),
            show.moment(step.started_at),
            show.moment(step.wake_at) if step.wake_at is not None else "",
            _outcome(step),
        )
        for step in steps
    ]
    columns = (
        "step",
        "kind",
        Column("name", least=16, rank=1),
        "status",
        "started",
        Column("until", rank=2),
        Column("result", least=16, rank=0),
    )
    show.echo_table(columns, rows, empty="")


def _outcome(step: Step) -> str:
    if step.error is None and step.kind is StepKind.WAIT and step.result is not None:
        received = payload.decode(step.result)  # all of it is in the JSON; None: it was left out
        return payload.encode(received["data"]) if received is not None else ""
    if step.error is None:
        return step.result or ""
    failure = Failure.of_kept(step.error)
    return f"{failure.type}: {failure.message}"
