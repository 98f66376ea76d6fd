"""A handle on an enqueued execution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from daybell.client import Cancellation, Client
from daybell.client.waiting import why_idle
from daybell.core import payload
from daybell.core.duration import Duration, parse_duration
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.failure import Failure
from daybell.core.instant import Seconds
from daybell.engine.clock import SystemClock
from daybell.errors import DaybellError

R = TypeVar("R")

POLL_MIN_SECONDS: Final = 0.01
POLL_MAX_SECONDS: Final = 0.5


class ExecutionFailed(DaybellError):
    """The execution ended, but not well; `state` says how, `failure` why, where that is known."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.state = execution.state
        self.failure = None if execution.error is None else Failure.from_json(execution.error)
        reason = f" ({execution.reason})" if execution.reason else ""
        error = f": {self.failure.type}: {self.failure.message}" if self.failure else ""
        super().__init__(f"{execution.job} {execution.id} is {self.state}{reason}{error}")


class Handle(Generic[R]):
    """One execution, to be waited for, looked at, told something or cancelled."""

    def __init__(
        self,
        client: Callable[[], Awaitable[Client]],
        id: UUID,
        *,
        created: bool = True,
        convert: Callable[[Any], R] | None = None,
    ) -> None:
        self._client = client
        self._convert = convert
        self.id = id
        self.created = created  # False: its unique key was held, this is the holder

    async def execution(self) -> Execution:
        """All that is known of it."""
        return (await (await self._client()).execution(self.id)).execution

    async def status(self) -> State:
        """What it is doing."""
        return (await self.execution()).state

    async def cancel(self) -> Cancellation:
        """Cancel it; one that runs is asked to stop.

        The answer is true if that came in time: "cancelled" if the execution had not started,
        "requested" if it runs. It is false, "finished", if the execution had ended before.
        """
        return await (await self._client()).cancel(self.id)

    async def signal(self, name: str, data: Any = None) -> None:
        """Send an event to it alone, which it waits for, or will, with `ctx.wait_for_event`.

        A workflow's run passes it on to the node that waits for it; Conflict if there is none, or
        more than one.
        """
        await (await self._client()).signal(self.id, name, data)

    async def approve(
        self,
        name: str = "approval",
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> None:
        """Tell it what was decided, which it waits for, or will, with `ctx.wait_for_approval`. A
        workflow's run passes it on, see `signal`.
        """
        client = await self._client()
        await client.approve(self.id, name, approved=approved, by=by, note=note)

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109
        """Wait for its end and return what the task returned.

        Raises ExecutionFailed if it ended in any other way, TimeoutError if it has not ended in
        time; it goes on then. With `store_result=False` there is only None to return, whatever the
        task's annotation says.
        """
        clock = SystemClock()
        limit = None if timeout is None else parse_duration(timeout, what="timeout")
        if (on_wait := (await self._client()).on_wait) is not None:
            await on_wait(self.id)
        started, pause = clock.monotonic(), POLL_MIN_SECONDS
        while True:
            execution = await self.execution()
            if execution.state in TERMINAL:
                return self._result(execution)
            waited = clock.monotonic() - started
            if limit is not None and waited >= limit:
                raise TimeoutError(await self._in_vain(execution, limit))
            await clock.sleep(pause if limit is None else min(pause, limit - waited))
            pause = min(pause * 1.5, POLL_MAX_SECONDS)

    async def _in_vain(self, execution: Execution, limit: Seconds) -> str:
        client = await self._client()
        why = None
        with suppress(DaybellError):  # it is about the time that ran out, whatever else is wrong
            why = await why_idle(client, execution)
        late = f"{self.id} is still {execution.state} after {limit:g} s"
        return f"{late}; {why}" if why else f"{late}, in {client.place}"

    def _result(self, execution: Execution) -> R:
        if execution.state is not State.SUCCEEDED:
            raise ExecutionFailed(execution)
        value: Any = None
        if execution.result is not None:
            value = payload.decode(execution.result, what="result")
        return value if self._convert is None else self._convert(value)

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"
