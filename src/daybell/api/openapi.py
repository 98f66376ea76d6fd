"""The OpenAPI document, and a page to read it by."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from daybell.api.answers import answer
from daybell.api.caller import Viewer
from daybell.api.contract import bodies
from daybell.api.shapes import Problem

VERSION: Final = "3.1.0"
ABOUT: Final = (
    "Jobs, schedules, executions, queues and workers. Send a key as `Authorization: Bearer dbk_…`;"
    " it decides the tenant and what you may do. Errors are `application/problem+json`: `type` is"
    " stable, `detail` says what to do, `errors` lists what is wrong by field."
)
TAGS: Final = (
    ("jobs", "Named, versioned definitions of what to run, and when."),
    ("executions", "What runs, ran and will run."),
    ("dead-letters", "Executions out of tries, for a person to decide on."),
    ("queues", "Lanes that workers take work from."),
    ("workers", "Processes that run executions."),
    ("schedules", "What a schedule means, and when it fires."),
    ("stats", "All that goes on, at a glance."),
    ("access", "Keys, tenants and the audit log."),
    ("health", "Whether the process and its store are well. Open to all."),
)
_METHODS: Final = ("get", "post", "put", "patch", "delete")

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


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, caller: Viewer) -> Response:
    """The document."""
    return answer(document(request.app))


@router.get("/docs", include_in_schema=False)
async def docs(request: Request, caller: Viewer) -> Response:
    """The document as a page: plain HTML, which fetches nothing from anywhere."""
    return Response("".join(_page(document(request.app))), media_type="text/html")


def _page(made: dict[str, Any]) -> Iterator[str]:
    yield "<!doctype html><html lang=en><meta charset=utf-8>"
    yield f"<title>{escape(made['info']['title'])} API</title>"
    yield f"<h1>{escape(made['info']['title'])} API {escape(made['info']['version'])}</h1>"
    yield f"<p>{escape(made['info']['description'])}</p>"
    yield '<p>For programs: <a href="/openapi.json">openapi.json</a></p>'
    for tag in made["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p><dl>"
        for path, methods in made["paths"].items():
            for method in _METHODS:
                if tag["name"] in methods.get(method, {}).get("tags", ()):
                    yield from _operation(method, path, methods[method])
        yield "</dl>"


def _operation(method: str, path: str, said: dict[str, Any]) -> Iterator[str]:
    yield f"<dt><code>{method.upper()} {escape(path)}</code></dt>"
    yield f"<dd>{escape(said.get('description', ''))}"
    names = [one["name"] for one in said.get("parameters", ()) if one["in"] == "query"]
    if names:
        yield f"<br>Parameters: {escape(', '.join(names))}"
    yield f"<br>Answers: {escape(', '.join(said['responses']))}</dd>"
