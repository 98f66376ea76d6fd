"""The audit log: who changed what, from where.

The entries of a tenant form a chain. Each has a number and a hash, which covers the entry and the
hash of the entry before it. The head of the chain keeps the number and the hash of the last entry,
and those of the last entry that retention has removed (the anchor).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.errors import UsageError, shown


class NewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry to be added. Entries are never changed."""

    id: UUID
    actor: str  # such as "key deploy (dbk_Zk3v, 0193…)", its id last, or "cli ana@host"
    action: str  # a noun and a verb: "job.update", "key.revoke", "queue.pause"
    target: str  # the name or id of what was changed
    before: str | None = None  # JSON, where there was something
    after: str | None = None  # JSON: what it became, or what was asked for
    source: str = ""  # an address, or the host of a terminal


class Entry(msgspec.Struct, frozen=True, kw_only=True):
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


class EntryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to show; what is left out does not restrict."""

    actor: str | None = None
    action: str | None = None  # all of it, or only its noun
    target: str | None = None
    since: Instant | None = None
    until: Instant | None = None


ALL_ENTRIES: Final = EntryFilter()


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with its place in the chain."""

    number: int  # from 1, without gaps
    hash: bytes
    entry: Entry


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a chain, and its beginning as far as retention has removed entries."""

    number: int = 0
    hash: bytes = b""
    removed: int = 0  # the number of the last removed entry
    anchor: bytes = b""  # its hash


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive entries of a chain and its head, read in one snapshot."""

    head: Head
    links: tuple[Link, ...]
    # Only of the first stretch. Entries without a hash are older than the chain:
    unchained: int = 0
    stray: UUID | None = None  # the first of them that is not


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """An entry up to which a chain was checked. People see `NUMBER:HASH`."""

    number: int = 0
    hash: bytes = b""

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the text of a position. Raises UsageError."""
        found = re.fullmatch(r"([0-9]{1,18}):((?:[0-9a-f]{64})?)", text)
        if found is None:
            raise UsageError(
                f"{shown(text)} is not a position in the audit log; pass the head that"
                " `daybell audit verify` has printed, NUMBER:HASH",
                field="cursor",
            )
        return cls(number=int(found[1]), hash=bytes.fromhex(found[2]))


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where a chain does not hold."""

    number: int
    id: UUID | None  # None: the entry is not there
    problem: str


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a part of a chain."""

    entries: int  # that were checked
    unchained: int  # that are older than the chain and cannot be checked
    head: str  # the position that was reached
    broken: Break | None = None
    next_cursor: str | None = None  # None: the end of the chain is reached, or it is broken


def link_hash(previous: bytes, number: int, entry: Entry) -> bytes:
    """Return the hash of an entry that follows one with the hash `previous`.

    It is the SHA-256 of the previous hash and a text: number, time in microseconds and id, the
    lengths of the other fields in characters (-1: none), and then these fields without anything
    between them. `daybell.record_audit` in PostgreSQL computes the same.
    """
    e = entry
    fields = (e.tenant, e.actor, e.action, e.target, e.before, e.after, e.source)
    lengths = (-1 if field is None else len(field) for field in fields)
    head = ":".join(map(str, (number, round(e.at * 1e6), e.id, *lengths)))
    text = f"{head}:{''.join(field or '' for field in fields)}"
    return hashlib.sha256(previous + text.encode()).digest()


def extend_chain(head: Head, entries: Sequence[Entry]) -> tuple[Head, list[Link]]:
    """Append entries to a chain; return its new head and the links."""
    number, last = head.number, head.hash
    links: list[Link] = []
    for entry in entries:
        number += 1
        last = link_hash(last, number, entry)
        links.append(Link(number=number, hash=last, entry=entry))
    return msgspec.structs.replace(head, number=number, hash=last), links


def follow_chain(
    since: Position, stretch: Stretch, *, is_last: bool
) -> tuple[Position, Break | None]:
    """Check the stretch that follows a position; return the position reached and the first break.

    A stretch that is the last must lead to the head. Entries that retention has removed meanwhile
    are skipped: the chain continues from the anchor.
    """
    head, at = stretch.head, since
    if stretch.stray is not None:
        return at, Break(number=0, id=stretch.stray, problem="was added without a hash")
    if head.removed > at.number:
        at = Position(number=head.removed, hash=head.anchor)
    for link in stretch.links:
        expected = at.number + 1
        if link.number > expected and expected <= head.number:
            return at, _missing(expected, min(link.number - 1, head.number))
        problem = None
        if link.number != expected or link.number > head.number:
            problem = "is outside the numbers that the head of the chain records"
        elif link_hash(at.hash, link.number, link.entry) != link.hash:
            problem = "was altered or moved, or an entry before it was replaced"
        if problem is not None:
            return at, Break(number=link.number, id=link.entry.id, problem=problem)
        at = Position(number=link.number, hash=link.hash)
    if is_last and at.number < head.number:
        return at, _missing(at.number + 1, head.number)
    if is_last and at != Position(number=head.number, hash=head.hash):
        problem = "does not lead to the head of the chain: the head or the end was replaced"
        return at, Break(number=at.number, id=None, problem=problem)
    return at, None


def _missing(first: int, last: int) -> Break:
    problem = "is missing" if first == last else f"and all up to {last} are missing"
    return Break(number=first, id=None, problem=problem)
