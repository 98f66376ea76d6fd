"""Answers to "why": sentences, and the commands that change the situation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from daybell.cli import output
from daybell.cli.output import format_moment as _moment

if TYPE_CHECKING:
    from daybell.client import wire


def echo_why(of: wire.Why) -> None:
    """Print the reason why an execution waits, its place in line, and the advice."""
    echo(f"{of.execution_id} is {of.status}: {of.detail}")
    nearest = of.nearest_worker
    if nearest is not None and nearest.lacks:
        echo(f"nearest worker: {nearest.name} {nearest.worker_id}, {' and '.join(nearest.lacks)}")
    if of.estimated_start is not None:
        ahead = f"{of.ahead:,}{'+' if of.at_least else ''}"
        at = _moment(of.estimated_start)
        echo(f"{ahead} before it; at the current rate it starts at {at}")
    if of.delays:
        parts = ", ".join(f"{one.code} {one.seconds:,.3f} s" for one in of.delays)
        echo(f"it took {sum(one.seconds for one in of.delays):,.3f} s: {parts}")
    echo_remedies(of.actions)


def echo_queue_why(of: wire.QueueWhy) -> None:
    """Print why the due executions of a queue are not taken, by their needs."""
    echo(f"queue {of.queue}: {of.detail}")
    for one in of.needs:
        due = f"{one.queued:,}{'+' if one.at_least else ''}"
        since = _moment(one.oldest_run_at)
        echo(f"{due} due that need {one.needs}, since {since}; {one.workers} workers offer it")
    if of.starts_per_second is not None:
        until = "" if of.next_at is None else f": all have started at {_moment(of.next_at)}"
        echo(f"{of.starts_per_second:.2f} starts per second{until}")
    echo_remedies(of.actions)


def echo_job_why(of: wire.JobWhy) -> None:
    """Print why a job does not run, with its schedules, unfinished executions and ticks."""
    echo(f"{of.job} is {of.status}: {of.detail}")
    for one in of.schedules:
        if one.detail != of.detail:
            named = f"schedule {one.name}" if one.name else "its schedule"
            echo(f"{named}: {one.detail}")
    for execution in of.executions:
        if execution.detail not in of.detail:
            echo(f"execution {execution.execution_id} is {execution.status}: {execution.detail}")
    for tick in of.ticks:
        named = f" ({tick.schedule})" if tick.schedule else ""
        echo(f"tick {_moment(tick.at)}{named}: {tick.detail}")
    echo_remedies(of.actions)


def echo_remedies(actions: Iterable[wire.Remedy]) -> None:
    """Print each action with its command."""
    for one in actions:
        echo(f"to {one.label}: {one.command}")


def echo(text: str) -> None:
    typer.echo(output.printable(text))
