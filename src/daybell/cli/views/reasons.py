"""Answers to "why": sentences, and the commands that change the situation."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from daybell.cli import output
from daybell.client import wire


def echo_why(of: wire.Why) -> None:
    """Print why an execution does not go on, its place in line, and what to do."""
    echo(f"{of.execution_id} is {of.status}: {of.detail}")
    nearest = of.nearest_worker
    if nearest is not None and nearest.lacks:
        echo(f"nearest worker: {nearest.name} {nearest.worker_id}, {' and '.join(nearest.lacks)}")
    if of.estimated_start is not None:
        ahead = f"{of.ahead:,}{'+' if of.at_least else ''}"
        at = output.format_moment(of.estimated_start)
        echo(f"{ahead} before it; at the current rate it starts at {at}")
    if of.delays:
        parts = ", ".join(f"{one.code} {one.seconds:,.3f} s" for one in of.delays)
        echo(f"it took {sum(one.seconds for one in of.delays):,.3f} s: {parts}")
    echo_remedies(of.actions)


def echo_remedies(actions: Iterable[wire.Remedy]) -> None:
    """Print each action with its command."""
    for one in actions:
        echo(f"to {one.label}: {one.command}")


def echo(text: str) -> None:
    typer.echo(output.printable(text))
