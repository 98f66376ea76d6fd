"""The OpenAPI document, as JSON and as an HTML page."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from html import escape
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from daybell import version
from daybell.api.bodies import MENTIONED
from daybell.api.caller import MEDIA_TYPE, Caller, answer_json
from daybell.api.contract import (
    ALWAYS,
    EXAMPLES,
    EXPLAINED,
    RETRY_AFTER,
    WITH_BODY,
    answer_schemas,
    schema_name,
)
from daybell.api.router import HEADERS, Reach, Route, Routes, TenantQuery
from daybell.core.access import Action, Role
from daybell.core.job_request import BODIES
from daybell.errors import build_problem

# The OpenAPI document as a page: plain HTML, which loads no other files.

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
    """Return the page, piece by piece."""
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
    """Return the type of a value, in words."""
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
    """Return a text with the parts between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


VERSION: Final = "3.1.0"
REFERENCE: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"
ABOUT: Final = (
    "Jobs, schedules, executions, queues and workers. Send a key as `Authorization: Bearer dbk_…`;"
    " it decides the tenant and what you may do. Errors are `application/problem+json`: `type` is"
    " stable, `detail` says what to do, `errors` lists what is wrong by field."
)
TAGS: Final = (
    ("jobs", "Named, versioned definitions of what to run, and when."),
    ("templates", "Jobs with blanks, from which others are made."),
    ("secrets", "Values that jobs use, and no answer shows."),
    ("executions", "What runs, ran and will run."),
    ("events", "What executions wait for."),
    ("dead-letters", "Executions out of tries, for a person to decide on."),
    ("queues", "Lanes that workers take work from."),
    ("limits", "How many executions run at a time, and start in a time."),
    ("workers", "Processes that run executions."),
    ("leases", "Remote workers, which have no access to the database."),
    ("schedules", "What a schedule means, and when it fires."),
    ("stats", "All that goes on, at a glance."),
    ("alerts", "Rules that open incidents, and their messages."),
    ("subscriptions", "Receivers of outgoing events."),
    ("hooks", "Webhooks of jobs: addresses that others post to."),
    ("access", "Keys, tenants and the audit log."),
    ("health", "Whether the process and its store are well. Open to all."),
)

# The operations that take an id from an answer, with the parameter for it.
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

router = Routes("", base="")


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of these routes."""
    shown = [route for route in routes if not route.is_hidden]
    made: dict[str, Any] = {
        "openapi": VERSION,
        "info": {"title": "Daybell", "version": version.VERSION, "description": ABOUT},
        "servers": [{"url": "/", "description": "The server that this document comes from."}],
        "tags": [{"name": name, "description": about} for name, about in TAGS],
        "security": [{"key": []}],
        "paths": {},
        "components": {
            "schemas": _components(shown),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key, dbk_…"}
            },
        },
    }
    for route in shown:
        made["paths"].setdefault(route.path, {})[route.method.lower()] = _describe(route)
    _add_links(made)
    _finish_schemas(made)
    return made


def _components(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the schemas of bodies and answers, by name."""
    given = [one for route in routes for one in (route.answers, route.answers_also) if one]
    answers = answer_schemas({schema_name(one): one for one in given})
    bodies = [one.body for one in routes if one.body is not None and not isinstance(one.body, str)]
    _, found = msgspec.json.schema_components([*bodies, *MENTIONED], ref_template=REFERENCE)
    requests = {**found, **deepcopy(dict(BODIES))}
    both = answers.keys() & requests.keys()
    assert all("enum" in answers[name] for name in both), f"a body is named as an answer: {both}"
    return {**requests, **answers}


def _schema_of(body: Any) -> dict[str, Any]:
    if isinstance(body, str):
        return {"$ref": REFERENCE.format(name=body)}
    (schema,), _ = msgspec.json.schema_components([body], ref_template=REFERENCE)
    return schema


def _describe(route: Route) -> dict[str, Any]:
    """Return an operation of the document."""
    said: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.id.replace("_", " ").capitalize(),
        "description": inspect.cleandoc(route.handler.__doc__ or ""),
        "operationId": route.id,
        "responses": _responses(route),
    }
    if parameters := list(_parameters(route)):
        said["parameters"] = parameters
    if route.body is not None:
        said["requestBody"] = _request_body(route)
    if route.role is None:
        said["security"] = []
    else:
        said["x-role"] = str(route.role)
    return said


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    yield from _fields_of(route.values, "path")
    if route.query is not None:
        yield from _fields_of(route.query, "query")
    if route.role is not None:
        yield from _fields_of(TenantQuery, "query")
    for name, (_, model) in HEADERS.items():
        if name in route.takes:
            yield from _fields_of(model, "header")
    yield from map(dict, route.parameters)


def _fields_of(model: type[msgspec.Struct], place: str) -> Iterator[dict[str, Any]]:
    """Return the fields of a struct as parameters. Callers omit a parameter; it is never null."""
    _, components = msgspec.json.schema_components([model], ref_template=REFERENCE)
    (schema,) = (one for one in components.values() if "properties" in one)
    for name, field in schema["properties"].items():
        kinds = [one for one in field.get("anyOf", ()) if one != {"type": "null"}]
        own = {key: one for key, one in field.items() if key != "anyOf"}
        inner = {**kinds[0], **own} if len(kinds) == 1 else field
        about = inner.pop("description", None)
        yield {
            "name": name,
            "in": place,
            "required": name in schema["required"],
            **({} if about is None else {"description": about}),
            "schema": inner,
        }


def _request_body(route: Route) -> dict[str, Any]:
    schema = {"schema": _schema_of(route.body)}
    examples = {name: {"value": value} for name, value in route.examples.items()}
    content = {JSON: {**schema, "examples": examples} if examples else schema}
    content |= {kind: schema for kind in route.body_types}
    content |= {kind: {"schema": _schema_of(body)} for kind, body in route.bodies.items()}
    return {"required": not route.is_body_optional, "content": content}


def _responses(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.answers is not None:
        name = schema_name(route.answers)
        content[JSON] = {"schema": {"$ref": REFERENCE.format(name=name)}}
        if name in EXAMPLES:
            content[JSON]["example"] = EXAMPLES[name]
    if route.answers_also is not None:
        name = schema_name(route.answers_also)
        schemas = [content[JSON]["schema"], {"$ref": REFERENCE.format(name=name)}]
        content[JSON]["schema"] = {"oneOf": schemas}
    content |= {kind: {"schema": {"type": "string"}} for kind in route.media_types}
    good: dict[str, Any] = {"content": content}
    if route.headers:
        good["headers"] = dict(route.headers)
    found = {route.status: route.says, **route.also}
    codes: set[int] = set(route.errors)
    if route.role is not None:
        codes.update((*ALWAYS, *(WITH_BODY if route.body is not None else ())))
    return {
        **{str(code): {"description": about, **good} for code, about in found.items()},
        **{str(code): _problem(code) for code in sorted(codes)},
    }


def _problem(code: int) -> dict[str, Any]:
    """Return an error of the document."""
    kind, description = EXPLAINED[code]
    example = build_problem(kind, code, description)
    if code == HTTPStatus.UNPROCESSABLE_ENTITY:
        example["errors"] = [{"field": "timeout", "message": "'soon' is not a duration"}]
    schema = {"$ref": REFERENCE.format(name="Problem")}
    answer: dict[str, Any] = {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": schema, "example": example}},
    }
    if code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        answer["headers"] = RETRY_AFTER
    return answer


def _add_links(made: dict[str, Any]) -> None:
    """Link each answer to the operations that take its ids, if these are never null."""
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


def _finish_schemas(schema: Any) -> None:
    """Remove defaults that are null: generators of clients would require such fields. Declare
    the values of untyped arrays and objects as any: generators need that, too.
    """
    if isinstance(schema, list):
        for one in cast("list[Any]", schema):
            _finish_schemas(one)
    elif isinstance(schema, dict):
        given = cast("dict[str, Any]", schema)
        if given.get("default", ...) is None:
            del given["default"]
        if given.get("type") == "array" and not {"items", "prefixItems"} & given.keys():
            given["items"] = {}
        fields = {"properties", "additionalProperties", "patternProperties"}
        if given.get("type") == "object" and not fields & given.keys():
            given["additionalProperties"] = True
        for name, one in given.items():
            if name not in ("example", "examples"):
                _finish_schemas(one)


@router.get(
    "/openapi.json",
    id="openapi",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    is_hidden=True,
)
async def show_document(request: Request, caller: Caller) -> Response:
    """The document."""
    return answer_json(request.app.openapi())


@router.get(
    "/docs",
    id="docs",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    is_hidden=True,
)
async def show_page(request: Request, caller: Caller) -> Response:
    """The document as a page."""
    return Response("".join(render_page(request.app.openapi())), media_type="text/html")
