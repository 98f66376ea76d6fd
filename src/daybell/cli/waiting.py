"""Waiting for an execution's end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from daybell.cli import show
from daybell.cli.edge import DONE, FAILED, complain
from daybell.cli.patience import Patience
from daybell.client import wire
from daybell.client.remote.client import AnyClient
from daybell.client.waiting import why_idle
from daybell.client.why import LACKS, lacking
from daybell.core.execution import TERMINAL, Execution, ExecutionDetail, State
from daybell.core.failure import Failure
from daybell.core.instant import Seconds
from daybell.engine.clock import Clock, SystemClock
from daybell.errors import Conflict, DaybellError, Unavailable

POLL_MIN_SECONDS: Final = 0.02
POLL_MAX_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 3.0  # between looks for what is missing, and before the first


async def wait_for_end(
    client: AnyClient, id: UUID | str, *, seconds: Seconds | None, as_json: bool
) -> int:
    """Wait, show how it ended, and answer the exit code: 0 only if it succeeded.

    That it has to be waited for is said at once, on stderr, and also if nobody may come to run it.
    What is found to be missing later is said once; the wait goes on.
    """
    execution = (await client.execution(id)).execution
    onlooker = Onlooker(client, SystemClock())
    if execution.state not in TERMINAL:
        if not as_json:
            complain(f"{id} is {execution.state}; waiting")
        if why := await why_idle(client, execution):
            complain(why)
            onlooker.knows(execution)
    with show.status(f"waiting for {id}", quiet=as_json) as say:

        async def look(seen: Execution, is_last: bool) -> None:
            say(f"{id} is {seen.state}")
            await onlooker.look(seen, is_last=is_last)

        try:
            detail = await until_end(client, id, seconds=seconds, on_look=look)
        except asyncio.CancelledError:  # by Ctrl-C, which ends the wait and nothing else
            complain(
                f"it goes on; see `daybell executions wait {id}`, cancel with `daybell executions"
                f" cancel {id}`"
            )
            raise
    execution = detail.execution
    if as_json:
        show.echo_json(wire.detail(detail))
    else:
        show.echo_fields(
            {
                "status": execution.state,
                "reason": execution.reason,
                "error": error_line(execution.error),
                "result": execution.result,
                "id": execution.id,
            },
            in_lines={"error"},
        )
    return DONE if execution.state is State.SUCCEEDED else FAILED


class Onlooker:
    """Says what keeps an execution, or a node of it, and has to be done by somebody."""

    def __init__(self, client: AnyClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._next_look = clock.monotonic() + LOOK_SECONDS
        self._told: set[tuple[UUID, str]] = set()

    def knows(self, execution: Execution) -> None:
        """It was said already that nobody is there for this one."""
        self._told.update((execution.id, word) for word in LACKS)

    async def look(self, execution: Execution, *, is_last: bool = False) -> None:
        """Look now and then, and when nobody will wait any longer; say each thing once."""
        if self._clock.monotonic() < self._next_look and not is_last:
            return
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        with suppress(DaybellError):  # that somebody waits does not depend on it
            found = await lacking(self._client, execution)
            if found is None or (found.execution.id, found.word) in self._told:
                return
            self._told.add((found.execution.id, found.word))
            node = found.execution.node
            complain(found.detail if node is None else f"node {node}: {found.detail}")


async def until_end(
    client: AnyClient,
    id: UUID | str,
    *,
    seconds: Seconds | None,
    on_look: Callable[[Execution, bool], Awaitable[object]],
    clock: Clock | None = None,
) -> ExecutionDetail:
    """Look again and again, less and less often, until it has ended. `on_look` is told what was
    seen, and whether that was the last look, for the time is up.
    """
    clock = clock or SystemClock()
    started, pause = clock.monotonic(), POLL_MIN_SECONDS
    patience = Patience(clock, until=None if seconds is None else started + seconds)
    while True:
        try:
            detail = await client.execution(id)
        except Unavailable as error:
            await patience.bear(error)
            continue
        patience.renew()
        state = detail.execution.state
        if state in TERMINAL:
            return detail
        waited = clock.monotonic() - started
        is_up = seconds is not None and waited >= seconds
        await on_look(detail.execution, is_up)
        if is_up:
            raise Conflict(f"execution {id} is still {state} after {seconds:g} s; it goes on")
        left = pause if seconds is None else seconds - (clock.monotonic() - started)
        await clock.sleep(max(0.0, min(pause, left)))
        pause = min(pause * 1.5, POLL_MAX_SECONDS)


def error_line(error: str | None) -> str | None:
    """A kept error without its traceback; a message of several lines has them."""
    if error is None:
        return None
    failure = Failure.of_kept(error)
    return f"{failure.type}: {failure.message}" if failure.message else failure.type
