"""The process state that a test run inherits and that tests must not depend on.

A run can start in a background shell, under `nohup`, from cron or from `make ARGS=…`. Each of
these passes something on: ignored signals, blocked signals, variables. Tests start commands that
would inherit the same.
"""

import os
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Final

KEPT: Final = "DAYBELL_TEST_"  # settings of the tests themselves
# Variables that configure Daybell, its drivers and the colours of its output, by their beginnings.
PREFIXES: Final = ("DAYBELL_", "_DAYBELL_", "PG", "MAKE", "TYPER_", "_TYPER_", "UVICORN_")
NAMES: Final = frozenset(
    {
        *("MFLAGS", "GNUMAKEFLAGS", "PY", "WORKERS", "ARGS", "SEEDS", "MINUTES"),  # Makefile
        *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    }
)
PYTHON_IGNORES: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})  # and subprocess restores


def drop_variables() -> None:
    """Remove the variables that would change what a test sees."""
    for name in influential(os.environ):
        del os.environ[name]


def influential(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if not name.startswith(KEPT) and (name.startswith(PREFIXES) or name.upper() in NAMES)
    ]


def restore_signals() -> None:
    """Start children with default signals, while this process ignores what it was told to ignore.

    An ignored signal stays ignored in a program that is executed; a handler does not. So a run
    under `nohup` survives its terminal, and its children still react to Ctrl-C.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - PYTHON_IGNORES:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
