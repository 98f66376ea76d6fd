"""Facts for observers. They are told what has happened and decide nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from daybell.core.execution import Claimed, Execution
from daybell.core.instant import Seconds
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.schedule import Firing

logger = logging.getLogger("daybell.engine")


class Started(msgspec.Struct, frozen=True, gc=False):
    """An execution is about to run here."""

    claimed: Claimed


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt has ended and the store knows. With a verdict, not as the worker asked for."""

    claimed: Claimed
    transition: Transition
    verdict: Verdict | None = None


class RunBegun(msgspec.Struct, frozen=True, gc=False):
    """A workflow's run is in the store, and out of this worker's hands."""

    claimed: Claimed


class RunEnded(msgspec.Struct, frozen=True, gc=False):
    """A workflow's run has ended with a node that ended here, or as it began here. It is told a
    moment later, and only where somebody looks for it: `daybell dev` and `daybell worker`.
    """

    run: Execution


class WorkerLost(msgspec.Struct, frozen=True, gc=False):
    """The reaper took an execution out of a dead worker's hands."""

    claimed: Claimed
    transition: Transition


class Fired(msgspec.Struct, frozen=True, gc=False):
    """A scheduler has advanced a schedule, so long after the time that it stood at."""

    firing: Firing
    late: Seconds
    job: str


Observer = Callable[[Any], None]


class Events:
    """Where observers listen. Without any, a fact costs nothing, not even its making."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._curious: list[Observer] = []  # those who hear of what goes as it should, too

    def observe(self, observer: Observer, *, only_trouble: bool = False) -> None:
        """Tell this observer of everything, or only of what is not a start or a plain success.

        That a run has begun is never plain, nor is the end of a node: it may have ended with that.
        """
        self._observers.append(observer)
        if not only_trouble:
            self._curious.append(observer)

    @property
    def is_heard(self) -> bool:
        """Whether there is anybody to tell."""
        return bool(self._observers)

    def emit(self, kind: Callable[..., Any], *facts: object, is_plain: bool = False) -> None:
        """Tell everybody whom it concerns. One observer's error is logged and hurts nobody."""
        observers = self._curious if is_plain else self._observers
        if not observers:
            return
        event = kind(*facts)
        for observer in observers:
            try:
                observer(event)
            except Exception:
                logger.exception("an observer failed on %s", type(event).__name__)
