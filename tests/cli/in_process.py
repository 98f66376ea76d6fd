"""Commands that run in this process: as they are typed, without the start of another one."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from daybell import cli

COMMANDS: Any = get_command(cli.app)
# Built once, and not again for every command.
COMMANDS.commands = {name: COMMANDS.load(name) for name in cli.COMMANDS}


class Said(NamedTuple):
    code: int
    out: str
    err: str


Typed = Callable[..., Said]


def typing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **usual: str
) -> Typed:
    """What types a command, with these variables."""

    def typed(*words: str, **variables: str) -> Said:
        with monkeypatch.context() as patch:
            for name in ("DATABASE_URL", "API_URL", "API_KEY"):
                patch.delenv(f"DAYBELL_{name}", raising=False)
            for name, value in {**usual, **variables}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["daybell", *words])
            patch.setattr(cli, "app", COMMANDS)
            with pytest.raises(SystemExit) as end:
                cli.main()
        out, err = capsys.readouterr()
        return Said(int(str(end.value.code)), out, err)

    return typed
