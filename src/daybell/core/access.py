"""Access control: roles, API keys, tenants, stored secrets, idempotent requests, the audit log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.limits import check_name
from daybell.core.options import Keep
from daybell.core.units import Instant, Seconds
from daybell.errors import UsageError, shown


class Role(StrEnum):
    """The permissions of a key. Each of the first four includes those before it."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # trigger, retry, cancel, pause
    ADMIN = "admin"  # define jobs, make keys
    SUPERADMIN = "superadmin"  # manage tenants, and act in any of them
    WORKER = "worker"  # leases only

    def may(self, needed: Role) -> bool:
        """Return True if this role includes the permissions of another one."""
        if Role.WORKER in (self, needed):
            return self is needed
        return _RANKS[self] >= _RANKS[needed]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class Action(StrEnum):
    """A group of operations that a key can be limited to. Each requires a role."""

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
PATTERNS_MAX: Final = 50  # for jobs, and for queues, of a scope
WILDCARD: Final = "*"


def role_for(action: Action) -> Role:
    """Return the lowest role that may do an action."""
    if action is Action.READ:
        return Role.VIEWER
    return Role.ADMIN if action in _ADMIN_ACTIONS else Role.OPERATOR


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a key within its role. An empty part does not limit, except the actions of a
    worker's key: it reads secrets only if they are named.

    A pattern is a name, or a prefix of names followed by *.
    """

    jobs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()

    @property
    def limits_names(self) -> bool:
        """True if it limits jobs or queues."""
        return bool(self.jobs or self.queues)

    def allows(self, action: Action) -> bool:
        """Return True if the scope includes an action."""
        return not self.actions or action in self.actions

    def covers(self, job: str, queue: str | None = None) -> bool:
        """Return True if a job, or its execution in a queue, is in the scope. Without a queue, only
        the name of the job counts.
        """
        return matches(job, self.jobs) and (queue is None or matches(queue, self.queues))

    def describe(self) -> str:
        """Describe the limits for users."""
        parts = {"jobs": self.jobs, "queues": self.queues, "actions": self.actions}
        return "; ".join(f"{name} {', '.join(limits)}" for name, limits in parts.items() if limits)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True if a name matches one of the patterns, or there are none."""
    return not patterns or any(
        name.startswith(one[:-1]) if one.endswith(WILDCARD) else name == one for one in patterns
    )


def check_scope(scope: Scope, role: Role) -> Scope:
    """Return a scope that is valid for a key of this role. That of a worker names the queues that
    it may serve, and the action `secrets` if it may read the secrets of what it claimed.
    """
    if role is Role.SUPERADMIN:
        raise UsageError(
            f"a key with the role {role} cannot be limited to jobs, queues or actions; the other"
            " roles can",
            field="role",
        )
    if role is Role.WORKER and scope.jobs:
        raise UsageError(
            "a worker's key can be limited to queues, and not to jobs: a worker takes from queues",
            field="jobs",
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
        if role is Role.WORKER:
            if action is not Action.SECRETS:
                raise UsageError(
                    f"a worker's key takes no action but secrets; {action} is none of it",
                    field="actions",
                )
        elif not role.may(role_for(action)):
            raise UsageError(
                f"a scope narrows a role, and {role} may not {action}: that takes the role"
                f" {role_for(action)}",
                field="actions",
            )
    return scope


_SCOPE: Final = msgspec.json.Decoder(Scope)


def write_scope(scope: Scope | None) -> str | None:
    """Return the stored form of a scope."""
    return None if scope is None else msgspec.json.encode(scope).decode()


def read_scope(text: str | None) -> Scope | None:
    """Parse a stored scope. Invalid text raises, so that it never widens the access of a key."""
    return None if text is None else _SCOPE.decode(text)


class KeyKind(StrEnum):
    """How a token is used."""

    KEY = "key"  # in the Authorization header
    SESSION = "session"  # in the cookie of a browser
    LOGIN = "login"  # in a link that makes one session, once
    HOOK = "hook"  # in the address of a job's webhook


SESSION_SECONDS: Final[Seconds] = 12 * 3600.0
LOGIN_SECONDS: Final[Seconds] = 10 * 60.0
SESSIONS_MAX: Final = 100  # of one key; the oldest end when there are more


class HookAlgorithm(StrEnum):
    """The hash of a signature."""

    SHA256 = "sha256"
    SHA512 = "sha512"
    SHA1 = "sha1"


class HookEncoding(StrEnum):
    """The text form of a signature."""

    HEX = "hex"
    BASE64 = "base64"


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The webhook of a job: the rule for the signatures of its requests."""

    job: str
    signature: str | None = None  # github, stripe, standard or hmac; None: none
    secret: str | None = None  # the name of the secret that signs
    header: str | None = None  # of hmac, in lower case
    algorithm: HookAlgorithm = HookAlgorithm.SHA256
    encoding: HookEncoding = HookEncoding.HEX


_HOOK: Final = msgspec.json.Decoder(Hook)


def write_hook(hook: Hook | None) -> str | None:
    """Return the stored form of a hook."""
    return None if hook is None else msgspec.json.encode(hook).decode()


def read_hook(text: str | None) -> Hook | None:
    """Parse a stored hook."""
    return None if text is None else _HOOK.decode(text)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to store: a digest instead of the token."""

    id: UUID
    name: str  # for people
    role: Role
    digest: bytes  # SHA-256 of the token, which is too long to guess
    hint: str  # the start of the token, to recognize it
    expires_in: Seconds | None = None
    scope: Scope | None = None
    created_by: str = ""
    kind: KeyKind = KeyKind.KEY
    parent: UUID | None = None  # the key that this ends with
    hook: Hook | None = None


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to store; the rest follows from the key that opens it."""

    id: UUID
    digest: bytes
    hint: str


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
    used_at: Instant | None = None  # accurate to about a minute
    revoked_at: Instant | None = None  # or its parent, as with expires_at
    scope: Scope | None = None
    kind: KeyKind = KeyKind.KEY
    parent: UUID | None = None
    hook: Hook | None = None

    def is_valid(self, now: Instant) -> bool:
        """Return True if the key gives access at this time of the store."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def open_session(self, new: NewSession, now: Instant) -> NewKey | None:
        """Return the session that this key or login link opens; None: it opens none."""
        if self.kind not in (KeyKind.KEY, KeyKind.LOGIN) or self.role is Role.WORKER:
            return None
        if not self.is_valid(now):
            return None
        return NewKey(
            id=new.id,
            name=self.name,
            role=self.role,
            digest=new.digest,
            hint=new.hint,
            expires_in=SESSION_SECONDS,
            scope=self.scope,
            created_by=self.created_by,
            kind=KeyKind.SESSION,
            parent=self.id if self.kind is KeyKind.KEY else self.parent,
        )


# Tenants: isolated spaces with quotas.


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a tenant; None: no limit."""

    jobs: int | None = None  # defined jobs, without deleted ones
    queued: int | None = None  # unfinished executions
    per_minute: int | None = None  # executions enqueued per minute of the store's clock
    running: int | None = None  # concurrent executions on all workers

    @property
    def limits_enqueues(self) -> bool:
        return self.queued is not None or self.per_minute is not None


NO_QUOTAS: Final = Quotas()


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: Instant
    quotas: Quotas = NO_QUOTAS
    keep: Keep = Keep()  # the policy of retention of its jobs
    weight: float = 1.0  # its part of the workers that serve several tenants


# Secrets: values that are stored sealed, and opened by the worker that runs a job.


class NewSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret to store, sealed."""

    name: str
    key_id: str  # the key that opens it
    sealed: bytes
    version: int | None = None  # the version that the seal is bound to; None: any
    author: str = ""


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret without its value."""

    name: str
    tenant: str
    key_id: str
    version: int  # rises with every change
    created_at: Instant
    updated_at: Instant
    author: str = ""  # of the last change


class SealedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret for a worker."""

    name: str
    key_id: str
    version: int
    sealed: bytes


# Requests with an idempotency key, which may be repeated.


class NewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with an idempotency key of the client.

    `id` is used if the key is new. Ids of created rows derive from it, so that a repeated request
    creates nothing after a crash between the change and the answer.
    """

    key: str
    digest: bytes  # of method, path and body
    id: UUID


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded request."""

    key: str
    digest: bytes
    id: UUID
    is_new: bool  # first use of the key
    status: int | None = None  # of the answer; None: no answer yet
    answer: str | None = None  # its body


# The audit log: changes with their authors.
#
# The entries of a tenant form a chain. Each has a number and a hash over the entry and the hash of
# the entry before it. The head of the chain stores the number and hash of the last entry, and those
# of the last entry that retention removed (the anchor).


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry to add. Entries are never changed."""

    id: UUID
    actor: str  # such as "key deploy (dbk_Zk3v, 0193…)", its id last, or "cli ana@host"
    action: str  # a noun and a verb: "job.update", "key.revoke", "queue.pause"
    target: str  # the name or id of the changed object
    before: str | None = None  # its state before, as JSON
    after: str | None = None  # its new state, or the request, as JSON
    source: str = ""  # an address, or the host of a terminal


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log."""

    id: UUID
    tenant: str
    at: Instant
    actor: str
    action: str
    target: str
    before: str | None = None
    after: str | None = None
    source: str = ""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on audit entries; all must hold."""

    actor: str | None = None
    action: str | None = None  # "job.update", or the noun alone
    target: str | None = None
    since: Instant | None = None
    until: Instant | None = None


ALL_ENTRIES: Final = AuditFilter()


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with its position in the chain."""

    number: int  # from 1, without gaps
    hash: bytes
    entry: AuditEntry


class ChainHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a chain, and its start after retention has removed entries."""

    number: int = 0
    hash: bytes = b""
    removed: int = 0  # the number of the last removed entry
    anchor: bytes = b""  # its hash


class ChainSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive entries of a chain and its head, from one snapshot."""

    head: ChainHead
    links: tuple[ChainLink, ...]


class ChainPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The last checked entry. The text form is `NUMBER:HASH`."""

    number: int = 0
    hash: bytes = b""

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> ChainPosition:
        """Parse the text form. Raises UsageError."""
        found = re.fullmatch(r"([0-9]{1,18}):((?:[0-9a-f]{64})?)", text)
        if found is None:
            raise UsageError(
                f"{shown(text)} is not a position in the audit log; pass the head that"
                " `daybell audit verify` has printed, NUMBER:HASH",
                field="cursor",
            )
        return cls(number=int(found[1]), hash=bytes.fromhex(found[2]))


class ChainBreak(msgspec.Struct, frozen=True, kw_only=True):
    """The first inconsistency of a chain."""

    number: int
    id: UUID | None  # None: the entry is missing
    problem: str


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a part of a chain."""

    entries: int  # number of checked entries
    head: str  # the last checked position
    broken: ChainBreak | None = None
    next_cursor: str | None = None  # None at the end of the chain, or after a break


def link_hash(previous: bytes, number: int, entry: AuditEntry) -> bytes:
    """Return the hash of an entry that follows one with the hash `previous`.

    It is the SHA-256 of the previous hash and a text: number, time in microseconds and id, the
    lengths of the other fields in characters (-1: none), and these fields without separators.
    `daybell.record_audit` in PostgreSQL computes the same.
    """
    e = entry
    fields = (e.tenant, e.actor, e.action, e.target, e.before, e.after, e.source)
    lengths = (-1 if field is None else len(field) for field in fields)
    head = ":".join(map(str, (number, round(e.at * 1e6), e.id, *lengths)))
    text = f"{head}:{''.join(field or '' for field in fields)}"
    return hashlib.sha256(previous + text.encode()).digest()


def extend_chain(
    head: ChainHead, entries: Sequence[AuditEntry]
) -> tuple[ChainHead, list[ChainLink]]:
    """Append entries to a chain; return its new head and the links."""
    number, last = head.number, head.hash
    links: list[ChainLink] = []
    for entry in entries:
        number += 1
        last = link_hash(last, number, entry)
        links.append(ChainLink(number=number, hash=last, entry=entry))
    return msgspec.structs.replace(head, number=number, hash=last), links


def follow_chain(
    since: ChainPosition, stretch: ChainSegment, *, is_last: bool
) -> tuple[ChainPosition, ChainBreak | None]:
    """Check the segment after a position; return the new position and the first break.

    The last segment must lead to the head. Entries that retention has removed are skipped: the
    chain continues from the anchor.
    """
    head, at = stretch.head, since
    if head.removed > at.number:
        at = ChainPosition(number=head.removed, hash=head.anchor)
    for link in stretch.links:
        expected = at.number + 1
        if link.number > expected and expected <= head.number:
            return at, _missing_entries(expected, min(link.number - 1, head.number))
        problem = None
        if link.number != expected or link.number > head.number:
            problem = "is outside the numbers that the head of the chain records"
        elif link_hash(at.hash, link.number, link.entry) != link.hash:
            problem = "was altered or moved, or an entry before it was replaced"
        if problem is not None:
            return at, ChainBreak(number=link.number, id=link.entry.id, problem=problem)
        at = ChainPosition(number=link.number, hash=link.hash)
    if is_last and at.number < head.number:
        return at, _missing_entries(at.number + 1, head.number)
    if is_last and at != ChainPosition(number=head.number, hash=head.hash):
        problem = "does not lead to the head of the chain: the head or the end was replaced"
        return at, ChainBreak(number=at.number, id=None, problem=problem)
    return at, None


def _missing_entries(first: int, last: int) -> ChainBreak:
    problem = "is missing" if first == last else f"and all up to {last} are missing"
    return ChainBreak(number=first, id=None, problem=problem)
