"""A store with faults: it raises before an operation, or after it was committed, or is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from daybell.errors import Unavailable
from tests.ports import WrappedStore


class FaultyStore(WrappedStore):
    """Passes everything on to another store, except for what it was told to do.

    Operations are named as in the protocol; "*" stands for all of them. `calls` has every one that
    was asked for, with its keyword arguments.
    """

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._before: dict[str, list[BaseException]] = {}
        self._after: dict[str, list[BaseException]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._hooks: dict[str, Callable[[], None]] = {}
        self.is_away = False
        self.delay: Callable[[str], float] = lambda operation: 0.0  # seconds, of each answer

    def fail(self, operation: str, *errors: BaseException, after: bool = False) -> None:
        """Have the next calls raise, one error each; `after` they have been committed, if so."""
        faults = self._after if after else self._before
        faults.setdefault(operation, []).extend(errors or (Unavailable("the store is away"),))

    def hold(self, operation: str) -> asyncio.Event:
        """Have calls wait until this is set, before they do anything."""
        self._gates[operation] = asyncio.Event()
        return self._gates[operation]

    def hook(self, operation: str, hook: Callable[[], None]) -> None:
        """Do this whenever the operation is called."""
        self._hooks[operation] = hook

    def count(self, operation: str) -> int:
        return len(self.asked(operation))

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """The keyword arguments of all calls of an operation."""
        return [kwargs for name, kwargs in self.calls if name == operation]

    def wrap(self, name: str, operation: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, kwargs))
            if name in self._hooks:
                self._hooks[name]()
            if name in self._gates:
                await self._gates[name].wait()
            if self.is_away:
                raise Unavailable("the store is away")
            if self._before.get(name):
                raise self._before[name].pop(0)
            seconds = self.delay(name) / 2
            if seconds:
                await asyncio.sleep(seconds)
            answer = await operation(*args, **kwargs)
            if seconds:
                await asyncio.sleep(seconds)
            if self._after.get(name):
                raise self._after[name].pop(0)
            return answer

        return call


def faulty(store: Any) -> Any:
    """The same; a type checker sees no protocol in what passes everything on."""
    return FaultyStore(store)
