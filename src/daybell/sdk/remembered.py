"""What is on record of steps, as functions see it: results and exceptions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, cast

from daybell.core import arguments, payload
from daybell.core.failure import Failure
from daybell.core.step import Step
from daybell.errors import StepFailed, Suspended, shown

Group: TypeAlias = "BaseExceptionGroup[BaseException]"


def converted(function: Callable[..., Any], text: str | None) -> Any:
    """A result as it is found on record, also for who has just done the step: what works now works
    after a crash.
    """
    value = None if text is None else payload.decode(text, what="result")
    try:
        return arguments.convert_result(function, value)
    except (ValueError, TypeError):  # some of what is written in C does not tell its signature
        return value


def changed(known: Step, fact: str) -> str:
    """What to say if the code does not do what is on record."""
    return (
        f"the code of this durable function has changed since an earlier attempt: {known.kind}"
        f" {shown(known.name)} is on record as its call {known.n}, but {fact}. Either put the"
        " code back that it began with, and retry it; or discard it (or cancel it, if it is not"
        " dead), and start a new execution"
    )


def raise_again(error: str) -> NoReturn:
    """Raise what a step has raised in an earlier attempt, as far as that is on record: its class,
    by its name, and its message.
    """
    failure = Failure.of_kept(error)
    raise _made(failure) or StepFailed(failure.message, type=failure.type)


def _made(failure: Failure) -> Exception | None:
    """An exception of that class. What its own __init__ would want is not known, so it is not
    asked; nor is anything imported that is not there already.
    """
    kind = _found(failure.names[0].split("."))
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return None
    try:
        made = kind.__new__(kind, failure.message)
        made.args = (failure.message,)
        str(made)  # some say what they were not given
    except Exception:
        return None
    return made


def _found(path: list[str]) -> object:
    for end in range(len(path) - 1, 0, -1):
        found: object = sys.modules.get(".".join(path[:end]))
        if found is not None:
            for name in path[end:]:
                found = getattr(found, name, None)
            return found
    return None


def follows(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether this was raised while such an exception was dealt with."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, kind):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


def suspended_in(error: BaseException) -> bool:
    """Whether this is a suspension and nothing else: of several calls at once, of each."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(suspended_in, cast(Group, error).exceptions))
    return isinstance(error, Suspended)
