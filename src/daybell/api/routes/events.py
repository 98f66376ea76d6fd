"""Routes of `/events` (CloudEvents 1.0), and of signals and approvals."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import SPEC, CloudEvent, Decision, Signal
from daybell.api.caller import Caller, Invalid, answer_json
from daybell.api.contract import REPLAYED
from daybell.api.fields import ExecutionPath, Paged
from daybell.api.guard import is_handshake, is_json, is_text
from daybell.api.idempotency import IdempotentRequest, perform_once
from daybell.api.requests import read_bytes, read_json, validate_body, yield_to_loop
from daybell.api.router import Reach, Routes, refuse_method
from daybell.client import answers, wire
from daybell.client.events import read_decision, read_event
from daybell.client.requests import read_id
from daybell.core.access import Action, Role
from daybell.core.event import NewEvent
from daybell.core.event import Published as Sent
from daybell.core.limits import (
    BULK_BYTES_MAX,
    EVENT_BATCH_MAX,
    PAGE_ITEMS_MAX,
    REQUEST_BYTES_MAX,
)
from daybell.core.views import Page
from daybell.errors import PayloadError, PayloadTooLarge

router = Routes("", tag="events")

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
_PREFIX: Final = "ce-"
_VERSION: Final = "ce-specversion"
_KNOWN: Final = frozenset(CloudEvent.__struct_fields__)
_REQUIRED: Final = ("specversion", "id", "source", "type")
_AGREED: Final = {
    "Allow": "GET, HEAD, OPTIONS, POST",
    "WebHook-Allowed-Origin": "*",
    "WebHook-Allowed-Rate": "*",
}
_EXTENSION: Final = re.compile(r"[a-z0-9]+")  # the names of CloudEvents extensions


@router.post(
    "/events",
    id="publish_event",
    role=Role.OPERATOR,
    action=Action.SIGNAL,
    answers=wire.Published,
    status=202,
    says="It is on record, and what waited for it goes on.",
    body=CloudEvent,
    body_types=(STRUCTURED,),
    bodies={BATCH: list[CloudEvent]},
    answers_also=wire.PublishedMany,
    is_body_read=False,
    bytes_max=BULK_BYTES_MAX,
    examples={
        "an event": {
            "specversion": SPEC,
            "id": "A-1047",
            "source": "/shop",
            "type": "order.approved",
            "data": {"order_id": 42, "by": "ada"},
        },
        "as little as there can be": {"type": "order.approved"},
    },
    headers=REPLAYED,
)
async def publish_event(request: Request, caller: Caller, key: str | None) -> Response:
    """Publish an event: the jobs that listen to it are fired, what waits for it goes on, and what
    will wait for it finds it.

    Takes a CloudEvent in structured mode, also as plain JSON, and in binary mode: the attributes
    as `ce-…` headers, and the data, JSON or text, as the body. Data without a Content-Type is JSON.
    A batch, or a JSON list, has up to 1,000 events: all are stored, or none. An event is kept for
    seven days.
    """
    batch = _kind(request) == BATCH
    raw = await read_bytes(
        request,
        bytes_max=BULK_BYTES_MAX,
        takes_text=_VERSION in request.headers and not batch,
    )
    is_list = batch or raw[:64].lstrip()[:1] == b"["
    if not is_list and len(raw) > REQUEST_BYTES_MAX:
        raise PayloadTooLarge(
            f"the body has {len(raw):,} bytes; the limit is {REQUEST_BYTES_MAX:,}"
        )
    said = [] if is_list else [_read(request, raw)]
    if is_list:
        said = await _read_batch(raw, is_strict=batch)

    async def perform(this: IdempotentRequest) -> Response:
        events = [
            read_event(
                one.type,
                one.data,
                source=one.source,
                id=one.id or str(this.made("event", *([place] if is_list else []))),
                time=one.time,
            )
            for place, one in enumerate(said)
        ]
        if is_list:
            return await _send_batch(caller, events, this)
        (event,) = events
        return await _send(caller, event, this, action="event.publish", target=event.name)

    return await perform_once(request, caller, key, raw, perform)


async def _read_batch(raw: bytes, *, is_strict: bool) -> list[CloudEvent]:
    """Read a list of events. Errors name the place of each that is wrong. In a batch of CloudEvents
    all attributes that the standard demands must be present.
    """
    given = read_json(raw)
    if not isinstance(given, list):
        raise PayloadError("the body is no list; a batch is a list of events", field="body")
    items = cast("list[Any]", given)
    if len(items) > EVENT_BATCH_MAX:
        raise PayloadTooLarge(
            f"{len(items):,} events are too many for one request; the limit is {EVENT_BATCH_MAX:,}",
            field="body",
        )
    found: list[CloudEvent] = []
    wrong: list[tuple[str, str]] = []
    for place, one in enumerate(items):
        if place % 50 == 49:
            await yield_to_loop()
        is_full = is_strict or (isinstance(one, dict) and "specversion" in one)
        try:
            found.append(validate_body(_normalize_event(one) if is_full else one, CloudEvent))
        except Invalid as error:
            wrong += [(f"[{place}].{field}", message) for field, message in error.found]
        except PayloadError as error:
            wrong.append((f"[{place}].{error.field or 'body'}", str(error)))
    if wrong:
        raise Invalid(wrong)
    return found


async def _send_batch(
    caller: Caller, events: Sequence[NewEvent], this: IdempotentRequest
) -> Response:
    names = sorted({event.name for event in events})
    after = {"count": len(events), "types": names[:10], "ids": [one.id for one in events[:10]]}
    target = names[0] if len(names) == 1 else f"{len(names)} types"
    client = caller.audited("event.publish", target, after=after, id=this.made("entry"))
    found = await client.keep_many(events) if events else []
    pairs = zip(found, events, strict=True)
    items = [answers.published(one, event.id) for one, event in pairs]
    return answer_json(wire.PublishedMany(items=items), status=202)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@router.options("/events", id="agree_to_events", role=None, action=None, is_hidden=True)
async def agree_to_events(request: Request) -> Response:
    """Answer the handshake of CloudEvents webhooks: events of every sender that has a key.

    The answer repeats nothing of the request, and a callback that it names is not called.
    """
    if not is_handshake(request.scope):
        return refuse_method("OPTIONS", ("GET", "OPTIONS", "POST"))
    return Response(headers=_AGREED)


def _read(request: Request, raw: bytes) -> CloudEvent:
    kind = _kind(request)
    attributes = _attributes(request)
    if kind == STRUCTURED or not attributes:
        said = read_json(raw)
        is_one = kind == STRUCTURED or (isinstance(said, dict) and "specversion" in said)
        return validate_body(_normalize_event(said) if is_one else said, CloudEvent)
    data = None
    if raw:
        data = _as_text(raw, "body") if is_text(kind) else read_json(raw)
    return validate_body(_normalize_event({**attributes, "data": data}), CloudEvent)


def _attributes(request: Request) -> dict[str, Any]:
    """Return the attributes of binary mode. Percent signs escape characters beyond ASCII."""
    found: dict[str, Any] = {}
    for name, value in request.headers.items():
        if name.startswith(_PREFIX):
            attribute = name.removeprefix(_PREFIX)
            if attribute in found:
                raise PayloadError(f"the header {name} comes twice", field=name)
            found[attribute] = unquote(value, errors="replace")
    return found


def _normalize_event(said: Any) -> Any:
    """Return a CloudEvent with its data as JSON, and without extension attributes, which have no
    meaning here.

    All attributes that the standard demands must be present.
    """
    if not isinstance(said, dict):
        return cast("object", said)
    given = cast("dict[str, Any]", said)
    missing = [(name, "is missing; a CloudEvent has it") for name in _REQUIRED if name not in given]
    if missing:
        raise Invalid(missing)
    if given.get("data_base64") is not None:
        given = {**given, "data": _decoded(given)}
    return {
        name: value
        for name, value in given.items()
        if name != "data_base64" and (name in _KNOWN or not _EXTENSION.fullmatch(name))
    }


def _decoded(given: dict[str, Any]) -> Any:
    """Return data that was sent as bytes, if it is JSON or text."""
    if "data" in given:
        raise PayloadError(
            "there is data as well as data_base64; send one of them", field="data_base64"
        )
    try:
        raw = b64decode(given["data_base64"], validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise PayloadError(
            "data_base64 is not Base64; send JSON as data", field="data_base64"
        ) from None
    content = given.get("datacontenttype")
    if content is None or (isinstance(content, str) and is_json(content)):
        return read_json(raw)
    return _as_text(raw, "data_base64")


def _as_text(raw: bytes, field: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise PayloadError(
            "the data is not text in UTF-8; other bytes are not taken: send where they are kept",
            field=field,
        ) from None


async def _send(
    caller: Caller, event: NewEvent, this: IdempotentRequest, *, action: str, target: object
) -> Response:
    # The id follows from the request's key: no other request can have sent it.
    is_ours = this.is_repeated and event.id == str(this.made("event"))
    known = await _find_recorded(caller, event) if is_ours and event.execution else None
    if known is not None:
        found = Sent(created=True, execution=known.execution_id)
    else:
        event, node = await caller.client.addressed(event)
        after = {"id": event.id, "source": event.source, "type": event.name}
        after |= {} if node is None else {"execution_id": str(event.execution)}
        client = caller.audited(action, target, after=after, id=this.made("entry"))
        found = await client.keep(event, node)
        found = msgspec.structs.replace(found, created=found.created or is_ours)
    return answer_json(answers.published(found, event.id), status=202)


async def _find_recorded(caller: Caller, event: NewEvent) -> wire.Event | None:
    """Return the event that an earlier attempt has sent; its execution may not wait any more.
    That was a moment ago, so it is among the last.
    """
    seen, cursor = 0, None
    while seen < PAGE_ITEMS_MAX:
        page = await caller.client.events(limit=PAGE_ITEMS_MAX, cursor=cursor)
        for one in page.items:
            if (one.source, one.event_id) == (event.source, event.id):
                return one
        seen, cursor = seen + len(page.items), page.next_cursor
        if cursor is None:
            break
    return None


@router.get(
    "/events",
    id="list_events",
    live="event_id",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.Event],
    says="A page of events, the last ones first.",
)
async def list_events(caller: Caller, query: Paged) -> Response:
    """List the events that are on record."""
    page = await caller.client.events(limit=query.limit, cursor=query.cursor)
    return answer_json(page)


@router.post(
    "/executions/{id}/signal",
    id="signal_execution",
    role=Role.OPERATOR,
    action=Action.SIGNAL,
    reach=Reach.NAMES,
    answers=wire.Published,
    status=202,
    says="It is on record for this execution, which goes on if it waits for it.",
    examples={"a signal": {"name": "order.approved", "data": {"by": "ada"}}},
    errors=(404, 409),
    headers=REPLAYED,
)
async def signal_execution(
    request: Request, body: Signal, raw: bytes, id: ExecutionPath, caller: Caller, key: str | None
) -> Response:
    """Send an event to one execution alone, which it waits for or will wait for."""
    known = read_id(id)

    async def perform(this: IdempotentRequest) -> Response:
        event = read_event(body.name, body.data, id=str(this.made("event")), execution=known)
        return await _send(caller, event, this, action="execution.signal", target=known)

    return await perform_once(request, caller, key, raw, perform)


@router.post(
    "/executions/{id}/approve",
    id="approve_execution",
    role=Role.OPERATOR,
    action=Action.SIGNAL,
    reach=Reach.NAMES,
    answers=wire.Published,
    status=202,
    says="The decision is on record, and the execution goes on if it waits for it.",
    is_body_optional=True,
    examples={"no": {"approved": False, "note": "over budget"}},
    errors=(404, 409),
    headers=REPLAYED,
)
async def approve_execution(
    request: Request, body: Decision, raw: bytes, id: ExecutionPath, caller: Caller, key: str | None
) -> Response:
    """Tell an execution what was decided, which it waits for with `ctx.wait_for_approval`."""
    known = read_id(id)

    async def perform(this: IdempotentRequest) -> Response:
        decision = read_decision(
            known, body.name, approved=body.approved, by=caller.actor, note=body.note
        )
        event = msgspec.structs.replace(decision, id=str(this.made("event")))
        return await _send(caller, event, this, action="execution.approve", target=known)

    return await perform_once(request, caller, key, raw, perform)
