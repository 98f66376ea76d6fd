"""Enqueueing when answers are lost: it happens exactly once."""

from typing import Any

import pytest

from daybell.client import Client
from daybell.client.executions import read_execution, sweep_pages
from daybell.core.execution import State
from daybell.core.limits import ENQUEUE_BATCH_MAX
from daybell.core.views import ExecutionFilter
from daybell.errors import Unavailable
from tests.builders import an_entry, apply, claim, look, success
from tests.ports import WrappedStore, operation_of


class Faulty(WrappedStore):
    """A store whose next call of one operation fails, before or after it has been done."""

    def __init__(self, store, operation, *, after, times=1):
        super().__init__(store)
        self._operation = operation
        self._is_after, self._times = after, times
        self.calls = []

    def wrap(self, name, operation):
        return self._fail if name == self._operation else operation

    async def _fail(self, *args, **options):
        self.calls.append(options)
        if len(self.calls) > self._times:
            return await operation_of(self.store, self._operation)(*args, **options)
        if self._is_after:
            await operation_of(self.store, self._operation)(*args, **options)
        raise Unavailable("the connection broke")


def over(store: Any) -> Client:
    """A client of something that only behaves like a store."""
    return Client(store)


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_an_enqueue_whose_answer_was_lost_happens_exactly_once(client, store, after):
    faulty = Faulty(store, "enqueue", after=after)

    answer = await over(faulty).enqueue("resize", unique_key="photo-1")

    assert answer.created
    assert [call.get("repeat", False) for call in faulty.calls] == [False, True]
    assert [one.execution_id for one in (await client.executions()).items] == [answer.id]


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_what_tells_of_it_is_on_record_exactly_once_as_well(client, store, after):
    faulty, new, entry = Faulty(store, "enqueue", after=after), read_execution("resize"), an_entry()

    await over(faulty).submit(new, entry=entry)

    assert [one.execution_id for one in (await client.executions()).items] == [new.id]
    assert [one.entry_id for one in (await client.audit()).items] == [entry.id]


async def test_an_enqueue_that_ran_and_finished_meanwhile_is_not_made_again(client, store):
    class Quick(Faulty):
        async def _fail(self, *args, **options):
            try:
                return await super()._fail(*args, **options)
            except Unavailable:
                hands = await claim(store)
                await apply(store, hands, *(success(one) for one in hands.executions))
                raise

    answer = await over(Quick(store, "enqueue", after=True)).enqueue("resize")

    assert (await client.count()).executions == {State.SUCCEEDED: 1}
    assert (await look(store, answer.id)).state is State.SUCCEEDED


async def test_a_store_that_stays_away_is_not_asked_for_ever(store, client):
    faulty = Faulty(store, "enqueue", after=False, times=99)

    with pytest.raises(Unavailable):
        await over(faulty).enqueue("resize")
    assert len(faulty.calls) == 2


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_a_stream_whose_answer_was_lost_is_looked_for(client, store, after):
    faulty = over(Faulty(store, "load", after=after))
    count = ENQUEUE_BATCH_MAX + 1
    items = [{"n": n} for n in range(count)]

    if after:
        assert (await faulty.enqueue_many("resize", items)).count == count
    else:
        with pytest.raises(Unavailable):
            await faulty.enqueue_many("resize", items)

    pages = [page async for page in sweep_pages(store, client.tenant, [ExecutionFilter()])]
    assert sum(map(len, pages)) == (count if after else 0)
