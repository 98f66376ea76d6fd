"""The SDK for code without an event loop: one background loop does the work.

Only a facade: what it does is what the async side does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from daybell.client import Cancellation
from daybell.client.client import BorrowedConnection
from daybell.client.when import When
from daybell.core.event import Published
from daybell.core.execution import Execution, State
from daybell.core.schedule import OverlapBy, Schedule
from daybell.core.units import Duration
from daybell.errors import UsageError
from daybell.sdk.app import ScheduleMethods
from daybell.sdk.task import Enqueueable, Handle, Task

if TYPE_CHECKING:
    from daybell.sdk.app import AnyJob
    from daybell.sdk.workflow import Workflow


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_left_behind: list[asyncio.AbstractEventLoop] = []


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it. Not from within an event loop."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C: nobody waits for it any more
        raise


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """The same without waiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise UsageError(
            "this code runs in an event loop: await the task's own methods, without .sync"
        )
    return asyncio.run_coroutine_threadsafe(work, _background())


def _background() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="daybell-sync", daemon=True).start()
        return _loop


def _reset_after_fork() -> None:
    """In a child process after a fork: the thread is gone, and with it all that the loop held.

    The loop is kept, though: with it would go the connections, which are still the parent's.
    """
    global _lock, _loop
    _lock = threading.Lock()  # another thread may have held it
    if _loop is not None:
        _left_behind.append(_loop)
        _loop = None


os.register_at_fork(after_in_child=_reset_after_fork)


class SyncApp:
    """An app's methods about time and events that wait instead of being awaited."""

    def __init__(self, app: ScheduleMethods) -> None:
        self._app = app

    def schedule(
        self,
        job: Task[..., Any, Any] | str,
        when: When,
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap_by: OverlapBy = "schedule",
    ) -> Schedule:
        return run(self._app.schedule(job, when, args=args, name=name, overlap_by=overlap_by))

    @property
    def schedules(self) -> SyncSchedules:
        return SyncSchedules(self._app)

    def unschedule(self, job: Task[..., Any, Any] | str, name: str) -> None:
        run(self._app.unschedule(job, name))

    def publish(
        self, name: str, data: Any = None, *, source: str | None = None, id: str | None = None
    ) -> Published:
        return run(self._app.publish(name, data, source=source, id=id))


class SyncSchedules:
    """`app.schedules`, waiting instead of being awaited."""

    def __init__(self, app: ScheduleMethods) -> None:
        self._app = app

    def put_many(self, items: Iterable[Mapping[str, Any]]) -> list[Schedule]:
        return run(self._app.schedules.put_many(items))


class SyncEnqueueable(Generic[R]):
    """Methods of a task or a workflow that wait instead of being awaited."""

    def __init__(self, job: Enqueueable[R]) -> None:
        self._job = job

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[SyncHandle[R]]:
        if self._job.connection is not None:
            return self._enqueue_through(self._job.bound_many(items))
        return [SyncHandle(handle) for handle in run(self._job.enqueue_many(items))]

    def _enqueue_through(self, items: Iterable[dict[str, Any]]) -> list[SyncHandle[R]]:
        """Not done on the background loop, because the connection is this thread's."""
        job = self._job
        borrowed = BorrowedConnection(job.connection, is_async=False)
        call = run(job.app.prepare(cast("AnyJob", job), items, job.call_options, borrowed))
        return [SyncHandle(handle) for handle in job.handles(borrowed.send_sync(call))]


class SyncTask(SyncEnqueueable[R], Generic[P, R]):
    """A task's methods that wait instead of being awaited."""

    def __init__(self, task: Task[P, R, Any]) -> None:
        super().__init__(task)
        self._task = task

    def __repr__(self) -> str:
        return f"<SyncTask {self._task.name}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        if self._task.connection is not None:
            return self._enqueue_through([self._task.bound(args, kwargs)])[0]
        return SyncHandle(run(self._task.enqueue(*args, **kwargs)))


class SyncWorkflow(SyncEnqueueable[Any]):
    """A workflow's methods that wait instead of being awaited."""

    def __init__(self, workflow: Workflow) -> None:
        super().__init__(workflow)
        self._workflow = workflow

    def __repr__(self) -> str:
        return f"<SyncWorkflow {self._workflow.name}>"

    def enqueue(self, /, *args: Any, **params: Any) -> SyncHandle[Any]:
        if self._workflow.connection is not None:
            return self._enqueue_through([self._workflow.bound(args, params)])[0]
        return SyncHandle(run(self._workflow.enqueue(*args, **params)))


class SyncHandle(Generic[R]):
    """A handle whose methods wait instead of being awaited."""

    def __init__(self, handle: Handle[R]) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<SyncHandle {self.id}>"

    @property
    def id(self) -> UUID:
        return self._handle.id

    @property
    def created(self) -> bool:
        return self._handle.created

    def execution(self) -> Execution:
        return run(self._handle.execution())

    def status(self) -> State:
        return run(self._handle.status())

    def cancel(self) -> Cancellation:
        return run(self._handle.cancel())

    def signal(self, name: str, data: Any = None) -> None:
        run(self._handle.signal(name, data))

    def approve(
        self,
        name: str = "approval",
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> None:
        run(self._handle.approve(name, approved=approved, by=by, note=note))

    def result(self, timeout: Duration | None = None) -> R:
        return run(self._handle.result(timeout))
