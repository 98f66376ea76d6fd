"""Write `web/src/data/schema.ts`, the types of the API for the dashboard, from its document, and
`web/src/data/options.ts`, the options of jobs, from their table. Format all other sources.

Texts, examples, headers and answers to errors are left out of the types: the dashboard does not
read them, and the file would be seven times as long. It needs the packages of `tests/browser`.
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
from daybell.core.kinds import SETTINGS
from daybell.core.kinds.schema import DURATION
from daybell.core.options import OPTIONS, Option

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "tests" / "browser" / "node_modules"
TYPES = ROOT / "web" / "src" / "data" / "schema.ts"
JOB_OPTIONS = ROOT / "web" / "src" / "data" / "options.ts"
# Options for which the form of a job has fields of its own, or none: files set a source.
OWN_FIELDS = frozenset(
    {
        *SETTINGS,
        "args",
        "made_from",
        "parameters",
        "schedule",
        "source",
        "task",
        "template",
        "tz",
        "workflow",
    }
)
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


def render_options() -> str:
    """The options of jobs as TypeScript. Kinds and schedules have fields of their own."""
    rows = [
        {
            "name": one.name,
            "type": _type_of(one),
            "choices": one.schema.get("enum", []),
            "meaning": one.meaning,
            "unset": one.default,
        }
        for one in OPTIONS.values()
        if one.name not in OWN_FIELDS
    ]
    text = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    return f"""/** The options of jobs. Written by `make web-types` from `core/options.py`. */

export interface JobOption {{
  name: string;
  /** A text, one of the choices, true or false, a length of time, or a value that may be JSON. */
  type: "text" | "choice" | "flag" | "duration" | "value";
  choices: string[];
  meaning: string;
  unset: unknown;
}}

export const OPTIONS: JobOption[] = [
{text},
];
"""


def _type_of(option: Option) -> str:
    if "enum" in option.schema:
        return "choice"
    if option.schema is DURATION:
        return "duration"
    return {"string": "text", "boolean": "flag"}.get(option.schema.get("type", ""), "value")


def run_prettier(node: str, option: str) -> list[str]:
    """Format the sources with `--write`, or compare them with `--list-different`; return the names
    of files that differ.
    """
    cli = PACKAGES / "prettier" / "bin" / "prettier.cjs"
    words = [node, str(cli), option, "web/src", "web/vite.config.ts"]
    ignored = ("--ignore-path", "web/.prettierignore")
    done = subprocess.run([*words, *ignored], cwd=ROOT, capture_output=True, text=True)
    if done.returncode > 1:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


def main() -> None:
    """Write the files."""
    sys.path.insert(0, str(ROOT))
    from hatch_build import find_node, npm_ci

    node, environment = find_node(ROOT)
    if not PACKAGES.is_dir():
        npm_ci(PACKAGES.parent, node, environment)
    TYPES.write_text(render(node))
    JOB_OPTIONS.write_text(render_options())
    run_prettier(node, "--write")
    print(f"{TYPES.relative_to(ROOT)} and {JOB_OPTIONS.relative_to(ROOT)} are written")


if __name__ == "__main__":
    main()
