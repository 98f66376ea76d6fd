"""Errors and check-ins for Sentry, with the extra `daybell[sentry]`.

`DAYBELL_SENTRY_DSN` calls `enable` in the commands that keep running.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast
from uuid import UUID

from daybell.core.execution import Claimed, NewExecution, Outcome, State
from daybell.core.job import DEFAULT_TENANT
from daybell.core.monitoring import observers
from daybell.errors import RetryLater, UsageError, install_advice
from daybell.version import VERSION

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.crons.consts import MonitorStatus
    from sentry_sdk.scope import use_isolation_scope
    from sentry_sdk.utils import event_from_exception
except ImportError:
    raise UsageError(f"sentry-sdk is not installed: {install_advice('sentry')}") from None

__all__ = ["disable", "enable"]

SLUG_CHARS_MAX: Final = 50
KEPT_MAX: Final = 1_000  # errors of attempts whose end is not decided yet

_enabled: list[Reports] = []


def enable(dsn: str | None = None, **options: Any) -> None:
    """Report failed attempts and the ends of scheduled executions. With a DSN, or with options, the
    SDK is initialized with them; otherwise the program has done so.
    """
    disable()
    if dsn is not None or options:
        # Of web frameworks, nothing is patched: the server reports its errors itself.
        options = {"auto_enabling_integrations": False, "release": f"daybell@{VERSION}", **options}
        sentry_sdk.init(dsn, **options)
    reports = Reports()
    _enabled.append(reports)
    observers.add(reports)


def disable() -> None:
    """Report nothing any more."""
    while _enabled:
        observers.remove(_enabled.pop())


class Reports:
    """Reports what an observer sees."""

    def __init__(self) -> None:
        self._failed: dict[tuple[UUID, int], tuple[Any, Any, sentry_sdk.Scope]] = {}

    @contextmanager
    def enqueue(self, executions: Sequence[NewExecution]) -> Generator[str | None]:
        """Do nothing."""
        yield None

    @contextmanager
    def run(
        self, claimed: Claimed, trace: str | None, mask: Callable[[str], str]
    ) -> Generator[None]:
        """Give all events of an attempt its context; keep its error until its end is decided."""
        if claimed.scheduled_for is not None:
            _check_in(claimed, MonitorStatus.IN_PROGRESS)
        with sentry_sdk.isolation_scope() as scope:
            scope.set_tag("daybell.job", claimed.job)
            scope.set_tag("daybell.queue", claimed.queue)
            scope.set_tag("daybell.tenant", claimed.tenant)
            scope.set_transaction_name(claimed.job)
            scope.set_context(
                "daybell",
                {
                    "job": claimed.job,
                    "version": claimed.version,
                    "execution_id": str(claimed.id),
                    "attempt": claimed.attempt,
                    "failures": claimed.failures,
                    "node": claimed.node,
                },
            )
            try:
                yield
            except RetryLater:
                raise
            except Exception as error:
                event, hint = event_from_exception(
                    error,
                    client_options=sentry_sdk.get_client().options,
                    mechanism={"type": "daybell", "handled": False},
                )
                self._keep(claimed, _masked(event, mask), hint, scope)
                raise
            except CancelledError:  # perhaps by its timeout
                self._keep(claimed, {"message": f"{claimed.job} timed out"}, {}, scope)
                raise

    def _keep(
        self, claimed: Claimed, event: Any, hint: dict[str, Any], scope: sentry_sdk.Scope
    ) -> None:
        if len(self._failed) < KEPT_MAX:
            self._failed[claimed.id, claimed.attempt] = event, hint, scope

    @contextmanager
    def step(self, name: str, mask: Callable[[str], str]) -> Generator[None]:
        """Note the step, for the events after it."""
        sentry_sdk.add_breadcrumb(category="daybell.step", message=mask(name))
        yield

    def end(self, claimed: Claimed, state: State, outcome: Outcome | None) -> None:
        """Report the error of a failed attempt: a warning, if the execution runs again."""
        kept = self._failed.pop((claimed.id, claimed.attempt), None)
        if kept is not None and outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
            event, hint, scope = kept
            event["level"] = "error" if state is State.DEAD else "warning"
            with use_isolation_scope(scope):
                sentry_sdk.capture_event(event, hint)
        if claimed.scheduled_for is not None:
            if state is State.SUCCEEDED:
                _check_in(claimed, MonitorStatus.OK)
            elif state in (State.DEAD, State.CANCELLED):
                _check_in(claimed, MonitorStatus.ERROR)

    def headers(self) -> dict[str, str]:
        """Return none."""
        return {}


def monitor_slug(claimed: Claimed) -> str:
    """Return the slug of a job's monitor: its name, after that of a tenant of its own."""
    name = claimed.job if claimed.tenant == DEFAULT_TENANT else f"{claimed.tenant}-{claimed.job}"
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower())[:SLUG_CHARS_MAX].strip("-")


def _check_in(claimed: Claimed, status: str) -> None:
    # All attempts are one check-in, on whichever worker.
    capture_checkin(monitor_slug=monitor_slug(claimed), check_in_id=claimed.id.hex, status=status)


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    """Remove secrets from all texts of an event."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _masked(one, mask) for key, one in items}
    if isinstance(value, list | tuple):
        return [_masked(one, mask) for one in cast("Sequence[Any]", value)]
    return value
