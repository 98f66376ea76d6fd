"""Routes of `/alerts` and `/incidents`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import DeclaredAlert, NewAlert, Nothing, Silence
from daybell.api.caller import Caller, answer_json, answer_page
from daybell.api.contract import ETAG, LOCATION, NEW_ALERTS, REPLAYED
from daybell.api.fields import UUID_FORMAT, Paged, Shorter
from daybell.api.idempotency import create_record, etag_header
from daybell.api.router import Routes
from daybell.api.routes.jobs import precondition, read_version
from daybell.client import wire
from daybell.core.access import Action, Role
from daybell.core.views import Page
from daybell.errors import AlertNotFound, UsageError, shown

router = Routes("/alerts", tag="alerts")

AlertPath = Annotated[str, Meta(description="The name of a rule.", max_length=200)]


@router.post(
    "",
    id="create_alert",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.Alert,
    status=201,
    says="Created.",
    examples=NEW_ALERTS,
    errors=(409,),
    headers={**LOCATION, **ETAG, **REPLAYED},
)
async def create_alert(
    request: Request, body: NewAlert, raw: bytes, caller: Caller, key: str | None
) -> Response:
    """Create an alert rule. The leader evaluates it every 10 seconds from then on."""
    return await create_record(
        request,
        caller,
        key,
        raw,
        noun="alert",
        name=body.name,
        fields=body.given(),
        make=lambda client, given: client.set_alert(given, author=caller.actor, expect=0),
        find=caller.client.alert,
    )


@router.get(
    "",
    id="list_alerts",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.Alert],
    says="Alert rules, by name.",
)
async def list_alerts(caller: Caller, query: Paged) -> Response:
    """List alert rules. Their addresses may hold passwords, so it takes an administrator."""
    page = await caller.client.alerts_page(limit=query.limit, cursor=query.cursor)
    return answer_page(page, cursor=lambda one: one.name)


@router.get(
    "/{name}",
    id="get_alert",
    role=Role.ADMIN,
    action=Action.READ,
    answers=wire.Alert,
    says="The rule.",
    errors=(404,),
    headers=ETAG,
)
async def get_alert(name: AlertPath, caller: Caller) -> Response:
    """Show an alert rule."""
    found = await caller.client.alert(name)
    return answer_json(found, headers=etag_header(found))


@router.put(
    "/{name}",
    id="set_alert",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.Alert,
    says="The rule as it is now.",
    examples=NEW_ALERTS,
    errors=(404, 409, 412),
    headers=ETAG,
    also={201: "Created."},
)
async def set_alert(
    body: DeclaredAlert, name: AlertPath, caller: Caller, if_match: str | None
) -> Response:
    """Create an alert rule, or replace it. Its silence goes on."""
    if body.name not in (None, name):
        raise UsageError(
            f"name is {shown(body.name)}, and the address has {shown(name)}", field="name"
        )
    expect = read_version(if_match)
    fields = {**body.given(), "name": name}
    before = await _before(caller, name)
    client = caller.audited("alert.update", name, before=before, after=fields)
    with precondition(expect):
        made = await client.set_alert(fields, author=caller.actor, expect=expect)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer_json(made, status=status, headers=etag_header(made))


@router.delete(
    "/{name}",
    id="delete_alert",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.DeletedName,
    says="The rule is deleted; its incidents close without a message.",
    errors=(404, 412),
)
async def delete_alert(name: AlertPath, caller: Caller, if_match: str | None) -> Response:
    """Delete an alert rule."""
    expect = read_version(if_match)
    before = await caller.client.alert(name)
    client = caller.audited("alert.delete", name, before=before)
    with precondition(expect):
        await client.delete_alert(name, expect=expect)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


@router.post(
    "/{name}/silence",
    id="silence_alert",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    answers=wire.Alert,
    says="The rule is silent until then.",
    examples={"for a deploy": {"duration": "2h", "reason": "deploy of 4.2"}, "end it": {}},
    errors=(404, 409),
)
async def silence_alert(name: AlertPath, body: Silence, caller: Caller) -> Response:
    """Send no messages of a rule for some time. Incidents open and close meanwhile; one that is
    still open at the end gets its message then.
    """
    client = caller.audited("alert.silence", name, after=body)
    silenced = await client.silence_alert(
        name, duration=body.duration, until=body.until, reason=body.reason, author=caller.actor
    )
    return answer_json(silenced)


@router.post(
    "/{name}/test",
    id="test_alert",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    body=Nothing,
    is_body_optional=True,
    answers=wire.AlertTest,
    status=202,
    says="The execution that sends the message.",
    errors=(404,),
)
async def test_alert(name: AlertPath, caller: Caller) -> Response:
    """Send a test message to the addresses of a rule."""
    made = await caller.audited("alert.test", name).test_alert(name)
    return answer_json(made, status=HTTPStatus.ACCEPTED)


async def _before(caller: Caller, name: str) -> wire.Alert | None:
    try:
        return await caller.client.alert(name)
    except AlertNotFound:
        return None


incidents_router = Routes("/incidents", tag="alerts")

IncidentPath = Annotated[
    str, Meta(description="The id of an incident.", max_length=100), UUID_FORMAT
]


class IncidentsQuery(Paged):
    """The incidents to list."""

    rule: Annotated[Shorter, Meta(description="The name of a rule.")] | None = None
    open: Annotated[bool, Meta(description="Only open, or only closed ones.")] | None = None


@incidents_router.get(
    "",
    id="list_incidents",
    live="incident_id",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.Incident],
    says="Incidents, newest first.",
)
async def list_incidents(caller: Caller, query: IncidentsQuery) -> Response:
    """List incidents. They are kept for 90 days after their end."""
    page = await caller.client.incidents(
        rule=query.rule, is_open=query.open, limit=query.limit, cursor=query.cursor
    )
    return answer_page(page, cursor=lambda one: str(one.incident_id))


@incidents_router.post(
    "/{id}/acknowledge",
    id="acknowledge_incident",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    body=Nothing,
    is_body_optional=True,
    answers=wire.Acknowledged,
    says="It is acknowledged, and sends no further messages but that of its end.",
    errors=(404,),
)
async def acknowledge_incident(id: IncidentPath, caller: Caller) -> Response:
    """Acknowledge an open incident."""
    client = caller.audited("incident.acknowledge", id)
    return answer_json(await client.acknowledge_incident(id, author=caller.actor))
