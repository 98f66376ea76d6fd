"""Who may do what: roles, API keys and their scopes, and what is kept of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant, Seconds
from daybell.core.limits import check_name
from daybell.errors import UsageError, shown


class Role(StrEnum):
    """What a key may do. Each of the first four may do all that those before it may."""

    VIEWER = "viewer"  # look
    OPERATOR = "operator"  # trigger, retry, cancel, pause
    ADMIN = "admin"  # define jobs, make keys
    SUPERADMIN = "superadmin"  # tenants, and any tenant's affairs
    WORKER = "worker"  # leases, and nothing else

    def may(self, needed: Role) -> bool:
        """Whether one with this role may do what needs that one."""
        if Role.WORKER in (self, needed):
            return self is needed
        return _RANKS[self] >= _RANKS[needed]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class Action(StrEnum):
    """A group of operations that a key can be limited to. Each takes one role at least."""

    READ = "read"
    TRIGGER = "trigger"
    CANCEL = "cancel"
    RETRY = "retry"
    DISCARD = "discard"
    PAUSE = "pause"  # and resume
    SIGNAL = "signal"  # and approve, and publish events
    DRAIN = "drain"
    DEFINE = "define"
    BACKFILL = "backfill"
    SECRETS = "secrets"


_ADMIN_ACTIONS: Final = frozenset({Action.DEFINE, Action.BACKFILL, Action.SECRETS})
PATTERNS_MAX: Final = 50  # of jobs, and of queues, that a key is limited to
WILDCARD: Final = "*"


def role_for(action: Action) -> Role:
    """The least role that an action takes."""
    if action is Action.READ:
        return Role.VIEWER
    return Role.ADMIN if action in _ADMIN_ACTIONS else Role.OPERATOR


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key is limited to, within its role. An empty part does not limit.

    A pattern is a name, or the beginning of names with a * after it.
    """

    jobs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()

    @property
    def limits_names(self) -> bool:
        """Whether jobs or queues are limited."""
        return bool(self.jobs or self.queues)

    def allows(self, action: Action) -> bool:
        """Whether the scope includes an action."""
        return not self.actions or action in self.actions

    def covers(self, job: str, queue: str | None = None) -> bool:
        """Whether a job, or an execution of it in this queue, is in the scope. Without a queue
        only the job's name counts.
        """
        return matches(job, self.jobs) and (queue is None or matches(queue, self.queues))

    def describe(self) -> str:
        """Describe the limits for a person."""
        parts = {"jobs": self.jobs, "queues": self.queues, "actions": self.actions}
        return "; ".join(f"{name} {', '.join(limits)}" for name, limits in parts.items() if limits)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name fits one of these patterns; every name fits none at all."""
    return not patterns or any(
        name.startswith(one[:-1]) if one.endswith(WILDCARD) else name == one for one in patterns
    )


def check_scope(scope: Scope, role: Role) -> Scope:
    """Return a scope that a key of this role can have."""
    if role in (Role.SUPERADMIN, Role.WORKER):
        raise UsageError(
            f"a key with the role {role} cannot be limited to jobs, queues or actions; the roles"
            " viewer, operator and admin can",
            field="role",
        )
    if scope == Scope():
        raise UsageError("a scope limits jobs, queues or actions; this one has none of them")
    for field, patterns in (("jobs", scope.jobs), ("queues", scope.queues)):
        if len(patterns) > PATTERNS_MAX:
            raise UsageError(
                f"{len(patterns)} patterns are too many; the limit is {PATTERNS_MAX}", field=field
            )
        for one in patterns:
            if WILDCARD in one[:-1] or one in ("", WILDCARD):
                raise UsageError(
                    f"{shown(one)} is no pattern: give a name, or the beginning of names with a *"
                    " after it, such as billing-*",
                    field=field,
                )
            name = one.removesuffix(WILDCARD)
            check_name(name, what="job" if field == "jobs" else "queue")
    for action in scope.actions:
        if not role.may(role_for(action)):
            raise UsageError(
                f"a scope narrows a role, and {role} may not {action}: that takes the role"
                f" {role_for(action)}",
                field="actions",
            )
    return scope


class _Limits(Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scope as it is stored, with the role of its key."""

    role: Role


_LIMITS: Final = msgspec.json.Decoder(_Limits)


def write_limits(role: Role, scope: Scope | None) -> tuple[str, str | None]:
    """What is stored of a role and a scope. A program that does not know scopes takes the key for
    a worker's, which opens nothing.
    """
    if scope is None:
        return str(role), None
    limits = _Limits(role=role, **msgspec.structs.asdict(scope))
    return str(Role.WORKER), msgspec.json.encode(limits).decode()


def read_limits(role: str, limits: str | None) -> tuple[Role, Scope | None]:
    """The role and scope that `write_limits` stored. A scope that cannot be read, since a later
    release wrote it, leaves a key that opens nothing.
    """
    if limits is None:
        return Role(role), None
    try:
        found = _LIMITS.decode(limits)
    except msgspec.MsgspecError:
        return Role.WORKER, Scope(jobs=("",))
    return found.role, Scope(jobs=found.jobs, queues=found.queues, actions=found.actions)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored. Of the secret itself, only a digest ever gets here."""

    id: UUID
    name: str  # what people know it by
    role: Role
    digest: bytes  # SHA-256 of the whole token, which has more bits than anybody can try
    hint: str  # how the token begins, to tell keys apart
    expires_in: Seconds | None = None
    scope: Scope | None = None
    created_by: str = ""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key, without its digest."""

    id: UUID
    tenant: str
    name: str
    role: Role
    hint: str
    created_at: Instant
    created_by: str = ""
    expires_at: Instant | None = None
    used_at: Instant | None = None  # to the minute or so
    revoked_at: Instant | None = None
    scope: Scope | None = None

    def is_valid(self, now: Instant) -> bool:
        """Whether it opens anything at this time of the store."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
