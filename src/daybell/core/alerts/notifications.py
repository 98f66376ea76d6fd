"""The job option `notifications`: the occasions and addresses of messages about a job."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from daybell.core.kinds.schema import Schema, list_of
from daybell.core.kinds.settings import read_addresses
from daybell.core.kinds.webhook import webhook_settings
from daybell.core.limits import NOTIFY_PLACES_MAX
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
        to = read_receivers(given.get("to"), f"{what}.to")
        found.append(JobNotification(tuple(dict.fromkeys(words)), to))
    return tuple(found)


class Webhook(msgspec.Struct, frozen=True):
    """A receiver of messages that gets them as events: an address, and the secret that signs."""

    webhook: Any
    secret: str | None = None


def read_receivers(value: Any, what: str) -> tuple[Any, ...]:
    """Return receivers of messages: addresses, and webhooks such as {"webhook": URL, "secret":
    NAME}.
    """
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
    for one in filter(is_webhook, listed):
        given = read_fields(one, Webhook, what)
        webhook_settings(given.get("webhook"), given.get("secret"), where=what)
    plain = [one for one in listed if not is_webhook(one)]
    if plain or not listed or len(listed) > NOTIFY_PLACES_MAX:
        read_addresses(plain if len(listed) <= NOTIFY_PLACES_MAX else listed, what)
    return tuple(listed)


def is_webhook(receiver: Any) -> bool:
    """Return True for a receiver that is a webhook."""
    return isinstance(receiver, dict) and "webhook" in receiver
