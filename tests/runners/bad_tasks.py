"""Tasks that hurt whoever runs them, and what is to become of each.

They are plain functions, which the test makes tasks of: async ones on the worker's loop, others in
its threads, or either in a child process, which imports this file to find them. Those that take
their whole worker with them, as docs/guide/isolation.md says, are run so in workers that are
processes: FATAL.
"""

import ctypes
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["async", "thread", "process"]
EVERYWHERE: tuple[Kind, ...] = ("async", "thread", "process")
HUNDRED_MB = 100_000_000


def endless_loop() -> None:
    while True:
        len("a step in Python")


def endless_loop_in_c() -> None:
    sum(iter(int, 1))


def sleep_on_the_loop() -> None:
    time.sleep(0.8)


def leave() -> None:
    os._exit(7)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


def huge_result() -> str:
    return "x" * HUNDRED_MB


def recursion() -> None:
    recursion()


def memory_hog() -> None:
    while True:
        _hoarded.append(bytearray(10_000_000))


_hoarded: list[bytearray] = []


def system_exit() -> None:
    sys.exit("enough")


def keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def no_json() -> object:
    return {"when": object()}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even this")

    __repr__ = __str__


def unprintable_error() -> None:
    raise Unprintable


def much_output() -> None:
    line = "x" * 99_999
    for _ in range(HUNDRED_MB // 100_000):
        print(line)  # noqa: T201


def fork() -> int:
    """The copy ends first: whatever it tells, it tells before the original does."""
    print("one before, ", end="")  # noqa: T201  # which is in the buffers of both
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        print("one after")  # noqa: T201
    logging.getLogger("fork").warning("one at the end")
    return 1 if pid else 2


@dataclass(frozen=True)
class Bad:
    """A bad task, how it ends with `retries=0`, and what a person is told."""

    function: Callable[[], object]
    state: Literal["dead", "succeeded"]
    type: str = ""
    says: str = ""  # found in the failure's message; for one that succeeded, in a log
    kinds: tuple[Kind, ...] = EVERYWHERE
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    log: tuple[str, ...] | None = None  # all that is in its log, if that matters
    result: object = None

    def tells(self, text: str) -> bool:
        return re.search(self.says, text) is not None


ONLY_PROCESS: tuple[Kind, ...] = ("process",)
QUICKLY = {"timeout": 0.5}

BAD_TASKS = [
    Bad(endless_loop, "dead", "TimeoutError", "within its timeout", ("thread", "process"), QUICKLY),
    Bad(endless_loop_in_c, "dead", "TimeoutError", "its timeout", ONLY_PROCESS, QUICKLY),
    Bad(sleep_on_the_loop, "succeeded", "", "sleep_on_the_loop' has blocked the event", ("async",)),
    Bad(leave, "dead", "ProcessDied", "ended with exit code 7", ONLY_PROCESS),
    Bad(kill_itself, "dead", "ProcessDied", "killed by SIGKILL .by somebody", ONLY_PROCESS),
    Bad(segfault, "dead", "ProcessDied", "killed by SIGSEGV .a crash", ONLY_PROCESS),
    Bad(huge_result, "dead", "PayloadTooLarge", "result is 100,000,002 bytes of JSON; the limit"),
    Bad(recursion, "dead", "RecursionError", "maximum recursion depth"),
    Bad(
        memory_hog,
        "dead",
        "MemoryLimit",
        "more memory than its memory_limit of 200MB",
        ONLY_PROCESS,
        {"memory_limit": "200MB"},
    ),
    Bad(system_exit, "dead", "SystemExit", "enough"),
    Bad(keyboard_interrupt, "dead", "KeyboardInterrupt"),
    Bad(no_json, "dead", "PayloadError", "result.when: cannot be stored as JSON: object"),
    Bad(unprintable_error, "dead", "Unprintable", "its __str__ raised SystemExit"),
    Bad(much_output, "succeeded", "", "more lines were left out"),
    Bad(
        fork,
        "succeeded",
        kinds=ONLY_PROCESS,
        log=("one before, one after", "one at the end"),
        result=1,
    ),
]

# On the loop or in a thread: each takes its worker along.
FATAL: list[tuple[Callable[[], object], Kind]] = [
    (leave, "async"),
    (leave, "thread"),
    (kill_itself, "async"),
    (kill_itself, "thread"),
    (segfault, "async"),
    (segfault, "thread"),
]


def neighbour(number: int) -> int:
    """Somebody else's task."""
    return number
