"""What to tell somebody who waits for an execution, perhaps in vain."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from daybell.core.execution import PENDING, Execution
from daybell.core.worker import WorkerState
from daybell.settings import masked_url

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient

_RELATIVE: Final = "sqlite:///"


def place_of(url: str) -> str:
    """A store as people are told of it. A file is named with its folder: each has its own."""
    shown = masked_url(url)
    if url.startswith(_RELATIVE) and not url.startswith(f"{_RELATIVE}/"):
        return f"{shown} in {os.getcwd()}"
    return shown


async def why_idle(client: AnyClient, execution: Execution) -> str | None:
    """Say it if nobody is there to start an execution that has not started."""
    if execution.state not in PENDING:
        return None
    # A worker that was killed is called live until somebody looks after its lease.
    now = (await client.health()).now
    for worker in await client.workers():
        is_live = worker.state is WorkerState.LIVE and worker.lease_until > now
        if is_live and execution.queue in worker.queues:
            return None
    return f"no live worker takes queue {execution.queue!r} of {client.place}"
