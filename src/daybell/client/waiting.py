"""What to tell somebody who waits for an execution, perhaps in vain."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from daybell.client.offers import able, lack_of, live
from daybell.client.why import needs_of
from daybell.core.execution import PENDING, Execution
from daybell.errors import AccessDenied
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
    now, queue = (await client.health()).now, execution.queue
    try:
        there = live(await client.workers(), queue=queue, now=now)
    except AccessDenied:  # the key is limited; this is a hint, and the wait goes on without it
        return None
    if not there:
        return f"no live worker takes queue {queue!r} of {client.place}"
    needs = await needs_of(client, execution)
    if able(there, queue=queue, needs=needs, now=now):
        return None
    return str(lack_of(needs, queue=queue))
