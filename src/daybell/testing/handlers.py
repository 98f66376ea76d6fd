"""The app's tasks as a bench runs them: as ever, but their exceptions are kept."""

from __future__ import annotations

import contextvars
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.masking import Masks
from daybell.engine.handlers import Handler, Handlers, Running
from daybell.errors import Suspended
from daybell.runners.around import Around
from daybell.runners.threads import Call, Threads, none
from daybell.sdk.app import App, AppHandlers

T = TypeVar("T")

Errors = dict[tuple[UUID, int], BaseException]


class BenchHandlers:
    """An app's handlers. What a task raised is in `errors`, by execution and attempt."""

    def __init__(self, app: App) -> None:
        self.errors: Errors = {}
        own = own_thread.get()
        self._handlers: Handlers = app.handlers if own is None else OwnThreadHandlers(app, own)

    def find(self, claimed: Claimed) -> Handler | None:
        handler = self._handlers.find(claimed)
        return None if handler is None else Watched(handler, self.errors)

    async def ask(self, claimed: Claimed) -> Handler | None:
        handler = await self._handlers.ask(claimed)
        return None if handler is None else Watched(handler, self.errors)

    def lacking(self, claimed: Claimed) -> str | None:
        return self._handlers.lacking(claimed)

    def mask(self, text: str) -> str:
        return self._handlers.mask(text)

    @property
    def settings(self) -> Masks:
        return self._handlers.settings


class Watched(Around):
    """A handler of which the store's text of an error is not enough to know."""

    def __init__(self, handler: Handler, errors: Errors) -> None:
        super().__init__(handler)
        self._errors = errors

    async def run(self, running: Running) -> str | None:
        try:
            return await self.inner.run(running)
        except Suspended:  # no error: it goes on another time
            raise
        except BaseException as error:
            self._errors[running.claimed.id, running.claimed.attempt] = error
            raise


class OwnThread(Threads):
    """Runs plain functions in the thread of the test that waits for them.

    So they see its database transaction, its thread-locals and its debugger.
    """

    def __init__(self, spare: Threads) -> None:
        super().__init__()
        self._spare = spare
        self._is_busy = False
        self._here: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    async def run(self, function: Callable[[], T], *, patience: Callable[[], Seconds] = none) -> T:
        if self._is_busy:  # a task in it waits for another: that one cannot run there, too
            return await self._spare.run(function, patience=patience)
        self._is_busy = True
        try:
            return await super().run(function, patience=patience)
        finally:
            self._is_busy = False

    def _submit(self, call: Call) -> None:
        self._here.put(call)

    def serve(self, work: Future[Any]) -> None:
        """In the test's thread: run what comes until the work is done."""
        work.add_done_callback(lambda _: self._here.put(None))
        while (call := self._here.get()) is not None:
            call.run()


class OwnThreadHandlers(AppHandlers):
    """The app's handlers with other threads."""

    def __init__(self, app: App, threads: Threads) -> None:
        super().__init__(app)
        self._threads = threads


# Set while a test without an event loop waits for its bench.
own_thread: contextvars.ContextVar[OwnThread | None] = contextvars.ContextVar(
    "daybell_own_thread", default=None
)
