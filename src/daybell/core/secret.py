"""Secrets: values that are kept sealed, and opened only where a job runs."""

from __future__ import annotations

from typing import Final

import msgspec

from daybell.core.instant import Instant

# Begins the id of a key in seals that are bound to a version. Workers of earlier releases do not
# know such an id, so they leave the secret to other workers. The migrations name it, too.
BOUND: Final = "v2."


def bound_id(key_id: str) -> str:
    """Return the id under which no seal without a version can replace a row."""
    return key_id if key_id.startswith(BOUND) else BOUND + key_id


class NewSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret to be kept. What it is, nobody here can tell."""

    name: str
    key_id: str  # of the key that opens it
    sealed: bytes
    version: int | None = None  # that the seal is bound to; None: the next one, whichever it is
    author: str = ""


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as people see it: everything but its value."""

    name: str
    tenant: str
    key_id: str
    version: int  # rises with every change
    created_at: Instant
    updated_at: Instant
    author: str = ""  # of the last change


class SealedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as a worker fetches it."""

    name: str
    key_id: str
    version: int
    sealed: bytes
