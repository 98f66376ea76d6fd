"""The whole OpenAPI document, with what nobody would think of sending: no 5xx, and nothing that
the document does not say.
"""

import asyncio
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from daybell.api import ApiOptions, create_api
from daybell.client import Client, mint
from daybell.client.sealing import new_key
from tests.api.requests import document
from tests.stores import TEST_ALL

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
# Of each operation, and of what is right and wrong.
EXAMPLES = 8 if TEST_ALL else 4
BASE = "http://localhost"

# It never ends; tests of its own listen to it.
WITHOUT = {"/api/v1/stream"}


class Served:
    """An API in an event loop of its own, with something of everything."""

    def __init__(self):
        self.runner = asyncio.Runner()
        self.client = self.runner.run(self._begin())
        app = create_api(self.client, options=ApiOptions(open_tenant="default"))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE)
        # Whoever asks has a key already: made-up ones are for other tests.
        document = {name: said for name, said in app.openapi().items() if name != "security"}
        self.schema = schemathesis.openapi.from_dict(document)

    async def _begin(self):
        client = await Client("memory://", secrets_key=new_key()).__aenter__()
        await client.define("resize", queue="images")
        await client.create("nightly", task="resize", schedule="0 0 * * *")
        await client.create("single", task="resize", overlap="skip")
        made = [await client.enqueue(name) for name in ("resize", "single")]
        await client.cancel(made[0].id)
        key = await client.create_key("deploy", role="operator")
        await client.add_tenant("acme")
        backup = {"command": ["pg_dump", {"parameter": "database"}]}
        parameters = {"database": "string"}
        await client.set_template({"name": "images", "parameters": parameters, "job": backup})
        await client.set_secret("TOKEN", "some value")
        self.known = {
            "job": ["resize", "nightly", "single"],
            "id": [str(one.id) for one in made] + [str(key.key_id), str(mint())],
            "name": ["images", "acme", "default", "another", "TOKEN"],
            "task": ["resize"],
            "template": ["images"],
            "parameters": [{"database": "shop"}],
            "command": ["df -h", ["df", {"secret": "A"}], {"run": "df", "directory": "/"}, None],
            "http": ["https://example.org", {"url": "https://example.org", "body": [1]}, None],
            "dry_run": [True, False],
            "job_id": ["resize"],
            "tenant": ["acme", None],
            "since": ["2026-01-01"],
            "until": ["2099-01-01"],
            "version": [1],
            "schedule": ["0 0 * * *", {"every": "5m"}, "manual", None],
        }
        return client

    def ask(self, case) -> httpx.Response:
        # As the library `requests` would send it, byte by byte.
        request: Any = requests.Request(**_asked(case)).prepare()
        headers = list(request.headers.items())
        content = request.body.encode() if isinstance(request.body, str) else request.body
        return self.runner.run(
            self.http.request(request.method, request.url, headers=headers, content=content)
        )

    def close(self):
        self.runner.run(self.client.close())
        self.runner.close()


def _asked(case):
    sent = case.as_transport_kwargs(base_url=BASE)
    return {name: sent[name] for name in ASKED if name in sent}


HEALTH: Any = list(HealthCheck)
ASKED = ("method", "url", "headers", "params", "json", "data")


@pytest.fixture(scope="module")
def served():
    opened = Served()
    yield opened
    opened.close()


def operations():
    paths = document()["paths"]
    return [
        pytest.param(path, method.upper(), mode, id=f"{method.upper()} {path} {mode.value}")
        for path, methods in paths.items()
        for method, said in methods.items()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        # What takes nothing cannot be asked wrongly.
        if path not in WITHOUT and (mode is GenerationMode.POSITIVE or said.get("parameters"))
    ]


def settle(case, known, draw):
    """Have half of them be about something that is there: else all would be refused at the door."""
    if draw(st.booleans()) and case.query:
        case.query.pop("tenant", None)
    for place in (case.path_parameters, case.body):
        for name in known.keys() & place.keys() if isinstance(place, dict) else ():
            if draw(st.booleans()):
                place[name] = draw(st.sampled_from(known[name]))


@pytest.mark.parametrize(("path", "method", "mode"), operations())
def test_it_answers_as_its_document_says(served, path, method, mode):
    operation = served.schema[path][method]

    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=HEALTH,
    )
    def hold(case, data):
        settle(case, served.known, data.draw)
        response = served.ask(case)
        case.validate_response(response, checks=CHECKS)

    hold()
