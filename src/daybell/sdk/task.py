"""Tasks: decorated functions that can be called, and enqueued with the same arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast
from uuid import UUID

from daybell.client.requests import EnqueueOptions, check_options
from daybell.core import arguments, payload
from daybell.core.execution import Enqueued
from daybell.core.job import JobDefinition
from daybell.core.references import SECRET_MARK, names_in
from daybell.errors import InvalidArguments, UsageError
from daybell.sdk.context import context_names
from daybell.sdk.handle import Handle
from daybell.sdk.nodes import Nodelike

if TYPE_CHECKING:
    from daybell.sdk.app import App
    from daybell.sdk.sync import SyncTask

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class CallOptions(EnqueueOptions, total=False):
    """What `options()` takes: when, where and how one execution runs."""

    unique_key: str | None
    tenant: str | None
    connection: Any  # of the caller's, to PostgreSQL: enqueues in its transaction


CALL_OPTIONS: Final = frozenset(CallOptions.__optional_keys__)


class Task(Nodelike, Generic[P, R, F]):
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
        given = self.bound(args, kwargs)
        if self.connection is not None:
            (handle,) = await self._enqueue_through([given])
            return handle
        return self._handle(*await self.app.enqueue(self, given, self._options))

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one execution per item, its arguments by name; one round trip, all or nothing.

        More than 10,000 are streamed in one transaction; then there are no handles to return.
        """
        checked = self.bound_many(items)
        if self.connection is not None:
            return await self._enqueue_through(checked)
        answers = await self.app.enqueue_many(self, checked, self._options)
        return [self._handle(id, created=True) for id in answers]

    async def _enqueue_through(self, items: Iterable[dict[str, Any]]) -> list[Handle[R]]:
        from daybell.client import calls

        calls.check_connection(self.connection, is_async=True)
        call = await self.app.prepare(self, items, self._options)
        return self.handles(await calls.send(self.connection, call))

    @property
    def sync(self) -> SyncTask[P, R]:
        """The same from code without an event loop."""
        from daybell.sdk.sync import SyncTask

        return SyncTask(self)

    @functools.cached_property
    def context_names(self) -> frozenset[str]:
        """The parameters that the worker fills: `Context` ones, and a bare `ctx`."""
        return context_names(self.function)

    @property
    def connection(self) -> Any:
        """The caller's connection that it enqueues through, if `options` named one."""
        # It leads to a real database, where what a test enqueues has no business.
        return None if self.app.stand_in is not None else self._options.get("connection")

    @property
    def call_options(self) -> CallOptions:
        """What `options` were given."""
        return self._options

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, checked."""
        return self._check(arguments.bind(self.function, args, kwargs, skip=self.context_names))

    def bound_many(self, items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same for each item, as it is asked for."""
        if self._options.get("unique_key") is not None:
            raise UsageError("a unique_key is for one execution; enqueue_many takes none")
        return (checked(position, item, self.bound) for position, item in enumerate(items))

    def handles(self, answers: Iterable[Enqueued]) -> list[Handle[R]]:
        """What is returned for these answers of a store."""
        return [self._handle(answer.id, answer.created) for answer in answers]

    def _check(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert as the worker will, so that what it would refuse is refused here."""
        if given:
            text = payload.encode(given)
            stored = payload.decode(text)
            secret = ()
            if SECRET_MARK in text:  # what they stand for is seen by the worker alone
                secret = {name for name, value in stored.items() if names_in(value)}
            arguments.convert(self.function, stored, skip=self.context_names, unseen=secret)
        return given

    def _handle(self, id: UUID, created: bool) -> Handle[R]:
        return Handle(
            functools.partial(self.app.client_for, self._options.get("tenant")),
            id,
            created=created,
            convert=functools.partial(arguments.convert_result, self.function),
        )


def checked(
    position: int,
    item: Mapping[str, Any],
    bound: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """What one of many is called with; an error says which one it is."""
    if not isinstance(cast("object", item), Mapping):
        kind = type(item).__name__
        raise UsageError(
            f"items[{position}]: arguments are given by name, as a dict, not as {kind}"
        )
    try:
        return bound((), item)
    except InvalidArguments as error:
        raise InvalidArguments(f"items[{position}]: {error}", field=error.field) from error
