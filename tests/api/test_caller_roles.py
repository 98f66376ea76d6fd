"""Who may do what: every route with every role, without a key, and with another tenant's."""

import pytest

from daybell.api import ApiOptions, create_api
from daybell.core.access import Role
from tests.api.conftest import asking
from tests.api.requests import document

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"
OPERATOR = {
    "trigger_job",
    "pause_job",
    "resume_job",
    "enqueue_executions",
    "cancel_executions",
    "retry_executions",
    "cancel_execution",
    "retry_execution",
    "retry_dead_letters",
    "discard_dead_letters",
    "pause_queue",
    "resume_queue",
    "purge_queue",
    "drain_worker",
    "publish_event",
    "signal_execution",
    "approve_execution",
}
ADMIN = {
    "create_job",
    "apply_job",
    "create_template",
    "set_template",
    "delete_template",
    "update_job",
    "delete_job",
    "rollback_job",
    "backfill_job",
    "create_key",
    "list_keys",
    "revoke_key",
    "delete_key",
    "list_audit",
    "verify_audit",
    "list_secrets",
    "set_secret",
    "delete_secret",
}
SUPERADMIN = {"create_tenant", "list_tenants", "get_tenant", "update_tenant"}
STREAMS = {"stream"}  # it does not end by itself


def operations():
    return [
        pytest.param(method.upper(), path, said["operationId"], id=said["operationId"])
        for path, methods in document()["paths"].items()
        for method, said in methods.items()
        if path.startswith("/api/") and said["operationId"] not in STREAMS
    ]


def needed(operation):
    if operation in SUPERADMIN:
        return Role.SUPERADMIN
    if operation in ADMIN:
        return Role.ADMIN
    return Role.OPERATOR if operation in OPERATOR else Role.VIEWER


def filled(path):
    return path.removeprefix("/api/v1").format(job="resize", id=UNKNOWN, name="images", version=1)


@pytest.fixture
async def app(client):
    return create_api(client)


async def token_of(client, role):
    return (await client.create_key(str(role), role=role))[1]


@pytest.mark.parametrize(("method", "path", "operation"), operations())
async def test_a_route_is_for_its_role_and_those_above(app, client, method, path, operation):
    least = needed(operation)
    async with asking(app) as http:
        for role in Role:
            key = {"Authorization": f"Bearer {await token_of(client, role)}"}
            # A body that nobody takes: what is tested is who gets as far as being told so.
            answer = await http.request(method, filled(path), headers=key, json={"x": 1})
            assert (answer.status_code == 403) == (not role.may(least)), (role, answer.text)
            assert answer.status_code != 401
        missing = await http.request(method, filled(path), json={"x": 1})
        wrong = await http.request(
            method, filled(path), headers={"Authorization": "Bearer dbk_" + "x" * 43}
        )

    assert missing.status_code == wrong.status_code == 401
    assert missing.headers["www-authenticate"].startswith("Bearer")


def test_every_operation_is_in_the_table():
    known = {one.values[2] for one in operations()}

    assert known >= OPERATOR | ADMIN | SUPERADMIN


async def test_writing_takes_more_than_a_viewers_key():
    changing = {one.values[2] for one in operations() if one.values[0] != "GET"}

    assert changing <= OPERATOR | ADMIN | SUPERADMIN


async def test_documents_take_a_viewers_key(app, client):
    key = {"Authorization": f"Bearer {await token_of(client, Role.VIEWER)}"}
    async with asking(app) as http:
        for path in ("http://localhost/openapi.json", "http://localhost/docs"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers=key)).status_code == 200


# What another tenant has, by the routes that name it.
FOREIGN = [
    ("GET", "/jobs/{job}", None),
    ("PATCH", "/jobs/{job}", {"queue": "x"}),
    ("GET", "/jobs/{job}/warnings", None),
    ("DELETE", "/jobs/{job}", None),
    ("POST", "/jobs/{job}/trigger", None),
    ("POST", "/jobs/{job}/pause", None),
    ("POST", "/jobs/{job}/resume", None),
    ("GET", "/jobs/{job}/versions", None),
    ("GET", "/jobs/{job}/versions/1", None),
    ("POST", "/jobs/{job}/rollback", {"version": 1}),
    ("POST", "/jobs/{job}/backfill", {"since": "2026-01-01", "until": "2026-01-02"}),
    ("GET", "/executions?job_id={job}", None),
    ("GET", "/executions/{execution}", None),
    ("GET", "/executions/{execution}/logs", None),
    ("GET", "/executions/{execution}/why", None),
    ("POST", "/executions/{execution}/cancel", None),
    ("POST", "/executions/{execution}/retry", None),
    ("POST", "/keys/{key}/revoke", None),
    ("DELETE", "/keys/{key}", None),
]


@pytest.mark.parametrize(("method", "path", "body"), FOREIGN)
async def test_what_another_tenant_has_is_answered_like_an_unknown_id(
    app, client, method, path, body
):
    await client.add_tenant("acme")
    theirs = client.for_tenant("acme")
    await theirs.define("secret", queue="images")
    foreign = {
        "job": str((await theirs.job("secret")).id),
        "execution": str((await theirs.enqueue("secret")).id),
        "key": str((await theirs.create_key("theirs", role="viewer"))[0].id),
    }
    key = {"Authorization": f"Bearer {await token_of(client, Role.ADMIN)}"}

    async with asking(app) as http:
        their = await http.request(method, path.format(**foreign), json=body, headers=key)
        unknown = await http.request(
            method, path.format_map(dict.fromkeys(foreign, UNKNOWN)), json=body, headers=key
        )

    assert their.status_code == unknown.status_code == 404
    own = their.text
    for id in foreign.values():
        own = own.replace(id, UNKNOWN)
    assert own == unknown.text
    assert (await theirs.count()).keys() == {"queued"}


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
    top, _ = await client.create_key("top", role="superadmin")

    async with asking(app) as http:
        for role, status in (("admin", 201), ("worker", 201), ("superadmin", 403)):
            body = {"name": "new", "role": role}
            assert (await http.post("/keys", json=body, headers=admin)).status_code == status
        revoked = await http.delete(f"/keys/{top.id}", headers=admin)

    assert revoked.status_code == 403


async def test_a_revoked_key_opens_nothing(client):
    app = create_api(client, options=ApiOptions())
    key, token = await client.create_key("old", role="viewer")
    await client.revoke_key(key.id)

    async with asking(app) as http:
        answer = await http.get("/jobs", headers={"Authorization": f"Bearer {token}"})

    assert answer.status_code == 401
