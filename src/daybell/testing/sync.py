"""The bench for tests without an event loop: a facade that waits instead of being awaited."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from daybell.core.duration import Duration
from daybell.runners.threads import Threads
from daybell.sdk import sync
from daybell.sdk.task import Task
from daybell.sdk.workflow import Workflow
from daybell.testing.handlers import OwnThread, own_thread
from daybell.testing.run import Run

if TYPE_CHECKING:
    from daybell.testing.bench import Bench

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AnyTask = Task[..., Any, Any] | Workflow

_spare = Threads()  # of all benches, so that a long suite does not gather idle threads


class SyncBench:
    """A bench's methods that wait. Tasks that are plain functions run in the test's own thread."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @overload
    def run(self, task: Task[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(self, task: Workflow, /, **params: Any) -> Any: ...
    def run(  # pyright: ignore[reportInconsistentOverload]
        self, task: AnyTask, /, *args: Any, **kwargs: Any
    ) -> Any:
        return _wait(self._bench.run(task, *args, **kwargs))

    def run_due(
        self, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        return _wait(self._bench.run_due(*tasks, limit=limit, check=check))

    def advance(
        self, by: Duration, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        return _wait(self._bench.advance(by, *tasks, limit=limit, check=check))

    def advance_to(
        self, at: datetime, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        return _wait(self._bench.advance_to(at, *tasks, limit=limit, check=check))


def _wait(work: Coroutine[Any, Any, T]) -> T:
    thread = OwnThread(_spare)
    token = own_thread.set(thread)
    try:
        future = sync.submit(_caught(work))
    except BaseException:
        work.close()
        raise
    finally:
        own_thread.reset(token)
    try:
        thread.serve(future)
        outcome = future.result()
    except BaseException:
        future.cancel()
        raise
    if isinstance(outcome, Raised):
        raise outcome.error
    return outcome


@dataclass(frozen=True)
class Raised:
    """An exception on its way out of the loop."""

    error: BaseException


async def _caught(work: Coroutine[Any, Any, T]) -> T | Raised:
    # Raised in the loop, a KeyboardInterrupt would end the loop itself.
    try:
        return await work
    except BaseException as error:
        return Raised(error)
