"""Tasks: decorated functions that can be called, and enqueued with the same arguments."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast
from uuid import UUID

from daybell.client.requests import EnqueueOptions
from daybell.core import arguments
from daybell.core.job import JobDefinition
from daybell.errors import UsageError
from daybell.sdk.context import Context
from daybell.sdk.handle import Handle

if TYPE_CHECKING:
    from daybell.sdk.app import App
    from daybell.sdk.sync import SyncTask

P = ParamSpec("P")
R = TypeVar("R")


class CallOptions(EnqueueOptions, total=False):
    """What `options()` takes: when, where and how one execution runs."""

    unique_key: str | None
    tenant: str | None


class Task(Generic[P, R]):
    """A function that is a job. Calling it just runs it; `enqueue` has it run by a worker."""

    def __init__(
        self,
        app: App,
        function: Callable[P, R],
        definition: JobDefinition,
        options: CallOptions | None = None,
    ) -> None:
        self.app = app
        self.function = function
        self.definition = definition
        self._options: CallOptions = options or {}
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def options(self, **options: Unpack[CallOptions]) -> Task[P, R]:
        """The same task with other options for what is enqueued through it."""
        return Task(self.app, self.function, self.definition, {**self._options, **options})

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Have it run by a worker. Once this returns, it is on disk.

        Arguments are checked against the signature here, where the mistake is.
        """
        given = arguments.bind(self.function, args, kwargs, skip=self.context_names)
        return self._handle(*await self.app.enqueue(self, given, self._options))

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one execution per item, its arguments by name; one round trip, all or nothing.

        More than 10,000 are streamed in one transaction; then there are no handles to return.
        """
        if "unique_key" in self._options:
            raise UsageError("a unique_key is for one execution; enqueue_many takes none")
        checked = (self._checked(item) for item in items)
        answers = await self.app.enqueue_many(self, checked, self._options)
        return [self._handle(id, created=True) for id in answers]

    @property
    def sync(self) -> SyncTask[P, R]:
        """The same from code without an event loop."""
        from daybell.sdk.sync import SyncTask

        return SyncTask(self)

    @functools.cached_property
    def context_names(self) -> frozenset[str]:
        """The parameters that the worker fills: `Context` ones, and a bare `ctx`."""
        try:
            hints = typing.get_type_hints(self.function)
        except Exception:
            hints = dict[str, Any]()  # annotations that do not resolve say nothing
        parameters = inspect.signature(self.function).parameters
        return frozenset(
            name
            for name, parameter in parameters.items()
            if hints.get(name) is Context
            or (name == "ctx" and parameter.annotation is inspect.Parameter.empty)
            or (name == "ctx" and parameter.annotation in ("Context", "daybell.Context"))
        )

    def _checked(self, item: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(cast("object", item), Mapping):
            raise UsageError(
                f"enqueue_many takes arguments by name, as dictionaries, not {type(item).__name__}"
            )
        return arguments.bind(self.function, (), item, skip=self.context_names)

    def _handle(self, id: UUID, created: bool) -> Handle[R]:
        return Handle(self.app.client, id, created=created)
