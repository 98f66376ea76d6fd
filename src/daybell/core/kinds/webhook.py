"""Webhooks: requests that carry an event, signed with a secret."""

from __future__ import annotations

from typing import Any, Final

from daybell.core.kinds.settings import HttpSettings
from daybell.core.references import check_secret_name
from daybell.core.units import Instant, to_iso
from daybell.errors import UsageError

CONTENT_TYPE: Final = "application/cloudevents+json"


def webhook_settings(url: Any, secret: Any, *, where: str = "url") -> HttpSettings:
    """Return the settings of the request. The secret is its name; None: no signature."""
    sign = None if secret is None else {"secret": check_secret_name(secret)}
    headers = {"Content-Type": CONTENT_TYPE}
    try:
        return HttpSettings.parse({"url": url, "method": "POST", "headers": headers, "sign": sign})
    except UsageError as error:
        raise UsageError(str(error), field=where) from None


def cloud_event(
    type: str, id: str, *, source: str, subject: str, at: Instant, data: dict[str, Any]
) -> dict[str, Any]:
    """Return a CloudEvent in structured mode."""
    return {
        "specversion": "1.0",
        "id": id,
        "source": f"/daybell/{source}",
        "type": type,
        "subject": subject,
        "time": to_iso(at),
        "datacontenttype": "application/json",
        "data": data,
    }
