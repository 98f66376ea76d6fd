"""Running jobs of kind `command`."""

from __future__ import annotations

from typing import Any

import msgspec

from daybell.core.job import JobDefinition
from daybell.core.kinds import CommandSettings, read_settings
from daybell.runners.commands import Commands as Commands
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.running import Stoppable


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker lets commands have of its environment, and set in theirs."""

    allow_env: frozenset[str] = frozenset()  # names that jobs may set although they are dangerous
    pass_env: tuple[str, ...] = ()  # names that commands get from the worker, beyond the usual


class CommandHandler(KindHandler):
    """One version of a job that runs a command."""

    def __init__(
        self,
        definition: JobDefinition,
        reveal: Reveal,
        options: CommandOptions,
        commands: Commands,
    ) -> None:
        super().__init__(definition, reveal)
        settings = read_settings("command", msgspec.json.decode(definition.settings))
        assert isinstance(settings, CommandSettings)
        self._settings = settings
        self._options = options
        self._commands = commands
        self.grace = settings.grace

    async def perform(self, running: Stoppable) -> Any:
        raise NotImplementedError
