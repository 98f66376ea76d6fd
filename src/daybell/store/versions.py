"""Versions of jobs, templates and secrets that are not what somebody takes them for."""

from __future__ import annotations

import msgspec

from daybell.errors import DuplicateKey, VersionConflict, shown


def moved(name: str, *, at: int, expect: int, what: str = "job") -> VersionConflict:
    """What a person hears who means another version than there is."""
    return VersionConflict(
        f"{what} {shown(name)} is at version {at}, not {expect}; read it again, then decide again",
        version=at,
    )


def next_template_version(
    name: str, *, at: int, kept: str | None, text: str, expect: int | None
) -> int:
    """The version that a template has once `text` is what it says. As before: it says so already.
    `at` is 0 for one that there is not.
    """
    if expect == 0 and at:
        raise DuplicateKey(f"there is a template {shown(name)} already; take another name")
    if expect is not None and at != expect:
        raise moved(name, at=at, expect=expect, what="template")
    is_same = kept is not None and (kept == text or _in_order(kept) == _in_order(text))
    return at if is_same else at + 1


def _in_order(text: str) -> bytes:
    """The same JSON, whatever the order in which an object's fields were given."""
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
