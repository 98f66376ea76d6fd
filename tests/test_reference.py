"""Pages that restate the code are compared with it.

`python -m tests.test_reference` writes the options page and the generated parts of other pages.
"""

import ast
import importlib
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

from daybell.api.contract import EXPLAINED
from daybell.core import limits
from daybell.core.execution import TERMINAL, State
from daybell.core.lifecycle import TRANSITIONS
from daybell.core.options import MERGES, OPTIONS
from daybell.core.units import format_duration
from daybell.errors import CODES_WITHOUT_CLASS, DaybellError, UsageError
from daybell.settings import Settings

DOCS = Path(__file__).parent.parent / "docs"
LIFECYCLE = DOCS / "concepts" / "lifecycle.md"
ERRORS = DOCS / "reference" / "errors.md"
PACKAGE = Path(__file__).parent.parent / "src" / "daybell"
BEGIN, END = "<!-- generated -->\n", "<!-- /generated -->\n"


def errors_part() -> str:
    """The table of all codes: of the classes, then those that have no class."""
    rows = sorted(
        f"| `{kind.code}` | {kind.status} | {2 if issubclass(kind, UsageError) else 1} |"
        f" `{kind.__name__}` | {_first_sentence(kind)} | {kind.remedy} |"
        for kind in error_classes()
    )
    others = [
        f"| `{code}` | {status} | 1 | | {cause} | {remedy} |"
        for code, (status, cause, remedy) in CODES_WITHOUT_CLASS.items()
    ]
    head = "| code | HTTP | exit | class | cause | way out |\n| --- | --- | --- | --- | --- | --- |"
    return "\n".join([BEGIN + head, *rows, *others, END])


@cache
def error_classes() -> list[type[DaybellError]]:
    """All errors of the package: every class whose base is one, by the names in the source."""
    names, found = {"DaybellError"}, dict[str, type[DaybellError]]()
    classes = [
        (path, node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    while True:
        more = {name: path for path, name, bases in classes if name not in names and bases & names}
        if not more:
            return list(found.values())
        for name, path in more.items():
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            found[name] = getattr(importlib.import_module(module), name)
        names |= more.keys()


def _first_sentence(kind: type) -> str:
    return re.split(r"(?<=\.)\s", " ".join((kind.__doc__ or "").split()))[0]


def test_the_errors_page_has_every_code():
    assert generated_part(ERRORS.read_text()) == errors_part(), (
        "run: python -m tests.test_reference"
    )


def test_every_error_has_a_code_and_a_way_out_of_its_own():
    kinds = error_classes()
    codes = [kind.code for kind in kinds]

    assert len(kinds) > 30
    assert [kind for kind in kinds if not {"code", "remedy"} <= vars(kind).keys()] == []
    assert len(set(codes)) == len(codes)
    assert not set(codes) & CODES_WITHOUT_CLASS.keys()
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert all(kind.status >= 400 for kind in kinds)


def test_every_refusal_of_the_server_has_a_code_that_is_documented():
    known = CODES_WITHOUT_CLASS.keys() | {kind.code for kind in error_classes()}
    said = {
        text.value
        for path in (PACKAGE / "api").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("Refusal", "problem")
        for text in call.args[1:2]
        if isinstance(text, ast.Constant)
    }

    assert len(said) > 8
    assert said <= known
    assert {code for code, _ in EXPLAINED.values()} <= known


def lifecycle_part() -> str:
    """The table and the diagram of all moves."""
    rows = [f"| `{source}` | {event} | `{target}` |" for (source, event), target in moves()]
    arrows = [f"    {source} --> {target}: {event}" for (source, event), target in moves()]
    ends = [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(
        [
            BEGIN + "| from | event | to |\n| --- | --- | --- |",
            *rows,
            "\n```mermaid\nstateDiagram-v2",
            *(f"    [*] --> {state}" for state in ("scheduled", "queued", "waiting", "skipped")),
            *arrows,
            *ends,
            "```\n" + END,
        ]
    )


def moves():
    return TRANSITIONS.items()


# The page of job options, from the table.

PAGE_OF_OPTIONS = DOCS / "reference" / "options.md"
INTRODUCTION = """\
# Job options

<!-- Written by `python -m tests.test_reference` from `OPTIONS` in `core/options.py`. -->

The same options are keyword arguments in Python (`@app.task`, `app.workflow`, `client.create`),
fields of `POST`, `PUT` and `PATCH /jobs`, fields of [files](../guide/files.md), and flags of
`daybell jobs create` and `update`.

```sh
daybell jobs create report --command "df -h" --cron "0 2 * * *" --timeout 5m
daybell jobs update report --no-timeout
```

A change names some options; all others stay. null, `None` and `--no-OPTION` return an option to its
default. The last column says how a named value is merged:

"""
TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}
TYPES |= {"object": "object", "array": "list"}


def type_of(schema):
    """A JSON schema in words."""
    if "$ref" in schema:
        return {"Words": "text", "Workflow": "object"}.get(schema["$ref"].split("/")[-1], "object")
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(type_of, schema["anyOf"])))
    return TYPES[schema["type"]]


def default_of(option):
    if option.default in (None, "", (), {}):
        return "none"
    return f"`{str(option.default).lower()}`"


def options_page():
    rules = [f"- `{name}`: {meaning}" for name, meaning in MERGES.items()]
    rows = [
        f"| `{one.name}` | {type_of(one.schema)} | {default_of(one)}"
        f" | {f'`{one.flag_name}`' if one.metavar else ''} | {one.meaning} | {one.merge} |"
        for one in OPTIONS.values()
    ]
    table = ["| option | type | default | flag | meaning | merge |", "|" + " --- |" * 6, *rows]
    return INTRODUCTION + "\n".join([*rules, "", *table, ""])


def test_the_options_page_is_current():
    assert PAGE_OF_OPTIONS.read_text() == options_page(), "run: python -m tests.test_reference"


def generated_part(page: str) -> str:
    return page[page.index(BEGIN) : page.index(END) + len(END)]


def rows_of(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_lifecycle_page_shows_every_move():
    assert generated_part(LIFECYCLE.read_text()) == lifecycle_part(), (
        "run: python -m tests.test_reference"
    )


def test_the_lifecycle_page_explains_every_state():
    explained = {cells[0].strip("`") for cells in rows_of(LIFECYCLE) if len(cells) == 2}

    assert set(State) <= explained


def test_the_limits_page_has_every_limit_with_its_value():
    known = {
        name: f"{value:,.0f}"
        for name, value in vars(limits).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, int | float)
    }

    shown = {
        cells[2].strip("`"): cells[1].split()[0]
        for cells in rows_of(DOCS / "reference" / "limits.md")
        if re.fullmatch(r"`[A-Z_]+`", cells[-1])
    }

    assert shown == known


def test_the_configuration_page_has_every_setting_with_its_default():
    defaults = Settings()
    # One variable for each of them, and a table in the file.
    known = {"`DAYBELL_CONNECTION_<NAME>`": ["`[connections]`", "none"]}
    for field in fields(Settings):
        if field.name == "connections":
            continue
        value = getattr(defaults, field.name)
        text = format_duration(value) if isinstance(value, float) else value
        known[f"`DAYBELL_{field.name.upper()}`"] = [
            f"`{field.name}`",
            "none" if text is None else f"`{text}`",
        ]

    shown = {
        cells[0]: cells[1:3]
        for cells in rows_of(DOCS / "reference" / "configuration.md")
        if cells[0].startswith("`DAYBELL_")
    }

    assert shown == known


def test_decisions_are_numbered_complete_and_short():
    pages = sorted((DOCS / "decisions").glob("*.md"))

    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        headings = re.findall(r"^## (.+)$", text, re.M)
        assert headings == [
            "Status",
            "Context",
            "Decision",
            "Consequences",
            "How we would notice it was wrong",
        ], page.name
        assert len(text.splitlines()) <= 60, page.name


if __name__ == "__main__":
    for path, part in ((LIFECYCLE, lifecycle_part), (ERRORS, errors_part)):
        page = path.read_text()
        path.write_text(page.replace(generated_part(page), part()))
    PAGE_OF_OPTIONS.write_text(options_page())
