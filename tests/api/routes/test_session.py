"""`/session`: browsers log in and out, with a cookie that only pages of the server can use."""

from datetime import timedelta

import httpx
import pytest

from daybell.api import create_api
from daybell.api.auth import Authenticator
from daybell.api.caller import ApiOptions
from daybell.api.guard import Guard
from daybell.core.access import LOGIN_SECONDS, SESSION_SECONDS, Action, KeyKind, Role
from tests.api.worlds import World, world

ORIGIN = {"origin": "http://localhost:8080"}
PAUSE = "/api/v1/queues/images/pause"
COOKIE = "daybell_session_8080"


class Browser(httpx.AsyncClient):
    """Keeps cookies, and sends with a change what a page of the server sends."""

    csrf_token = ""

    async def log_in(self, key: str) -> httpx.Response:
        answer = await self.post("/api/v1/session", json={"key": key}, headers=ORIGIN)
        self.csrf_token = answer.json().get("csrf_token") or ""
        return answer

    async def change(self, path: str = PAUSE, **more) -> httpx.Response:
        return await self.post(
            path, headers={**ORIGIN, "x-csrf-token": self.csrf_token}, json={}, **more
        )


def browsing(here: World, app=None, base="http://localhost:8080") -> Browser:
    transport = httpx.ASGITransport(
        app or here.guard, raise_app_exceptions=False, client=("10.0.0.1", 5000)
    )
    return Browser(transport=transport, base_url=base)


@pytest.fixture
async def here():
    async with world() as made:
        yield made


@pytest.fixture
async def browser(here):
    async with browsing(here) as opened:
        yield opened


async def keys(here, kind):
    return [one for one in await here.client.store.admin.list_keys("default") if one.kind is kind]


async def test_a_browser_logs_in_with_a_key_and_acts_with_a_cookie(here, browser):
    answer = await browser.log_in(here.keys[Role.OPERATOR])

    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert (said["tenant"], said["role"], said["name"]) == ("default", "operator", "a operator")
    assert said["actions"] == ["read", "trigger", "cancel", "retry", "discard", "pause", "signal",
                               "drain"]  # fmt: skip
    assert (await browser.get("/api/v1/jobs")).status_code == 200
    assert (await browser.change()).status_code == 200
    again = (await browser.get("/api/v1/session")).json()
    assert again == said
    (entry,) = (await here.client.audit(action="queue.pause")).items
    (session,) = await keys(here, KeyKind.SESSION)
    assert entry.actor == f"session a operator ({session.hint}, {session.parent})"


async def test_the_cookie_is_not_for_scripts_and_not_for_other_sites(here, browser):
    cookie = (await browser.log_in(here.keys[Role.VIEWER])).headers["set-cookie"]

    name, *rest = cookie.split("; ")
    assert name.startswith(f"{COOKIE}=dbk_")
    assert {one.lower() for one in rest} == {
        "httponly", "samesite=strict", "path=/", f"max-age={SESSION_SECONDS:.0f}",
    }  # fmt: skip


async def test_over_tls_the_cookie_stays_there(here):
    async with browsing(here, base="https://localhost") as browser:
        answer = await browser.post(
            "/api/v1/session",
            json={"key": here.keys[Role.VIEWER]},
            headers={"origin": "https://localhost"},
        )
        cookie = answer.headers["set-cookie"]

        assert cookie.startswith("__Host-daybell_session=") and "; Secure" in cookie
        assert (await browser.get("/api/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        ORIGIN,
        {**ORIGIN, "x-csrf-token": ""},
        {**ORIGIN, "x-csrf-token": "0" * 32},
        {"x-csrf-token": "right"},  # by no page
    ],
)
async def test_a_change_takes_the_csrf_token_and_an_origin(here, browser, headers):
    await browser.log_in(here.keys[Role.ADMIN])
    sent = {k: browser.csrf_token if v == "right" else v for k, v in headers.items()}

    answer = await browser.post(PAUSE, json={}, headers=sent)

    assert (answer.status_code, answer.json()["code"]) == (403, "csrf-token-needed")
    assert not any(queue.is_paused for queue in await here.client.queues())


async def test_a_change_from_another_site_is_refused_with_the_token_too(here, browser):
    await browser.log_in(here.keys[Role.ADMIN])

    for headers in (
        {"origin": "http://localhost:9090"},
        {"origin": "https://evil.example"},
        {**ORIGIN, "sec-fetch-site": "cross-site"},
    ):
        sent = {**headers, "x-csrf-token": browser.csrf_token}
        answer = await browser.post(PAUSE, json={}, headers=sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign-origin")


async def test_the_csrf_token_of_another_session_is_of_no_use(here, browser):
    async with browsing(here) as other:
        await other.log_in(here.keys[Role.ADMIN])
        await browser.log_in(here.keys[Role.ADMIN])
        browser.csrf_token = other.csrf_token

        assert (await browser.change()).status_code == 403


async def test_a_session_has_the_rights_of_its_key(here, browser):
    await browser.log_in(here.keys[Role.VIEWER])

    assert (await browser.change()).json()["code"] == "access-denied"
    made = await here.client.create_key(
        "billing", role="operator", jobs=["billing-*"], actions=["read", "trigger"]
    )
    said = (await browser.log_in(made.token)).json()
    assert (said["jobs"], said["actions"]) == (["billing-*"], ["read", "trigger"])
    assert (await browser.get("/api/v1/jobs")).json()["items"] == []


async def test_a_session_ends_with_its_key(here, browser):
    await browser.log_in(here.keys[Role.ADMIN])
    (key,) = [one for one in await here.client.keys() if one.name == "a admin"][-1:]
    await here.client.revoke_key(key.key_id)
    here.clock.advance(5)

    answer = await browser.get("/api/v1/jobs")

    assert (answer.status_code, answer.json()["code"]) == (401, "key-needed")
    assert (await browser.log_in(here.keys[Role.ADMIN])).status_code == 401


async def test_logging_out_ends_the_session_at_once(here, browser):
    await browser.log_in(here.keys[Role.ADMIN])
    cookies = dict(browser.cookies)

    answer = await browser.delete(
        "/api/v1/session", headers={**ORIGIN, "x-csrf-token": browser.csrf_token}
    )

    assert (answer.status_code, answer.json()) == (200, {"status": "ended"})
    assert not browser.cookies
    kept = {"cookie": f"{COOKIE}={cookies[COOKIE]}"}
    assert (await browser.get("/api/v1/jobs", headers=kept)).status_code == 401
    assert (await here.ask("GET", "/api/v1/jobs", here.keys[Role.ADMIN])).status_code == 200


@pytest.mark.parametrize("key", ["dbk_" + "x" * 43, "nonsense", "Bearer dbk_x"])
async def test_a_wrong_key_opens_no_session(here, browser, key):
    answer = await browser.log_in(key)

    assert (answer.status_code, answer.json()["code"]) == (401, "key-needed")
    assert "set-cookie" not in answer.headers and key not in answer.text


async def test_wrong_keys_at_the_login_are_slowed_down(here, browser):
    codes = [(await browser.log_in("dbk_" + "x" * 43)).status_code for _ in range(22)]

    assert codes == [401] * 20 + [429] * 2
    assert (await browser.log_in(here.keys[Role.VIEWER])).status_code == 200


async def test_a_page_with_an_ended_session_hears_so_however_often_it_asks(here, browser):
    cookie = {"cookie": f"{COOKIE}=dbk_{'x' * 43}"}

    codes = {(await browser.get("/api/v1/jobs", headers=cookie)).status_code for _ in range(30)}

    assert codes == {401}


async def test_a_workers_key_opens_no_session(here, browser):
    answer = await browser.log_in(here.keys[Role.WORKER])

    assert (answer.status_code, answer.json()["code"]) == (403, "access-denied")


async def test_a_token_is_of_use_in_its_own_place_alone(here, browser):
    await browser.log_in(here.keys[Role.ADMIN])
    link = (await here.client.create_login()).token
    session = browser.cookies[COOKIE]

    for token in (session, link):
        assert (await here.ask("GET", "/api/v1/jobs", token)).status_code == 401
    for token in (here.keys[Role.ADMIN], link):
        cookie = {"cookie": f"{COOKIE}={token}"}
        assert (await here.ask("GET", "/api/v1/jobs", headers=cookie)).status_code == 401


async def test_a_login_link_works_once(here, browser):
    made = await here.ask("POST", "/api/v1/session/links", here.keys[Role.OPERATOR])
    assert made.status_code == 201
    link = made.json()["token"]

    said = (await browser.log_in(link)).json()

    assert said["role"] == "operator"
    assert (await browser.log_in(link)).status_code == 401
    (session,) = await keys(here, KeyKind.SESSION)
    (operator,) = [one for one in await keys(here, KeyKind.KEY) if one.name == "a operator"]
    assert session.parent == operator.id


async def test_a_login_link_ends_after_minutes(here):
    key = await here.client.create_login(role="viewer")

    assert key.expires_at is not None
    assert key.expires_at - key.created_at == timedelta(seconds=LOGIN_SECONDS)


async def test_a_login_link_has_no_more_rights_than_its_maker(here, browser):
    path = "/api/v1/session/links"
    refused = await here.ask("POST", path, here.keys[Role.VIEWER], json={"role": "admin"})
    made = await here.ask("POST", path, here.keys[Role.ADMIN], json={"role": "viewer"})

    assert refused.json()["code"] == "access-denied"
    assert (await browser.log_in(made.json()["token"])).json()["role"] == "viewer"


async def test_a_superadmins_link_for_another_tenant_is_of_their_own(here, browser):
    made = await here.ask("POST", "/api/v1/session/links?tenant=other", here.keys[Role.SUPERADMIN])

    assert (await browser.log_in(made.json()["token"])).json()["tenant"] == "default"


async def test_all_sessions_of_a_key_share_its_part_of_the_server(here):
    async with browsing(here) as one, browsing(here) as other:
        for each in (one, other):
            await each.log_in(here.keys[Role.VIEWER])
    (viewer,) = [one for one in await keys(here, KeyKind.KEY) if one.name == "a viewer"]
    sessions = await keys(here, KeyKind.SESSION)

    holders = {here.keeper._cached(one, until=0).holder.key for one in sessions}

    assert len(sessions) == 2 and holders == {str(viewer.id)}


async def test_without_keys_the_page_hears_that_it_may_do_everything():
    async with world(open_tenant="default") as here, browsing(here) as browser:
        said = (await browser.get("/api/v1/session")).json()

        assert (said["role"], said["name"], said["csrf_token"]) == ("superadmin", None, None)
        assert said["actions"] == [str(one) for one in Action]
        assert (await browser.change()).status_code == 200


async def test_a_server_that_is_read_only_refuses_changes_and_lets_browsers_in(here):
    options = ApiOptions(read_only=True)
    keeper = Authenticator(here.client, options, monotonic=here.clock.monotonic)
    app = create_api(here.client, options=options, gatekeeper=keeper)
    async with browsing(here, Guard(app, admit=keeper.admit, told=keeper.hear)) as browser:
        said = (await browser.log_in(here.keys[Role.SUPERADMIN])).json()
        assert (said["read_only"], said["actions"]) == (True, ["read"])

        refused = []
        for route in app.router.routes:
            is_change = route.method in ("POST", "PUT", "PATCH", "DELETE")
            if is_change and not route.changes_nothing:
                path = route.path.replace("{", "").replace("}", "")
                headers = {**ORIGIN, "x-csrf-token": browser.csrf_token}
                answer = await browser.request(route.method, path, json={}, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "read-only"), route.id
                refused.append(route.id)
        assert len(refused) > 30
        assert (await browser.get("/api/v1/jobs")).status_code == 200
