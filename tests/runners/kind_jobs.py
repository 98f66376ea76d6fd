"""Jobs without code to run, made in a line each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from daybell.core import payload
from daybell.core.execution import DescribedError, Failure, lines_of
from daybell.core.job import JobDefinition
from daybell.engine.attempt import Attempt, AttemptHost
from daybell.engine.loop import SystemClock
from daybell.runners.kind import KindHandler
from tests.builders import no_transaction
from tests.engine.tasks import a_claimed
from tests.runners.running_commands import Secrets

SECONDS = 90.0

Make = Callable[[JobDefinition, Any], KindHandler]


class Job:
    """One execution of a job, on its way."""

    def __init__(
        self,
        make: Make,
        kind: str,
        settings: dict[str, Any],
        *,
        secrets: dict[str, str] | None = None,
        args: dict[str, Any] | None = None,
        checkpoint: str | None = None,
    ) -> None:
        text = msgspec.json.encode(settings).decode()
        definition = JobDefinition(name="nightly", kind=kind, settings=text)
        self.handler = make(definition, Secrets(**(secrets or {})))
        host = AttemptHost(SystemClock(), mask=str, begin=no_transaction)
        claimed = a_claimed(
            "nightly", kind=kind, args=payload.encode(args or {}), checkpoint=checkpoint
        )
        self.run = Attempt(claimed, host, handler=self.handler)
        self.task = asyncio.ensure_future(self.handler.run(self.run))

    async def result(self) -> Any:
        text = await asyncio.wait_for(self.task, SECONDS)
        return None if text is None else payload.decode(text)

    async def failure(self) -> Failure:
        try:
            result = await asyncio.wait_for(self.task, SECONDS)
        except DescribedError as error:
            return Failure.from_exception(error)
        raise AssertionError(f"it did not fail, but answered {result}")

    async def lasting(self) -> str:
        """Why it failed for good."""
        failure = await self.failure()
        assert self.run.is_hopeless, failure.message
        return failure.message

    async def passing(self) -> str:
        """Why it failed this time."""
        failure = await self.failure()
        assert not self.run.is_hopeless, failure.message
        return failure.message

    async def cancelled(self) -> None:
        """Cancel it, as the executor does, and wait until it has ended."""
        self.task.cancel()
        await asyncio.wait_for(asyncio.wait([self.task]), SECONDS)
        assert self.task.cancelled()

    def log(self) -> list[str]:
        text = self.run.take_log()
        return [f"{line.level} {line.message}" for line in lines_of(text)] if text else []
