"""Why an execution was skipped: who was in its way, or which dependency had failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from daybell.client.dependencies import Dependencies
from daybell.core.dependencies import UPSTREAM_FAILED
from daybell.core.execution import PENDING, TERMINAL, Execution, State
from daybell.core.instant import to_iso
from daybell.core.overlap import OVERLAP, is_schedule_gate
from daybell.errors import JobNotFound, listed

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient

_LOOKED_AT_MAX: Final = 100  # executions of its job, before it


async def skipped_because(client: AnyClient, execution: Execution) -> str:
    """The end of a sentence that says that it was skipped; empty if no more is known."""
    if execution.reason == OVERLAP:
        return await _overlapped(client, execution)
    if execution.reason == UPSTREAM_FAILED and isinstance(client, Dependencies):
        return await _failed_before(client, execution)
    return ""


async def _overlapped(client: AnyClient, skipped: Execution) -> str:
    """Nobody has kept which one it was. But it had begun to be before, and not ended by then."""
    unfinished = await client.executions(
        job=skipped.job, status=[*PENDING, State.RUNNING], limit=_LOOKED_AT_MAX
    )
    before = [
        one
        for one in unfinished.items
        if one.created_at <= skipped.created_at and one.gate == skipped.gate
    ]
    of = "schedule" if is_schedule_gate(skipped.gate) else "job"
    if before:
        one = min(before, key=lambda one: (one.state is not State.RUNNING, one.created_at))
        return (
            f": execution {one.id} of the same {of} was in its way, and still is ({one.state});"
            f" `daybell executions why {one.id}` says what it waits for"
        )
    page = await client.executions(
        job=skipped.job, until=skipped.created_at, limit=_LOOKED_AT_MAX, status=[*TERMINAL]
    )
    for one in page.items:
        ended_at = one.finished_at
        if one.state is State.SKIPPED or ended_at is None or ended_at < skipped.created_at:
            continue
        if one.gate != skipped.gate:
            continue
        then = f"which ended at {to_iso(ended_at)} ({one.state})"
        return f": execution {one.id} of the same {of} was in its way, {then}"
    return f": another execution of the same {of} had not ended"


async def _failed_before(client: Dependencies, skipped: Execution) -> str:
    try:
        held = await client.held_up_by(skipped)
    except JobNotFound:
        return ""
    named = listed(f"{job} ({words})" for job, words in held)
    return f": {named}" if named else ": what had failed then has succeeded since"
