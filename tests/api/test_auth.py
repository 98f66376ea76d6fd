"""Authentication: keys that are right, wrong, old or revoked, and the throttle of wrong ones."""

import asyncio

import httpx
import pytest
from starlette.responses import Response

from daybell.api import create_api
from daybell.api.app import Application
from daybell.api.auth import (
    FRESH_SECONDS,
    NOTE_SECONDS,
    QUIET_SECONDS,
    WRONG_KEYS_MAX,
    Authenticator,
    Throttle,
    client_network,
)
from daybell.api.caller import ApiOptions, Caller, answer_json
from daybell.api.guard import Guard
from daybell.api.router import Routes
from daybell.client import Client
from daybell.core.access import Action, Role
from daybell.engine.loop import ManualClock
from daybell.errors import Unavailable
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite.ports import SqliteAdmin

WRONG = "dbk_" + "x" * 43


class Counting(SqliteAdmin):
    """A port that counts how often it is asked for a key."""

    lookups = 0
    is_away = False
    is_mute = False  # it can be read
    mute_tenant = ""

    async def write_audit(self, tenant, entries):
        if self.is_mute or tenant == self.mute_tenant:
            raise Unavailable("it was full")
        return await super().write_audit(tenant, entries)

    async def touch_keys(self, used):
        if self.is_mute:
            raise Unavailable("it was full")
        return await super().touch_keys(used)

    async def find_key(self, digest):
        self.lookups += 1
        if self.is_away:
            raise Unavailable("connection to db.internal refused")
        await asyncio.sleep(0)
        return await super().find_key(digest)


class Place:
    """An API of one route, with a guard and a gatekeeper, and a clock to move by hand."""

    def __init__(self, store: SqliteStore, clock: ManualClock, options: ApiOptions) -> None:
        store.admin = self.keys = Counting(store.db, store.wakeups)
        self.clock = clock
        self.client = Client(store)
        self.keeper = Authenticator(self.client, options, monotonic=clock.monotonic)
        whole = create_api(self.client, options=options, gatekeeper=self.keeper)
        routes = Routes("")

        @routes.get("/me", id="me", role=Role.VIEWER, action=Action.READ)
        async def me(caller: Caller) -> Response:
            return answer_json([caller.tenant, caller.role, caller.actor, caller.source])

        assert me
        self.app = Application([*routes, *whole.router.routes])
        self.app.state.api = whole.state.api
        self.app.state.gatekeeper = self.keeper
        self.guard = Guard(self.app, admit=self.keeper.admit, told=self.keeper.hear)

    async def get(self, token=None, *, path="/api/v1/me", address="10.0.0.1", headers=None):
        transport = httpx.ASGITransport(
            self.guard, raise_app_exceptions=False, client=(address, 999)
        )
        sent = headers or ([] if token is None else [("authorization", f"Bearer {token}")])
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get(path, headers=sent)


@pytest.fixture
async def place():
    async for one in opened(ApiOptions()):
        yield one


@pytest.fixture
async def open_place():
    async for one in opened(ApiOptions(open_tenant="default")):
        yield one


async def opened(options):
    clock = ManualClock()
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()
    yield Place(store, clock, options)
    await store.close()


async def test_a_key_decides_tenant_and_role(place):
    await place.client.add_tenant("acme")
    key = await place.client.for_tenant("acme").create_key("deploy", role="operator")
    token = key.token

    answer = await place.get(token)

    assert answer.json() == [
        "acme",
        "operator",
        f"key deploy ({key.hint}, {key.key_id})",
        "10.0.0.1",
    ]
    assert token not in key.hint + answer.text


async def test_a_key_that_sends_too_many_requests_waits_and_other_keys_do_not():
    async for place in opened(ApiOptions(key_rate=0.5)):
        token = (await place.client.create_key("busy", role="viewer")).token
        other = (await place.client.create_key("calm", role="viewer")).token

        answers = [await place.get(token) for _ in range(7)]

        assert [one.status_code for one in answers] == [200] * 5 + [429] * 2
        assert answers[-1].headers["retry-after"] == "2"
        assert answers[-1].json()["type"] == "urn:daybell:problem:too-many-requests"
        assert (await place.get(other)).status_code == 200
        place.clock.advance(2)
        assert (await place.get(token)).status_code == 200


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
async def test_the_word_before_a_key_may_be_written_in_any_case(scheme, place):
    token = (await place.client.create_key("me", role="viewer")).token

    answer = await place.get(headers=[("authorization", f"{scheme} {token}")])

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", f"Bearer {WRONG}")],
        [("authorization", f"Basic {WRONG}")],
        [("authorization", "Bearer dbk_")],
        [("authorization", "Bearer {token},")],
        [("authorization", "Bearer {token} {token}")],
        [("authorization", "{token}")],
        [("authorization", "Bearer {token}x")],
        [("authorization", "Bearer " + "dbk_" + "x" * 5000)],
        [("authorization", "Bearer dbk_' OR 1=1 --aaaaaaaaaaaaaaaaa")],
        [("authorization", "Bearer {token}"), ("authorization", "Bearer {token}")],
        [("authorization", "Bearer {token}"), ("authorization", f"Bearer {WRONG}")],
        [("x-api-key", "{token}")],
        [("cookie", "session={token}")],
    ],
)
async def test_nothing_else_opens_anything(headers, place):
    token = (await place.client.create_key("me", role="admin")).token
    sent = [(name, value.replace("{token}", token)) for name, value in headers]

    for path in ("/api/v1/me", "/docs", "/openapi.json", "/metrics", "/", "/nothing"):
        answer = await place.get(headers=sent, path=path)

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["type"] == "urn:daybell:problem:key-needed"
        assert token not in answer.text
    assert (await place.get(headers=sent, path="/healthz")).status_code == 200


@pytest.mark.parametrize("sent", ["hello", f"Basic {WRONG}", WRONG])
async def test_what_is_no_key_is_told_how_to_send_one(sent, place):
    answer = await place.get(headers=[("authorization", sent)])

    assert "send it as Authorization: Bearer dbk_…" in answer.json()["detail"]


async def test_a_request_without_a_key_costs_the_store_nothing(place):
    for _ in range(100):
        assert (await place.get()).status_code == 401

    assert place.keys.lookups == 0


async def test_a_key_in_use_is_looked_up_once_in_a_while(place):
    token = (await place.client.create_key("me", role="viewer")).token

    answers = await asyncio.gather(*(place.get(token) for _ in range(20)))
    assert {one.status_code for one in answers} == {200}
    assert place.keys.lookups == 1

    place.clock.advance(FRESH_SECONDS)
    await place.get(token)
    assert place.keys.lookups == 2


async def test_a_revoked_key_opens_nothing_within_seconds(place):
    key = await place.client.create_key("me", role="viewer")
    token = key.token
    assert (await place.get(token)).status_code == 200

    await place.client.revoke_key(key.key_id)
    place.clock.advance(FRESH_SECONDS)

    assert (await place.get(token)).status_code == 401
    assert FRESH_SECONDS < 5


async def test_an_expired_key_opens_nothing_from_that_moment_on(place):
    token = (await place.client.create_key("me", role="viewer", expires="10s")).token
    place.clock.advance(9)
    assert (await place.get(token)).status_code == 200

    place.clock.advance(1)

    assert (await place.get(token)).status_code == 401


async def test_many_wrong_keys_are_told_to_wait_and_nobody_else_is(place):
    used = (await place.client.create_key("in use", role="viewer")).token
    fresh = (await place.client.create_key("not seen before", role="viewer")).token
    assert (await place.get(used)).status_code == 200

    statuses = [
        (await place.get(f"dbk_{number:043}")).status_code for number in range(WRONG_KEYS_MAX + 30)
    ]

    assert statuses == [401] * WRONG_KEYS_MAX + [429] * 30
    refused = await place.get(WRONG)
    assert int(refused.headers["retry-after"]) >= 1
    # The same address with a right key, and others with wrong ones.
    assert (await place.get(used)).status_code == 200
    assert (await place.get(fresh)).status_code == 200
    assert (await place.get(WRONG, address="10.0.0.2")).status_code == 401
    place.clock.advance(60)
    assert (await place.get(WRONG)).status_code == 401


async def test_a_flood_of_wrong_keys_is_bounded(place, monkeypatch):
    monkeypatch.setattr("daybell.api.auth.LANE_WAITS_MAX", 10)
    for _ in range(WRONG_KEYS_MAX):
        await place.get(WRONG)
    before = place.keys.lookups

    flood = await asyncio.gather(*(place.get(f"dbk_{number:043}") for number in range(200)))

    assert {one.status_code for one in flood} == {429}
    assert place.keys.lookups - before < 100


async def test_a_store_that_is_away_is_not_a_wrong_key(place):
    token = (await place.client.create_key("me", role="viewer")).token
    place.keys.is_away = True

    for _ in range(WRONG_KEYS_MAX + 5):
        answer = await place.get(token)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert "db.internal" not in answer.text

    place.keys.is_away = False
    assert (await place.get(token)).status_code == 200


async def test_nobody_needs_a_key_on_this_machine_but_a_key_must_be_right(open_place):
    token = (await open_place.client.create_key("me", role="viewer")).token

    assert (await open_place.get()).json()[:3] == ["default", "superadmin", "dev"]
    assert (await open_place.get(token)).json()[1] == "viewer"
    assert (await open_place.get(WRONG)).status_code == 401


async def test_the_last_use_of_keys_is_noted_now_and_then(place):
    token = (await place.client.create_key("me", role="viewer")).token
    await place.get(token)

    await place.keeper.tick()
    assert (await place.client.keys())[0].used_at is None

    place.clock.advance(NOTE_SECONDS)
    await place.keeper.tick()
    assert (await place.client.keys())[0].used_at is not None


async def test_what_is_refused_to_a_key_is_on_record_once_a_minute(place):
    heard = []
    place.keeper.on_denial = lambda: heard.append(1)
    key = await place.client.create_key("robot", role=Role.WORKER)
    token = key.token

    async def refused(times):
        for _ in range(times):
            assert (await place.get(token)).status_code == 403
        await place.keeper.tick()
        return (await place.client.audit(action="access.deny")).items

    (first,) = await refused(1)
    assert heard == [1]
    assert (first.actor, first.target, first.source) == (
        f"key robot ({token[:8]}, {key.key_id})", "GET /api/v1/me", "10.0.0.1",
    )  # fmt: skip
    assert len(await refused(50)) == 1
    place.clock.advance(QUIET_SECONDS)
    latest, _ = await refused(0)
    assert latest.after["times"] == 50
    place.clock.advance(QUIET_SECONDS)
    assert len(await refused(0)) == 2


async def test_what_could_not_be_told_is_told_later(place):
    keys = [await place.client.create_key("me", role=Role.WORKER)]
    await place.client.add_tenant("other")
    other = place.client.for_tenant("other")
    keys.append(await other.create_key("you", role=Role.WORKER))
    for key in keys:
        assert (await place.get(key.token)).status_code == 403
    place.clock.advance(NOTE_SECONDS)

    async def told():
        entries = [(await one.audit(action="access.deny")).items for one in (place.client, other)]
        return [[entry.after for entry in some] for some in entries]

    place.keys.is_mute = True
    with pytest.raises(Unavailable):
        await place.keeper.tick()
    with pytest.raises(Unavailable):
        await place.keeper.note_use()
    assert (await place.get(keys[1].token)).status_code == 403
    assert await told() == [[], []]
    place.keys.is_mute = False
    await place.keeper.tick()
    await place.keeper.note_use()

    (mine,), (yours,) = await told()
    assert (mine["times"], yours["times"]) == (1, 2)
    assert [one.used_at is None for one in await place.client.keys()] == [False]
    await place.keeper.tick()
    assert [len(some) for some in await told()] == [1, 1]


async def test_what_was_told_is_not_told_again_when_others_could_not_be(place):
    tokens = [(await place.client.create_key("me", role=Role.WORKER)).token]
    await place.client.add_tenant("other")
    tokens.append((await place.client.for_tenant("other").create_key("me", role=Role.WORKER)).token)
    for token in tokens:
        await place.get(token)
    place.keys.mute_tenant = "other"
    with pytest.raises(Unavailable):
        await place.keeper.tick()
    place.keys.mute_tenant = ""
    await place.keeper.tick()

    for tenant in ("default", "other"):
        found = await place.client.for_tenant(tenant).audit(action="access.deny")
        assert len(found.items) == 1


async def test_who_is_told_to_go_is_not_on_record_without_a_key(place):
    await place.get(headers=[("origin", "http://evil.example")])
    await place.keeper.tick()

    assert (await place.client.audit()).items == ()


# How often an address may be wrong.


def test_a_bucket_empties_and_fills_again():
    throttle = Throttle(size=3, refill=0.5)

    waits = [throttle.take("10.0.0.1", 100.0) for _ in range(5)]

    assert waits == [0, 0, 0, 2.0, 2.0]
    assert throttle.is_empty("10.0.0.1", 101.0)
    assert not throttle.is_empty("10.0.0.1", 102.0)
    assert throttle.take("10.0.0.1", 102.0) == 0
    assert throttle.take("10.0.0.1", 102.0) == 2.0


def test_it_does_not_fill_over_its_size():
    throttle = Throttle(size=2, refill=1)
    throttle.take("10.0.0.1", 0.0)

    waits = [throttle.take("10.0.0.1", 1000.0) for _ in range(3)]

    assert waits == [0, 0, 1.0]


def test_each_address_has_its_own():
    throttle = Throttle(size=1)
    throttle.take("10.0.0.1", 0.0)

    assert throttle.take("10.0.0.1", 0.0) > 0
    assert throttle.take("10.0.0.2", 0.0) == 0


def test_a_network_of_ipv6_is_one_address():
    throttle = Throttle(size=1)
    throttle.take("2001:db8::1", 0.0)

    assert throttle.take("2001:db8::ffff", 0.0) > 0
    assert throttle.take("2001:db8:0:1::1", 0.0) == 0
    assert client_network("a socket's path") == "a socket's path"


def test_no_number_of_addresses_takes_more_memory():
    throttle = Throttle(addresses_max=10)

    for number in range(1000):
        throttle.take(f"10.0.{number // 256}.{number % 256}", 0.0)

    assert len(throttle) == 10
