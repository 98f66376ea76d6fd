"""What an App can do about time and events, and by which name the store knows its code."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from daybell.client import Client
from daybell.client.when import When
from daybell.core import payload
from daybell.core.event import Published
from daybell.core.overlap import OverlapBy
from daybell.core.schedule import Schedule
from daybell.errors import DaybellError, InvalidArguments, UsageError, shown

if TYPE_CHECKING:
    from daybell.sdk.app import AnyJob
    from daybell.sdk.sync import SyncApp
    from daybell.sdk.task import Task
    from daybell.sdk.workflow import Workflow

T = TypeVar("T")

LOADED_AS: Final = "daybell_app_"  # how a file is called whose name another module has


class Scheduling:
    """The verbs of `App` for when its tasks run, and go on."""

    tasks: dict[str, Task[..., Any, Any]]
    workflows: dict[str, Workflow]
    _home: Mapping[str, Any]  # of the module that made the app
    _line: int  # in it

    async def _client_that_knows(
        self, task: Task[..., Any, Any] | Workflow, options: Any
    ) -> Client:
        raise NotImplementedError  # see `App`

    async def _declaring(
        self,
        task: Task[..., Any, Any] | Workflow,
        options: Any,
        ask: Callable[[Client], Awaitable[T]],
    ) -> T:
        raise NotImplementedError  # see `App`

    async def client_for(self, tenant: str | None = None) -> Client:
        raise NotImplementedError  # see `App`

    async def schedule(
        self,
        job: Task[..., Any, Any] | Workflow | str,
        when: When,
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap_by: OverlapBy = "schedule",
    ) -> Schedule:
        """Have a task, a workflow or the job of a name run at these times, too; answers the
        schedule.

        `args` are what it is called with then, by name. A schedule of the same name is replaced.
        Without a name, saying the same again changes nothing. The overlap rule compares the
        executions of this schedule with each other; with `overlap_by="job"`, with all executions at
        the job's gate.
        """
        client, task, found = await self._found(job)

        async def ask(client: Client) -> Schedule:
            return await client.schedule(found, when, args=args, name=name, overlap_by=overlap_by)

        if task is None:
            return await ask(client)
        args = bound_args(task, args)
        return await self._declaring(task, {}, ask)

    @property
    def schedules(self) -> RunTimeSchedules:
        """Schedules that are made at run time, many at a time."""
        return RunTimeSchedules(self._put_schedules)

    async def unschedule(self, job: Task[..., Any, Any] | Workflow | str, name: str) -> None:
        """Remove a schedule that `schedule` has made."""
        client, _, job = await self._found(job)
        await client.unschedule(job, name)

    async def publish(
        self, name: str, data: Any = None, *, source: str | None = None, id: str | None = None
    ) -> Published:
        """Tell of an event: what waits for it with `ctx.wait_for_event` goes on.

        `id` and `source` name it, so that one which is sent twice counts once.
        """
        return await (await self.client_for()).publish(name, data, source=source, id=id)

    @property
    def sync(self) -> SyncApp:
        """The same from code without an event loop."""
        from daybell.sdk.sync import SyncApp

        return SyncApp(self)

    @property
    def author(self) -> str:
        """Who defines the tasks, for the store: the place of the app in its code.

        It is the same however the code is started, so that what has left the code can be told
        from what is other code's.
        """
        names = (name for name, value in self._home.items() if value is self)
        return f"code:{module_name(self._home)}:{next(names, 'app')}"

    @property
    def module(self) -> tuple[str, str | None]:
        """The name of the module that made the app, and its file."""
        return module_name(self._home), self._home.get("__file__")

    async def _found(
        self, job: Task[..., Any, Any] | Workflow | str
    ) -> tuple[Client, Task[..., Any, Any] | Workflow | None, str]:
        """A client that knows the job, its task or workflow if it is one of ours, and its name."""
        task = self._task_of(job)
        if task is None:
            return await self.client_for(), None, str(job)  # of another app, or made by hand
        return await self._client_that_knows(task, {}), task, task.name

    async def _put_schedules(self, items: Iterable[Mapping[str, Any]]) -> list[Schedule]:
        given: list[Any] = list(items)
        refused: dict[int, DaybellError] = {}
        used: dict[str, AnyJob] = {}
        for index, item in enumerate(given):
            if not isinstance(item, Mapping) or "job" not in item:
                continue  # the client says what is wrong with it
            one = dict(cast("Mapping[str, Any]", item))
            try:
                task = self._task_of(one["job"])
                if task is not None:
                    used[task.name] = task
                    one |= {"job": task.name, "args": bound_args(task, one.get("args"))}
            except UsageError as error:
                refused[index] = error
            given[index] = one
        for name, task in used.items():  # a job that was deleted is declared again
            await self._declaring(task, {}, lambda client, name=name: client.job(name))
        return await (await self.client_for()).schedule_many(given, refused=refused)

    def _task_of(self, job: AnyJob | str) -> AnyJob | None:
        """The task or workflow of ours that is meant; None for the job of another app, or one made
        by hand. Raises UsageError.
        """
        check_job(job)
        if not isinstance(job, str):
            return job
        return self.tasks.get(job) or self.workflows.get(job)


class RunTimeSchedules:
    """Schedules of an app that are made at run time: `app.schedules`."""

    def __init__(
        self, put: Callable[[Iterable[Mapping[str, Any]]], Awaitable[list[Schedule]]]
    ) -> None:
        self._put = put

    async def put_many(self, items: Iterable[Mapping[str, Any]]) -> list[Schedule]:
        """Make up to 10,000 schedules in one transaction, all or nothing; answers them in order.

        An item has the arguments of `app.schedule`: `job` and `when` and, if wanted, `args`, `name`
        and `overlap_by`. Raises InvalidItems, whose `errors` names all that is wrong by index.
        """
        return await self._put(items)


def bound_args(task: AnyJob, args: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The arguments of a schedule, checked; None: as the job says."""
    if args is None:
        check_call(task, "this schedule")
        return None
    return task.bound((), args)


def check_call(task: Task[..., Any, Any] | Workflow, what: str) -> None:
    """Refuse a job that cannot be called as its schedules would."""
    try:
        task.bound((), payload.decode(task.definition.args))
    except InvalidArguments as error:
        raise InvalidArguments(
            f"{task.definition.kind} {task.name!r}: {what} would call it in vain: {error};"
            " say args={…}",
            field="args",
        ) from None


def home_of_caller(depth: int) -> tuple[Mapping[str, Any], int]:
    """The names of the module whose code called, so many calls away, and the line."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = None if frame is None else frame.f_back
    return ({}, 0) if frame is None else (frame.f_globals, frame.f_lineno)


def read_modules(include: object) -> tuple[str, ...]:
    """Check the names of `App(include=…)`."""
    if isinstance(include, str) or not isinstance(include, Iterable):
        raise UsageError(
            f'include is a list of modules, such as ["shop.mail"]; not {shown(include)}',
            field="include",
        )
    names = tuple(cast("Iterable[object]", include))
    for name in names:
        if not isinstance(name, str) or not all(map(str.isidentifier, name.split("."))):
            raise UsageError(
                f'include: {shown(name)} is not the full name of a module, such as "shop.mail"',
                field="include",
            )
    return cast("tuple[str, ...]", names)


def module_name(home: Mapping[str, Any]) -> str:
    """A module's name; of a program, the one that it has when it is imported."""
    name, spec, file = (home.get(key) for key in ("__name__", "__spec__", "__file__"))
    if name != "__main__":
        return str(name).removeprefix(LOADED_AS)
    if spec is not None:
        return str(spec.name)
    return "__main__" if file is None else file_name(Path(file))


def file_name(path: Path) -> str:
    """What a file is called as a module, with the packages that it is in."""
    path = path.resolve()
    name, folder = path.stem, path.parent
    while (folder / "__init__.py").is_file():
        name, folder = f"{folder.name}.{name}", folder.parent
    return name


def check_job(job: object) -> None:
    """Refuse what is neither a task nor a name."""
    if not isinstance(job, str) and not hasattr(job, "definition"):
        raise UsageError(f"{shown(job)} is neither a task nor the name of a job", field="job")
