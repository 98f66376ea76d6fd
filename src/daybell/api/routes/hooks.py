"""Routes of webhooks: the hooks of a job, and the addresses that their senders post to."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.auth import gatekeeper_of
from daybell.api.bodies import HookRotation, NewHook
from daybell.api.caller import (
    Caller,
    HookRefused,
    Unsupported,
    answer_created,
    answer_json,
    api_of,
)
from daybell.api.contract import ALWAYS, WITH_BODY
from daybell.api.fields import JobPath, Paged
from daybell.api.guard import is_json, is_text
from daybell.api.idempotency import HEADER
from daybell.api.requests import answer_list, read_header, read_json, receive_body
from daybell.api.router import Routes
from daybell.client import answers, wire
from daybell.client.events import read_event
from daybell.client.hooks import Delivery, check_delivery, event_name, fetch_signing_secret
from daybell.core.access import Action, Role
from daybell.core.ids import mint
from daybell.core.limits import ARGS_BYTES_MAX
from daybell.core.views import Page
from daybell.errors import PayloadError, PayloadTooLarge, UsageError

of_job_router = Routes("/jobs/{name}/hooks", tag="hooks")
router = Routes("/hooks", tag="hooks")
logger = logging.getLogger("daybell.api")

HookPath = Annotated[str, Meta(description="The name of a hook.", max_length=200)]
Token = Annotated[str, Meta(description="As it was shown when the hook was made.", max_length=200)]
FORM: Final = "application/x-www-form-urlencoded"
REFUSED: Final = (
    "this request is not accepted: its address or its signature is not valid, or its time is more"
    " than five minutes away"
)


@of_job_router.post(
    "",
    id="create_hook",
    role=Role.ADMIN,
    action=None,
    answers=wire.NewHookAnswer,
    status=201,
    says="Made. The token is shown this once.",
    examples={
        "for GitHub": {"name": "github", "signature": "github", "secret": "github-hook"},
        "for a program": {"name": "uploads", "expires": "90d"},
    },
    errors=(404, 409),
)
async def create_hook(request: Request, body: NewHook, name: JobPath, caller: Caller) -> Response:
    """Make an address for a job: what is posted there fires the job, as the event `hook.<job>`.

    A schedule for the event is added, unless the job has one. It takes no `Idempotency-Key`: the
    token is in the answer alone. If it was lost, rotate the hook.
    """
    if HEADER in request.headers:
        raise UsageError(f"{HEADER} is not for hooks: their tokens are not kept", field=HEADER)
    job = (await caller.client.job_named(name)).name
    fields: dict[str, Any] = {
        "signature": body.signature,
        "secret": body.secret,
        "header": body.header,
        "algorithm": body.algorithm,
        "encoding": body.encoding,
    }
    after = {"name": body.name, "expires": body.expires, **fields}
    client = caller.audited("hook.create", f"{job}/{body.name}", after=after)
    made = await client.create_hook(
        job, body.name, expires=body.expires, created_by=caller.actor, **fields
    )
    return answer_created(made, location=f"/api/v1/jobs/{job}/hooks")


@of_job_router.get(
    "",
    id="list_hooks",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.Hook],
    says="Hooks, newest first.",
    errors=(404,),
)
async def list_hooks(name: JobPath, caller: Caller, query: Paged) -> Response:
    """List the hooks of a job, revoked and expired ones too."""
    job = (await caller.client.job_named(name)).name
    return answer_list(
        await caller.client.hooks(job),
        key=lambda one: one.hook_id,
        limit=query.limit,
        cursor=query.cursor,
        newest_first=True,
    )


@of_job_router.post(
    "/{hook}/rotate",
    id="rotate_hook",
    role=Role.ADMIN,
    action=None,
    answers=wire.NewHookAnswer,
    says="The hook with its new token, which is shown this once.",
    is_body_optional=True,
    examples={"after a leak": {"overlap": 0}},
    errors=(404,),
)
async def rotate_hook(
    body: HookRotation, name: JobPath, hook: HookPath, caller: Caller
) -> Response:
    """Give a hook a new token. The old one is valid for the time of `overlap`."""
    job = (await caller.client.job_named(name)).name
    client = caller.audited("hook.rotate", f"{job}/{hook}", after={"overlap": body.overlap})
    made = await client.rotate_hook(job, hook, overlap=body.overlap, created_by=caller.actor)
    return answer_json(made)


@of_job_router.post(
    "/{hook}/revoke",
    id="revoke_hook",
    role=Role.ADMIN,
    action=None,
    answers=wire.Hook,
    says="The hook takes nothing any more.",
    is_body_optional=True,
    errors=(404,),
)
async def revoke_hook(name: JobPath, hook: HookPath, caller: Caller) -> Response:
    """Revoke a hook with all of its tokens. That counts within 5 seconds."""
    job = (await caller.client.job_named(name)).name
    client = caller.audited("hook.revoke", f"{job}/{hook}")
    return answer_json(await client.revoke_hook(job, hook))


@router.post(
    "/{token}",
    id="receive_hook",
    role=None,
    action=None,
    answers=wire.Published,
    status=202,
    says="It is on record, and the job is fired.",
    errors=(*ALWAYS, *WITH_BODY),
)
async def receive_hook(request: Request, token: Token) -> Response:
    """Take a request of a webhook's sender: JSON, a form or text, up to 1 MiB.

    A request that was taken before is answered as done, with `created` false. Requests with a wrong
    token, a wrong signature or an old timestamp get the same answer.
    """
    raw = await receive_body(request)
    if len(raw) > ARGS_BYTES_MAX:
        raise PayloadTooLarge(f"the body has {len(raw):,} bytes; the limit is {ARGS_BYTES_MAX:,}")
    gatekeeper = gatekeeper_of(request)
    caller = await gatekeeper.find_hook(request.scope, token)
    found = await _check(request, caller, raw)
    if caller is None or found is None:
        gatekeeper.count_wrong_hook(request.scope)
        raise HookRefused(REFUSED)
    gatekeeper.note_hook(caller)
    event = read_event(
        event_name(found.hook.job),
        _read_data(request, raw),
        source=f"/hooks/{found.hook.job}/{caller.key.name if caller.key else ''}",
        id=found.event_id or str(mint()),
    )
    after = {"id": event.id, "source": event.source, "type": event.name}
    client = caller.audited("event.publish", event.name, after=after)
    published = await client.keep(event, None)
    return answer_json(answers.published(published, event.id), status=202)


async def _check(request: Request, caller: Caller | None, raw: bytes) -> Delivery | None:
    """Check a request. The work is the same for a token that belongs to no hook."""
    hook = None if caller is None or caller.key is None else caller.key.hook
    client = api_of(request).client if caller is None else caller.client
    now = (await client.health()).now
    try:
        secret = await fetch_signing_secret(client, hook)
    except UsageError as error:
        logger.warning("the signature of a webhook cannot be checked: %s", error)
        secret = None
    headers = {name.lower(): value for name, value in request.headers.items()}
    return check_delivery(hook, secret, headers, raw, now)


def _read_data(request: Request, raw: bytes) -> Any:
    """Return the body: JSON, the fields of a form, or text. Without a type it is JSON, or text."""
    kind = read_header(request, b"content-type") or ""
    if is_json(kind):
        return read_json(raw)
    if not raw:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise PayloadError("the body is not UTF-8", field="body") from None
    if kind.partition(";")[0].strip().lower() == FORM:
        return _read_form(text)
    if kind and not is_text(kind):
        raise Unsupported("send JSON, a form, or text in UTF-8")
    return text


def _read_form(text: str) -> dict[str, Any]:
    """Return the fields of a form. Several values of one name are a list."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=1_000, errors="strict")
    except ValueError:
        raise PayloadError("the body is not a form in UTF-8", field="body") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: one[0] if len(one) == 1 else one for name, one in fields.items()}
