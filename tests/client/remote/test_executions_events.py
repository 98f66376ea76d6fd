"""Events over HTTP: as on the store."""

import pytest

from daybell import RemoteClient
from daybell.cli.views.executions import echo_steps
from daybell.client.events import approval_event
from daybell.client.wire import RESULTS_CHARS_MAX, encode_event, encode_steps, step_status
from daybell.core.ids import mint
from daybell.core.lifecycle import after_wait
from daybell.errors import ExecutionNotFound, UsageError
from tests.builders import a_step, apply, claim
from tests.client.remote.losing import losing


async def test_what_is_sent_over_http_is_what_the_store_has(store, remote):
    made = await store.enqueue("resize")
    hands = await claim(store.store)
    (one,) = hands.executions
    wait = a_step(one, 2, name="go", event="go", timeout=60.0)
    await store.store.record(
        "default", worker=hands.worker, steps=[a_step(one, 1, result='{"cents":1}'), wait]
    )
    await apply(store.store, hands, after_wait(one, ran=0.0))

    why = await remote.why(made.id)
    first = await remote.publish("go", {"n": 1}, source="shop", id="x", time="2026-01-01T00:00:00Z")
    again = await remote.publish("go", {"n": 1}, source="shop", id="x")

    assert why.word == "event" and "event 'go'" in why.detail
    assert (first.created, first.resumed, again.created) == (True, 1, False)
    execution = (await store.execution(made.id)).execution
    here, there = await store.steps(made.id), await remote.steps(made.id)
    assert encode_steps(there, execution) == encode_steps(here, execution)
    (event,), (seen,) = (await store.events()).items, (await remote.events()).items
    assert encode_event(seen) == encode_event(event)
    await remote.signal(made.id, "more", [1])
    await remote.approve(made.id, approved=False, note="no")
    decision, signal, _ = (await store.events()).items
    assert (signal.execution, signal.data) == (made.id, "[1]")
    assert '"by":"key root' in decision.data and '"approved":false' in decision.data
    with pytest.raises(ExecutionNotFound):
        await remote.signal(mint(), "go")
    with pytest.raises(UsageError, match="reserved"):
        await remote.publish("daybell.x")


async def test_a_wait_whose_answer_is_too_long_to_send_has_not_timed_out(store, remote):
    made = await store.enqueue("resize")
    hands = await claim(store.store)
    (one,) = hands.executions
    big = a_step(one, 1, result=f'"{"x" * RESULTS_CHARS_MAX}"')
    wait = a_step(one, 2, name=approval_event("boss"), event=approval_event("boss"), timeout=60.0)
    await store.store.record("default", worker=hands.worker, steps=[big, wait])
    await apply(store.store, hands, after_wait(one, ran=0.0))
    await store.approve(made.id, "boss")

    here, there = await store.story(made.id), await remote.story(made.id)

    assert "approved" in [moment["event"] for moment in here.timeline]
    assert there.timeline == here.timeline
    assert there.told_steps == here.told_steps
    one = here.detail.execution
    assert [step_status(step, one) for step in there.steps] == ["done", "done"]
    echo_steps(there.steps, one)


async def test_an_event_whose_answer_is_lost_counts_once(store, address):
    _, token = await store.create_key("root", role="superadmin")
    async with losing(address) as way, RemoteClient(way.url, key=token) as remote:
        way.to_lose = 1
        published = await remote.publish("go")

    assert published.created and way.lost == 1
    assert len((await store.events()).items) == 1
