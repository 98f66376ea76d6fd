"""Routes of `/session`: browsers log in and out, and read the actions that they may perform."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from daybell import version
from daybell.api import sessions
from daybell.api.auth import gatekeeper_of
from daybell.api.bodies import Login, NewLogin
from daybell.api.caller import Caller, answer_json, api_of
from daybell.api.contract import ALWAYS, WITH_BODY
from daybell.api.router import Reach, Routes
from daybell.client import answers, wire
from daybell.core.access import Action, KeyKind, Role, Scope

router = Routes("/session", tag="access")


@router.post(
    "",
    id="create_session",
    role=None,
    action=None,
    answers=wire.Session,
    says="Logged in. The answer sets the cookie.",
    examples={"with a key": {"key": "dbk_…"}},
    errors=(*ALWAYS, *WITH_BODY),
    changes_nothing=True,
)
async def create_session(request: Request, body: Login) -> Response:
    """Log a browser in, with a key or with the token of a login link, which works once.

    The cookie is HttpOnly and SameSite=Strict. The session has the role and the scope of the key,
    and ends after 12 hours, with the key, or by `DELETE /session`. A change takes the answer's
    `csrf_token` as `X-CSRF-Token`, and the same origin.
    """
    caller, token = await gatekeeper_of(request).log_in(request.scope, body.key)
    response = answer_json(_describe(request, caller, token))
    sessions.set_cookie(response, request.scope, token)
    return response


@router.get(
    "",
    id="get_session",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    answers=wire.Session,
    says="Who you are here.",
)
async def get_session(request: Request, caller: Caller) -> Response:
    """Show tenant, role and scope of the caller, and what they may do. It works with a key, too."""
    return answer_json(_describe(request, caller, sessions.read_cookie(request.scope)))


@router.delete(
    "",
    id="delete_session",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    answers=wire.EndedSession,
    says="The session has ended.",
    changes_nothing=True,
)
async def delete_session(request: Request, caller: Caller) -> Response:
    """Log a browser out: end its session, and take its cookie away."""
    await gatekeeper_of(request).log_out(caller)
    response = answer_json(wire.EndedSession(status="ended"))
    sessions.set_cookie(response, request.scope, "")
    return response


@router.post(
    "/links",
    id="create_login",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    answers=wire.NewKeyAnswer,
    status=201,
    says="Made. The token is shown this once; open `/#login=TOKEN` with it.",
    examples={"for somebody who may only look": {"role": "viewer", "expires": "5m"}},
    is_body_optional=True,
    changes_nothing=True,
)
async def create_login(request: Request, body: NewLogin, caller: Caller) -> Response:
    """Make a login link, which opens one session, within 10 minutes if nothing else is said.

    The session ends with the key that this is sent with, and has its scope.
    """
    made = await gatekeeper_of(request).create_login(caller, role=body.role, expires=body.expires)
    return answer_json(made, status=201)


def _describe(request: Request, caller: Caller, token: str | None) -> wire.Session:
    key = caller.key
    scope = caller.scope or Scope()
    read_only = api_of(request).options.read_only
    is_session = key is not None and key.kind is KeyKind.SESSION and token is not None
    return wire.Session(
        tenant=caller.tenant,
        role=caller.role,
        jobs=list(scope.jobs) or None,
        queues=list(scope.queues) or None,
        actions=[one for one in caller.actions if one is Action.READ or not read_only],
        key_id=None if key is None else key.parent or key.id,
        name=None if key is None else key.name,
        expires_at=None if key is None else answers.time(key.expires_at),
        csrf_token=sessions.csrf_token(token) if is_session and token is not None else None,
        read_only=read_only,
        version=version.VERSION,
    )
