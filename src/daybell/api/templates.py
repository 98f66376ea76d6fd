"""`/templates`: jobs with blanks, from which others are made."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response

from daybell.api import sights
from daybell.api.answers import answer, answer_page, created
from daybell.api.body import checked, read_body, read_bytes, read_json
from daybell.api.caller import Admin, Caller, Viewer
from daybell.api.contract import ETAG, LOCATION, REPLAYED, IdempotencyKey, IfMatch, operation
from daybell.api.example_jobs import NEW_TEMPLATES
from daybell.api.idempotency import Try, once
from daybell.api.jobs import precondition, read_version
from daybell.api.lists import Cursor, Limit
from daybell.api.template_schema import DeclaredTemplate, NewTemplate
from daybell.client import wire
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.core.template import Template
from daybell.errors import TemplateNotFound, UsageError, shown

router = APIRouter(prefix="/templates", tags=["templates"])

TemplatePath = Annotated[str, Path(alias="name", description="A template's name.", max_length=200)]


@router.post(
    "",
    **operation(
        "create_template",
        answers=sights.Template,
        status=201,
        says="Created.",
        body=NewTemplate,
        examples=NEW_TEMPLATES,
        errors=(409,),
        headers={**LOCATION, **ETAG, **REPLAYED},
    ),
)
async def create_template(request: Request, caller: Admin, key: IdempotencyKey = None) -> Response:
    """Create a template. What it says of a job is what a request to create one says, with
    `{"parameter": "NAME"}` where a value goes.
    """
    raw = await read_bytes(request)
    wanted = checked(read_json(raw), NewTemplate)

    async def perform(this: Try) -> Response:
        made = await _create(caller, wanted, this)
        location = f"/api/v1/templates/{quote(made.name, safe='')}"
        return created(wire.template(made), location=location, headers=tagged(made))

    return await once(request, caller, key, raw, perform)


async def _create(caller: Caller, wanted: NewTemplate, this: Try) -> Template:
    entry, name = this.made("entry"), wanted.name
    if this.is_repeated and await caller.recorded("template.create", name, entry) is not None:
        return await caller.client.template(name)
    said = wanted.said()
    with caller.auditing("template.create", name, after=said, id=entry):
        return await caller.client.set_template(said, author=caller.actor, expect=0)


@router.get(
    "", **operation("list_templates", answers=sights.TemplatePage, says="Templates, by name.")
)
async def list_templates(
    caller: Viewer, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List templates."""
    page = await caller.client.templates_page(limit=limit, cursor=cursor)
    items = (wire.template(one, listed=True) for one in page.items)
    return answer_page(page, items, cursor=lambda one: one.name)


@router.get(
    "/{name}",
    **operation(
        "get_template",
        answers=sights.Template,
        says="The template.",
        errors=(404,),
        headers=ETAG,
    ),
)
async def get_template(name: TemplatePath, caller: Viewer) -> Response:
    """Show a template."""
    found = await caller.client.template(name)
    return answer(wire.template(found), headers=tagged(found))


@router.put(
    "/{name}",
    **operation(
        "set_template",
        answers=sights.Template,
        says="It is what was said.",
        body=DeclaredTemplate,
        examples=NEW_TEMPLATES,
        errors=(404, 409, 412),
        headers=ETAG,
        also={201: "Created."},
    ),
)
async def set_template(
    request: Request, name: TemplatePath, caller: Admin, version: IfMatch = None
) -> Response:
    """Create a template, or put another in its place. Jobs that were made from it stay as they are.

    One that is like that already is left alone.
    """
    wanted = await read_body(request, DeclaredTemplate)
    if wanted.name not in (None, name):
        raise UsageError(
            f"name is {shown(wanted.name)}, and the address says {shown(name)}", field="name"
        )
    expect = read_version(version)
    said = {**wanted.said(), "name": name}
    before = await _before(caller, name)
    with (
        precondition(expect),
        caller.auditing("template.update", name, before=before, after=said),
    ):
        made = await caller.client.set_template(said, author=caller.actor, expect=expect)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer(wire.template(made), status=status, headers=tagged(made))


@router.delete(
    "/{name}",
    **operation(
        "delete_template",
        answers=sights.DeletedTemplate,
        says="It is gone; jobs that were made from it stay.",
        errors=(404, 412),
    ),
)
async def delete_template(name: TemplatePath, caller: Admin, version: IfMatch = None) -> Response:
    """Delete a template. Jobs that were made from it stay as they are."""
    expect = read_version(version)
    before = wire.template(await caller.client.template(name))
    with precondition(expect), caller.auditing("template.delete", name, before=before):
        await caller.client.delete_template(name, expect=expect)
    return answer({"name": name, "status": "deleted"})


async def _before(caller: Caller, name: str) -> dict[str, Any] | None:
    try:
        return wire.template(await caller.client.template(name))
    except TemplateNotFound:
        return None


def tagged(template: Template) -> dict[str, str]:
    """The header that names a template's version."""
    return {"ETag": f'"{template.version}"'}
