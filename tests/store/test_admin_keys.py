"""API keys: who may do what."""

import asyncio

import msgspec
import pytest

from daybell.core.access import (
    LOGIN_SECONDS,
    SESSION_SECONDS,
    SESSIONS_MAX,
    Action,
    KeyKind,
    Role,
    Scope,
    read_scope,
    write_scope,
)
from daybell.core.ids import mint
from daybell.core.views import Retention
from daybell.errors import DuplicateKey, NotFound, UsageError
from tests.builders import TENANT, a_key, a_session, add_tenants
from tests.sweeps import retain

OTHER = "acme"
DAY = 86400.0


async def test_a_key_is_found_by_its_digest_with_the_time_of_the_store(store, clock):
    made = await store.admin.add_key(
        TENANT, a_key(digest=b"x" * 32, role=Role.ADMIN, created_by="ana")
    )

    assert await store.admin.find_key(b"x" * 32) == (made, clock.now())
    assert (made.tenant, made.role, made.created_by) == (TENANT, Role.ADMIN, "ana")
    assert (made.created_at, made.expires_at, made.used_at) == (clock.now(), None, None)


async def test_what_is_no_key_is_not_found(store):
    await store.admin.add_key(TENANT, a_key(digest=b"x" * 32))

    assert await store.admin.find_key(b"y" * 32) is None
    assert await store.admin.find_key(b"") is None


async def test_a_key_that_is_added_again_is_answered_as_it_is(store, clock):
    new = a_key(name="deploy")
    made = await store.admin.add_key(TENANT, new)
    await clock.advance(5)

    assert await store.admin.add_key(TENANT, new) == made
    assert await store.admin.list_keys(TENANT) == [made]


async def test_two_keys_cannot_have_one_token(store):
    await store.admin.add_key(TENANT, a_key(digest=b"x" * 32))

    with pytest.raises(DuplicateKey):
        await store.admin.add_key(TENANT, a_key(digest=b"x" * 32))


async def test_a_key_opens_nothing_once_its_time_is_over(store, clock):
    made = await store.admin.add_key(TENANT, a_key(digest=b"x" * 32, expires_in=60.0))

    assert made.expires_at == clock.now() + 60
    await clock.advance(59)
    assert made.is_valid((await store.admin.find_key(b"x" * 32))[1])
    await clock.advance(1)
    assert not made.is_valid((await store.admin.find_key(b"x" * 32))[1])


async def test_a_revoked_key_stays_revoked_since_then(store, clock):
    made = await store.admin.add_key(TENANT, a_key(digest=b"x" * 32))

    revoked = await store.admin.revoke_key(TENANT, made.id)
    await clock.advance(5)

    assert revoked.revoked_at == clock.now() - 5
    assert await store.admin.revoke_key(TENANT, made.id) == revoked
    assert (await store.admin.find_key(b"x" * 32))[0] == revoked
    assert not revoked.is_valid(clock.now())


async def test_an_unknown_key_cannot_be_revoked_and_neither_can_another_tenants(store):
    await add_tenants(store, [OTHER])
    theirs = await store.admin.add_key(OTHER, a_key())

    for id in (mint(), theirs.id):
        with pytest.raises(NotFound, match=f"no key {id}"):
            await store.admin.revoke_key(TENANT, id)
    assert await store.admin.list_keys(OTHER) == [theirs]


async def test_an_id_of_another_tenants_key_is_as_good_as_any(store):
    await add_tenants(store, [OTHER])
    theirs = await store.admin.add_key(OTHER, a_key(name="theirs"))

    mine = await store.admin.add_key(TENANT, a_key(id=theirs.id, name="mine"))

    assert await store.admin.list_keys(TENANT) == [mine]
    assert await store.admin.list_keys(OTHER) == [theirs]


async def test_keys_are_listed_newest_first_whatever_has_become_of_them(store, clock):
    first = await store.admin.add_key(TENANT, a_key(expires_in=1.0))
    second = await store.admin.add_key(TENANT, a_key())
    revoked = await store.admin.revoke_key(TENANT, (await store.admin.add_key(TENANT, a_key())).id)
    await clock.advance(10)

    assert await store.admin.list_keys(TENANT) == [revoked, second, first]


async def test_there_are_keys_while_any_of_any_tenant_is_valid(store, clock):
    assert not await store.admin.has_keys()
    await add_tenants(store, [OTHER])
    await store.admin.add_key(OTHER, a_key(expires_in=60.0))
    assert await store.admin.has_keys()
    await clock.advance(60)
    assert not await store.admin.has_keys()
    made = await store.admin.add_key(TENANT, a_key())
    assert await store.admin.has_keys()
    await store.admin.revoke_key(TENANT, made.id)
    assert not await store.admin.has_keys()


async def test_the_last_use_of_keys_is_noted_and_never_goes_back(store, clock):
    one, other, idle = [await store.admin.add_key(TENANT, a_key()) for _ in range(3)]

    await store.admin.touch_keys({one.id: 30.0, other.id: 0.0, mint(): 0.0})
    await store.admin.touch_keys({other.id: 20.0})
    await store.admin.touch_keys({})

    used = {key.id: key.used_at for key in await store.admin.list_keys(TENANT)}
    assert used == {one.id: clock.now() - 30, other.id: clock.now(), idle.id: None}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "key"),
        ({"name": "a\nb"}, "key"),
        ({"expires_in": 0.0}, "expires"),
        ({"expires_in": -1.0}, "expires"),
        ({"expires_in": float("nan")}, "expires"),
        ({"expires_in": 1e12}, "expires"),
        ({"created_by": "\0"}, "created_by"),
        ({"created_by": "x" * 1001}, "created_by"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(store, wrong, field):
    with pytest.raises(UsageError) as caught:
        await store.admin.add_key(TENANT, a_key(**wrong))

    assert caught.value.field == field
    assert await store.admin.list_keys(TENANT) == []


async def test_keys_that_have_opened_nothing_for_90_days_are_forgotten(store, clock):
    revoked = await store.admin.add_key(TENANT, a_key())
    await store.admin.revoke_key(TENANT, revoked.id)
    await store.admin.add_key(TENANT, a_key(expires_in=10.0))
    kept = await store.admin.add_key(TENANT, a_key())
    later = await store.admin.add_key(TENANT, a_key(expires_in=200 * DAY))

    await clock.advance(90 * DAY)
    await retain(store, Retention())
    assert len(await store.admin.list_keys(TENANT)) == 4
    await clock.advance(11)
    removed = await retain(store, Retention())

    assert removed.others == 2
    assert await store.admin.list_keys(TENANT) == [later, kept]


async def test_a_scope_is_kept(store):
    scope = Scope(jobs=("billing-*", "report"), queues=("mail",), actions=(Action.READ,))
    made = await store.admin.add_key(
        TENANT, a_key(digest=b"x" * 32, role=Role.OPERATOR, scope=scope)
    )

    assert (made.role, made.scope) == (Role.OPERATOR, scope)
    assert (await store.admin.find_key(b"x" * 32))[0] == made
    assert await store.admin.list_keys(TENANT) == [made]


@pytest.mark.parametrize(
    ("role", "scope"),
    [
        (Role.WORKER, Scope(jobs=("mail",))),
        (Role.WORKER, Scope(queues=("mail",), actions=(Action.READ,))),
        (Role.SUPERADMIN, Scope(actions=(Action.READ,))),
        (Role.VIEWER, Scope(actions=(Action.TRIGGER,))),
        (Role.OPERATOR, Scope(actions=(Action.DEFINE,))),
        (Role.ADMIN, Scope()),
        (Role.ADMIN, Scope(jobs=("a*b",))),
        (Role.ADMIN, Scope(jobs=("*",))),
        (Role.ADMIN, Scope(jobs=("",))),
        (Role.ADMIN, Scope(queues=("a/b",))),
        (Role.ADMIN, Scope(jobs=("a",) * 51)),
    ],
)
async def test_a_scope_that_a_key_cannot_have_is_refused(store, role, scope):
    with pytest.raises(UsageError):
        await store.admin.add_key(TENANT, a_key(role=role, scope=scope))

    assert await store.admin.list_keys(TENANT) == []


def test_a_scope_that_cannot_be_read_is_refused():
    text = write_scope(Scope(jobs=("a",)))

    assert text is not None and read_scope(text) == Scope(jobs=("a",))
    with pytest.raises(msgspec.ValidationError):
        read_scope(text.replace("jobs", "more"))


KEY, LINK = b"k" * 32, b"l" * 32


def a_link(**options):
    """A login link."""
    options.setdefault("digest", LINK)
    options.setdefault("expires_in", LOGIN_SECONDS)
    return a_key(kind=KeyKind.LOGIN, **options)


async def test_a_session_has_what_its_key_has_and_a_time_of_its_own(store, clock):
    scope = Scope(jobs=("billing-*",))
    key = await store.admin.add_key(
        TENANT, a_key(digest=KEY, role=Role.OPERATOR, scope=scope, created_by="ana")
    )

    session = await store.admin.add_session(TENANT, KEY, a_session(digest=b"s" * 32))

    assert (session.kind, session.parent) == (KeyKind.SESSION, key.id)
    for name in ("tenant", "name", "role", "scope", "created_by"):
        assert getattr(session, name) == getattr(key, name)
    assert session.expires_at == clock.now() + SESSION_SECONDS
    assert await store.admin.find_key(b"s" * 32) == (session, clock.now())
    assert await store.admin.list_keys(TENANT) == [session, key]


async def test_a_session_ends_with_its_key(store, clock):
    key = await store.admin.add_key(TENANT, a_key(digest=KEY, expires_in=60.0))
    session = a_session()
    made = await store.admin.add_session(TENANT, KEY, session)
    assert made.expires_at == key.expires_at

    await clock.advance(5)
    await store.admin.revoke_key(TENANT, key.id)

    found, now = await store.admin.find_key(session.digest)
    assert found.revoked_at == clock.now()
    assert not found.is_valid(now)


async def test_a_session_can_be_revoked_without_its_key(store):
    await store.admin.add_key(TENANT, a_key(digest=KEY))
    made = await store.admin.add_session(TENANT, KEY, a_session())

    await store.admin.revoke_key(TENANT, made.id)

    assert (await store.admin.find_key(KEY))[0].revoked_at is None


async def test_a_login_link_opens_one_session(store):
    key = await store.admin.add_key(TENANT, a_key())
    await store.admin.add_key(TENANT, a_link(parent=key.id))

    session = await store.admin.add_session(TENANT, LINK, a_session())

    assert session.parent == key.id
    with pytest.raises(NotFound):
        await store.admin.add_session(TENANT, LINK, a_session())
    assert await store.admin.find_key(LINK) is None


async def test_of_two_that_use_one_link_at_the_same_time_one_gets_a_session(crowd):
    await crowd[0].admin.add_key(TENANT, a_link())

    tries = (one.admin.add_session(TENANT, LINK, a_session()) for one in crowd)
    answers = await asyncio.gather(*tries, return_exceptions=True)

    assert sum(not isinstance(one, NotFound) for one in answers) == 1


async def test_what_is_no_valid_key_opens_no_session(store, clock):
    await add_tenants(store, [OTHER])
    worker = await store.admin.add_key(TENANT, a_key(digest=b"w" * 32, role=Role.WORKER))
    assert worker.kind is KeyKind.KEY
    revoked = await store.admin.add_key(TENANT, a_key(digest=b"r" * 32))
    await store.admin.revoke_key(TENANT, revoked.id)
    await store.admin.add_key(TENANT, a_key(digest=b"e" * 32, expires_in=1.0))
    await store.admin.add_key(TENANT, a_link())
    await store.admin.add_key(OTHER, a_key(digest=b"o" * 32))
    await store.admin.add_key(TENANT, a_key(digest=KEY))
    await store.admin.add_session(TENANT, KEY, a_session(digest=b"s" * 32))
    await clock.advance(LOGIN_SECONDS)

    for one in (b"w", b"r", b"e", b"l", b"o", b"s", b"x"):
        with pytest.raises(NotFound):
            await store.admin.add_session(TENANT, one * 32, a_session())


async def test_sessions_and_links_are_no_keys_to_let_anybody_in_by(store, clock):
    await store.admin.add_key(TENANT, a_link())
    assert not await store.admin.has_keys()
    await store.admin.add_session(TENANT, LINK, a_session())
    assert not await store.admin.has_keys()


async def test_sessions_that_have_ended_are_forgotten_at_the_next_login(store, clock):
    key = await store.admin.add_key(TENANT, a_key(digest=KEY))
    old = await store.admin.add_session(TENANT, KEY, a_session())
    await clock.advance(SESSION_SECONDS)
    left = await store.admin.add_session(TENANT, KEY, a_session())
    await store.admin.revoke_key(TENANT, left.id)
    assert old not in await store.admin.list_keys(TENANT)

    new = await store.admin.add_session(TENANT, KEY, a_session())

    assert await store.admin.list_keys(TENANT) == [new, key]


async def test_a_key_has_a_bounded_number_of_sessions(store):
    await store.admin.add_key(TENANT, a_key(digest=KEY))
    made = [
        await store.admin.add_session(TENANT, KEY, a_session()) for _ in range(SESSIONS_MAX + 2)
    ]

    assert await store.admin.list_keys(TENANT) == [
        *reversed(made[2:]),
        (await store.admin.find_key(KEY))[0],
    ]
