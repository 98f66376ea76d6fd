"""The tasks that worker processes run here, and the effects that are counted."""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from typing import Final, Literal

from benchmarks.executions import JOB
from daybell.engine.events import Ended
from daybell.sdk.app import App

logger = logging.getLogger("shop")

Work = Literal[
    "nothing", "nothing_sync", "nothing_apart", "mail", "record", "sleep", "talk", "talk_unkept"
]
STARTS_MAX: Final = 50_000  # that a process of work `record` can tell apart


class Effects:
    """The effects of the tasks of this process, as they record them."""

    def __init__(self) -> None:
        self._marks: list[None] = []
        self.mark = self._marks.append  # safe from several threads at once, unlike +=
        self.starts = array("d")

    @property
    def ran(self) -> int:
        return len(self._marks)

    def clear(self) -> None:
        self._marks.clear()
        self.starts = array("d", bytes(8 * STARTS_MAX))


def nothing_apart() -> None:
    """In a child process, which finds it here by its name."""


def make_app(url: str | None, work: Work, effects: Effects) -> App:
    """An app with one task, whose name is the same for all kinds of work."""
    app = App(url, logs=work == "talk")
    mark = effects.mark

    async def nothing() -> None:
        mark(None)

    def nothing_sync() -> None:
        mark(None)

    async def mail(to: str, template: str, locale: str, order: str) -> dict[str, object]:
        mark(None)
        return {"sent": True, "tries": 1}

    async def record(number: int) -> None:
        effects.starts[number] = time.monotonic()
        mark(None)

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        mark(None)

    async def talk() -> None:
        logger.info("mail %s is sent", "to ada@example.org")
        mark(None)

    async def talk_unkept() -> None:
        await talk()

    def count(event: object) -> None:
        if isinstance(event, Ended):
            mark(None)

    if work == "nothing_apart":
        app.task(name=JOB, isolation="process")(nothing_apart)
        app.observe(count)  # its effects are not visible in this process
        return app
    functions = (nothing, nothing_sync, mail, record, sleep, talk, talk_unkept)
    app.task(name=JOB)({function.__name__: function for function in functions}[work])
    return app


# For commands that are told an app by its name; its URL is in the environment.
app = make_app(None, "nothing", Effects())
