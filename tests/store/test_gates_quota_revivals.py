"""Quotas and dead letters that should run again."""

import asyncio

from daybell.core.execution import Revival, State
from daybell.core.ids import mint
from tests.builders import TENANT, dead, enqueued, limit


async def test_dead_letters_come_back_as_far_as_there_is_room(store):
    (held,) = await dead(store, unique_key="k")
    letters = await dead(store, 3)
    await enqueued(store, unique_key="k")
    await limit(store, queued=2)

    answers = await store.revive(TENANT, [held, *letters, mint()])

    no_room = [Revival.OVER_QUOTA] * 2
    assert answers == [Revival.KEY_HELD, Revival.REVIVED, *no_room, Revival.UNKNOWN]
    assert await store.revive(TENANT, letters[1:]) == no_room
    found = [(await store.get_execution(TENANT, id)).execution for id in letters]
    assert [one.state for one in found] == [State.QUEUED, State.DEAD, State.DEAD]
    await limit(store, queued=4)
    assert await store.revive(TENANT, letters[1:]) == [Revival.REVIVED] * 2


async def test_a_quota_that_was_lowered_keeps_dead_letters_back(store):
    letters = await dead(store, 1)
    await enqueued(store, 2)
    await limit(store, queued=1)

    assert await store.revive(TENANT, letters) == [Revival.OVER_QUOTA]


async def test_to_run_again_is_not_to_be_enqueued(store):
    letters = await dead(store, 2)
    await limit(store, per_minute=0)

    assert await store.revive(TENANT, letters) == [Revival.REVIVED] * 2


async def test_no_more_dead_letters_come_back_than_fit_however_many_ask(shared, shared_store):
    letters = await dead(shared_store, 12)
    await limit(shared_store, queued=5)
    others = [shared.connect() for _ in range(3)]
    for other in others:
        await other.open()
    try:
        asked = [other.revive(TENANT, [id]) for other, id in zip(others * 4, letters, strict=True)]
        answers = [answer for (answer,) in await asyncio.gather(*asked)]
    finally:
        for other in others:
            await other.close()

    assert answers.count(Revival.REVIVED) == 5
    assert answers.count(Revival.OVER_QUOTA) == 7
