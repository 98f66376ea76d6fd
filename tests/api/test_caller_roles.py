"""Rules of roles and tenants beside the walk over all operations in `test_auth_walk.py`."""

import pytest

from daybell.api import ApiOptions, create_api
from daybell.core.access import Role
from tests.api.conftest import asking
from tests.api.requests import document
from tests.api.test_auth_walk import NEEDED

CHANGING = {
    said["operationId"]
    for methods in document()["paths"].values()
    for method, said in methods.items()
    if method != "get"
}


@pytest.fixture
async def app(client):
    return create_api(client)


async def token_of(client, role):
    return (await client.create_key(str(role), role=role)).token


def test_writing_takes_more_than_a_viewers_key():
    # These change nothing, or only how one is let in.
    own = {"delete_session", "create_login", "preview_any_schedule"}
    assert CHANGING & NEEDED[Role.VIEWER] == own


async def test_documents_take_a_viewers_key(app, client):
    key = {"Authorization": f"Bearer {await token_of(client, Role.VIEWER)}"}
    async with asking(app) as http:
        for path in ("http://localhost/openapi.json", "http://localhost/docs"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers=key)).status_code == 200


async def test_only_a_superadmin_may_name_another_tenant(app, client):
    await client.add_tenant("acme")
    await client.for_tenant("acme").define("resize")
    admin = {"Authorization": f"Bearer {await token_of(client, Role.ADMIN)}"}
    above = {"Authorization": f"Bearer {await token_of(client, Role.SUPERADMIN)}"}
    job = {"name": "theirs", "task": "resize", "schedule": "manual", "tenant": "acme"}

    async with asking(app) as http:
        refused = [
            await http.get("/jobs?tenant=acme", headers=admin),
            await http.get("/jobs?tenant=nobody", headers=admin),
            await http.post("/jobs", json=job, headers=admin),
            await http.post(
                "/keys", json={"name": "k", "role": "viewer", "tenant": "acme"}, headers=admin
            ),
        ]
        own = await http.get("/jobs?tenant=default", headers=admin)
        made = await http.post("/jobs", json=job, headers=above)
        listed = await http.get("/jobs?tenant=acme", headers=above)
        nobody = await http.get("/jobs?tenant=nobody", headers=above)

    assert [one.status_code for one in refused] == [403] * 4
    assert (own.status_code, nobody.status_code) == (200, 404)
    assert (made.status_code, made.json()["tenant"]) == (201, "acme")
    assert [one["name"] for one in listed.json()["items"]] == ["resize", "theirs"]


async def test_nobody_makes_a_key_above_their_own(app, client):
    admin = {"Authorization": f"Bearer {await token_of(client, Role.ADMIN)}"}
    top = await client.create_key("top", role="superadmin")

    async with asking(app) as http:
        for role, status in (("admin", 201), ("worker", 201), ("superadmin", 403)):
            body = {"name": "new", "role": role}
            assert (await http.post("/keys", json=body, headers=admin)).status_code == status
        revoked = await http.delete(f"/keys/{top.key_id}", headers=admin)

    assert revoked.status_code == 403


async def test_a_revoked_key_opens_nothing(client):
    app = create_api(client, options=ApiOptions())
    key = await client.create_key("old", role="viewer")
    token = key.token
    await client.revoke_key(key.key_id)

    async with asking(app) as http:
        answer = await http.get("/jobs", headers={"Authorization": f"Bearer {token}"})

    assert answer.status_code == 401
