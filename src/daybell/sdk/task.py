"""Tasks: decorated functions that can be called, and enqueued with the same arguments."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast
from uuid import UUID

from daybell.client.requests import EnqueueOptions
from daybell.core import arguments, payload
from daybell.core.job import JobDefinition
from daybell.errors import InvalidArguments, UsageError, shown
from daybell.sdk.context import context_names
from daybell.sdk.handle import Handle

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


CALL_OPTIONS: Final = frozenset(CallOptions.__optional_keys__)


class Task(Generic[P, R, F]):
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

        Arguments are checked against the signature here, where the mistake is.
        """
        given = self._check(arguments.bind(self.function, args, kwargs, skip=self.context_names))
        return self._handle(*await self.app.enqueue(self, given, self._options))

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one execution per item, its arguments by name; one round trip, all or nothing.

        More than 10,000 are streamed in one transaction; then there are no handles to return.
        """
        if self._options.get("unique_key") is not None:
            raise UsageError("a unique_key is for one execution; enqueue_many takes none")
        answers = await self.app.enqueue_many(self, self._checked(items), self._options)
        return [self._handle(id, created=True) for id in answers]

    @property
    def sync(self) -> SyncTask[P, R]:
        """The same from code without an event loop."""
        from daybell.sdk.sync import SyncTask

        return SyncTask(self)

    @functools.cached_property
    def context_names(self) -> frozenset[str]:
        """The parameters that the worker fills: `Context` ones, and a bare `ctx`."""
        return context_names(self.function)

    def _check(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert as the worker will, so that what it would refuse is refused here."""
        if given:
            stored = payload.decode(payload.encode(given))
            arguments.convert(self.function, stored, skip=self.context_names)
        return given

    def _checked(self, items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for position, item in enumerate(items):
            if not isinstance(cast("object", item), Mapping):
                kind = type(item).__name__
                raise UsageError(
                    f"items[{position}]: arguments are given by name, as a dict, not as {kind}"
                )
            try:
                yield self._check(arguments.bind(self.function, (), item, skip=self.context_names))
            except InvalidArguments as error:
                raise InvalidArguments(f"items[{position}]: {error}", field=error.field) from error

    def _handle(self, id: UUID, created: bool) -> Handle[R]:
        return Handle(
            functools.partial(self.app.client_for, self._options.get("tenant")),
            id,
            created=created,
            convert=functools.partial(arguments.convert_result, self.function),
        )


def check_options(given: Iterable[str], known: frozenset[str], what: str) -> None:
    """Refuse an option that does not exist, before it is ignored or fails far from here."""
    for name in given:
        if name not in known:
            closest = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {closest[0]!r}?" if closest else f"it takes {sorted(known)}"
            raise UsageError(f"{what} has no {shown(name)}; {hint}", field=name)
