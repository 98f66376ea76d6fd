"""What an editor knows of `@app.task`: the function's own arguments and result, minus the context.

Nothing here does anything at run time. The order of the overloads matters: the first one that fits
is taken, and a parameter or a result of type Any fits everything.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from daybell.sdk.context import Context
from daybell.sdk.task import Task

P = ParamSpec("P")
R = TypeVar("R")


class Anything:
    """Fits only where everything fits: so it finds what has no annotation."""


# A first parameter that takes anything may be a context or not: nothing can be checked.
Loose = TypeVar("Loose", bound=Callable[Concatenate[Anything, ...], Any])

Function = Callable[P, R]
AsyncFunction = Callable[P, Coroutine[Any, Any, R]]
ContextFunction = Callable[Concatenate[Context, P], R]
AsyncContextFunction = Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]


class Decorator(Protocol):
    """What `app.task(…)` returns: it makes a task of a function."""

    @overload
    def __call__(self, function: Loose, /) -> Task[..., Any, Loose]: ...
    @overload
    def __call__(
        self, function: AsyncContextFunction[P, R], /
    ) -> Task[P, R, AsyncContextFunction[P, R]]: ...
    @overload
    def __call__(self, function: ContextFunction[P, R], /) -> Task[P, R, ContextFunction[P, R]]: ...
    @overload
    def __call__(self, function: Function[P, Anything], /) -> Task[P, Any, Function[P, Any]]: ...
    @overload
    def __call__(self, function: AsyncFunction[P, R], /) -> Task[P, R, AsyncFunction[P, R]]: ...
    @overload
    def __call__(self, function: Function[P, R], /) -> Task[P, R, Function[P, R]]: ...
