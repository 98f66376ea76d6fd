"""Write `web/src/schema.ts`: the types of the API for the dashboard, from its OpenAPI document.

Texts, examples, headers and answers to errors are left out: the dashboard does not read them, and
the file would be seven times as long. It needs the packages of `tests/browser`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from daybell.api.app import create_api
from daybell.client import Client

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "tests" / "browser" / "node_modules"
TYPES = ROOT / "web" / "src" / "schema.ts"
LEFT_OUT = frozenset({"description", "example", "examples", "headers", "summary"})


def document() -> dict[str, Any]:
    """The OpenAPI document, without all that the types do not need."""
    made = create_api(Client("memory://")).openapi()
    paths = {
        path.removeprefix("/api/v1"): {method: _operation(one) for method, one in methods.items()}
        for path, methods in made["paths"].items()
    }
    schemas = _without_texts(made["components"]["schemas"])
    return {**made, "servers": [], "paths": paths, "components": {"schemas": schemas}}


def _operation(one: dict[str, Any]) -> dict[str, Any]:
    responses = {
        status: {"description": "", **_without_texts({"content": answer.get("content", {})})}
        for status, answer in one["responses"].items()
        if status.startswith("2")
    }
    parameters = [
        _without_texts(each)
        for each in one.get("parameters", ())
        if each["in"] in ("path", "query")
    ]
    body = {"requestBody": _without_texts(one["requestBody"])} if "requestBody" in one else {}
    return {"parameters": parameters, "responses": responses, **body}


def _without_texts(value: Any) -> Any:
    """Leave out the texts of schemas; a property may have the name of a text."""
    if isinstance(value, list):
        return [_without_texts(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: {key: _without_texts(one) for key, one in inner.items()}
        if name == "properties"
        else _without_texts(inner)
        for name, inner in value.items()
        if name not in LEFT_OUT
    }


def render(node: str) -> str:
    """The types as TypeScript, by openapi-typescript."""
    cli = PACKAGES / "openapi-typescript" / "bin" / "cli.js"
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "openapi.json", Path(folder) / "schema.ts"
        source.write_text(json.dumps(document()))
        options = ("--default-non-nullable", "false", "--alphabetize")
        words = [node, str(cli), str(source), "-o", str(target), *options]
        subprocess.run(words, check=True, capture_output=True)
        return target.read_text()


def main() -> None:
    """Write the file."""
    sys.path.insert(0, str(ROOT))
    from hatch_build import find_node, npm_ci

    node, environment = find_node(ROOT)
    if not PACKAGES.is_dir():
        npm_ci(PACKAGES.parent, node, environment)
    TYPES.write_text(render(node))
    print(f"{TYPES.relative_to(ROOT)} is written")


if __name__ == "__main__":
    main()
