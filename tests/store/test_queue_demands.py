"""Demands of executions: they are a part of the lane, so a claim names those that it meets."""

from daybell.core.placement import Demands
from daybell.core.workflow.run import Spec
from tests.builders import TENANT, a_worker, apply, claim, defined, enqueued, retry
from tests.store.runs import a_plan, begun

EU = Demands(requires={"zone": ("eu", "us")}, resources={"gpu": 1.0})
NEEDS = f"task{EU.text}"


async def demanding(store, job="resize", **options):
    await defined(store, job, requires=EU.requires, resources=EU.resources, **options)


async def test_a_claim_gets_what_demands_something_only_by_its_needs(store):
    await demanding(store)
    (id,) = await enqueued(store)

    assert (await claim(store)).executions == []
    claimed = (await claim(store, kinds=["task", NEEDS])).one

    assert (claimed.id, claimed.kind, claimed.demands) == (id, "task", EU.text)


async def test_what_was_tried_before_demands_the_same(store, clock):
    await demanding(store)
    await enqueued(store)
    hands = await claim(store, kinds=[NEEDS])
    await apply(store, hands, retry(hands.one, delay=1.0))
    await clock.advance(1)

    assert (await claim(store)).executions == []
    assert (await claim(store, kinds=[NEEDS])).one.demands == EU.text


async def test_lanes_with_demands_are_listed_with_their_work(store, clock):
    await demanding(store, "mail", queue="mail")
    await demanding(store)
    await defined(store, "plain")
    await enqueued(store, 2, job="resize")
    await enqueued(store, job="resize", delay=3600.0)
    await enqueued(store, job="plain")
    since = clock.now()
    await clock.advance(5)
    await enqueued(store, job="resize")

    (lane,) = await store.catalog.list_demands(TENANT, ["default"])

    assert (lane.queue, lane.needs, lane.oldest, lane.overdue) == ("default", NEEDS, since, 2)
    assert lane.now == clock.now()


async def test_a_lane_without_due_work_is_listed_as_idle(store):
    await demanding(store)
    await enqueued(store)
    await claim(store, kinds=[NEEDS])

    (lane,) = await store.catalog.list_demands(TENANT, ["default", "other"])

    assert (lane.oldest, lane.overdue) == (None, 0)
    assert await store.catalog.list_demands(TENANT, []) == []


async def test_labels_and_resources_of_a_worker_are_shown_and_offered(store):
    worker = a_worker(
        labels={"zone": "eu"}, resources={"gpu": 2.0}, queues=("default",), kinds=("task",)
    )
    await store.queue.register(TENANT, worker, lease=60.0)

    (shown,) = await store.catalog.list_workers(TENANT)
    (offer,) = await store.catalog.offers(TENANT)

    assert (shown.labels, shown.resources) == ({"zone": "eu"}, {"gpu": 2.0})
    assert offer.meets(NEEDS)
    assert not offer.meets("task" + Demands(resources={"gpu": 3.0}).text)


async def test_a_node_demands_of_its_worker_what_its_spec_says(store):
    plan = a_plan({"plain": [], "picky": []}, specs={"picky": Spec(needs=NEEDS)})
    await begun(store, plan)

    plain = await claim(store, kinds=["task", "workflow"])
    picky = await claim(store, kinds=[NEEDS])

    assert ([one.node for one in plain.executions], picky.one.node) == (["plain"], "picky")
    assert picky.one.demands == EU.text
    assert NEEDS in {lane.needs for lane in await store.catalog.list_demands(TENANT, ["default"])}
