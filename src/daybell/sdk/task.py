"""Tasks: decorated functions that can be called, and enqueued with the same arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast
from uuid import UUID

from daybell.client.requests import check_options
from daybell.core import arguments, payload
from daybell.core.job import JobDefinition
from daybell.core.references import SECRET_MARK, names_in
from daybell.errors import InvalidName, UsageError, shown
from daybell.sdk.context import context_names
from daybell.sdk.enqueuing import CALL_OPTIONS, CallOptions, Enqueuing
from daybell.sdk.handle import Handle
from daybell.sdk.nodes import Nodelike

if TYPE_CHECKING:
    from daybell.sdk.app import App
    from daybell.sdk.sync import SyncTask

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


# The words of other libraries, and what is said here instead.
_ELSEWHERE: Final = {
    "delay": "Celery's .delay(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "apply_async": "Celery's .apply_async(args, countdown=60) is .options(…).enqueue(…) here:"
    ' await {task}.options(delay="60s").enqueue(…)',
    "apply": "Celery's .apply(…) is a plain call here: {task}(…)",
    "s": "Celery's .s(…) is a node of a workflow here: {task}.node(…)",
    "si": "Celery's .si(…) is a node of a workflow here: {task}.node(…)",
    "signature": "Celery's .signature(…) is a node of a workflow here: {task}.node(…)",
    "send": "Dramatiq's .send(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "send_with_options": "Dramatiq's .send_with_options(…) is .options(…).enqueue(…) here:"
    ' await {task}.options(delay="60s").enqueue(…)',
    "kiq": "Taskiq's .kiq(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "defer": "Procrastinate's .defer(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "defer_async": "Procrastinate's .defer_async(…) is .enqueue(…) here: await {task}.enqueue(…)",
}


class Task(Nodelike, Enqueuing[R], Generic[P, R, F]):
    """A function that is a job. Calling it just runs it; `enqueue` has it run by a worker.

    It is typed by the arguments of `enqueue`, the result, and the function itself.
    """

    __name__: str

    def __init__(
        self,
        app: App,
        function: F,
        definition: JobDefinition,
        options: CallOptions | None = None,
    ) -> None:
        # Not the function's own attributes: they could hide what is set below.
        functools.update_wrapper(cast("Any", self), function, updated=())
        self.app = app
        self.function = function
        self.definition = definition
        self._options: CallOptions = options or {}

    @property
    def name(self) -> str:
        return self.definition.name

    if TYPE_CHECKING:
        __call__: F  # whatever the function takes and returns
    else:

        def __call__(self, *args, **kwargs):
            return self.function(*args, **kwargs)

        def __getattr__(self, name):
            said = _ELSEWHERE.get(name)
            if said is None:
                raise AttributeError(f"a task has no attribute {name!r}")
            name_here = self.definition.name
            raise AttributeError(
                f"{said.format(task=name_here)}. Without an event loop: {name_here}.sync.enqueue(…)"
            )

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def options(self, **options: Unpack[CallOptions]) -> Task[P, R, F]:
        """The same task with other options for what is enqueued through it."""
        check_options(options, CALL_OPTIONS, "options()")
        return Task(self.app, self.function, self.definition, {**self._options, **options})

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Have it run by a worker. Once this returns, it is on disk.

        Arguments are checked against the signature here, where the mistake is. With
        `options(connection=…)` it is on disk when the transaction of that connection is committed.
        """
        return await self._enqueue_one(args, kwargs)

    @property
    def sync(self) -> SyncTask[P, R]:
        """The same from code without an event loop."""
        from daybell.sdk.sync import SyncTask

        return SyncTask(self)

    @functools.cached_property
    def context_names(self) -> frozenset[str]:
        """The parameters that the worker fills: `Context` ones, and a bare `ctx`."""
        return context_names(self.function)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, checked."""
        return self._check(arguments.bind(self.function, args, kwargs, skip=self.context_names))

    def _check(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert as the worker will, so that what it would refuse is refused here."""
        if given:
            text = payload.encode(given)
            stored = payload.decode(text)
            secret = ()
            if SECRET_MARK in text:  # what they stand for is seen by the worker alone
                secret = {name for name, value in stored.items() if names_in(value)}
            converted = arguments.convert(
                self.function, stored, skip=self.context_names, unseen=secret
            )
            if "[" in text:  # a set would be among the lists
                arguments.check_sets(self.function, given, converted)
        return given

    def _handle(self, id: UUID, created: bool) -> Handle[R]:
        return Handle(self._find_client, id, created=created, convert=self._convert_result)

    def _convert_result(self, result: Any) -> R:
        return arguments.convert_result(self.function, result)


def check_plain(function: object) -> None:
    """Refuse what is not a function, or is one that needs an object to be called on."""
    name = getattr(function, "__qualname__", type(function).__name__)
    if inspect.isclass(function):
        raise UsageError(
            f"a task is a function, and {name} is a class. Write a function that makes the object"
            " and uses it, and make that the task"
        )
    if inspect.ismethod(function) or isinstance(function, classmethod) or _is_method(function):
        raise UsageError(
            f"a task is a function, and {name}() is a method: a worker in another process has no"
            " object to call it on. Write a function that makes the object and calls the method,"
            " and make that the task; a @staticmethod can be one"
        )
    if not callable(function):
        raise UsageError(f"a task is a function, not {shown(function)}")


def name_of(function: object) -> str:
    """Return the name that a task has if it is given none: its function's."""
    name = str(getattr(function, "__name__", ""))
    if not name or name == "<lambda>":
        what = "a lambda" if name else f"an object of {type(function).__name__}"
        raise InvalidName(
            f"a task is named like its function, and {what} has no name; give it one:"
            ' app.task(name="…")(…)',
            field="name",
        )
    return name


def _is_method(function: object) -> bool:
    """True for a function in the body of a class that takes its object first."""
    owner = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    if not inspect.isfunction(function) or not owner or owner.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(function).parameters), None) in ("self", "cls")
