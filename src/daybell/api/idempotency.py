"""Requests with an Idempotency-Key: performed once, then answered from the record."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.caller import Caller, JsonResponse, answer_created
from daybell.client import Client, mint
from daybell.client.executions import derive_id
from daybell.core.access import NewRequest
from daybell.errors import Conflict, UsageError, shown

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_KEPT_HEADERS: Final = ("location", "etag")


class IdempotentRequest(msgspec.Struct, frozen=True):
    """One attempt to perform a request."""

    id: UUID | None = None  # None: the request has no key, and is performed once
    is_repeated: bool = False  # an earlier attempt may have performed it

    def made(self, *what: object, rank: int = 0, rank_bits: int = 0) -> UUID:
        """Return the id of an object that the request creates, with its rank among its kind."""
        if self.id is None:
            return mint()
        return derive_id(self.id, *what, rank=rank, rank_bits=rank_bits)


class StoredResponse(msgspec.Struct, frozen=True):
    """The stored parts of a response."""

    body: str
    headers: dict[str, str]


Perform = Callable[[IdempotentRequest], Awaitable[Response]]


class Record(Protocol):
    """A thing with versions."""

    @property
    def version(self) -> int: ...


def etag_header(record: Record) -> dict[str, str]:
    """Return the header that names the version of a thing."""
    return {"ETag": f'"{record.version}"'}


async def create_record(
    request: Request,
    caller: Caller,
    key: str | None,
    raw: bytes,
    *,
    noun: str,
    name: str,
    fields: dict[str, Any],
    make: Callable[[Client, dict[str, Any]], Awaitable[Record]],
    find: Callable[[str], Awaitable[Record]],
) -> Response:
    """Create a record by name, such as an alert rule, on record as `noun.create`."""
    action = f"{noun}.create"

    async def perform(this: IdempotentRequest) -> Response:
        entry = this.made("entry")
        if this.is_repeated and await caller.recorded(action, name, entry) is not None:
            made = await find(name)
        else:
            made = await make(caller.audited(action, name, after=fields, id=entry), fields)
        location = f"/api/v1/{noun}s/{quote(name, safe='')}"
        return answer_created(made, location=location, headers=etag_header(made))

    return await perform_once(request, caller, key, raw, perform)


async def perform_once(
    request: Request, caller: Caller, key: str | None, raw: bytes, perform: Perform
) -> Response:
    """Perform a request, unless it was performed before under this key."""
    if key is None:
        return await perform(IdempotentRequest())
    new = NewRequest(key=key, digest=_digest(request, caller, raw), id=mint())
    begun = await caller.client.begin_request(new)
    if begun.digest != new.digest:
        raise UsageError(
            f"{HEADER} {shown(key)} was sent with another request before; make a new one",
            field=HEADER,
        )
    if begun.status is not None and begun.answer is not None:
        return _replay_response(begun.status, begun.answer)
    response = await _perform_or_repeat(
        perform, IdempotentRequest(begun.id, is_repeated=not begun.is_new)
    )
    if response.status_code < HTTPStatus.BAD_REQUEST:
        await caller.client.answer_request(
            key, status=response.status_code, answer=_encode_response(response)
        )
    return response


async def _perform_or_repeat(perform: Perform, this: IdempotentRequest) -> Response:
    """Perform a request. A repeat at another server can overtake the first attempt, which then
    conflicts with the repeat's objects; so it is performed again, as a repeat.
    """
    try:
        return await perform(this)
    except Conflict:
        if this.is_repeated:
            raise
        return await perform(replace(this, is_repeated=True))


def _digest(request: Request, caller: Caller, raw: bytes) -> bytes:
    # A key with a scope never gets the response of another key.
    own = () if caller.key is None or caller.scope is None else (str(caller.key.id),)
    parts = (request.method, request.url.path, request.url.query, *own)
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + raw).digest()


def _encode_response(response: Response) -> str:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    kept = StoredResponse(body=bytes(response.body).decode(), headers=headers)
    return msgspec.json.encode(kept).decode()


def _replay_response(status: int, answer: str) -> Response:
    kept = msgspec.json.decode(answer, type=StoredResponse)
    return JsonResponse(
        kept.body.encode(), status=status, headers={**kept.headers, REPLAYED: "true"}
    )
