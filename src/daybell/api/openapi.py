"""The OpenAPI document, and a page to read it by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from daybell.api.answers import answer
from daybell.api.caller import Viewer, role_of
from daybell.api.contract import bodies
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
        )
        _add_components(made)
        _add_roles(made, app.state.roles)
        app.openapi_schema = made
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
