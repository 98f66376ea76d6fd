"""What is wrong is told in our own words, with a way out."""

import pytest

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"
JOB = {"name": "daily", "task": "resize", "schedule": "0 0 * * *"}


async def told(http, method, path, body=None):
    answer = await http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    return {one["field"]: one["message"] for one in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("retries", "3", "must be a whole number"),
        ("retries", 1001, "must be 1000 or less"),
        ("retries", -1, "must be 0 or more"),
        ("store_result", "yes", "must be true or false"),
        ("args", [], "must be an object"),
        ("task", 7, "must be text"),
        ("schedule", 5, "must be text, or an object, or a list"),
        ("schedule", [], "must have 1 or more entries"),
        ("on_lost", "cry", "must be 'retry' or 'dead'"),
        ("description", "x" * 2001, "must have 2000 characters or fewer"),
    ],
)
async def test_a_field_says_what_it_must_be(http, field, value, words):
    assert await told(http, "POST", "/jobs", {**JOB, field: value}) == {field: words}


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "words"),
    [
        ("POST", "/jobs", {"name": "x"}, "task", "give one of task, command, http"),
        ("POST", "/jobs", {"task": "resize"}, "name", "is missing"),
        ("POST", f"/executions/{UNKNOWN}/retry", {"form": "x"}, "form", "did you mean 'from'?"),
        ("POST", f"/executions/{UNKNOWN}/retry", {"from_": "x"}, "from_", "did you mean 'from'?"),
        ("GET", "/jobs?limit=x", None, "limit", "must be a whole number"),
        ("GET", "/jobs?statsu=x", None, "statsu", "did you mean 'status'?"),
        ("POST", "/queues/images/pause", {"note": "x"}, "note", "it takes no fields"),
        ("POST", "/executions/cancel", {}, "filter", '{"filter": {}} means all'),
        ("POST", "/executions/cancel", {"filter": {"state": "x"}}, "filter.state", "'status'?"),
        ("POST", "/executions", {"job": "resize"}, "body", 'such as [{"job": '),
        ("POST", "/executions", [{"job": "resize"}, 7], "[1]", 'such as {"job": '),
        ("POST", "/executions", [{"job": "resize", "dely": 1}], "[0].dely", "mean 'delay'?"),
        ("PATCH", "/jobs/resize", {"name": "x"}, "name", "cannot be changed; create another"),
        ("PATCH", "/jobs/resize", {"task": "x"}, "task", "by code, which says what it runs"),
        ("POST", "/keys", {"name": "", "role": "viewer"}, "name", "1 or more characters"),
    ],
)
async def test_a_mistake_has_a_way_out(http, method, path, body, field, words):
    found = await told(http, method, path, body)

    assert found.keys() == {field}
    assert words in found[field]


@pytest.mark.parametrize("path", ["/executions/cancel", "/dead-letters/retry"])
async def test_what_nobody_knows_was_not_matched(http, path):
    answer = await http.post(path, json={"ids": [UNKNOWN]})

    assert answer.json() == {"matched": 0, "unknown": 1}


@pytest.mark.parametrize("path", ["/", "/api/v1"])
async def test_where_nothing_is_the_page_is_named(http, path):
    answer = await http.get(f"http://localhost{path}")

    assert (answer.status_code, "/docs" in answer.json()["detail"]) == (404, True)
