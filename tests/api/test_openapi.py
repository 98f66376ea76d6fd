"""The OpenAPI document: complete, stable and true to itself.

`python -m tests.api.test_openapi` writes the table of the reference page again.
"""

import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import validate

from daybell.api import create_api
from daybell.api.bodies import Item, Items
from daybell.api.contract import ALWAYS, EXAMPLES, WITH_BODY, schema_name
from daybell.api.requests import validate_body
from daybell.client import Client, wire
from tests.api.requests import UNKNOWN
from tests.api.requests import document as make_document
from tests.api.test_auth_walk import needed_for

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "api.md"
BEGIN, END = "<!-- operations -->\n", "<!-- /operations -->\n"


@pytest.fixture(scope="module")
def document():
    return make_document()


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
        ("GET", "/jobs/{job}/schedules"),
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


def test_a_validator_accepts_the_document(document):
    validate(document)


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
            role = None if path in ("/healthz", "/readyz") else needed_for(said["operationId"])
            assert said.get("x-role") == role, (method, path)


@pytest.mark.parametrize("model", ["NewJob", "JobChange"])
def test_every_field_of_a_job_says_what_it_means(document, model):
    fields = document["components"]["schemas"][model]["properties"]

    assert fields["overlap"]["description"].startswith("When the execution before")
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
def test_an_example_of_an_answer_is_one(document, name):
    routes = create_api(Client("memory://")).router.routes
    given = {schema_name(one.answers): one.answers for one in routes if one.answers is not None}
    answer = given.get(name) or getattr(wire, name)

    made = wire.decode(msgspec.json.encode(EXAMPLES[name]), answer)

    assert msgspec.json.decode(wire.encode(made)) == EXAMPLES[name]


def test_an_example_of_a_body_is_one():
    seen = set()
    for route in create_api(Client("memory://")).router.routes:
        for example in route.examples.values():
            if isinstance(route.body, str):  # their examples are sent in routes/test_jobs_kinds.py
                continue
            seen.add(route.id)
            if route.tag == "leases":  # read in one go
                msgspec.json.decode(msgspec.json.encode(example), type=route.body)
                continue
            for one in example if isinstance(example, list) else [example]:
                validate_body(one, Item if route.body is Items else route.body)

    assert seen >= {"enqueue_executions", "trigger_job", "create_key", "create_template"}


# Ids that others make, and filters that take a name as well as an id.
BY_NAME = ("job_id", "worker_id")
NOT_UUIDS = {
    *(("Event", "event_id"), ("Published", "event_id"), ("CloudEvent", "id")),
    *(("FiringEvent", "event_id"), ("Moment", "event_id")),
    ("Secret", "key_id"),
    # By name, too.
    *((f"{model}Filter", field) for model in ("Execution", "Letter") for field in BY_NAME),
}


def inside(value, path=()):
    """All objects in a document, each with the way to it."""
    if isinstance(value, dict):
        yield path, value
        for name, one in value.items():
            yield from inside(one, (*path, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from inside(one, (*path, number))


def examples(document):
    """All examples with their schemas and their places."""
    for path, found in inside(document):
        schema, given = found.get("schema"), found.get("examples")
        if schema is not None and "example" in found:
            yield path, schema, found["example"]
        if schema is not None and isinstance(given, dict):
            for name, one in given.items():
                yield (*path, name), schema, one["value"]
        if isinstance(given, list):
            for one in given:
                yield path, found, one


def components_of(schema, document):
    """Those that a schema refers to, directly or not: to read all of them takes most of a test."""
    found, left = {}, [schema]
    while left:
        for _, one in inside(left.pop()):
            name = str(one.get("$ref", "")).removeprefix("#/components/schemas/")
            if name and name not in found:
                found[name] = document["components"]["schemas"][name]
                left.append(found[name])
    return {"schemas": found}


def test_every_example_keeps_to_its_schema(document):
    broken = {}
    validators = {}  # by schema: each holds all components, and many examples have the same
    for path, schema, example in examples(document):
        text = json.dumps(schema, sort_keys=True)
        if text not in validators:
            whole = {**schema, "components": components_of(schema, document)}
            validators[text] = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
        validator = validators[text]
        if not validator.is_valid(example):
            broken[path] = [error.message for error in validator.iter_errors(example)]

    assert broken == {}


def test_examples_show_what_is_null(document):
    answer = document["paths"]["/api/v1/jobs"]["get"]["responses"]["200"]
    example = answer["content"]["application/json"]["example"]

    assert example == EXAMPLES["JobPage"]
    assert "\0" not in str(document)


def test_no_default_is_null(document):
    places = [path for path, found in inside(document) if found.get("default", ...) is None]

    assert places == []


def test_every_array_names_its_items(document):
    arrays = [(path, found) for path, found in inside(document) if found.get("type") == "array"]

    assert len(arrays) > 50
    assert [path for path, found in arrays if not {"items", "prefixItems"} & found.keys()] == []


def test_every_object_names_its_fields_or_takes_any(document):
    names = {"properties", "additionalProperties", "patternProperties"}
    plain = [
        path
        for path, found in inside(document)
        if found.get("type") == "object"
        if not names & found.keys()
    ]

    assert plain == []


def parts(schema):
    """What a schema allows but null: the members of a choice, the items of a list."""
    for one in schema.get("anyOf", [schema]):
        yield from parts(one["items"]) if "items" in one else [one]


def properties(document):
    """All fields of bodies and answers."""
    for name, model in document["components"]["schemas"].items():
        for field, schema in model.get("properties", {}).items():
            yield name, field, [one for one in parts(schema) if one.get("type") != "null"]


def test_every_id_is_a_uuid(document):
    ids = {
        (model, field): schemas
        for model, field, schemas in properties(document)
        if (field in ("id", "ids") or field.endswith("_id")) and field != "user_id"
    }
    found = [
        one["schema"]
        for said in operations(document).values()
        for one in said.get("parameters", ())
        if one["name"] in ("id", "workflow_id")
    ]

    assert len(ids) > 30
    plain = {key for key, all in ids.items() if any(one.get("format") != "uuid" for one in all)}
    assert plain == NOT_UUIDS
    assert all("uuid" in str(one) for one in found)


def test_every_status_lists_its_words(document):
    schemas = {
        (model, field): found
        for model, field, found in properties(document)
        if field in ("status", "state") and model != "Problem"
    }
    for id, said in operations(document).items():
        for one in said.get("parameters", ()):
            if one["name"] == "status":
                schemas[id, "status"] = [
                    part for part in parts(one["schema"]) if part.get("type") != "null"
                ]

    assert schemas.keys() >= {("list_jobs", "status"), ("Moment", "status"), ("Worker", "state")}
    known = document["components"]["schemas"]
    silent = {
        key
        for key, all in schemas.items()
        for word in all
        if (one := word.get("items", word))  # a list of words
        and not {"enum", "const"} & known.get(one.get("$ref", "").rpartition("/")[2], one).keys()
    }
    assert silent == set()


def test_the_document_names_its_server(document):
    assert [one["url"] for one in document["servers"]] == ["/"]


def test_links_lead_to_operations_that_take_them(document):
    known = operations(document)
    found = {}
    for id, said in known.items():
        for answer in said["responses"].values():
            for name, link in answer.get("links", {}).items():
                found[id, name] = link
                ((parameter, expression),) = link["parameters"].items()
                taken = {one["name"] for one in known[link["operationId"]]["parameters"]}
                example = answer["content"]["application/json"]["example"]
                assert parameter in taken
                assert example[expression.removeprefix("$response.body#/")] is not None

    assert ("create_job", "get_job") in found
    assert ("trigger_job", "get_execution") in found


# Values that parameters of addresses take, and what has to be asked with them.
VALUES = {
    **{"limit": "1", "tenant": "default", "since": "2026-01-01", "until": "2026-01-02"},
    **{"worker_id": UNKNOWN, "workflow_id": UNKNOWN, "attempt": "1", "count": "2"},
    **{"cron": "0 0 * * *", "every": "5m", "at": "2030-01-01T00:00:00Z", "mode": "rate"},
    **{
        "rrule": "FREQ=DAILY",
        "tz": "Europe/Rome",
        "dialect": "quartz",
        "status": "queued",
        "q": "job:resize",
    },
    **{"step": "1h", "metric": "dead", "sort": "-duration", "level": "error"},
    **{"from": "2026-01-01T00:00:00Z", "ended_since": "1h", "ended_until": "2026-01-02"},
}
WITH = {"mode": {"every": "5m"}, "dialect": {"cron": "0 0 0 * * ?"}}
ALONE = {"cron", "every", "at", "rrule"}


def asked(document):
    """Each operation that only reads, with each parameter that its address may have."""
    for path, methods in document["paths"].items():
        for one in methods.get("get", {}).get("parameters", ()):
            # A cursor is what another answer has said.
            if one["in"] == "query" and one["name"] != "cursor" and not path.endswith("/stream"):
                yield path, one


async def test_every_documented_parameter_is_accepted(document, http):
    there = {}
    for path, one in asked(document):
        name = one["name"]
        value = VALUES.get(name, "true" if one["schema"].get("type") == "boolean" else "resize")
        more = WITH.get(name, {"cron": "0 0 * * *"}) if "preview" in path else {}
        if name == "until" and path.endswith(("/series", "/upcoming")):
            more = {"since": "2026-01-01"}
        address = (
            path.removeprefix("/api/v1")
            .replace("{job}", "resize")
            .replace("{id}", UNKNOWN)
            .replace("{version}", "1")
        )
        params = {name: value} if name in ALONE else {**more, name: value}
        if one.get("explode"):  # its properties are the parameters
            params = one["example"]
        answer = await http.get(address.replace("{name}", "default"), params=params)
        there[path, name] = answer.status_code

    assert len(there) > 50
    assert {key: code for key, code in there.items() if code not in (200, 404)} == {}


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
    role = needed_for(said["operationId"]) if path.startswith("/api/") else "none"
    told = " ".join(said["description"].partition("\n\n")[0].split())
    assert told.endswith((".", "?")), told
    return f"| `{method.upper()} {path.removeprefix('/api/v1')}` | {role} | {told} |"


def test_the_reference_page_lists_every_operation():
    page = PAGE.read_text()

    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]

    assert written == table(), "run: python -m tests.api.test_openapi"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
