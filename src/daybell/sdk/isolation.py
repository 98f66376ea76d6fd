"""Isolation of tasks in child processes: options, and the place of a function."""

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
    """The options of `@app.task`: those of the job, and how its function runs."""

    isolation: Literal["process"] | None  # None: async on the worker's loop, others in threads
    memory_limit: Size | None  # for the growth of its process
    on_lease_lost: Literal["stop", "continue"]  # when another worker may run it, too
    batch: Any  # Batch, or an object with size, wait, key: it takes the items of many executions


class Isolation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a function runs, as stored in its definition."""

    isolation: Literal["process"] | None = None
    memory_limit: int | None = None
    on_lease_lost: Literal["stop", "continue"] = "stop"
    batch: dict[str, Any] | None = None


class ProcessInfo:
    """The role of this process."""

    is_child = False
    importing: str | None = None  # the module that is imported to find a task


process_info: Final = ProcessInfo()


def read_isolation(
    function: Callable[..., Any],
    *,
    isolation: object = None,
    memory_limit: Size | None = None,
    on_lease_lost: Any = "stop",
    batch: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Validate the options of a function, and return them as settings of its job."""
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
        return msgspec.to_builtins(Isolation(on_lease_lost=on_lease_lost, batch=batch))
    if batch is not None:
        raise UsageError(
            'a batch gathers in the worker, so it has no isolation="process"', field="batch"
        )
    place_of(function)
    size = None if memory_limit is None else parse_size(memory_limit, what="memory_limit")
    return msgspec.to_builtins(Isolation("process", size, on_lease_lost))


def is_isolated(definition: JobDefinition) -> bool:
    """Return True if a task runs in its own process."""
    how = msgspec.json.decode(definition.settings, type=Isolation)
    return how.isolation == "process"


def place_of(function: Callable[..., Any]) -> FunctionLocation:
    """Return the place where a child process finds the function by name."""
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
    """Return the settings of this process that a child needs to find the same modules."""
    levels = {name: logging.getLogger(name).level for name in ("", "daybell")}
    path = [os.path.abspath(entry) for entry in sys.path]  # "" is the current folder
    return Setup(path, sys.argv, levels)


def check_connecting(url: str) -> None:
    """Reject a connection that a child process cannot or must not make."""
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
