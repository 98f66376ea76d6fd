"""Hostile input, by the rows of a table: nothing answers 500, nothing grows without bound, and
nothing is executed."""

import gc
import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.worlds import world

# Each is answered with a refusal of the sender's input; never with a mistake of ours.
REFUSED = (400, 404, 413, 415, 422)
CPU_SECONDS_MAX = 0.5  # a tenth of that would do, if nothing else went on here

JOB = {"name": "report", "task": "resize", "schedule": "manual"}

DEEP = 100_000
SQL = "x'; DROP TABLE jobs; --"
TEXTS = [
    "a\0b", "\ufeffbom", "evil\u202egnp.exe", "a" + "\u0301" * 100_000, "x" * 100_000, "", " ",
    "-x", "../../etc/passwd", "a/b", "<script>alert(1)</script>", '" onerror="x',
    "javascript:alert(1)", "{{7*7}}", "${7*7}", "{0.__class__}", "%s%n", SQL, "=cmd()",
    "\x1b[31mred", "a\r\nSet-Cookie: x=1", "\U0001f600",
]  # fmt: skip


@pytest.fixture
async def here():
    async with world(open_tenant="default") as made:
        yield made


def raw(text: str) -> dict[str, Any]:
    """A body as it is, for what no encoder would write."""
    return {
        "content": text.encode("utf-8", "surrogatepass"),
        "headers": {"content-type": "application/json"},
    }


NOT_YOURS = (
    "id", "job_id", "state", "status", "version", "fence", "attempt", "created_by", "author",
    "created_at", "is_current", "__class__", "constructor",
)  # fmt: skip


@pytest.mark.parametrize("path", ["/jobs", "/jobs/resize/trigger", "/executions", "/keys"])
async def test_no_field_is_taken_that_is_not_for_the_sender(path, here):
    bodies: dict[str, Any] = {
        "/jobs": JOB,
        "/jobs/resize/trigger": {"args": {"width": 1}},
        "/executions": {"job": "resize", "args": {"width": 1}},
        "/keys": {"name": "k", "role": "viewer"},
    }
    for field in NOT_YOURS:
        body: Any = bodies[path] | {field: "x"}
        sent = [body] if path == "/executions" else body
        answer = await here.ask("POST", f"/api/v1{path}", json=sent)

        assert answer.status_code == 422, answer.text
        assert field in answer.text


@pytest.mark.parametrize("key", ["__class__", "__proto__", "constructor", "$ref", "{0.__class__}"])
async def test_odd_keys_are_data_and_come_back_as_they_were_sent(key, here):
    args = {key: {"__init__": ["__globals__"]}, "text": "{{7*7}} ${7*7} {0.__class__} <script>"}
    body = {"args": args}

    made = await here.ask("POST", "/api/v1/jobs/resize/trigger", json=body)
    shown = await here.ask("GET", f"/api/v1/executions/{made.json()['execution_id']}")

    assert made.status_code == 202
    assert shown.json()["args"] == args
    assert shown.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("application/x-python-serialize", b"cos\nsystem\n(S'id'\ntR."),
        ("application/octet-stream", b"\x80\x04\x95"),
        ("application/yaml", b"!!python/object/apply:os.system ['id']"),
        ("application/json", b"!!python/object/apply:os.system ['id']"),
        ("application/json", b"\x80\x04\x95"),
        ("text/plain", b"{}"),
        ("application/x-www-form-urlencoded", b"name=x"),
        ("multipart/form-data; boundary=x", b"--x--"),
    ],
)
async def test_only_json_is_read(content_type, content, here):
    answer = await here.ask(
        "POST", "/api/v1/jobs", content=content, headers={"content-type": content_type}
    )

    assert answer.status_code in (415, 422)


@pytest.mark.parametrize(
    "task", ["../x", "a/b", "a,b", "-x", "x\0", "", "x" * 1000, "<x>", "a;b", "$(id)", "a|b"]
)
async def test_a_task_is_a_name_and_nothing_is_imported_by_it(task, here):
    answer = await here.ask("POST", "/api/v1/jobs", json=JOB | {"task": task})

    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("task", ["os.system", "builtins.exec", "a.b:c", "../x"])
async def test_a_name_that_no_worker_knows_runs_nothing(task, here):
    before = await here.client.count()

    made = await here.ask("POST", "/api/v1/jobs", json={"name": "odd", "task": task})
    triggered = await here.ask("POST", f"/api/v1/jobs/{quote(task, safe='')}/trigger", json={})
    many = await here.ask("POST", "/api/v1/executions", json=[{"job": task}])

    assert made.status_code == 422, made.text
    assert (await here.ask("GET", "/api/v1/jobs/odd")).status_code == 404
    assert triggered.status_code in (404, 422)
    assert many.status_code in (404, 422)
    assert await here.client.count() == before


@pytest.fixture(autouse=True)
def no_rubbish_of_others():
    """To look through all that a whole test run has in memory takes longer than any answer."""
    gc.disable()
    yield
    gc.enable()


class Watch:
    """Counts what an answer costs and holds, however often it is asked for."""

    def __init__(self) -> None:
        self._began = time.process_time()

    def check(self, answer, what, *good: int) -> None:
        assert answer.status_code in (*good, *REFUSED), (what, answer.text[:300])
        assert time.process_time() - self._began < CPU_SECONDS_MAX, what
        assert len(answer.content) < 20_000, what
        assert answer.headers["content-type"].startswith("application/"), what
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?q={}", "/jobs?queue={}", "/jobs?user_id={}", "/jobs?status={}", "/jobs?cursor={}",
        "/jobs?limit={}", "/jobs?{}=1", "/jobs?sort={}", "/executions?job_id={}",
        "/executions?worker_id={}", "/executions?since={}", "/executions?cursor={}",
        "/dead-letters?job_id={}", "/audit?actor={}", "/audit?cursor={}",
        "/schedules/preview?cron={}", "/schedules/preview?cron=0+0+*+*+*&tz={}",
    ],
)  # fmt: skip
async def test_a_query_may_say_anything(path, here):
    for text in TEXTS:
        watch = Watch()
        answer = await here.ask("GET", f"/api/v1{path.format(quote(text[:5_000]))}")

        watch.check(answer, text[:50], 200)


IDS = [
    "../../etc/passwd", "%2e%2e%2fetc%2fpasswd", "%2Fetc%2Fpasswd", "x%00y", "..", "%ff%fe",
    "1 OR 1=1", "%27%3B%20DROP%20TABLE", "00000000-0000-0000-0000-00000000000G", "x" * 20_000,
    "%E2%80%AE",
]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/{}", "/jobs/{}/versions", "/executions/{}", "/executions/{}/logs", "/keys/{}",
        "/executions/{}/why", "/queues/{}/scaling", "/tenants/{}",
    ],
)  # fmt: skip
async def test_an_id_may_be_anything(path, here):
    for id in IDS:
        for method in ("GET", "DELETE"):
            watch = Watch()
            answer = await here.ask(method, f"/api/v1{path.format(id)}")

            # A queue may have any name, and one that nobody has used is empty. ".." goes to /logs.
            is_other = "queues" in path or answer.url.path == "/api/v1/logs"
            watch.check(answer, (method, id[:50]), 405, *([200] if is_other else []))
            assert "root:" not in answer.text


@pytest.mark.parametrize(
    "field",
    ["name", "task", "queue", "user_id", "description", "schedule", "tz", "unique_key"],
)
async def test_a_text_is_refused_or_comes_back_as_it_was(field, here):
    for number, text in enumerate(TEXTS):
        body: dict[str, Any] = JOB | {"name": f"report-{number}"}
        body |= {"schedule": {"cron": "0 0 * * *", "tz": text}} if field == "tz" else {field: text}
        watch = Watch()
        answer = await here.ask("POST", "/api/v1/jobs", json=body)

        watch.check(answer, text[:50], 201)
        if answer.status_code == 201 and field in ("name", "queue", "user_id", "description"):
            shown = await here.ask("GET", f"/api/v1/jobs/{answer.json()['job_id']}")
            assert shown.json()[field] == text


HALVES = [r'"\ud800"', r'"\udfff\ud800"', r'"\u0000"', '"\ufeff"', '"\ud800"']


@pytest.mark.parametrize(
    "where",
    [
        '{"name": HERE, "task": "resize"}',
        '{"name": "r", "task": "resize", "args": {"a": HERE}}',
        '{"name": "r", "task": "resize", "description": HERE}',
        '{"name": "r", "task": "resize", HERE: 1}',
    ],
)
async def test_half_a_character_is_no_mistake_of_ours(where, here):
    for text in HALVES:
        answer = await here.ask("POST", "/api/v1/jobs", **raw(where.replace("HERE", text)))

        Watch().check(answer, ascii(text), 201, 409)


HUGE: dict[str, str] = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep lists without an end": "[" * DEEP,
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "deep arguments": '{"args": {"a": ' + "[" * 1000 + "]" * 1000 + "}}",
    "many keys": json.dumps({f"k{number}": 1 for number in range(100_000)}),
    "many arguments": json.dumps({"args": {f"k{number}": 1 for number in range(100_000)}}),
    "the same key twice": '{"args": {"a": 1}, "args": {"a": 2}}',
    "the same argument twice": '{"args": {"a": 1, "a": 2}}',
    "not a number": '{"args": {"a": NaN}}',
    "infinity": '{"args": {"a": Infinity}}',
    "too large a number": '{"args": {"a": 1e999}}',
    "a long integer": '{"args": {"a": ' + "9" * 100_000 + "}}",
    "a long fraction": '{"args": {"a": 0.' + "9" * 100_000 + "}}",
    "a large delay": '{"delay": 1e308}',
    "a negative delay": '{"delay": -1}',
    "a delay of no number": '{"delay": "' + "9" * 50_000 + 's"}',
    "a far time": '{"at": "9999-12-31T23:59:59Z"}',
    "no time": '{"at": "99999-99-99"}',
    "a list": "[]",
    "a text": '"x"',
    "nothing": "null",
    "a number": "1",
    "half": '{"args": ',
    "two": "{} {}",
    "another encoding": '{"args": {}}'.encode("utf-16").decode("latin-1"),
    "a mark of order": "\ufeff{}",
}


# All but these are refused as input that makes no sense; jobs have a schedule instead of times.
TOO_LARGE = {"many arguments"}
FINE = {"a long fraction", "a far time"}
FINE_FOR_JOBS = {"a long fraction"}


@pytest.mark.parametrize("path", ["/jobs/resize/trigger", "/executions", "/jobs"])
async def test_a_body_may_say_anything(path, here):
    fine = FINE_FOR_JOBS if path == "/jobs" else FINE
    for name, text in HUGE.items():
        if path == "/executions" and text.startswith('{"'):
            text = f'[{{"job": "resize", {text[1:]}]'
        elif path == "/jobs" and text.startswith('{"'):
            text = f'{{"name": "report", "task": "resize", {text[1:]}'
        watch = Watch()
        answer = await here.ask("POST", f"/api/v1{path}", **raw(text))

        good = 201 if path == "/jobs" else 202
        expected = good if name in fine else 413 if name in TOO_LARGE else 422
        watch.check(answer, name, good)
        assert answer.status_code == expected, (name, answer.text[:300])


CRONS = [
    "*/0 * * * *", "0-4294967295 * * * *", "0" + ",0" * 100_000, "0 0 30 2 *", "0 0 1 1 * 9999",
    "* * * * * * * * *", "(a+)+$", "@every 1ns", "99999999999999999999 * * * *", "*/-1 * * * *",
    "0 0 31 2,4,6,9,11 *", "H H * * *", "0 0 29 2 *", "\u0660 * * * *",
]  # fmt: skip


async def test_a_cron_expression_costs_little_whatever_it_says(here):
    for number, cron in enumerate(CRONS):
        watch = Watch()
        shown = await here.ask("GET", "/api/v1/schedules/preview", params={"cron": cron[:10_000]})
        body = JOB | {"name": f"report-{number}", "schedule": cron}
        made = await here.ask("POST", "/api/v1/jobs", json=body)

        watch.check(shown, cron[:50], 200)
        watch.check(made, cron[:50], 201)


@pytest.mark.parametrize(
    "zone",
    [
        "../../etc/passwd",
        "Europe/Berlin\0",
        "x" * 10_000,
        "/etc/localtime",
        "europe/berlin/",
        "UTC\n",
    ],
)
async def test_a_zone_is_one_that_there_is(zone, here):
    body = JOB | {"schedule": {"cron": "0 0 * * *", "tz": zone}}

    made = await here.ask("POST", "/api/v1/jobs", json=body)
    shown = await here.ask(
        "GET", "/api/v1/schedules/preview", params={"cron": "0 0 * * *", "tz": zone}
    )

    assert made.status_code == 422, made.text
    assert shown.status_code == 422, shown.text


@pytest.mark.parametrize("name", ["Idempotency-Key", "If-Match", "Accept", "Last-Event-ID"])
async def test_a_header_may_say_anything(name, here):
    for value in (b"\xff\xfe", b"x" * 20_000, b"'; DROP TABLE", b"\t", b'"-1"', b'W/"1"'):
        for method, path, body in [
            ("POST", "/jobs/resize/trigger", {}),
            ("PATCH", "/jobs/resize", {"description": "x"}),
            ("GET", "/executions", None),
        ]:
            answer = await here.ask(method, f"/api/v1{path}", json=body, headers={name: value})

            Watch().check(answer, (method, value[:50]), 200, 202, 409, 412)


async def test_ten_thousand_are_the_most_at_once(here):
    many = [{"job": "resize"}] * 10_001

    refused = await here.ask("POST", "/api/v1/executions", json=many)
    before = (await here.ask("GET", "/api/v1/counts")).text

    assert refused.status_code in (413, 422)
    assert "10,000" in refused.text
    assert "10001" not in before


async def test_one_that_is_wrong_stops_all(here):
    many = [{"job": "resize"}] * 50 + [{"job": "no such job"}]
    before = (await here.ask("GET", "/api/v1/counts")).json()

    refused = await here.ask("POST", "/api/v1/executions", json=many)

    assert refused.status_code in REFUSED
    assert (await here.ask("GET", "/api/v1/counts")).json() == before
