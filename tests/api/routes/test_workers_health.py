"""Probes, and what is answered where nothing is."""

import pytest

from daybell.api import create_api
from daybell.api.routes.workers import Readiness
from daybell.errors import Unavailable
from tests.api.conftest import asking


async def test_a_process_is_well_whatever_becomes_of_its_store(client):
    async def ask():
        raise Unavailable("postgresql://secret-host is gone")

    app = create_api(client, readiness=Readiness(ask))

    async with asking(app) as http:
        assert (await http.get("http://localhost/healthz")).json() == {"status": "ok"}
        answer = await http.get("http://localhost/readyz")

    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert "secret-host" not in answer.text


async def test_probes_ask_the_store_once_a_second(client):
    asked, now = [], [0.0]

    async def ask():
        asked.append(now[0])

    app = create_api(client, readiness=Readiness(ask, monotonic=lambda: now[0]))

    async with asking(app) as http:
        for moment in (0.0, 0.5, 0.9, 1.0, 1.9):
            now[0] = moment
            assert (await http.get("http://localhost/readyz")).json() == {"status": "ready"}

    assert asked == [0.0, 1.0]


async def test_a_path_with_nothing_is_answered_with_a_problem(http):
    answer = await http.get("/nothing")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:daybell:problem:not-found"


async def test_a_method_that_is_not_there_is_answered_with_those_that_are(http):
    answer = await http.post("http://localhost/healthz")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_all_methods_of_a_path_are_named(http):
    answer = await http.post("/jobs/resize")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"


@pytest.mark.parametrize("path", ["http://localhost/healthz", "http://localhost/readyz", "/jobs"])
async def test_head_is_answered_as_get_without_a_body(path, http):
    full, head = await http.get(path), await http.head(path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == full.headers


@pytest.mark.parametrize("path", ["/stream", "/executions/x/logs"])
async def test_head_does_not_begin_a_stream(path, http):
    answer = await http.head(path, headers={"Accept": "text/event-stream"})

    assert answer.status_code == 405


async def test_a_wrong_method_does_not_wait_for_the_document_of_all(http, monkeypatch):
    def made(*_: object, **__: object) -> None:
        raise AssertionError("it takes half a second, in which nobody else is answered")

    monkeypatch.setattr("daybell.api.openapi.get_openapi", made)

    assert (await http.delete("/executions")).headers["allow"] == "GET, HEAD, POST"
