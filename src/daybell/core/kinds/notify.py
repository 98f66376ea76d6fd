"""Notification jobs: a message to one or more addresses."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from daybell.core.limits import NOTIFY_CHARS_MAX, NOTIFY_PLACES_MAX
from daybell.core.references import check_text, read_fields
from daybell.errors import UsageError, shown

FORMATS: Final = ("text", "markdown", "html")


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told, and what."""

    to: tuple[Any, ...]  # addresses as apprise writes them: mailto://…, slack://…, json://…
    title: Any = ""
    body: Any = ""
    format: str = "text"

    @classmethod
    def parse(cls, value: Any) -> NotifySettings:
        """Read an object with `to`, `title` and `body`."""
        given = read_fields(value, cls, "notify")
        title = _read_words(given.get("title", ""), "title")
        body = _read_words(given.get("body", ""), "body")
        if title == "" and body == "":
            raise UsageError("notify says nothing; give it a title or a body", field="notify.body")
        form = given.get("format", "text")
        if form not in FORMATS:
            raise UsageError(
                f"format={shown(form)} is not one of {', '.join(FORMATS)}", field="notify.format"
            )
        return cls(to=_read_places(given.get("to")), title=title, body=body, format=form)


def _read_places(value: Any) -> tuple[Any, ...]:
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
    if value is None or not listed:
        raise UsageError("notify has nobody in `to`", field="notify.to")
    if len(listed) > NOTIFY_PLACES_MAX:
        raise UsageError(
            f"notify is to {len(listed):,} places; the limit is {NOTIFY_PLACES_MAX}",
            field="notify.to",
        )
    for one in listed:
        check_text(one, "to", field="notify.to")
        if isinstance(one, str) and "://" not in one:
            raise UsageError(
                f"{shown(one)} says no way to get there; write mailto://…, slack://…, json://…",
                field="notify.to",
            )
    return tuple(listed)


def _read_words(value: Any, what: str) -> Any:
    check_text(value, what, field=f"notify.{what}")
    if isinstance(value, str) and len(value) > NOTIFY_CHARS_MAX:
        raise UsageError(
            f"{what} has {len(value):,} characters; the limit is {NOTIFY_CHARS_MAX:,}",
            field=f"notify.{what}",
        )
    return value
