"""Webhooks of jobs: addresses, signatures as their senders publish them, replays, and refusals."""

import base64
import hashlib
import hmac
import json

import pytest

from daybell.api import ApiOptions, create_api
from daybell.client import Client
from daybell.client.hooks import check_delivery
from daybell.client.sealing import new_key
from daybell.core.access import Hook, HookAlgorithm, HookEncoding
from daybell.errors import NotFound
from tests.api.conftest import asking

FORM = "application/x-www-form-urlencoded"
JOB = {"name": "build", "command": "true", "schedule": "manual"}
# docs.github.com, "Validating webhook deliveries": the values to test an implementation with.
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB_SIGNED = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
# github.com/standard-webhooks: the example of the specification's libraries.
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def stripe(body, secret, at):
    """Sign as docs.stripe.com, "Verify webhook signatures manually"."""
    signed = hmac.new(secret.encode(), f"{int(at)}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={int(at)},v1=5257a869e7ec,v0=6ffbb59b2300,v1={signed}"}


def is_accepted(hook, secret, headers, body, now=0.0):
    found = check_delivery(hook, secret.encode(), headers, body, now)
    assert check_delivery(None, None, headers, body, now) is None
    return found is not None


def test_the_example_of_github_is_accepted_and_nothing_like_it():
    hook = Hook(job="j", signature="github", secret="s")
    sent = {"x-hub-signature-256": GITHUB_SIGNED}

    assert is_accepted(hook, GITHUB_SECRET, sent, GITHUB_BODY)
    assert not is_accepted(hook, GITHUB_SECRET, sent, GITHUB_BODY[:-1])
    assert not is_accepted(hook, GITHUB_SECRET + "!", sent, GITHUB_BODY)
    assert not is_accepted(hook, GITHUB_SECRET, {}, GITHUB_BODY)
    assert not is_accepted(
        hook, GITHUB_SECRET, {"x-hub-signature-256": GITHUB_SIGNED[:-1]}, GITHUB_BODY
    )
    assert not is_accepted(hook, GITHUB_SECRET, {"x-hub-signature-256": "sha256=é"}, GITHUB_BODY)


def test_the_example_of_standard_webhooks_is_accepted_in_its_time_alone():
    hook = Hook(job="j", signature="standard", secret="s")
    at = int(STANDARD["webhook-timestamp"])

    for now in (at, at - 300, at + 300):
        assert is_accepted(hook, STANDARD_SECRET, STANDARD, STANDARD_BODY, now)
    for now in (at - 301, at + 301):
        assert not is_accepted(hook, STANDARD_SECRET, STANDARD, STANDARD_BODY, now)
    several = {**STANDARD, "webhook-signature": f"v1,abc v1a,x {STANDARD['webhook-signature']}"}
    assert is_accepted(hook, STANDARD_SECRET, several, STANDARD_BODY, at)
    for name in STANDARD:
        left = {key: value for key, value in STANDARD.items() if key != name}
        assert not is_accepted(hook, STANDARD_SECRET, left, STANDARD_BODY, at)
    other = {**STANDARD, "webhook-id": "msg_other"}
    assert not is_accepted(hook, STANDARD_SECRET, other, STANDARD_BODY, at)


def test_stripes_scheme_is_accepted_in_its_time_alone():
    hook = Hook(job="j", signature="stripe", secret="s")
    body, secret, at = b'{"id": "evt_1"}', "whsec_test", 1_492_774_577

    sent = stripe(body, secret, at)
    assert is_accepted(hook, secret, sent, body, at + 300)
    assert not is_accepted(hook, secret, sent, body, at + 301)
    assert not is_accepted(hook, secret, sent, body + b" ", at)
    assert not is_accepted(hook, "other", sent, body, at)
    for wrong in ("", "t=,v1=", "v1=abc", f"t={at}", "t=soon,v1=abc", "t=١٢,v1=a"):
        assert not is_accepted(hook, secret, {"stripe-signature": wrong}, body, at)
    later = {"stripe-signature": sent["stripe-signature"].replace(f"t={at}", f"t={at + 1}")}
    assert not is_accepted(hook, secret, later, body, at)


@pytest.mark.parametrize("algorithm", HookAlgorithm)
@pytest.mark.parametrize("encoding", HookEncoding)
@pytest.mark.parametrize("prefix", ["", "{}="])
def test_a_scheme_can_be_described(algorithm, encoding, prefix):
    hook = Hook(
        job="j",
        signature="hmac",
        secret="s",
        header="x-sig",
        algorithm=algorithm,
        encoding=encoding,
    )
    digest = hmac.new(b"key", b"body", algorithm).digest()
    text = digest.hex() if encoding is HookEncoding.HEX else base64.b64encode(digest).decode()
    sent = {"x-sig": prefix.format(algorithm) + text}

    assert is_accepted(hook, "key", sent, b"body")
    assert not is_accepted(hook, "key", sent, b"bode")
    assert not is_accepted(hook, "kez", sent, b"body")


@pytest.fixture
async def client():
    async with Client("memory://", secrets_key=new_key()) as opened:
        yield opened


@pytest.fixture
async def http(http):
    """A server with a job, and the secret of GitHub's example."""
    assert (await http.post("/jobs", json=JOB)).status_code == 201
    answer = await http.put("/secrets/GITHUB", json={"value": GITHUB_SECRET})
    assert answer.status_code == 201, answer.json()
    return http


async def made(http, **fields):
    answer = await http.post("/jobs/build/hooks", json={"name": "ours", **fields})
    assert answer.status_code == 201, answer.json()
    return answer.json()


def sender(client):
    """One who knows nothing but an address, at a server that has just started."""
    return asking(create_api(client, options=ApiOptions()))


async def post(client, hook, content=b"", **headers):
    async with sender(client) as outside:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await outside.post(f"/hooks/{hook['token']}", content=content, headers=sent)


async def test_what_is_posted_fires_the_job_and_is_its_event(http, client):
    hook = await made(http)

    answer = await post(client, hook, b'{"ref": "main"}', content_type="application/json")

    assert answer.status_code == 202, answer.json()
    (id,) = answer.json()["executions"]
    found = (await http.get(f"/executions/{id}")).json()
    assert found["job"] == "build"
    event = found["args"]["event"]
    assert (event["name"], event["data"]) == ("hook.build", {"ref": "main"})
    assert event["source"] == "/hooks/build/ours"
    assert hook["path"] == f"/api/v1/hooks/{hook['token']}"
    assert hook["token"].startswith("dbh_")


@pytest.mark.parametrize(
    ("kind", "content", "data"),
    [
        ("application/vnd.x+json; charset=utf-8", b"[1]", [1]),
        (
            FORM,
            b"a=1&b=2&b=3&c=",
            {"a": "1", "b": ["2", "3"], "c": ""},
        ),
        ("text/plain", "grüße".encode(), "grüße"),
        ("", b"plain", "plain"),
        ("application/json", b"", None),
    ],
)
async def test_json_forms_and_text_are_data(http, client, kind, content, data):
    hook = await made(http)
    sent = {"content_type": kind} if kind else {}

    answer = await post(client, hook, content, **sent)

    if content or kind != "application/json":
        assert answer.status_code == 202, answer.json()
        (event,) = (await http.get("/events")).json()["items"]
        assert event["data"] == data


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [
        ("application/json", b"{", 422),
        ("application/json", b"\xff", 422),
        ("text/plain", b"\xff", 422),
        ("image/png", b"x", 415),
        (FORM, b"%ff=1", 422),
        (FORM, b"&".join([b"a=1"] * 1_001), 422),
        ("text/plain", b"x" * (1024 * 1024 + 1), 413),
        ("text/plain", b"x" * 10_000_000, 413),
    ],
)
async def test_other_content_is_refused(http, client, kind, content, status):
    hook = await made(http)

    answer = await post(client, hook, content, content_type=kind)

    assert answer.status_code == status, answer.json()
    assert (await http.get("/events")).json()["items"] == []


async def test_a_delivery_of_github_counts_once_whoever_sends_it_again(http, client):
    hook = await made(http, signature="github", secret="GITHUB")
    sent = {"x_hub_signature_256": GITHUB_SIGNED, "content_type": "text/plain"}

    first = await post(client, hook, GITHUB_BODY, x_github_delivery="1", **sent)
    again = await post(client, hook, GITHUB_BODY, x_github_delivery="2", **sent)

    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["created"], again.json()["created"]) == (True, False)
    assert first.json()["executions"] == again.json()["executions"]
    assert len((await http.get("/executions")).json()["items"]) == 1


async def test_a_payment_of_stripe_is_known_by_its_id(http, client):
    await http.put("/secrets/STRIPE", json={"value": "whsec_0123456789"})
    hook = await made(http, signature="stripe", secret="STRIPE")
    now = (await client.health()).now
    body, kind = b'{"id": "evt_1", "type": "charge.succeeded"}', "application/json"

    answers = [
        await post(client, hook, body, content_type=kind, **stripe(body, "whsec_0123456789", at))
        for at in (now, now + 5, now - 400)
    ]

    assert [one.status_code for one in answers] == [202, 202, 401]
    assert [one.json().get("created") for one in answers] == [True, False, None]
    assert answers[0].json()["event_id"] == "evt_1"


async def test_refusals_say_the_same_whatever_is_wrong(http, client):
    signed = await made(http, name="signed", signature="github", secret="GITHUB")
    gone, over = await made(http, name="gone"), await made(http, name="over", expires="1s")
    await http.post("/jobs/build/hooks/gone/revoke")
    await client.store.admin.revoke_key("default", (await client.hooks("build"))[0].hook_id)
    key = (await client.create_key("k", role="admin")).token

    answers = [
        await post(client, hook, b"x", content_type="text/plain", **headers)
        for hook, headers in (
            (signed, {}),
            (signed, {"x_hub_signature_256": GITHUB_SIGNED}),
            (gone, {}),
            (over, {}),
            ({"token": "dbh_" + "a" * 43}, {}),
            ({"token": "x"}, {}),
            ({"token": key}, {}),
        )
    ]

    assert {(one.status_code, one.text) for one in answers} == {(401, answers[0].text)}
    assert answers[0].json()["code"] == "hook-refused"
    heads = [{**one.headers, "x-request-id": ""} for one in answers]
    assert all(one == heads[0] for one in heads)
    assert (await http.get("/events")).json()["items"] == []


async def test_a_token_of_a_hook_opens_nothing_else(http, client):
    hook = await made(http)

    async with sender(client) as outside:
        bearer = {"Authorization": f"Bearer {hook['token']}"}
        refused = await outside.get("/jobs", headers=bearer)
        login = await outside.post("/session", json={"key": hook["token"]})

    assert (refused.status_code, login.status_code) == (401, 401)
    with pytest.raises(NotFound):
        await client.open_session(hook["token"])


async def test_a_rotated_hook_has_two_addresses_for_a_while(http, client):
    old = await made(http, expires="30d")

    answer = await http.post("/jobs/build/hooks/ours/rotate", json={"overlap": "1h"})
    new = answer.json()

    assert answer.status_code == 200, new
    assert [(await post(client, one)).status_code for one in (old, new)] == [202, 202]
    first, second = (await http.get("/jobs/build/hooks")).json()["items"]
    assert (first["hook_id"], second["hook_id"]) == (new["hook_id"], old["hook_id"])
    assert second["expires_at"] < first["expires_at"]
    assert "token" not in first
    await http.post("/jobs/build/hooks/ours/rotate", json={"overlap": 0})
    assert [(await post(client, one)).status_code for one in (old, new)] == [401, 401]
    revoked = await http.post("/jobs/build/hooks/ours/revoke")
    assert revoked.status_code == 200
    again = await http.post("/jobs/build/hooks/ours/revoke")
    assert again.status_code == 404


async def test_what_is_done_with_hooks_is_audited_without_tokens(http, client):
    hook = await made(http)
    await http.post("/jobs/build/hooks/ours/rotate")
    await http.post("/jobs/build/hooks/ours/revoke")

    entries = (await http.get("/audit")).json()["items"]

    assert [one["action"] for one in entries[:3]] == ["hook.revoke", "hook.rotate", "hook.create"]
    assert {one["target"] for one in entries[:3]} == {"build/ours"}
    assert hook["token"] not in json.dumps(entries)


async def test_a_job_that_listens_already_gets_no_second_schedule(http, client):
    job = {**JOB, "name": "own", "schedule": {"event": "hook.own", "filter": {"ref": "main"}}}
    await http.post("/jobs", json=job)
    hook = (await http.post("/jobs/own/hooks", json={"name": "x"})).json()

    for ref in ("main", "other"):
        await post(client, hook, json.dumps({"ref": ref}).encode(), content_type="application/json")

    assert len((await http.get("/executions")).json()["items"]) == 1
    assert len((await http.get("/jobs/own")).json()["schedules"]) == 1


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"signature": "github"}, 422, "secret"),
        ({"secret": "GITHUB"}, 422, "signature"),
        ({"signature": "github", "secret": "OTHER"}, 422, "secret"),
        ({"signature": "gitlab", "secret": "GITHUB"}, 422, "signature"),
        ({"signature": "github", "secret": "GITHUB", "header": "X-Sig"}, 422, "header"),
        ({"signature": "hmac", "secret": "GITHUB", "header": "X Sig"}, 422, "header"),
        ({"signature": "hmac", "secret": "GITHUB", "algorithm": "md5"}, 422, "algorithm"),
        ({"name": ""}, 422, "name"),
        ({"expires": "soon"}, 422, "expires"),
    ],
)
async def test_a_wrong_hook_is_refused_by_field(http, fields, status, field):
    answer = await http.post("/jobs/build/hooks", json={"name": "x", **fields})

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, field)


async def test_a_name_is_given_once_and_its_job_exists(http):
    await made(http)

    assert (await http.post("/jobs/build/hooks", json={"name": "ours"})).status_code == 409
    assert (await http.post("/jobs/none/hooks", json={"name": "ours"})).status_code == 404
    assert (await http.post("/jobs/build/hooks/none/rotate")).status_code == 404
    assert (await http.get("/jobs/none/hooks")).status_code == 404
