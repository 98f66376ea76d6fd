"""Validation of request bodies: all errors at once, by field, in the words of the API."""

import json

import pytest

from daybell.core.execution import State

JOB = {"name": "daily", "task": "resize", "schedule": "0 0 * * *"}

# Field, and what must not be in it.
WRONG = [
    ("name", ""),
    ("name", "a/b"),
    ("name", "x" * 201),
    ("name", "\u202ex"),
    ("name", "a\0b"),
    ("name", 7),
    ("name", None),
    ("task", "nobody"),
    ("task", "os.system"),
    ("task", None),
    ("task", ["resize"]),
    ("schedule", "* * *"),
    ("schedule", "*/0 * * * *"),
    ("schedule", "0 0 30 2 *"),
    ("schedule", {"cron": "0 0 * * *", "tz": "../../etc/passwd"}),
    ("schedule", {"every": "5m", "cron": "0 0 * * *"}),
    ("schedule", {"at": "2020-01-01T00:00:00Z"}),
    ("schedule", {"delay": "soon"}),
    ("schedule", 5),
    ("args", []),
    ("args", "x"),
    ("queue", "a/b"),
    ("queue", "q" * 101),
    ("priority", "urgent"),
    ("priority", 4),
    ("retries", -1),
    ("retries", 1001),
    ("retries", "3"),
    ("retries", 1.5),
    ("retries", True),
    ("backoff", "sometimes"),
    ("backoff", {"base": "1h", "cap": "1s"}),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", "soon"),
    ("timeout", True),
    ("timeout", 1e300),
    ("expires", []),
    ("max_crashes", 0),
    ("on_lost", "cry"),
    ("store_result", "yes"),
    ("description", "x" * 2001),
    ("description", "a\0b"),
    ("user_id", "x" * 201),
    ("user_id", 7),
    ("overlap", "maybe"),
    ("misfire", "never"),
    ("misfire_limit", 0),
    ("misfire_within", "x"),
    ("pause_after_failures", 0),
    ("calendar", {"country": "Atlantis"}),
    ("calendar", "DE"),
    ("dst", {"gap": "jump"}),
    ("dst", {"hole": "skip"}),
    ("start_at", "x"),
    ("max_executions", 0),
    ("jitter", "x"),
    ("dependencies", ["a/b"]),
    ("dependencies", "extract"),
    ("unique_key", "k"),
    ("tenant", "a/b"),
    # A second thing to run, and what goes with another.
    ("command", "id"),
    ("http", {"url": "http://169.254.169.254/"}),
    ("sql", {}),
    ("notify", {}),
    ("template", "x"),
    ("parameters", {"a": 1}),
    ("shell", True),
    ("env", {"A": "x"}),
    ("env", {"A": 5}),
    ("source", "x" * 201),
    ("source", "a\0b"),
    ("made_from", {"name": "backup"}),
    ("notifications", {}),
    ("workflow", {}),
    ("labels", {"a": ["b", "c"]}),
    ("labels", {"a": "b\n"}),
    ("requires", ["gpu"]),
    ("concurrency", 0),
    ("concurrency", {"limit": 2, "keys": "a"}),
    ("rate", "fast"),
    ("rate", {"rate": "10/s", "burst": 11}),
    ("on_full", "explode"),
    ("prefer", {"zone": 1}),
    ("resources", {"gpu": "many"}),
    ("cache", "1h"),
    ("cache_for", "soon"),
    ("cache_key", "a b"),
    ("debounce", "soon"),
    # What is nobody's to say.
    ("state", "running"),
    ("version", 7),
    ("author", "root"),
    ("job_id", "x"),
    ("__class__", "x"),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
async def test_a_wrong_field_is_told_by_its_name(http, client, field, value):
    answer = await http.post("/jobs", json={**JOB, field: value})

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    told = [one["field"] for one in answer.json()["errors"]]
    assert any(one.partition("[")[0].partition(".")[0] == field for one in told), told
    assert len((await client.jobs()).items) == 1


async def test_all_that_is_wrong_is_told_at_once(http):
    body = {"name": "a/b", "schedule": "x", "timeout": "soon", "cache": "1h", "retires": 1}
    body["near"] = "sibling"

    said = (await http.post("/jobs", json=body)).json()

    told = {one["field"]: one["message"] for one in said["errors"]}
    assert told.keys() == {"name", "schedule.cron", "timeout", "cache", "retires", "near", "task"}
    assert "cache_for" in told["cache"]
    assert "parent" in told["near"]
    assert "did you mean 'retries'?" in told["retires"]


@pytest.mark.parametrize("path", ["/jobs", "/jobs/resize/trigger", "/executions", "/keys"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nul",
        b"[]",
        b"7",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"args": NaN}',
        b'{"args": 1e999}',
        b'{"args": {"x": ' + b"9" * 100_000 + b"}}",
        b'{"args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"args": {"a": 1, "a": 2}}',
        b'{"priority": "high", "priority": "low"}',
        b'{"args": {"x": "\\ud800"}, "colour": 1}',
        b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
    ],
)
async def test_what_is_no_good_json_is_refused(http, client, path, raw):
    answer = await http.post(path, content=raw, headers={"Content-Type": "application/json"})

    is_empty_trigger = path.endswith("trigger") and not raw
    assert answer.status_code == (202 if is_empty_trigger else 422)
    assert (await client.count()).executions == ({State.QUEUED: 1} if is_empty_trigger else {})


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-python-serialize",
        "text/yaml",
        "application/json; charset=utf-16",
        "",
    ],
)
async def test_what_does_not_say_that_it_is_json_is_not_read(http, kind):
    answer = await http.post("/jobs", content=json.dumps(JOB), headers={"Content-Type": kind})

    assert answer.status_code == 415


@pytest.mark.parametrize("path", ["/jobs", "/jobs/resize/trigger", "/jobs/resize/pause"])
async def test_a_body_has_a_limit(http, path):
    answer = await http.post(path, json={"note": "x" * (2 * 1024 * 1024)})

    assert answer.status_code == 413


async def test_arguments_have_a_limit(http):
    big = {"args": {"x": "x" * (1024 * 1024)}}

    assert (await http.post("/jobs/resize/trigger", json=big)).status_code == 413
    assert (await http.post("/executions", json=[{"job": "resize", **big}])).status_code == 413


@pytest.mark.parametrize(
    "args",
    [
        {"__class__": "x", "__proto__": {"a": 1}, "constructor": 1},
        {"x": "\x00\u202e<script>alert(1)</script> {{7*7}} ${7*7} {0.__class__}"},
        {"x": "\ud800"},
        {"x": 12345678901234567890123},
        {"x": "🔔" * 100},
        {"": {"": [None, True, 1.5, -0.0]}},
    ],
)
async def test_arguments_are_data_and_come_back_as_they_were_sent(http, args):
    raw = json.dumps({"args": args})

    made = await http.post(
        "/jobs/resize/trigger", content=raw, headers={"Content-Type": "application/json"}
    )
    said = (await http.get(f"/executions/{made.json()['execution_id']}")).json()

    assert said["args"] == args


@pytest.mark.parametrize(
    "query",
    [
        "cron=*/0 * * * *",
        "cron=0 0 30 2 *&every=5m",
        "every=0",
        "at=yesterday",
        "rrule=FREQ=SOMETIMES",
        "cron=0 0 * * *&tz=Nowhere/Land",
        "cron=0 0 * * *&count=0",
        "cron=0 0 * * *&count=1001",
        "cron=0 0 * * *&from=soon",
        "",
    ],
)
async def test_a_schedule_that_makes_no_sense_has_no_preview(http, query):
    assert (await http.get(f"/schedules/preview?{query}")).status_code == 422


async def test_a_misspelt_parameter_is_not_passed_over(http):
    answer = await http.get("/jobs?userid=ana")

    assert answer.status_code == 422
    assert "user_id" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        ({"gap": "first", "fold": "both"}, "dst.gap", "gap 'first' is not one of shift, skip"),
        ({"gap": "skip", "fold": "x"}, "dst.fold", "fold 'x' is not one of first, second, both"),
    ],
)
async def test_the_words_of_a_gap_are_not_those_of_a_fold(http, wrong, field, message):
    answer = await http.post("/jobs", json={**JOB, "dst": wrong})

    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": field, "message": message}]


async def test_what_a_job_runs_has_no_default_to_go_back_to(http):
    await http.post("/jobs", json={**JOB, "schedule": "manual"})

    answer = await http.patch(f"/jobs/{JOB['name']}", json={"task": None})
    fine = await http.patch(f"/jobs/{JOB['name']}", json={"task": None, "description": "x"})

    assert (answer.status_code, fine.status_code) == (422, 422)
    assert answer.json()["errors"][0]["field"] == "task"


async def test_a_change_that_looks_wrong_is_warned_of(http):
    await http.post("/jobs", json={"name": "w", "command": "true", "schedule": "manual"})

    answer = await http.patch("/jobs/w", json={"env": {"A": {"secret": "ABSENT"}}})

    assert answer.status_code == 200
    assert "ABSENT" in answer.json()["warnings"][0]


# What is wrong is told in our own words, with a way out.

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"


async def told(http, method, path, body=None):
    answer = await http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    return {one["field"]: one["message"] for one in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("retries", "3", "give a whole number"),
        ("retries", 1001, "must be a whole number from 0 to 1000"),
        ("retries", -1, "must be a whole number from 0 to 1000"),
        ("store_result", "yes", "must be true or false"),
        ("args", [], "arguments are given by name"),
        ("task", 7, "must be text"),
        ("schedule", 5, "it takes a cron expression"),
        ("on_lost", "cry", "is not one of retry, dead"),
        ("description", "x" * 2001, "the limit is 2,000"),
    ],
)
async def test_a_field_says_what_it_must_be(http, field, value, words):
    said = await told(http, "POST", "/jobs", {**JOB, field: value})

    assert said.keys() == {field}
    assert words in said[field]


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
