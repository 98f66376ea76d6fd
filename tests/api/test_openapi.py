"""The OpenAPI document: complete, stable and true to itself.

`python -m tests.api.test_openapi` writes the table of the reference page again.
"""

from pathlib import Path

import pytest

from daybell.api import create_api, shapes, sights
from daybell.api.contract import ALWAYS, WITH_BODY
from daybell.api.examples import EXAMPLES
from daybell.api.schema import (
    BackfillRequest,
    Items,
    JobChange,
    LetterSelection,
    NewJob,
    NewKey,
    NewTenant,
    Retrial,
    Selection,
    Trigger,
)
from daybell.client import Client
from tests.api.test_roles import needed

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "api.md"
BEGIN, END = "<!-- operations -->\n", "<!-- /operations -->\n"


@pytest.fixture(scope="module")
def document():
    return create_api(Client("memory://")).openapi()


def operations(document):
    return {
        said["operationId"]: said
        for methods in document["paths"].values()
        for said in methods.values()
    }


def test_the_paths_are_those_of_the_contract(document):
    paths = {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in document["paths"].items()
        for method in methods
    }

    assert paths >= {
        ("POST", "/jobs"),
        ("GET", "/jobs"),
        ("GET", "/jobs/{job}"),
        ("PATCH", "/jobs/{job}"),
        ("DELETE", "/jobs/{job}"),
        ("POST", "/jobs/{job}/trigger"),
        ("POST", "/jobs/{job}/pause"),
        ("POST", "/jobs/{job}/resume"),
        ("POST", "/jobs/{job}/rollback"),
        ("POST", "/jobs/{job}/backfill"),
        ("GET", "/jobs/{job}/versions"),
        ("POST", "/executions"),
        ("GET", "/executions"),
        ("GET", "/job/executions"),
        ("GET", "/executions/{id}"),
        ("GET", "/executions/{id}/logs"),
        ("POST", "/executions/{id}/cancel"),
        ("POST", "/executions/{id}/retry"),
        ("GET", "/executions/{id}/why"),
        ("POST", "/executions/cancel"),
        ("POST", "/executions/retry"),
        ("GET", "/dead-letters"),
        ("POST", "/dead-letters/retry"),
        ("POST", "/dead-letters/discard"),
        ("GET", "/workers"),
        ("POST", "/workers/{id}/drain"),
        ("GET", "/queues"),
        ("POST", "/queues/{name}/pause"),
        ("POST", "/queues/{name}/resume"),
        ("POST", "/queues/{name}/purge"),
        ("GET", "/queues/{name}/scaling"),
        ("GET", "/schedules/preview"),
        ("GET", "/stats"),
        ("GET", "/stream"),
        ("GET", "/tenants"),
        ("POST", "/tenants"),
        ("PATCH", "/tenants/{name}"),
        ("GET", "/keys"),
        ("POST", "/keys"),
        ("GET", "/audit"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
    }
    assert document["openapi"] == "3.1.0"


def test_every_operation_lists_what_may_go_wrong(document):
    for id, said in operations(document).items():
        if id in ("healthz", "readyz"):
            continue
        listed = {int(code) for code in said["responses"]}
        assert listed >= set(ALWAYS), id
        assert "requestBody" not in said or listed >= set(WITH_BODY), id
        for code in listed - {200, 201, 202}:
            content = said["responses"][str(code)]["content"]
            assert content["application/problem+json"]["example"]["status"] == code


def test_every_operation_has_a_name_a_sentence_and_a_place(document):
    tags = {one["name"] for one in document["tags"]}
    found = [
        said["operationId"] for methods in document["paths"].values() for said in methods.values()
    ]

    assert len(found) == len(set(found))
    for id, said in operations(document).items():
        assert set(said["tags"]) <= tags, id
        assert said["description"].rstrip().endswith("."), id


def test_every_operation_says_which_role_it_takes(document):
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            role = None if path in ("/healthz", "/readyz") else needed(said["operationId"])
            assert said.get("x-role") == role, (method, path)


@pytest.mark.parametrize("model", ["NewJob", "JobChange"])
def test_every_field_of_a_job_says_what_it_means(document, model):
    fields = document["components"]["schemas"][model]["properties"]

    assert fields["overlap"]["description"].startswith("When it is time and the one before")
    silent = {name for name, field in fields.items() if "description" not in str(field)}
    assert silent <= {"name"}


def test_every_reference_leads_somewhere(document):
    def references(value):
        if isinstance(value, dict):
            for key, one in value.items():
                if key == "$ref":
                    yield one
                else:
                    yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert set(references(document)) <= known


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_an_answer_is_one(name):
    model = getattr(sights, name, None) or getattr(shapes, name)

    model.model_validate(EXAMPLES[name])

    assert EXAMPLES[name].keys() <= model.model_fields.keys()


BODIES = {
    model.__name__: model
    for model in (
        BackfillRequest,
        Items,
        JobChange,
        LetterSelection,
        NewJob,
        NewKey,
        NewTenant,
        Retrial,
        Selection,
        Trigger,
    )
}


def test_an_example_of_a_body_is_one(document):
    seen = set()
    for said in operations(document).values():
        content = said.get("requestBody", {}).get("content", {}).get("application/json", {})
        for one in content.get("examples", {}).values():
            name = content["schema"]["$ref"].rpartition("/")[2]
            seen.add(name)
            if name in BODIES:
                BODIES[name].model_validate(one["value"])

    assert seen >= BODIES.keys()


def table():
    """All operations with the role that each takes, by their tags."""
    document = create_api(Client("memory://")).openapi()
    rows = [
        (said["tags"][0], _row(method, path, said))
        for path, methods in document["paths"].items()
        for method, said in methods.items()
    ]
    tags = [one["name"] for one in document["tags"]]
    ordered = [row for _, row in sorted(rows, key=lambda pair: tags.index(pair[0]))]
    return "\n".join(["| operation | role | |", "| --- | --- | --- |", *ordered, ""])


def _row(method, path, said):
    role = needed(said["operationId"]) if path.startswith("/api/") else "none"
    told = said["description"].partition("\n")[0]
    return f"| `{method.upper()} {path.removeprefix('/api/v1')}` | {role} | {told} |"


def test_the_reference_page_lists_every_operation():
    page = PAGE.read_text()

    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]

    assert written == table(), "run: python -m tests.api.test_openapi"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
