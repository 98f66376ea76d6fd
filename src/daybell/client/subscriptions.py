"""Subscriptions to outgoing events: define, change, list, delete and test them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from daybell.client import wire
from daybell.client.context import ClientContext
from daybell.core.ids import mint
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.subscription import (
    SUBSCRIPTIONS,
    TEST,
    OutgoingEvent,
    StoredSubscription,
    Subscription,
    delivery_job,
)
from daybell.core.units import to_datetime
from daybell.core.views import Page, read_pages
from daybell.errors import UsageError


async def create_subscription(
    client: ClientContext, value: Mapping[str, Any], *, author: str = ""
) -> wire.Subscription:
    """Store a subscription: an object with `name`, `url` and a filter. Raises DuplicateKey."""
    new = Subscription.parse(value)
    return _subscription(
        await client.store.admin.put_record(
            client.tenant, SUBSCRIPTIONS, new, author=author, expect=0
        )
    )


async def update_subscription(
    client: ClientContext,
    name: str,
    changes: Mapping[str, Any],
    *,
    author: str = "",
    expect: int | None = None,
) -> wire.Subscription:
    """Change some fields of a subscription; null resets one. With `expect`, it must be at that
    version.
    """
    if changes.get("name", name) != name:
        raise UsageError("a subscription keeps its name; create another one", field="name")
    known = await _stored(client, name)
    new = Subscription.parse({**msgspec.structs.asdict(known.subscription), **changes})
    expect = known.version if expect is None else expect
    return _subscription(
        await client.store.admin.put_record(
            client.tenant, SUBSCRIPTIONS, new, author=author, expect=expect
        )
    )


async def subscription(client: ClientContext, name: str) -> wire.Subscription:
    """A subscription. Raises SubscriptionNotFound."""
    return _subscription(await _stored(client, name))


async def _stored(client: ClientContext, name: str) -> StoredSubscription:
    return await client.store.admin.get_record(
        client.tenant, SUBSCRIPTIONS, check_name(name, what="subscription")
    )


async def subscriptions_page(
    client: ClientContext, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[wire.Subscription]:
    """Subscriptions, by name."""
    page = await client.store.admin.list_records(
        client.tenant, SUBSCRIPTIONS, limit=limit, cursor=cursor
    )
    return Page(items=tuple(map(_subscription, page.items)), next_cursor=page.next_cursor)


async def subscriptions(client: ClientContext) -> list[wire.Subscription]:
    """All subscriptions, by name."""
    pages = read_pages(lambda at: subscriptions_page(client, limit=PAGE_ITEMS_MAX, cursor=at))
    return [one async for page in pages for one in page]


async def delete_subscription(
    client: ClientContext, name: str, *, expect: int | None = None
) -> None:
    """Delete a subscription. Deliveries that are enqueued already are still made."""
    check_name(name, what="subscription")
    await client.store.admin.delete_record(client.tenant, SUBSCRIPTIONS, name, expect=expect)


async def test_subscription(client: ClientContext, name: str) -> wire.AlertTest:
    """Send a test event to the receiver. Returns the execution that delivers it."""
    known = (await _stored(client, name)).subscription
    now = (await client.store.health()).now
    event = OutgoingEvent(
        number=mint().int, tenant=client.tenant, type=TEST, at=now, job=delivery_job(name)
    )
    delivery = known.delivery(client.tenant, event, mint)
    await client.store.catalog.launch(client.tenant, known.delivery_job(mint), delivery)
    return wire.AlertTest(name=name, execution_id=delivery.id, job=delivery.job)


def _subscription(of: StoredSubscription) -> wire.Subscription:
    fields: dict[str, Any] = msgspec.structs.asdict(of.subscription)
    fields["types"], fields["status"] = list(of.subscription.types), list(of.subscription.status)
    return wire.Subscription(
        **fields,
        delivery_job=delivery_job(of.name),
        tenant=of.tenant,
        version=of.version,
        author=of.author,
        created_at=to_datetime(of.created_at),
        updated_at=to_datetime(of.updated_at),
    )
