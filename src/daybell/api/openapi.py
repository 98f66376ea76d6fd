"""The OpenAPI document, and a page to read it by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from daybell.api.answers import answer
from daybell.api.caller import Viewer, role_of
from daybell.api.contract import bodies, restore_nulls
from daybell.api.page import page
from daybell.api.shapes import Problem
from daybell.core.access import Role

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
        [(Problem, "serialization"), *((one, "validation") for one in ordered)],
        ref_template="#/components/schemas/{model}",
    )
    components = made.setdefault("components", {})
    answers = components.setdefault("schemas", {})
    assert not answers.keys() & schema["$defs"].keys(), "a body and an answer have the same name"
    answers.update(schema["$defs"])
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
    fields = made["components"]["schemas"].get(name, {}).get("properties", {})
    return {
        id: {"operationId": id, "parameters": {parameter: f"$response.body#/{field}"}}
        for field, operations in LINKS.items()
        for id, parameter in operations
        if id != own and fields.get(field, {}).get("format") == "uuid"
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
    return answer(document(request.app))


@router.get("/docs", include_in_schema=False)
async def docs(request: Request, caller: Viewer) -> Response:
    """The document as a page."""
    return Response("".join(page(document(request.app))), media_type="text/html")
