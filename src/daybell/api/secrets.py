"""`/secrets`: values that jobs use and nobody reads. No answer ever has one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from daybell.api import sights
from daybell.api.answers import answer
from daybell.api.body import Body, read_body
from daybell.api.caller import Admin, Caller
from daybell.api.contract import operation
from daybell.api.lists import Cursor, Limit, paged
from daybell.api.schema import by
from daybell.client import wire
from daybell.client.sealing import VARIABLE, KeyMissing, check_value
from daybell.core.limits import PAGE_ITEMS_DEFAULT, SECRET_BYTES_MAX, SECRET_CHARS_MIN
from daybell.core.references import check_secret_name
from daybell.core.secret import Secret
from daybell.errors import Conflict, SecretNotFound, UsageError, shown

router = APIRouter(prefix="/secrets", tags=["secrets"])

SecretPath = Annotated[
    str,
    Path(
        alias="name",
        description="A secret's name: letters, digits and _, beginning with no digit.",
        max_length=200,
    ),
]


class NewSecret(Body):
    """A secret's value, which no answer repeats."""

    value: Annotated[
        str,
        by(check_value),
        Field(
            description="The value. Sealed at once; opened only by workers, where a job runs.",
            min_length=SECRET_CHARS_MIN,
            max_length=SECRET_BYTES_MAX,
            json_schema_extra={"writeOnly": True, "format": "password"},
        ),
    ]


@router.get("", **operation("list_secrets", answers=sights.SecretPage, says="Secrets, by name."))
async def list_secrets(
    caller: Admin, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List secrets, without their values."""
    found = await caller.client.secrets()
    return paged(found, wire.secret, key=lambda one: one.name, limit=limit, cursor=cursor)


@router.put(
    "/{name}",
    **operation(
        "set_secret",
        answers=sights.Secret,
        says="It is what was said.",
        body=NewSecret,
        examples={"a token": {"value": "sk-0123456789abcdef"}},
        also={201: "Created."},
        errors=(409,),
    ),
)
async def set_secret(request: Request, name: SecretPath, caller: Admin) -> Response:
    """Set a secret. One of the same name is replaced; workers use the new value within 5 seconds.

    Jobs refer to it as `{"secret": "NAME"}`. It may be sent again when the answer was lost.
    """
    wanted = await read_body(request, NewSecret)
    check_secret_name(name)
    before = await _find(caller, name)
    after = {"key_id": _sealing_key(caller)}
    with caller.auditing("secret.set", name, before=_told(before), after=after):
        made = await caller.client.set_secret(name, wanted.value, author=caller.actor)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer(wire.secret(made), status=status)


@router.delete(
    "/{name}",
    **operation(
        "delete_secret",
        answers=sights.DeletedSecret,
        says="It is gone; what refers to it fails from now on.",
        errors=(404,),
    ),
)
async def delete_secret(name: SecretPath, caller: Admin) -> Response:
    """Delete a secret. Jobs that refer to it fail until it is set again."""
    before = await _find(caller, name)
    if before is None:
        raise SecretNotFound(f"there is no secret named {shown(name)}")
    with caller.auditing("secret.delete", name, before=_told(before)):
        await caller.client.delete_secret(name)
    return answer({"name": name, "status": "deleted"})


def _sealing_key(caller: Caller) -> str:
    """The id of the key that seals. The caller cannot change the settings of the server."""
    try:
        return caller.client.sealer().key_id
    except UsageError as error:
        why = "" if isinstance(error, KeyMissing) else f" ({error})"
        raise Conflict(
            f"the server has no key that seals secrets{why}; its operator makes one with `daybell"
            f" secrets key`, and sets {VARIABLE} to it for the server and all workers"
        ) from None


async def _find(caller: Caller, name: str) -> Secret | None:
    return next((one for one in await caller.client.secrets() if one.name == name), None)


def _told(secret: Secret | None) -> dict[str, Any] | None:
    """What the audit log is told of it."""
    return None if secret is None else {"version": secret.version, "key_id": secret.key_id}
