"""Each alert rule from its facts to a receiver on this machine: one signed request for the opening,
and one for the recovery.
"""

import hmac
import json
import os
from base64 import b64encode
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest

from daybell.core.lifecycle import after_loss
from daybell.core.subscription import SUBSCRIPTIONS
from daybell.core.views import ExecutionFilter
from daybell.runners.http import Http, HttpHandler
from tests.builders import (
    TENANT,
    a_schedule,
    a_subscription,
    a_worker,
    apply,
    claim,
    claimed,
    dead,
    death,
    enqueued,
    finished,
    fired,
    put,
    retry,
    success,
)
from tests.runners.http_places import OK, Running, Secrets, serving
from tests.store.test_admin_alerts import evaluated, kept, opened, started
from tests.store.test_admin_outbox import told
from tests.sweeps import fold_all, retain

KEY = "a key of the receiver"
LASTING = "store: durability"  # the server of the tests does without


async def delivered(store):
    """Make all requests that are enqueued, as a worker does."""
    http = Http(allow_private=True, clock=lambda: 1_700_000_000.0)
    while (hands := await claim(store, kinds=("http",))).executions:
        for one in hands.executions:
            job = await store.catalog.get_job(TENANT, one.job)
            running = Running()
            running.claimed = SimpleNamespace(
                id=one.id, attempt=one.attempt, timeout=None, args=one.args
            )
            await HttpHandler(job.definition, Secrets(KEY=KEY), http).run(running)
            assert await apply(store, hands, success(one)) == []


def received(place):
    """The events that the receiver has got, in their order; their signatures are checked."""
    events = []
    for number, body in enumerate(place.bodies):
        id, at = (place.header(f"webhook-{name}", number) for name in ("id", "timestamp"))
        digest = hmac.digest(KEY.encode(), f"{id}.{at}.".encode() + body, "sha256")
        signature = place.header("webhook-signature", number)
        assert signature == f"v1,{b64encode(digest).decode()}"
        assert place.header("content-type", number) == "application/cloudevents+json"
        events.append(json.loads(body))
    ids = Counter(place.header("webhook-id", n) for n in range(len(place.bodies)))
    assert set(ids.values()) <= {1}, "a request was made twice"
    return events


def heard(place):
    """How often the receiver was told what of which subject."""
    return Counter(
        (one["type"], one["data"]["subject"], one["data"]["incident_id"]) for one in received(place)
    )


async def folded(store):
    await fold_all(store)


# Each brings the condition about, and after the yield ends it.


async def dead_letter(store, clock):
    ids = await dead(store)
    yield {}
    await store.queue.discard(TENANT, ids)


async def failures(store, clock):
    await dead(store, 2)
    yield {"count": 2}
    await clock.advance(1)
    await finished(store)


async def failure_rate(store, clock):
    await finished(store, 2)
    await dead(store, 2)
    await folded(store)
    yield {"count": 4, "within": "1h"}
    await clock.advance(7200)


async def missed_run(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule, next_at=clock.now() + 86400)
    await clock.advance(601)
    yield {"grace": "10m"}
    hands = await claim(store)
    await apply(store, hands, *map(success, hands.executions))


async def late_start(store, clock):
    await enqueued(store)
    await clock.advance(301)
    yield {}
    await claim(store, kinds=("task",))


async def long_run(store, clock):
    await started(store)
    await clock.advance(301)
    yield {"grace": "5m"}
    where = ExecutionFilter(job="resize")
    ids = [one.id for one in (await store.catalog.list_executions(TENANT, where)).items]
    await clock.advance(3600)
    await store.queue.lost(since=clock.now() - 3600)
    await store.queue.cancel(TENANT, ids)
    (lost,) = (await store.queue.lost()).executions
    await store.queue.apply(TENANT, worker=lost.worker, transitions=[loss(lost)], wait=False)


async def queue_age(store, clock):
    await enqueued(store, queue="slow")
    await clock.advance(301)
    yield {"queue": "slow"}
    await claim(store, queues=("slow",))


async def no_worker(store, clock):
    await enqueued(store)
    await clock.advance(61)
    yield {"job": "resize"}
    worker = a_worker(queues=("default",), tasks={"resize": "default"})
    await store.queue.register(TENANT, worker, lease=3600.0)


async def lost_workers(store, clock):
    hands = await claimed(store)
    await clock.advance(3600)
    await store.queue.lost(since=clock.now() - 3600)
    moves = [loss(one) for one in (await store.queue.lost()).executions]
    await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)
    await folded(store)
    yield {"within": "15m"}
    await clock.advance(7200)


def loss(one):
    return after_loss(one.claimed, max_crashes=one.max_crashes, retry=one.retry, is_begun=True)


async def paused(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule, pause_after_failures=1)
    await fired(store, schedule)
    hands = await claim(store)
    await apply(store, hands, *map(death, hands.executions))
    yield {}
    await store.schedules.resume_job(TENANT, "resize")


async def store_health(store, clock):
    """A file that others can read; on PostgreSQL, a day without its partition."""
    path = getattr(store.db, "path", None)
    if path is not None:
        os.chmod(path, 0o644)
        yield {}
        os.chmod(path, 0o600)
    else:
        await clock.advance(40 * 86400)
        await finished(store)
        yield {}
        await retain(store)


STATES = (
    dead_letter, failures, failure_rate, missed_run, late_start, long_run, queue_age, no_worker,
    lost_workers, paused, store_health,
)  # fmt: skip


@pytest.mark.parametrize("condition", STATES, ids=lambda one: one.__name__)
async def test_a_receiver_hears_once_that_an_incident_opens_and_once_that_it_closes(
    store, clock, condition
):
    async with serving(OK) as place:
        situation = condition(store, clock)
        fields = await anext(situation)
        hook = {"webhook": place.url, "secret": "KEY"}
        await kept(store, condition.__name__, to=hook, **fields)
        for _ in range(2):
            await evaluated(store)
            await delivered(store)
        incidents = {one.subject: str(one.id) for one in await opened(store)}
        assert incidents
        assert heard(place) == {("alert.open", *one): 1 for one in incidents.items()}

        with pytest.raises(StopAsyncIteration):
            await anext(situation)
        for _ in range(2):
            await evaluated(store)
            await delivered(store)

        opening = {("alert.open", *one): 1 for one in incidents.items()}
        incidents.pop(LASTING, None)
        assert heard(place) == opening | {("alert.close", *one): 1 for one in incidents.items()}
        assert {one["data"]["on"] for one in received(place)} == {condition.__name__}
        assert {one.subject for one in await opened(store)} <= {LASTING}


async def test_a_receiver_hears_of_a_success_and_of_heartbeats(store, clock):
    async with serving(OK) as place:
        hook = {"webhook": place.url, "secret": "KEY"}
        await kept(store, "succeeded", to=hook)
        await kept(store, "heartbeat", to=hook)
        await clock.advance(1)
        await finished(store)
        for _ in range(13):
            await evaluated(store)
            await delivered(store)
            await clock.advance(10)

        types = Counter(one["type"] for one in received(place))
        assert types == {"alert.record": 1, "alert.beat": 3}


async def test_a_receiver_of_events_hears_of_each_change_in_its_order(store):
    async with serving(OK) as place:
        hooks = a_subscription(url=place.url, secret="KEY", types=["execution.*"])
        await store.admin.put_record(TENANT, SUBSCRIPTIONS, hooks)
        hands = await claimed(store)
        await apply(store, hands, retry(hands.one, delay=0))
        hands = await claim(store, kinds=("task",))
        await apply(store, hands, death(hands.one))
        await told(store)
        await delivered(store)

        events = received(place)
        assert [one["type"] for one in events] == ["execution.retrying", "execution.dead"]
        assert [one["data"]["attempt"] for one in events] == [1, 2]
        assert msgspec.json.decode(place.bodies[1])["data"]["error"]["type"] == "ValueError"
