"""`/keys`: who may get in."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response

from daybell.api import sights
from daybell.api.answers import answer, created
from daybell.api.body import read_body
from daybell.api.caller import Admin, Caller
from daybell.api.contract import LOCATION, operation
from daybell.api.idempotency import HEADER
from daybell.api.lists import Cursor, Limit, paged
from daybell.api.schema import NewKey, Nothing
from daybell.client import wire
from daybell.client.requests import read_id
from daybell.core.access import Role
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.errors import AccessDenied, UsageError

router = APIRouter(prefix="/keys", tags=["access"])

KeyPath = Annotated[
    str,
    Path(
        alias="id",
        description="A key's id.",
        max_length=100,
        json_schema_extra={"format": "uuid"},
    ),
]


@router.post(
    "",
    **operation(
        "create_key",
        answers=sights.NewKeyAnswer,
        status=201,
        says="Made. The token is shown this once.",
        body=NewKey,
        examples={
            "for a deploy": {"name": "deploy", "role": "operator", "expires": "90d"},
            "for one program": {
                "name": "billing",
                "role": "operator",
                "jobs": ["billing-*"],
                "actions": ["read", "trigger"],
            },
        },
        errors=(404,),
        headers=LOCATION,
    ),
)
async def create_key(request: Request, caller: Admin) -> Response:
    """Make a key, with a role that is not above your own.

    `jobs`, `queues` and `actions` limit it further. Such a key sees and changes only these jobs and
    queues, and makes no keys.

    It takes no `Idempotency-Key`: the token is in the answer alone, which therefore is not kept. If
    it was lost, list the keys, revoke the new one, and make another.
    """
    if HEADER in request.headers:
        raise UsageError(
            f"{HEADER} is not for keys: their tokens are not kept, so no answer can be repeated; if"
            " one was lost, revoke that key and make another",
            field=HEADER,
        )
    wanted = await read_body(request, NewKey)
    about = await caller.of_tenant(wanted.tenant)
    _check_role(caller, wanted.role)
    given = wanted.model_dump(include={"jobs", "queues", "actions"}, exclude_none=True)
    after = {"name": wanted.name, "role": str(wanted.role), "expires": wanted.expires, **given}
    with about.auditing("key.create", wanted.name, after=after):
        key, token = await about.client.create_key(
            wanted.name,
            role=wanted.role,
            expires=wanted.expires,
            created_by=caller.actor,
            **given,
        )
    return created({**wire.key(key), "token": token}, location=f"/api/v1/keys/{key.id}")


@router.get("", **operation("list_keys", answers=sights.Keys, says="Keys, newest first."))
async def list_keys(
    caller: Admin, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List keys, revoked and expired ones too."""
    return paged(
        await caller.client.keys(),
        wire.key,
        key=lambda one: one.id,
        read=UUID,
        limit=limit,
        cursor=cursor,
        newest_first=True,
    )


async def revoke_key(request: Request, id: KeyPath, caller: Admin) -> Response:
    """Let a key open nothing any more. That counts within 5 seconds, for open streams too."""
    await read_body(request, Nothing, optional=True)
    known = read_id(id)
    for one in await caller.client.keys():
        if one.id == known:
            _check_role(caller, one.role)
    with caller.auditing("key.revoke", known):
        key = await caller.client.revoke_key(known)
    return answer(wire.key(key))


router.post(
    "/{id}/revoke",
    **operation(
        "revoke_key",
        answers=sights.Key,
        says="It opens nothing any more.",
        body=Nothing,
        is_optional=True,
        errors=(404,),
    ),
)(revoke_key)
router.delete(
    "/{id}",
    **operation("delete_key", answers=sights.Key, says="It opens nothing any more.", errors=(404,)),
)(revoke_key)


def _check_role(caller: Caller, role: Role) -> None:
    # A worker's key is an admin's to give, although it stands beside the others.
    if role is not Role.WORKER and not caller.role.may(role):
        raise AccessDenied(
            f"a key with the role {role} takes one; this one's role is {caller.role}"
        )
