"""Routes of `/limits`: how many executions run at a time, and start in a time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from daybell.api.bodies import LimitChanges, LimitPause, LimitResume
from daybell.api.caller import Caller, answer_json
from daybell.api.fields import Paged
from daybell.api.requests import answer_list
from daybell.api.router import Routes
from daybell.client import wire
from daybell.core.access import Action, Role
from daybell.core.views import Page

router = Routes("/limits", tag="limits")

LimitPath = Annotated[str, Meta(description="A limit's name.", max_length=500)]


@router.get(
    "",
    id="list_limits",
    live="name",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.Limit],
    says="Limits, by name.",
)
async def list_limits(caller: Caller, query: Paged) -> Response:
    """List limits with their numbers."""
    found = await caller.client.limits()
    return answer_list(found, key=lambda one: one.name, limit=query.limit, cursor=query.cursor)


@router.get(
    "/{name}",
    id="get_limit",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    answers=wire.Limit,
    says="The limit, with the values of its key that most executions wait for.",
    errors=(404,),
)
async def get_limit(name: LimitPath, caller: Caller) -> Response:
    """Show a limit: what has it, what waits, and when the next execution may start."""
    return answer_json(await caller.client.limit(name))


@router.patch(
    "/{name}",
    id="set_limit",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    answers=wire.Limit,
    says="Changed.",
    examples={"fewer": {"limit": 5}, "as the jobs declare it": {"limit": None, "rate": None}},
    errors=(404,),
)
async def set_limit(body: LimitChanges, name: LimitPath, caller: Caller) -> Response:
    """Change the numbers of a limit. Null returns to the declared number. A lower limit ends
    nothing that runs.
    """
    changes = msgspec.to_builtins(body)
    client = caller.audited("limit.set", name, after=changes)
    return answer_json(await client.set_limit(name, changes))


@router.post(
    "/{name}/pause",
    id="pause_limit",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    answers=wire.Limit,
    says="No execution that needs it starts.",
    is_body_optional=True,
    errors=(404,),
)
async def pause_limit(body: LimitPause, name: LimitPath, caller: Caller) -> Response:
    """Start no execution that needs a limit, for a time or until it is resumed."""
    client = caller.audited("limit.pause", name, after=msgspec.to_builtins(body))
    return answer_json(await client.pause_limit(name, duration=body.duration, key=body.key))


@router.post(
    "/{name}/resume",
    id="resume_limit",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    answers=wire.Limit,
    says="Executions that need it start again.",
    is_body_optional=True,
    errors=(404,),
)
async def resume_limit(body: LimitResume, name: LimitPath, caller: Caller) -> Response:
    """Start executions that need a limit again: all, or those of one value of its key."""
    client = caller.audited("limit.resume", name, after=msgspec.to_builtins(body))
    return answer_json(await client.resume_limit(name, key=body.key))
