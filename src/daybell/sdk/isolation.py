"""Isolation of tasks in child processes: its options, and the place where a child finds a
function.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final, Literal, cast

import msgspec

from daybell.core.job import JobDefinition
from daybell.core.options import TaskOptions
from daybell.core.units import Size, parse_size
from daybell.errors import UsageError, shown
from daybell.runners.processes import FunctionLocation, Setup

COMMAND: Final = (sys.executable, "-P", "-m", "daybell.sdk.child")
MAIN: Final = "__main__"


class FunctionOptions(TaskOptions, total=False):
    """What `@app.task` takes: the job's options, and how its function is run."""

    isolation: Literal["process"] | None  # None: async on the worker's loop, others in threads
    memory_limit: Size | None  # of its process, beyond what that has before
    on_lease_lost: Literal["stop", "continue"]  # what to do when others may run it, too


class Isolation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a function is run, as its definition keeps it."""

    isolation: Literal["process"] | None = None
    memory_limit: int | None = None
    on_lease_lost: Literal["stop", "continue"] = "stop"


class ProcessInfo:
    """What this process is."""

    is_child = False
    importing: str | None = None  # the module that is imported to find a task in it


process_info: Final = ProcessInfo()


def read_isolation(
    function: Callable[..., Any],
    *,
    isolation: object = None,
    memory_limit: Size | None = None,
    on_lease_lost: Any = "stop",
) -> dict[str, Any]:
    """How a function is run, as settings of its job. What cannot work is refused here, while its
    author looks on.
    """
    if isolation not in (None, "process"):
        raise UsageError(
            f'isolation {shown(isolation)} is not "process"; leave it out to have a function run'
            " in the worker itself: async on its loop, others in threads",
            field="isolation",
        )
    if on_lease_lost not in ("stop", "continue"):
        raise UsageError(
            f'on_lease_lost {shown(on_lease_lost)} is neither "stop" nor "continue"',
            field="on_lease_lost",
        )
    if isolation is None:
        if memory_limit is not None:
            raise UsageError(
                'memory_limit needs isolation="process": threads share the memory of their worker',
                field="memory_limit",
            )
        return msgspec.to_builtins(Isolation(on_lease_lost=on_lease_lost))
    place_of(function)
    size = None if memory_limit is None else parse_size(memory_limit, what="memory_limit")
    return msgspec.to_builtins(Isolation("process", size, on_lease_lost))


def is_isolated(definition: JobDefinition) -> bool:
    """Whether a task runs in a process of its own."""
    how = msgspec.json.decode(definition.settings, type=Isolation)
    return how.isolation == "process"


def place_of(function: Callable[..., Any]) -> FunctionLocation:
    """Where a child finds the function, which is sent to it by name only."""
    name = cast("object", getattr(function, "__qualname__", None))
    module = cast("object", getattr(function, "__module__", None))
    if not isinstance(name, str) or not isinstance(module, str):
        raise _unreachable(shown(function), "it has no name of its own in a module")
    if "<lambda>" in name:
        raise _unreachable("a lambda", "it has no name")
    if "<locals>" in name:
        raise _unreachable(
            f"{name}()", "it is made inside of another function (by a decorator, perhaps, which"
            " then needs functools.wraps)"
        )  # fmt: skip
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if module == MAIN:
        spec = getattr(loaded, "__spec__", None)
        if file is None:
            raise _unreachable(f"{name}()", "it was typed into an interpreter and is in no file")
        if spec is not None:  # python -m package.module
            return FunctionLocation(MAIN, spec.name, name)
    return FunctionLocation(module, None if file is None else os.path.abspath(file), name)


def _unreachable(what: str, why: str) -> UsageError:
    return UsageError(
        f"{what} cannot be imported by the process that is to run it: {why}; define it at the top"
        ' of a module, or leave out isolation="process"',
        field="isolation",
    )


def setup() -> Setup:
    """What a child has to know of this process to find the same modules."""
    levels = {name: logging.getLogger(name).level for name in ("", "daybell")}
    path = [os.path.abspath(entry) for entry in sys.path]  # "" is where we are
    return Setup(path, sys.argv, levels)


def check_connecting(url: str) -> None:
    """Refuse a connection that a child must not make or cannot have."""
    if process_info.importing is not None:
        raise UsageError(
            f"{process_info.importing} is imported by a process that is to run a task of"
            " it, and would"
            ' now act as a script; put what only a script does under `if __name__ == "__main__":`'
        )
    if process_info.is_child and url.startswith("memory:"):
        raise UsageError(
            "memory:// is in the worker's own memory, so a task in a process of its own can"
            " enqueue nothing there; use sqlite:///file.db"
        )
