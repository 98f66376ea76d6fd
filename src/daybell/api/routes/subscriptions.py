"""Routes of `/subscriptions`: receivers of outgoing events."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import NewSubscription, Nothing, SubscriptionChange
from daybell.api.caller import Caller, answer_json, answer_page
from daybell.api.contract import ETAG, LOCATION, NEW_SUBSCRIPTIONS, REPLAYED
from daybell.api.fields import Paged
from daybell.api.idempotency import create_record, etag_header
from daybell.api.router import Routes
from daybell.api.routes.jobs import precondition, read_version
from daybell.client import wire
from daybell.core.access import Action, Role
from daybell.core.views import Page

router = Routes("/subscriptions", tag="subscriptions")

SubscriptionPath = Annotated[str, Meta(description="The name of a subscription.", max_length=200)]


@router.post(
    "",
    id="create_subscription",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.Subscription,
    status=201,
    says="Created.",
    examples=NEW_SUBSCRIPTIONS,
    errors=(409,),
    headers={**LOCATION, **ETAG, **REPLAYED},
)
async def create_subscription(
    request: Request, body: NewSubscription, raw: bytes, caller: Caller, key: str | None
) -> Response:
    """Send events to a URL, from now on: CloudEvents, each until it is answered with 2xx."""
    return await create_record(
        request,
        caller,
        key,
        raw,
        noun="subscription",
        name=body.name,
        fields=body.given(),
        make=lambda client, given: client.create_subscription(given, author=caller.actor),
        find=caller.client.subscription,
    )


@router.get(
    "",
    id="list_subscriptions",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.Subscription],
    says="Subscriptions, by name.",
)
async def list_subscriptions(caller: Caller, query: Paged) -> Response:
    """List subscriptions. Their addresses may hold keys, so it takes an administrator."""
    page = await caller.client.subscriptions_page(limit=query.limit, cursor=query.cursor)
    return answer_page(page, cursor=lambda one: one.name)


@router.get(
    "/{name}",
    id="get_subscription",
    role=Role.ADMIN,
    action=Action.READ,
    answers=wire.Subscription,
    says="The subscription.",
    errors=(404,),
    headers=ETAG,
)
async def get_subscription(name: SubscriptionPath, caller: Caller) -> Response:
    """Show a subscription."""
    found = await caller.client.subscription(name)
    return answer_json(found, headers=etag_header(found))


@router.patch(
    "/{name}",
    id="update_subscription",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.Subscription,
    says="The subscription as it is now.",
    errors=(404, 409, 412),
    headers=ETAG,
)
async def update_subscription(
    body: SubscriptionChange, name: SubscriptionPath, caller: Caller, if_match: str | None
) -> Response:
    """Change a subscription. Fields that are left out stay; null resets one."""
    expect, changes = read_version(if_match), body.given()
    before = await caller.client.subscription(name)
    client = caller.audited("subscription.update", name, before=before, after=changes)
    with precondition(expect):
        made = await client.update_subscription(name, changes, author=caller.actor, expect=expect)
    return answer_json(made, headers=etag_header(made))


@router.delete(
    "/{name}",
    id="delete_subscription",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.DeletedName,
    says="The subscription is deleted.",
    errors=(404, 412),
)
async def delete_subscription(
    name: SubscriptionPath, caller: Caller, if_match: str | None
) -> Response:
    """Delete a subscription. Deliveries that are enqueued already are still made."""
    expect = read_version(if_match)
    before = await caller.client.subscription(name)
    client = caller.audited("subscription.delete", name, before=before)
    with precondition(expect):
        await client.delete_subscription(name, expect=expect)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


@router.post(
    "/{name}/test",
    id="test_subscription",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    body=Nothing,
    is_body_optional=True,
    answers=wire.AlertTest,
    status=202,
    says="The execution that delivers the event.",
    errors=(404,),
)
async def test_subscription(name: SubscriptionPath, caller: Caller) -> Response:
    """Send a test event to the receiver."""
    made = await caller.audited("subscription.test", name).test_subscription(name)
    return answer_json(made, status=HTTPStatus.ACCEPTED)
