"""Masking in the output of the worker itself: its streams and its own log.

People who run workers see that, and callers do not. What is kept of an execution is masked by the
execution: see `core.masking`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from daybell.core.masking import NO_MASKS, VALUES_REMEMBERED, Masks, mask_forms
from daybell.runners.python import RunningAttempt


class WorkerMasks:
    """The settings of this process, and the secrets that its executions have opened lately."""

    def __init__(self) -> None:
        self.settings = NO_MASKS
        self._values: frozenset[str] = frozenset()
        self._opened: dict[str, Masks] = {}  # the last one was opened last
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.settings or self._opened)

    def add(self, values: Iterable[str]) -> None:
        """Mask these secrets."""
        with self._lock:
            for value in values:
                known = self._opened.pop(value, None)
                self._opened[value] = known or Masks.of(frozenset({value}))
            while len(self._opened) > VALUES_REMEMBERED:
                del self._opened[next(iter(self._opened))]

    def add_settings(self, values: Iterable[str]) -> None:
        """Mask these settings."""
        with self._lock:
            self._values |= frozenset(values)
            self.settings = Masks.of(self._values)

    def forget(self) -> None:
        """Mask nothing any more."""
        with self._lock:
            self.settings, self._values, self._opened = NO_MASKS, frozenset(), {}

    def __call__(self, text: str, running: RunningAttempt | None = None) -> str:
        """Return a text without settings and secrets. One that an execution has written is masked
        as in the log of that execution, which the same records go into.
        """
        if running is not None:
            return running.without_secrets(text)
        all_masks = (self.settings, *tuple(self._opened.values()))
        found = [form for masks in all_masks for form in masks.find(text)]
        return mask_forms(text, found) if found else text


masks: Final = WorkerMasks()  # of this process
