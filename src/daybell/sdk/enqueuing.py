"""What tasks and workflows have in common: they can be enqueued, one by one or many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from uuid import UUID

from daybell.client import Client
from daybell.client.requests import EnqueueOptions
from daybell.core.execution import Enqueued
from daybell.core.limits import ENQUEUE_BATCH_MAX
from daybell.errors import InvalidArguments, UsageError
from daybell.sdk.handle import Handle

if TYPE_CHECKING:
    from daybell.sdk.app import AnyJob, App

R = TypeVar("R")


class CallOptions(EnqueueOptions, total=False):
    """What `options()` takes: when, where and how one execution runs."""

    unique_key: str | None
    tenant: str | None
    connection: Any  # of the caller's, to PostgreSQL: enqueues in its transaction


CALL_OPTIONS: Final = frozenset(CallOptions.__optional_keys__)


class Enqueuing(Generic[R]):
    """A job of an app. What is enqueued through it has a result of this type."""

    app: App
    _options: CallOptions

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, checked."""
        raise NotImplementedError

    def _handle(self, id: UUID, created: bool) -> Handle[R]:
        raise NotImplementedError

    async def _find_client(self) -> Client:
        return await self.app.client_for(self._options.get("tenant"))

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one execution per item, its arguments by name; one round trip, all or nothing.

        More than 10,000 are streamed in one transaction; then there are no handles to return.
        """
        checked = self.bound_many(items)
        if self.connection is not None:
            return await self._enqueue_through(checked)
        answers = await self.app.enqueue_many(cast("AnyJob", self), checked, self._options)
        return [self._handle(id, created=True) for id in answers]

    async def _enqueue_one(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Handle[R]:
        given = self.bound(args, kwargs)
        if self.connection is not None:
            (handle,) = await self._enqueue_through([given])
            return handle
        return self._handle(*await self.app.enqueue(cast("AnyJob", self), given, self._options))

    async def _enqueue_through(self, items: Iterable[dict[str, Any]]) -> list[Handle[R]]:
        from daybell.client import calls

        calls.check_connection(self.connection, is_async=True)
        call = await self.app.prepare(cast("AnyJob", self), items, self._options)
        return self.handles(await calls.send(self.connection, call))

    @property
    def connection(self) -> Any:
        """The caller's connection that it enqueues through, if `options` named one."""
        # It leads to a real database, where what a test enqueues has no business.
        return None if self.app.stand_in is not None else self._options.get("connection")

    @property
    def call_options(self) -> CallOptions:
        """What `options` were given."""
        return self._options

    def bound_many(self, items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """What each item is called with, as it is asked for."""
        if self._options.get("unique_key") is not None:
            raise UsageError("a unique_key is for one execution; enqueue_many takes none")
        return (_checked(position, item, self.bound) for position, item in enumerate(items))

    def handles(self, answers: Iterable[Enqueued]) -> list[Handle[R]]:
        """What is returned for these answers of a store."""
        return [self._handle(answer.id, answer.created) for answer in answers]


class Kept(Iterable[Mapping[str, Any]]):
    """Items that can be read again from the start, as long as no more than a batch was read."""

    def __init__(self, items: Iterable[Mapping[str, Any]]) -> None:
        self._rest = iter(items)
        self._read: list[Mapping[str, Any]] | None = []

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        if self._read is None:
            raise UsageError("these items were read already; enqueue them again")
        yield from tuple(self._read)
        for item in self._rest:
            if self._read is not None:
                self._read.append(item)
                if len(self._read) > ENQUEUE_BATCH_MAX:
                    self._read = None
            yield item


def _checked(
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
