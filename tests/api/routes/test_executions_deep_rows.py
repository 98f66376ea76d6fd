"""Rows that no client could have stored: each is shown as far as it can be, among the others."""

import logging

import msgspec
import pytest

from daybell.api.guard import Guard
from daybell.client import mint
from daybell.core.execution import NewExecution
from tests.api.worlds import world

DEEP = '{"a":' + "[" * 2_000 + "]" * 2_000 + "}"


async def test_a_deeply_nested_row_breaks_itself_and_not_the_list(http, client):
    fine = await client.enqueue("resize", {"width": 1})
    deep = NewExecution(id=mint(), job="resize", args=DEEP, queue="images")
    await client.store.enqueue(client.tenant, [deep])

    answer = await http.get("/executions")

    assert answer.status_code == 200
    shown = {one["execution_id"]: one["args"] for one in answer.json()["items"]}
    assert shown[str(fine.id)] == {"width": 1}
    assert list(shown[str(deep.id)]) == ["unreadable"]
    alone = await http.get(f"/executions/{deep.id}")
    assert alone.status_code == 200


async def test_a_job_with_deep_settings_is_listed(http, client):
    await client.create("reach", http="https://example.org", schedule="manual")
    job = await client.job("reach")
    deep = '{"url":"https://example.org","body":' + DEEP + "}"
    msgspec.structs.force_setattr(job.definition, "settings", deep)

    listed = await http.get("/jobs")

    assert listed.status_code == 200
    assert {one["name"] for one in listed.json()["items"]} == {"resize", "reach"}


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/events", "/api/v1/executions"])
async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(path, caplog):
    messages = [
        {"type": "http.request", "body": b'{"type": ', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message):
        pass

    caplog.set_level(logging.INFO)
    async with world() as here:
        token = here.keys["admin"].encode()
        headers = [
            (b"host", b"localhost"),
            (b"authorization", b"Bearer " + token),
            (b"content-type", b"application/json; charset=utf-8"),
            (b"content-length", b"100"),
        ]
        scope = {
            **{"type": "http", "method": "POST", "path": path, "raw_path": path.encode()},
            **{"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""},
            **{"headers": headers, "client": ("10.0.0.1", 5000), "server": ("localhost", 80)},
        }
        assert isinstance(here.guard, Guard)
        await here.guard(scope, receive, send)

    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.INFO] == []
