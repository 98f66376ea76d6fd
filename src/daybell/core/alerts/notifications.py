"""The job option `notifications`: the occasions and addresses of messages about a job."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from daybell.core.kinds.schema import Schema, list_of
from daybell.core.kinds.settings import read_addresses
from daybell.core.references import read_fields
from daybell.errors import UsageError, shown

NOTIFY_ON: Final = ("dead", "succeeded", "late")
NOTIFICATIONS_MAX: Final = 20
SCHEMA: Final[Schema] = list_of(
    {
        "type": "object",
        "required": ["on", "to"],
        "additionalProperties": False,
        "properties": {"on": list_of({"enum": list(NOTIFY_ON)}, minItems=1), "to": {}},
    },
    maxItems=NOTIFICATIONS_MAX,
)


class JobNotification(msgspec.Struct, frozen=True):
    """One of the notifications of a job: the occasions, and the addresses."""

    on: tuple[str, ...]
    to: tuple[Any, ...]


def read_notifications(value: Any, what: str) -> tuple[JobNotification, ...]:
    """Return notifications, each an object with `on` and `to`."""
    if not isinstance(value, list | tuple) or len(cast("list[Any]", value)) > NOTIFICATIONS_MAX:
        raise UsageError(
            f"{what} must be a list of at most {NOTIFICATIONS_MAX} objects, such as"
            ' {"on": ["dead"], "to": ["mailto://…"]}',
            field=what,
        )
    found: list[JobNotification] = []
    for one in cast("list[Any]", value):
        given = read_fields(one, JobNotification, what)
        on = given.get("on")
        words = cast("list[Any]", [on] if isinstance(on, str) else on or [""])
        for word in words:
            if word not in NOTIFY_ON:
                raise UsageError(
                    f"{what}: on {shown(word)} is not one of {', '.join(NOTIFY_ON)}",
                    field=f"{what}.on",
                )
        to = read_addresses(given.get("to"), f"{what}.to")
        found.append(JobNotification(tuple(dict.fromkeys(words)), to))
    return tuple(found)
