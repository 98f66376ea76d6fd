"""Command jobs to run, made in a line each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from daybell.core import payload
from daybell.core.execution import DescribedError, Failure
from daybell.core.job import JobDefinition
from daybell.core.references import fill_args, fill_references
from daybell.engine.attempt import Attempt, AttemptHost, Stop
from daybell.engine.loop import SystemClock
from daybell.runners.command import CommandHandler, CommandOptions
from daybell.runners.command_processes import Commands
from tests.builders import no_transaction
from tests.engine.tasks import a_claimed

SECONDS = 90.0


class Secrets:
    """Puts in the secrets that it has."""

    def __init__(self, **values: str) -> None:
        self._values = values

    async def value(self, running: Any, value: Any) -> Any:
        return fill_references(value, "secret", self._values.__getitem__)

    async def args(self, running: Any) -> dict[str, Any]:
        args = payload.decode(running.claimed.args)
        return fill_args(args, self._values.__getitem__)


class Job:
    """One execution of a command job, on its way."""

    def __init__(
        self,
        commands: Commands,
        command: Any,
        *,
        options: CommandOptions | None = None,
        secrets: dict[str, str] | None = None,
        claimed: dict[str, Any] | None = None,
        mask: Callable[[str], str] = str,
        **settings: Any,
    ) -> None:
        definition = JobDefinition(
            name="backup",
            kind="command",
            settings=msgspec.json.encode({"run": command, **settings}).decode(),
        )
        reveal, options = Secrets(**(secrets or {})), options or CommandOptions()
        self.handler = CommandHandler(definition, reveal, options, commands)
        host = AttemptHost(SystemClock(), mask=mask, begin=no_transaction)
        claim = a_claimed("backup", kind="command", **(claimed or {}))
        self.run = Attempt(claim, host, handler=self.handler)
        self.task = asyncio.ensure_future(self.handler.run(self.run))

    def stop(self, why: Stop = Stop.TIMEOUT) -> None:
        """Stop it, as the executor does."""
        self.run.stop = why
        self.task.cancel()

    async def ended(self) -> None:
        """Until it has, however."""
        await asyncio.wait_for(asyncio.wait([self.task]), SECONDS)
        if not self.task.cancelled():
            self.task.exception()

    async def result(self) -> dict[str, Any]:
        text = await asyncio.wait_for(self.task, SECONDS)
        return payload.decode(text or "null")

    async def output(self) -> str:
        return (await self.result())["output"]

    async def failure(self) -> Failure:
        try:
            result = await asyncio.wait_for(self.task, SECONDS)
        except DescribedError as error:
            return Failure.from_exception(error)
        raise AssertionError(f"it did not fail but answered {result}")

    @property
    def log(self) -> list[tuple[str, str]]:
        """What it has said so far: levels and messages."""
        log = self.run.log
        return [(line[1], line[3]) for line in map(msgspec.json.decode, log.lines)] if log else []

    @property
    def said(self) -> str:
        """What it has printed so far in whole lines."""
        return "\n".join(message for level, message in self.log if level == "stdout")


@asynccontextmanager
async def some_commands():
    commands = Commands()
    try:
        yield commands
    finally:
        await commands.close()
