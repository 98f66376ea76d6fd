"""Timeouts of connections, all derived from the lease.

Every timeout of a short statement is shorter than a third of the lease: a worker with a deaf
connection detects this, connects again and renews its lease before the lease ends. Work that is
known to be slow is declared as such and has its own pace.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from daybell.core.units import Seconds

COMMAND_SHARE: Final = 0.3  # of the lease; renewals are a third of it apart
COMMAND_SECONDS_MAX: Final[Seconds] = 3.5
VIEW_SECONDS: Final[Seconds] = 6.0
LONG_SECONDS: Final[Seconds] = 60.0
LARGE_BATCH_ROWS: Final = 1000
MIGRATION_SECONDS: Final[Seconds] = 3600.0
CONNECT_SECONDS_MAX: Final[Seconds] = 3.0  # to all hosts of a URL together
ACQUIRE_SECONDS: Final[Seconds] = 0.2  # beyond that, so that the last host has its whole time
# Parts of the time for an answer. The server gives up first, so that a connection which reports an
# error is not taken for a deaf one.
STATEMENT_SHARE: Final = 0.85
LOCK_SHARE: Final = 0.7
IDLE_SECONDS_MIN: Final[Seconds] = 1.0
IDLE_SECONDS_MAX: Final[Seconds] = 4.0  # ticks that are 5 s late count as missed, by default
FIRE_IDLE_SECONDS_MAX: Final[Seconds] = 2.0
FIRE_LOCK_SECONDS_MAX: Final[Seconds] = 0.25

# Settings that do not depend on the lease.
PLANNING: Final[dict[str, str]] = {
    "default_transaction_isolation": "read committed",  # the statements require it
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",  # planning costs more than most statements here
    "timezone": "UTC",
}
# Views read an index in its order and stop. With the statistics of an empty table, a bitmap and a
# sort of all rows look cheaper, or a join of whole tables.
VIEW_PLANNING: Final[dict[str, str]] = PLANNING | {
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
}
_SESSION_ONLY: Final = ("tcp_", "default_", "application_name")


class Pace(StrEnum):
    """The kinds of work that have timeouts of their own."""

    SHORT = "short"  # claims, ends, renewals, enqueues, lookups
    FIRE = "fire"  # a scheduler that freezes within a transaction is not waited for
    VIEW = "view"  # reads over many rows, for people
    LONG = "long"  # large batches, retention
    LOAD = "load"  # the same, but the source of a bulk load may be slow, too
    MIGRATION = "migration"


PATIENT: Final = (Pace.LONG, Pace.LOAD)  # wait as long for a connection as for an answer


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of one pace, in seconds."""

    command: Seconds  # until the client gives up an answer, and the connection with it
    statement: Seconds  # until the server ends a statement
    lock: Seconds  # until the server ends a wait for a lock
    connect: Seconds  # for a new connection
    acquire: Seconds  # for a connection of the pool, new or not
    idle: Seconds  # until the server ends a session that is idle in a transaction
    keepalive: int  # seconds of silence before TCP asks whether the peer is there
    planning: dict[str, str]  # settings of the planner

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings at the start of a session."""
        return {"application_name": "daybell", **self.planning, **self._limits, **self.peer}

    @property
    def _limits(self) -> dict[str, str]:
        return {
            "statement_timeout": _milliseconds(self.statement),
            "lock_timeout": _milliseconds(self.lock),
            "idle_in_transaction_session_timeout": _milliseconds(self.idle),
        }

    @property
    def peer(self) -> dict[str, str]:
        """Return the settings by which the server detects that a client's machine is gone."""
        return {
            "tcp_keepalives_idle": str(self.keepalive),
            "tcp_keepalives_interval": "1",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": _milliseconds(self.keepalive + 3),
        }

    @property
    def client_end(self) -> dict[str, int]:
        """Return the options by which the client detects a lost server, as in a failover."""
        return {
            "TCP_KEEPIDLE": self.keepalive,
            "TCP_KEEPINTVL": 1,
            "TCP_KEEPCNT": 3,
            "TCP_USER_TIMEOUT": (self.keepalive + 3) * 1000,
        }

    @property
    def set_local(self) -> str:
        """Return the settings that a session can set for one transaction behind a pooler."""
        settings = self.planning | self._limits
        return "SELECT " + ", ".join(
            f"set_config('{name}', '{value}', true)"
            for name, value in settings.items()
            if not name.startswith(_SESSION_ONLY)
        )

    @property
    def set_session(self) -> str:
        """Return the settings for a session behind a pooler that keeps the server. The pooler
        itself checks the connection between the two.
        """
        return "SELECT " + ", ".join(
            f"set_config('{name}', '{value}', false)"
            for name, value in self.settings.items()
            if not name.startswith("tcp_")
        )

    @property
    def patience(self) -> Seconds:
        """Return how long repeatable work waits for locks, over all its tries: longer than the
        server lets a session with such locks idle.
        """
        return self.idle + 0.5


def timeouts_for(lease: Seconds, pace: Pace = Pace.SHORT) -> Timeouts:
    """Derive the timeouts of a pace from the lease."""
    command = min(COMMAND_SHARE * lease, COMMAND_SECONDS_MAX)
    # A new connection takes several round trips, and a bulk load may wait for its source.
    connect = min(2 * COMMAND_SHARE * lease, CONNECT_SECONDS_MAX)
    idle = min(max(lease / 3, IDLE_SECONDS_MIN), IDLE_SECONDS_MAX)
    lock: Seconds | None = None
    match pace:
        case Pace.SHORT:
            pass
        case Pace.FIRE:
            lock = min(command * LOCK_SHARE, FIRE_LOCK_SECONDS_MAX)
            idle = min(idle, FIRE_IDLE_SECONDS_MAX)
        case Pace.VIEW:
            lock, command = command * LOCK_SHARE, VIEW_SECONDS
        case Pace.LONG:
            lock, command = command * LOCK_SHARE, LONG_SECONDS
        case Pace.LOAD:
            lock, command, idle = command * LOCK_SHARE, LONG_SECONDS, LONG_SECONDS
        case Pace.MIGRATION:
            lock, command = command * LOCK_SHARE, MIGRATION_SECONDS
    return Timeouts(
        command=command,
        statement=command * STATEMENT_SHARE,
        lock=command * LOCK_SHARE if lock is None else lock,
        connect=connect,
        acquire=command if pace in PATIENT else connect + ACQUIRE_SECONDS,
        idle=idle,
        keepalive=max(1, round(min(lease, 15.0) / 5)),
        planning=VIEW_PLANNING if pace is Pace.VIEW else PLANNING,
    )


def pace_of(rows: int) -> Pace:
    """Return the pace of a batch: a large one takes longer on a busy machine."""
    return Pace.LONG if rows > LARGE_BATCH_ROWS else Pace.SHORT


def _milliseconds(seconds: Seconds) -> str:
    return str(round(seconds * 1000))
