"""Facts for observers. They are told what has happened and decide nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from daybell.core.execution import Claimed
from daybell.core.lifecycle import Transition, Verdict

logger = logging.getLogger("daybell.engine")


class Started(msgspec.Struct, frozen=True, gc=False):
    """An execution is about to run here."""

    claimed: Claimed


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt has ended and the store knows. With a verdict, not as the worker asked for."""

    claimed: Claimed
    transition: Transition
    verdict: Verdict | None = None


class WorkerLost(msgspec.Struct, frozen=True, gc=False):
    """The reaper took an execution out of a dead worker's hands."""

    claimed: Claimed
    transition: Transition


Observer = Callable[[Any], None]


class Events:
    """Where observers listen. Without any, a fact costs nothing, not even its making."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    def emit(self, kind: Callable[..., Any], *facts: object) -> None:
        """Tell everybody. One observer's error is logged and hurts nobody."""
        if not self._observers:
            return
        event = kind(*facts)
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                logger.exception("an observer failed on %s", type(event).__name__)
