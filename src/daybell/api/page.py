"""The OpenAPI document as a page: plain HTML, which fetches nothing from anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from daybell.api.contract import EXPLAINED

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


def page(made: Said) -> Iterator[str]:
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
    schema = _resolved(content["schema"], made)
    is_list = "items" in schema
    if is_list:
        schema = _resolved(schema["items"], made)
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
    field = _resolved(field, made)
    if "enum" in field or "const" in field:
        return ", ".join(map(str, field.get("enum", [field.get("const")])))
    if "properties" in field:
        return f"object with {', '.join(field['properties'])}"
    if "anyOf" in field:
        kinds = [_type(one, made) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    return _TYPES.get(field.get("type", ""), "any value")


def _resolved(schema: Said, made: Said) -> Said:
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
