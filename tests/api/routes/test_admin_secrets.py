"""Secrets over HTTP: set, listed and deleted; no answer has a value."""

import json
import logging

import pytest

from daybell.api import ApiOptions, create_api
from daybell.client import Client
from daybell.client.sealing import new_key
from daybell.core.access import Role
from tests.api.conftest import asking

VALUE = "canary-5f1d-0123456789"
TOKEN = {"secret": "TOKEN"}


@pytest.fixture
async def client():
    async with Client("memory://", secrets_key=new_key()) as opened:
        await opened.define("resize")
        yield opened


async def asker(client, role):
    token = (await client.create_key(str(role), role=role)).token
    return asking(create_api(client), headers={"Authorization": f"Bearer {token}"})


async def test_a_secret_is_set_listed_replaced_and_deleted(http, client):
    made = await http.put("/secrets/TOKEN", json={"value": VALUE})
    again = await http.put("/secrets/TOKEN", json={"value": VALUE + "2"})
    listed = await http.get("/secrets")
    gone = await http.delete("/secrets/TOKEN")
    missing = await http.delete("/secrets/TOKEN")

    assert (made.status_code, again.status_code) == (201, 200)
    assert (made.json()["version"], again.json()["version"]) == (1, 2)
    assert [one["name"] for one in listed.json()["items"]] == ["TOKEN"]
    assert listed.json()["items"][0] == again.json()
    assert gone.json() == {"name": "TOKEN", "status": "deleted"}
    assert missing.status_code == 404
    assert missing.json()["type"].endswith("unknown-secret")
    assert not await client.secrets()
    for answer in (made, again, listed, gone, missing):
        assert "canary" not in answer.text


async def test_a_server_opens_what_it_has_sealed(http, client):
    await http.put("/secrets/TOKEN", json={"value": VALUE})

    (kept,) = (await client.store.admin.fetch_secrets("default", ["TOKEN"])).values()

    assert client.sealer().open("default", kept) == VALUE
    assert b"canary" not in kept.sealed


async def test_changes_are_on_record_without_the_value(http, client):
    await http.put("/secrets/TOKEN", json={"value": VALUE})
    await http.put("/secrets/TOKEN", json={"value": VALUE})
    await http.delete("/secrets/TOKEN")

    entries = (await client.audit(action="secret")).items

    assert [(one.action, one.target) for one in entries] == [
        ("secret.delete", "TOKEN"),
        ("secret.set", "TOKEN"),
        ("secret.set", "TOKEN"),
    ]
    key_id = client.sealer().key_id
    assert [one.before for one in entries] == [
        {"version": 2, "key_id": key_id},
        {"version": 1, "key_id": key_id},
        None,
    ]
    assert "canary" not in repr(entries)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"value": "abc"}, "value"),
        ({"value": VALUE + "\0"}, "value"),
        ({"value": VALUE * 10_000}, "value"),
        ({"value": [VALUE]}, "value"),
        ({"value": {"a": VALUE}}, "value"),
        ({"values": VALUE}, "value"),
        ({"value": VALUE, "more": VALUE}, "more"),
        ([VALUE], "body"),
        (VALUE, "body"),
    ],
)
async def test_what_is_wrong_is_said_without_the_value(http, body, field, caplog):
    caplog.set_level(logging.DEBUG)

    answer = await http.put("/secrets/TOKEN", json=body)

    assert answer.status_code == 422
    assert field in [one["field"] for one in answer.json()["errors"]]
    assert "canary" not in answer.text and "canary" not in caplog.text


@pytest.mark.parametrize("raw", [f'{{"value": "{VALUE}', f'{{"value": "{VALUE}", }}', f'"{VALUE}'])
async def test_a_body_that_is_broken_is_not_repeated(http, raw):
    headers = {"Content-Type": "application/json"}

    answer = await http.put("/secrets/TOKEN", content=raw, headers=headers)

    assert answer.status_code == 422 and "canary" not in answer.text


@pytest.mark.parametrize("name", ["no name", "1ST", "é", "x" * 101, "a-b"])
async def test_names_are_those_of_variables(http, name):
    made = await http.put(f"/secrets/{name}", json={"value": VALUE})

    assert made.status_code == 422 and "cannot name a secret" in made.text
    assert (await http.delete(f"/secrets/{name}")).status_code == 404


async def test_a_server_without_a_key_says_what_to_do():
    async with Client("memory://") as client:
        app = create_api(client, options=ApiOptions(open_tenant="default"))
        async with asking(app) as http:
            answer = await http.put("/secrets/TOKEN", json={"value": VALUE})
            listed = await http.get("/secrets")

    assert answer.status_code == 409  # the request is right, and the server lacks a setting
    said = answer.json()["detail"]
    assert said.startswith("the server has no key that seals secrets; its operator makes one")
    assert "`daybell secrets key`" in said and "DAYBELL_SECRETS_KEY" in said
    assert "canary" not in answer.text
    assert listed.json()["items"] == []


@pytest.mark.parametrize("role", list(Role))
async def test_secrets_are_for_admins(client, role):
    async with await asker(client, role) as http:
        answers = [
            await http.put("/secrets/TOKEN", json={"value": VALUE}),
            await http.get("/secrets"),
            await http.delete("/secrets/TOKEN"),
        ]

    expected = [201, 200, 200] if role.may(Role.ADMIN) else [403] * 3
    assert [one.status_code for one in answers] == expected


async def test_tenants_have_secrets_of_their_own(client):
    await client.add_tenant("acme")
    await client.set_secret("TOKEN", VALUE)
    async with await asker(client.for_tenant("acme"), Role.ADMIN) as http:
        listed = await http.get("/secrets")
        gone = await http.delete("/secrets/TOKEN")

    assert listed.json()["items"] == [] and gone.status_code == 404
    assert [one.name for one in await client.secrets()] == ["TOKEN"]


@pytest.mark.parametrize(
    "args",
    [
        {"token": TOKEN},
        {"list": [1, {"deep": [TOKEN]}]},
        {"header": {"join": ["Bearer ", TOKEN]}},
    ],
)
@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
async def test_naming_a_secret_in_args_takes_an_admin(client, role, args):
    async with await asker(client, role) as http:
        single = await http.post("/jobs/resize/trigger", json={"args": args})
        later = await http.post("/jobs/resize/trigger", json={"args": args, "delay": "1h"})
        many = await http.post(
            "/executions", json=[{"job": "resize"}, {"job": "resize", "args": args}]
        )
        keyed = await http.post(
            "/executions", json=[{"job": "resize", "args": args, "unique_key": "one"}]
        )
        escaped = await http.post(
            "/jobs/resize/trigger",
            content=json.dumps({"args": args}).replace("secret", "\\u0073ecret"),
            headers={"Content-Type": "application/json"},
        )

    answers = [single, later, many, keyed, escaped]
    expected = 202 if role is Role.ADMIN else 403
    assert [one.status_code for one in answers] == [expected] * 5
    if role is Role.OPERATOR:
        assert "takes a key with the role admin" in single.json()["detail"]
        assert (await client.count()).total == 0


async def test_an_operator_may_trigger_a_job_whose_own_args_name_a_secret(client):
    await client.create("report", task="resize", args={"token": TOKEN}, schedule="manual")
    async with await asker(client, Role.OPERATOR) as http:
        own = await http.post("/jobs/report/trigger")
        plain = await http.post("/jobs/resize/trigger", json={"args": {"secret": "TOKEN"}})
        word = await http.post("/jobs/resize/trigger", json={"args": {"word": "secret"}})

    # Arguments as a whole are no reference: that is a parameter called so.
    assert [one.status_code for one in (own, plain, word)] == [202, 202, 202]
