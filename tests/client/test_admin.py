"""The verbs for keys, tenants, the audit log and repeated requests."""

import hashlib

import pytest
from msgspec.structs import asdict

from daybell.client import Client
from daybell.core.access import Quotas, Role
from daybell.core.ids import mint
from daybell.core.units import to_datetime
from daybell.errors import DuplicateKey, NotFound, TenantNotFound, UsageError
from daybell.store.sqlite import SqliteStore
from tests.builders import a_request, an_entry
from tests.stores import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def client(clock):
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()
    return Client(store)


async def test_a_token_opens_what_its_key_says(client, clock):
    key = await client.create_key("deploy", role="operator", expires="30d", created_by="ana")
    token = key.token

    known, now = await client.authenticate(token)
    assert (known.id, now) == (key.key_id, clock.now())
    assert (key.tenant, key.role, key.created_by) == ("default", Role.OPERATOR, "ana")
    assert key.expires_at.timestamp() == clock.now() + 30 * 86400
    assert token.startswith("dbk_") and len(token) >= 40
    assert key.hint == token[:8]
    assert await client.authenticate(token[:-1]) is None
    assert await client.authenticate("\ud800") is None


async def test_of_a_token_only_its_digest_gets_into_the_store(client):
    token = (await client.create_key("deploy", role=Role.VIEWER)).token

    kept = client.store._memory.serialize()
    assert token[8:].encode() not in kept
    assert hashlib.sha256(token.encode()).digest() in kept


async def test_two_tokens_are_never_the_same(client):
    tokens = {(await client.create_key("k", role="viewer")).token for _ in range(50)}

    assert len(tokens) == 50


async def test_a_token_is_known_to_whichever_tenants_client(client):
    await client.add_tenant("acme")
    key = await client.for_tenant("acme").create_key("deploy", role="admin")
    token = key.token

    assert (await client.authenticate(token))[0].id == key.key_id
    assert key.tenant == "acme"
    assert await client.keys() == []
    assert [one.key_id for one in await client.for_tenant("acme").keys()] == [key.key_id]


async def test_a_key_can_be_revoked_and_its_use_noted(client, clock):
    assert not await client.has_keys()
    key = await client.create_key("deploy", role="viewer")
    token = key.token
    await client.note_use([key.key_id, str(key.key_id)])
    await client.note_use([])
    assert await client.has_keys()
    revoked = await client.revoke_key(str(key.key_id))

    assert revoked.used_at == revoked.revoked_at == to_datetime(clock.now())
    assert (await client.authenticate(token))[0].revoked_at == clock.now()
    assert not await client.has_keys()
    with pytest.raises(NotFound):
        await client.revoke_key(mint())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role": "boss"}, "'boss' is not a role; there are viewer, operator, admin"),
        ({"role": "viewer", "expires": "soon"}, "soon"),
        ({"role": "viewer", "expires": 0}, "expires"),
        ({"role": "viewer", "name": ""}, "key name is empty"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(client, options, message):
    name = options.pop("name", "deploy")
    with pytest.raises(UsageError, match=message):
        await client.create_key(name, **options)

    assert await client.keys() == []


async def test_a_tenant_is_created_once_and_changed_in_parts(client):
    made = await client.add_tenant("acme", jobs=5, running=2)

    assert asdict(made.quotas) == asdict(Quotas(jobs=5, running=2))
    with pytest.raises(DuplicateKey, match="'acme' already"):
        await client.add_tenant("acme", jobs=9)
    changed = await client.update_tenant("acme", jobs=None, queued=100)
    assert asdict(changed.quotas) == asdict(Quotas(queued=100, running=2))
    assert await client.update_tenant("acme") == changed
    assert await client.tenant_record("acme") == changed
    assert [one.name for one in await client.tenants()] == ["acme", "default"]


async def test_what_is_no_quota_is_refused_before_anything_is_made(client):
    for wrong in ({"jobz": 5}, {"jobs": -1}, {"jobs": True}, {"jobs": 1.5}, {"jobs": 10**12}):
        with pytest.raises(UsageError):
            await client.add_tenant("acme", **wrong)
    with pytest.raises(TenantNotFound):
        await client.update_tenant("acme", jobs=1)
    with pytest.raises(UsageError):
        await client.add_tenant("a/b")

    assert [one.name for one in await client.tenants()] == ["default"]


async def test_changes_are_on_record(client, clock):
    audited = client.audited(an_entry("queue.pause", actor="ana"))
    await audited.pause_queue("mail")
    await clock.advance(10)
    await client.record([an_entry("execution.create", actor="bob")])

    async def actions(**where):
        return [entry.action for entry in (await client.audit(**where)).items]

    assert await actions() == ["execution.create", "queue.pause"]
    assert await actions(actor="ana") == ["queue.pause"]
    assert await actions(action="queue", until=clock.now()) == ["queue.pause"]
    assert await actions(since=clock.now(), limit=1) == ["execution.create"]


async def test_a_request_is_answered_once(client):
    begun = await client.begin_request(a_request())
    await client.answer_request("k", status=201, answer="{}")
    again = await client.begin_request(a_request())

    assert begun.is_new and not again.is_new
    assert (again.id, again.status, again.answer) == (begun.id, 201, "{}")
    with pytest.raises(UsageError, match="idempotency key"):
        await client.begin_request(a_request(""))
