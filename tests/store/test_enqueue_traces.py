"""Contexts of traces: stored with the executions that have one, and as long as these."""

from msgspec.structs import replace

from daybell.core.views import Retention
from tests.builders import TENANT, add_tenants, an_execution, apply, claim, defined, success
from tests.sweeps import retain

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
DAY = 86_400


async def test_a_context_is_stored_with_its_execution_alone(store):
    await defined(store, "resize")
    await add_tenants(store, ["acme"])
    traced, plain = an_execution(trace=CONTEXT), an_execution()
    keyed = an_execution(trace=CONTEXT, unique_key="k")
    for new in (traced, plain, keyed):
        await store.queue.enqueue(TENANT, [new])
    await store.queue.enqueue(TENANT, [replace(traced, trace=f"{CONTEXT[:-1]}0")], repeat=True)

    found = await store.queue.read_traces(TENANT, [traced.id, plain.id, keyed.id])

    assert found == {traced.id: CONTEXT, keyed.id: CONTEXT}
    assert await store.queue.read_traces("acme", [traced.id]) == {}
    assert len((await claim(store)).executions) == 3


async def test_a_context_goes_when_its_execution_is_old(store, clock):
    await defined(store, "resize")
    ended, asleep = an_execution(trace=CONTEXT), an_execution(trace=CONTEXT, delay=90.0 * DAY)
    await store.queue.enqueue(TENANT, [ended, asleep])
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    policy = Retention(finished=2 * DAY, ticks=2 * DAY, workers=2 * DAY)

    await clock.advance(DAY)
    await retain(store, policy)
    both = await store.queue.read_traces(TENANT, [ended.id, asleep.id])
    await clock.advance(4 * DAY)
    await retain(store, policy)

    assert set(both) == {ended.id, asleep.id}
    assert set(await store.queue.read_traces(TENANT, [ended.id, asleep.id])) == {asleep.id}
