"""Export policies: how far each repeated export has come. Retention keeps what is after that."""

from __future__ import annotations

from typing import Final

import msgspec

from daybell.core.job import RecordKind
from daybell.core.units import Instant, Seconds
from daybell.errors import ExportNotFound

# Rows of transactions that commit late are before the end of an export by no more than this.
LATE_SECONDS: Final[Seconds] = 120.0


class ExportPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a repeated export: what ended before `until` is written."""

    name: str
    until: Instant

    def to_json(self) -> str:
        """Return the policy as a store keeps it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ExportPolicy:
        """Read a kept policy."""
        return msgspec.json.decode(text, type=cls)


class StoredExport(msgspec.Struct, frozen=True, kw_only=True):
    """A stored export policy."""

    tenant: str
    policy: ExportPolicy
    version: int
    created_at: Instant
    updated_at: Instant
    author: str = ""  # of the last export


EXPORTS: Final = RecordKind[ExportPolicy, StoredExport](
    table="export_policy",
    what="export policy",
    error=ExportNotFound,
    read=lambda name, text: ExportPolicy.from_json(text),
    make=StoredExport,
    field="policy",
    most=100,
)
