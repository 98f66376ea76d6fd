"""When the store is away, and when we have made a mistake: what callers are told, and what not."""

import pytest

from daybell.api import ApiOptions, create_api
from daybell.client import Client
from daybell.errors import DaybellError, SchemaError, Unavailable
from tests.api.conftest import asking
from tests.api.requests import BODIES, operations
from tests.ports import PORTS

SECRET = "postgresql://ana:pass@secret-host/jobs"


class Away:
    """A store that answers everything with an error."""

    def __init__(self, error):
        self._error = error

    def audited(self, *_):
        return self

    def __getattr__(self, name):
        if name in PORTS:
            return self

        async def fail(*_, **__):
            raise self._error

        return fail


def asking_of(error):
    store: object = Away(error)
    client = Client(store)  # pyright: ignore[reportArgumentType]
    return asking(create_api(client, options=ApiOptions(open_tenant="default")))


# Without a key there is no session to look up.
WITHOUT_STORE = {"get_session", "delete_session"}
# A server knows the workers that it registered: others are refused before the store is asked.
OF_A_WORKER = "/leases/"


async def test_every_operation_says_when_to_come_back():
    async with asking_of(Unavailable(f"cannot reach {SECRET}")) as http:
        for method, path, id in operations():
            if id in WITHOUT_STORE or path.startswith(OF_A_WORKER):
                continue
            answer = await http.request(method, path, json=BODIES.get(id))

            assert answer.status_code == 503, (id, answer.text)
            assert int(answer.headers["retry-after"]) >= 1, id
            assert answer.headers["content-type"] == "application/problem+json", id
            assert "secret-host" not in answer.text, id


async def test_an_error_is_the_same_object_in_python_and_over_http(http, client):
    await client.define("alone", schedule="@yearly")
    await client.trigger("alone")
    codes = {"/jobs/alone/trigger": "execution-in-the-way", "/jobs/nosuch/trigger": "unknown-job"}

    for path, code in codes.items():
        with pytest.raises(DaybellError) as caught:
            await client.trigger(path.split("/")[2])
        answer = await http.post(path, json={})

        assert answer.json() == caught.value.problem()
        assert answer.status_code == caught.value.status
        assert answer.json()["code"] == caught.value.code == code


async def test_input_that_is_wrong_is_named_by_field(http):
    answer = await http.post("/jobs/resize/trigger", json={"unique_key": ""})

    assert answer.json()["code"] == "invalid"
    assert [one["field"] for one in answer.json()["errors"]] == ["unique_key"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"delay": "soon"}, "delay 'soon' cannot be read; "),
        ({"args": [1]}, "args: must be an object"),
    ],
)
async def test_input_that_is_wrong_is_named_once(http, body, detail):
    answer = await http.post("/jobs/resize/trigger", json=body)

    assert answer.json()["detail"].startswith(detail)


async def test_a_schema_that_does_not_fit_is_for_the_log(caplog):
    async with asking_of(SchemaError(f"{SECRET} is too old; run daybell migrate")) as http:
        answer = await http.get("/jobs")

    assert answer.status_code == 503
    assert "secret-host" not in answer.text
    assert "run daybell migrate" in caplog.text


@pytest.mark.parametrize("path", ["/jobs", "/executions", "/queues", "/stats"])
async def test_a_mistake_of_ours_is_in_the_log_and_not_in_the_answer(path, caplog):
    async with asking_of(RuntimeError(SECRET)) as http:
        answer = await http.get(path)

    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:daybell:problem:internal-error"
    assert "secret-host" not in answer.text and "Traceback" not in answer.text
    assert "secret-host" in caplog.text
