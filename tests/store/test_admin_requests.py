"""Requests that may come twice."""

import asyncio

import pytest

from daybell.core.views import Retention
from daybell.errors import UsageError
from tests.builders import TENANT, a_request, add_tenants
from tests.sweeps import retain

OTHER = "acme"
DAY = 86400.0


async def test_a_request_is_new_once(store):
    first, second = a_request(digest=b"a"), a_request(digest=b"b")

    new = await store.admin.begin_request(TENANT, first)
    known = await store.admin.begin_request(TENANT, second)

    assert new.is_new and (new.id, new.digest, new.status) == (first.id, b"a", None)
    assert not known.is_new and (known.id, known.digest, known.answer) == (first.id, b"a", None)


async def test_its_first_answer_is_kept(store):
    await store.admin.begin_request(TENANT, a_request())
    await store.admin.answer_request(TENANT, "k", status=201, answer='{"id": 1}')
    await store.admin.answer_request(TENANT, "k", status=500, answer="late")

    known = await store.admin.begin_request(TENANT, a_request())

    assert (known.is_new, known.status, known.answer) == (False, 201, '{"id": 1}')


async def test_an_answer_to_a_request_that_nobody_knows_is_dropped(store):
    await store.admin.answer_request(TENANT, "k", status=200, answer="{}")

    assert (await store.admin.begin_request(TENANT, a_request())).is_new


async def test_each_tenant_has_keys_of_its_own_and_each_key_its_request(store):
    await add_tenants(store, [OTHER])
    await store.admin.begin_request(TENANT, a_request())

    assert (await store.admin.begin_request(OTHER, a_request())).is_new
    assert (await store.admin.begin_request(TENANT, a_request("K"))).is_new


async def test_one_of_many_that_send_a_request_at_once_is_first(crowd):
    asked = [store.admin.begin_request(TENANT, a_request()) for store in crowd for _ in range(3)]
    answers = await asyncio.gather(*asked)

    assert [answer.is_new for answer in answers].count(True) == 1
    assert len({answer.id for answer in answers}) == 1


async def test_a_request_is_remembered_for_a_day(store, clock):
    old = await store.admin.begin_request(TENANT, a_request(digest=b"old"))
    await store.admin.answer_request(TENANT, "k", status=200, answer="{}")
    await clock.advance(DAY - 1)
    assert not (await store.admin.begin_request(TENANT, a_request())).is_new
    await clock.advance(1)

    again = await store.admin.begin_request(TENANT, a_request(digest=b"new"))

    assert again.is_new and again.id != old.id
    assert (again.digest, again.status, again.answer) == (b"new", None, None)
    assert not (await store.admin.begin_request(TENANT, a_request())).is_new


async def test_old_requests_are_removed(store, clock):
    for key in ("a", "b"):
        await store.admin.begin_request(TENANT, a_request(key))
    await clock.advance(DAY)
    await store.admin.begin_request(TENANT, a_request("c"))
    await clock.advance(1)

    assert (await retain(store, Retention())).others == 2
    assert not (await store.admin.begin_request(TENANT, a_request("c"))).is_new


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "ü", "\0", "\ud800"])
async def test_a_key_that_cannot_be_sent_in_a_header_is_refused(store, key):
    with pytest.raises(UsageError, match="1 to 255 printable"):
        await store.admin.begin_request(TENANT, a_request(key))
