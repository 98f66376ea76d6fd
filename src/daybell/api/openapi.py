"""The OpenAPI document, as JSON and as an HTML page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from html import escape
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from daybell.api.caller import Viewer, answer_json, role_of
from daybell.api.contract import EXPLAINED, answer_schemas, bodies, restore_nulls
from daybell.core.access import Role
from daybell.core.job_request import BODIES

# The OpenAPI document as a page: plain HTML, which fetches nothing from anywhere.

METHODS: Final = ("get", "post", "put", "patch", "delete")
_TYPES: Final = {
    "array": "list",
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "object": "object",
    "string": "text",
}
_CODE: Final = re.compile(r"`([^`]+)`")

Said = Mapping[str, Any]


def render_page(made: Said) -> Iterator[str]:
    """The page, piece by piece."""
    title = escape(made["info"]["title"])
    yield "<!doctype html><html lang=en><meta charset=utf-8>"
    yield '<meta name=viewport content="width=device-width"><meta name="color-scheme"'
    yield f' content="light dark"><title>{title} API</title>'
    yield f"<h1>{title} API {escape(made['info']['version'])}</h1>"
    yield f"<p>{_text(made['info']['description'])}</p>"
    yield '<p>For programs: <a href="/openapi.json">openapi.json</a>. On this page:'
    yield ", ".join(f' <a href="#{tag["name"]}">{escape(tag["name"])}</a>' for tag in made["tags"])
    yield ', <a href="#errors">errors</a></p>'
    for tag in made["tags"]:
        yield f'<h2 id="{escape(tag["name"])}">{escape(tag["name"])}</h2>'
        yield f"<p>{_text(tag['description'])}</p>"
        for path, methods in made["paths"].items():
            for method in METHODS:
                if tag["name"] in methods.get(method, {}).get("tags", ()):
                    yield from _operation(f"{method.upper()} {path}", methods[method], made)
    yield from _errors()


def _operation(name: str, said: Said, made: Said) -> Iterator[str]:
    yield f'<h3 id="{escape(said["operationId"])}"><code>{escape(name)}</code></h3>'
    yield f"<p>{_text(said.get('description', ''))}"
    role = said.get("x-role")
    yield f" Takes the role <em>{escape(role)}</em>.</p>" if role else " Takes no key.</p>"
    given = [one for one in said.get("parameters", ()) if one["in"] != "path"]
    if given:
        yield "<p>Parameters, and headers:</p><ul>"
        for one in given:
            yield _field(one["name"], one["schema"] | one, one.get("required", False), made)
        yield "</ul>"
    if "requestBody" in said:
        yield from _body(said["requestBody"]["content"]["application/json"], made)
    for code, answer in said["responses"].items():
        if int(code) not in EXPLAINED:
            yield f"<p>Answers {escape(code)}: {_text(answer['description'])}</p>"


def _body(content: Said, made: Said) -> Iterator[str]:
    schema = _resolve_reference(content["schema"], made)
    is_list = "items" in schema
    if is_list:
        schema = _resolve_reference(schema["items"], made)
    fields = schema.get("properties", {})
    if not fields:
        yield "<p>The body has no fields, and may be left out.</p>"
        return
    yield (
        "<p>The body is a list; each of its entries has:</p><ul>" if is_list else "<p>Body:</p><ul>"
    )
    for name, field in fields.items():
        yield _field(name, field, name in schema.get("required", ()), made)
    yield "</ul>"
    for example in content.get("examples", {}).values():
        text = json.dumps(example["value"], ensure_ascii=False)
        yield f"<p>Such as <code>{escape(text)}</code></p>"


def _field(name: str, field: Said, is_required: bool, made: Said) -> str:
    needed = ", needed" if is_required else ""
    told = (one["description"] for one in field.get("anyOf", ()) if "description" in one)
    about = field.get("description") or next(told, "")
    return (
        f"<li><code>{escape(name)}</code> ({escape(_type(field, made))}{needed})"
        f"{': ' if about else ''}{_text(about)}</li>"
    )


def _type(field: Said, made: Said) -> str:
    """What a value may be, in words."""
    field = _resolve_reference(field, made)
    if "enum" in field or "const" in field:
        return ", ".join(map(str, field.get("enum", [field.get("const")])))
    if "properties" in field:
        return f"object with {', '.join(field['properties'])}"
    if "anyOf" in field:
        kinds = [_type(one, made) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    return _TYPES.get(field.get("type", ""), "any value")


def _resolve_reference(schema: Said, made: Said) -> Said:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    return made["components"]["schemas"][reference.rpartition("/")[2]]


def _errors() -> Iterator[str]:
    yield '<h2 id="errors">errors</h2><p>What any of them may answer instead:</p><dl>'
    for code, (kind, about) in EXPLAINED.items():
        yield f"<dt>{code} <code>{escape(kind)}</code></dt><dd>{_text(about)}</dd>"
    yield "</dl>"


def _text(text: str) -> str:
    """Text with what is between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


VERSION: Final = "3.1.0"
ABOUT: Final = (
    "Jobs, schedules, executions, queues and workers. Send a key as `Authorization: Bearer dbk_…`;"
    " it decides the tenant and what you may do. Errors are `application/problem+json`: `type` is"
    " stable, `detail` says what to do, `errors` lists what is wrong by field."
)
TAGS: Final = (
    ("jobs", "Named, versioned definitions of what to run, and when."),
    ("templates", "Jobs with blanks, from which others are made."),
    ("secrets", "Values that jobs use and nobody reads."),
    ("executions", "What runs, ran and will run."),
    ("events", "What executions wait for."),
    ("dead-letters", "Executions out of tries, for a person to decide on."),
    ("queues", "Lanes that workers take work from."),
    ("workers", "Processes that run executions."),
    ("schedules", "What a schedule means, and when it fires."),
    ("stats", "All that goes on, at a glance."),
    ("access", "Keys, tenants and the audit log."),
    ("health", "Whether the process and its store are well. Open to all."),
)

# What can be done with an id in an answer: operations, and the parameter that takes it.
LINKS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "job_id": (("get_job", "job"), ("trigger_job", "job"), ("delete_job", "job")),
    "execution_id": (
        ("get_execution", "id"),
        ("get_execution_logs", "id"),
        ("explain_execution", "id"),
        ("cancel_execution", "id"),
        ("retry_execution", "id"),
    ),
    "key_id": (("revoke_key", "id"), ("delete_key", "id")),
}

router = APIRouter()


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            openapi_version=VERSION,
            description=ABOUT,
            routes=app.routes,
            tags=[{"name": name, "description": about} for name, about in TAGS],
            servers=[{"url": "/", "description": "The server that this document comes from."}],
        )
        _add_components(made)
        _add_roles(made, app.state.roles)
        _add_links(made)
        _drop_null_defaults(made)
        app.openapi_schema = cast("dict[str, Any]", restore_nulls(made))
    return app.openapi_schema


def _add_components(made: dict[str, Any]) -> None:
    ordered = sorted(bodies, key=lambda one: one.__name__)
    _, schema = models_json_schema(
        [(one, "validation") for one in ordered],
        ref_template="#/components/schemas/{model}",
    )
    components = made.setdefault("components", {})
    answers = answer_schemas()
    requests = {**schema["$defs"], **deepcopy(dict(BODIES))}
    both = answers.keys() & requests.keys()
    assert all("enum" in answers[name] for name in both), f"a body is named as an answer: {both}"
    components["schemas"] = {**requests, **answers}
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "A key, dbk_…"}
    }
    made["security"] = [{"key": []}]
    for path in ("/healthz", "/readyz"):
        made["paths"][path]["get"]["security"] = []


def _add_links(made: dict[str, Any]) -> None:
    """Say which operations take what an answer has: by the ids in it that are never null."""
    known = {said["operationId"] for methods in made["paths"].values() for said in methods.values()}
    assert known >= {id for ids in LINKS.values() for id, _ in ids}
    for methods in made["paths"].values():
        for said in methods.values():
            for code, given in said["responses"].items():
                if code.startswith("2") and (links := _links_of(given, said["operationId"], made)):
                    given["links"] = links


def _links_of(given: Mapping[str, Any], own: str, made: Mapping[str, Any]) -> dict[str, Any]:
    schema = given.get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    answer = made["components"]["schemas"].get(name, {})
    fields, needed = answer.get("properties", {}), answer.get("required", ())
    return {
        id: {"operationId": id, "parameters": {parameter: f"$response.body#/{field}"}}
        for field, operations in LINKS.items()
        for id, parameter in operations
        if id != own and field in needed and fields.get(field, {}).get("format") == "uuid"
    }


def _drop_null_defaults(schema: Any) -> None:
    """Leave out defaults that are null: generators of clients would demand such fields."""
    if isinstance(schema, list):
        for one in cast("list[Any]", schema):
            _drop_null_defaults(one)
    elif isinstance(schema, dict):
        given = cast("dict[str, Any]", schema)
        if given.get("default", ...) is None:
            del given["default"]
        for name, one in given.items():
            if name not in ("example", "examples"):
                _drop_null_defaults(one)


def roles_of(routers: Iterable[APIRouter]) -> dict[str, Role]:
    """Which role each operation takes."""
    routes = (route for one in routers for route in one.routes if isinstance(route, APIRoute))
    found = {route.operation_id or "": role_of(route.dependant) for route in routes}
    return {id: role for id, role in found.items() if role is not None}


def _add_roles(made: dict[str, Any], roles: Mapping[str, Role]) -> None:
    for methods in made["paths"].values():
        for said in methods.values():
            if said["operationId"] in roles:
                said["x-role"] = str(roles[said["operationId"]])


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, caller: Viewer) -> Response:
    """The document."""
    return answer_json(document(request.app))


@router.get("/docs", include_in_schema=False)
async def docs(request: Request, caller: Viewer) -> Response:
    """The document as a page."""
    return Response("".join(render_page(document(request.app))), media_type="text/html")
