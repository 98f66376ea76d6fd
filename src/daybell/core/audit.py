"""The audit log: who changed what, from where."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant


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
