"""Requests that may be sent twice: what is remembered of them."""

from __future__ import annotations

from uuid import UUID

import msgspec


class NewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a key that its sender made.

    `id` counts only if the key is new: whatever the request creates gets ids that follow from it,
    so that doing the same again, after a crash between the change and the answer, creates nothing.
    """

    key: str
    digest: bytes  # of method, path and body
    id: UUID


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of it."""

    key: str
    digest: bytes
    id: UUID
    is_new: bool  # nobody has sent it before
    status: int | None = None  # of the answer; None: there is none yet
    answer: str | None = None  # its body
