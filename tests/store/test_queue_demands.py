"""Demands of executions: they are a part of the lane, so a claim names those that it meets."""

import pytest

from daybell.core.placement import Demands, seat_of, seated_needs
from daybell.core.workflow.run import Spec
from tests.builders import (
    LEASE,
    TENANT,
    a_worker,
    apply,
    claim,
    defined,
    enqueued,
    retry,
    success,
)
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


async def running_parent(store, **options):
    """An execution that a new worker runs; return it, and the worker."""
    worker = a_worker(**{"queues": ("default", "mail"), **options})
    await store.queue.register(TENANT, worker, lease=LEASE)
    await defined(store, "parent")
    await enqueued(store, job="parent")
    (parent,) = (await claim(store, worker=worker.id)).executions
    return parent, worker.id


@pytest.mark.parametrize("options", [{}, {"queue": "mail"}, {"timeout": 5.0}])
async def test_what_is_near_its_parent_has_the_seat_of_its_worker(store, clock, options):
    queues = ("default", "mail")
    parent, worker = await running_parent(store)
    await defined(store, "child", near="parent", **options)
    needs = seated_needs("task", seat_of(worker))
    (near,) = await enqueued(store, job="child", parent=parent.id)

    assert (await claim(store, queues=queues)).executions == []
    hands = await claim(store, queues=queues, kinds=["task", needs])
    assert hands.one.id == near
    await apply(store, hands, retry(hands.one, delay=1.0))
    await clock.advance(1)

    assert (await claim(store, queues=queues)).executions == []
    assert (await claim(store, queues=queues, kinds=[needs])).one.id == near


async def test_without_a_running_parent_any_worker_takes_it(store):
    parent, worker = await running_parent(store)
    await store.queue.apply(TENANT, worker=worker, transitions=[success(parent)])
    await defined(store, "child", near="parent")
    ids = await enqueued(store, 2, job="child")
    ids += await enqueued(store, job="child", parent=parent.id)

    assert [one.id for one in (await claim(store, limit=9)).executions] == ids


@pytest.mark.parametrize(
    ("worker", "job"),
    [
        ({"queues": ("default",)}, {"queue": "mail"}),
        ({"tasks": {"parent": "default"}}, {}),
        ({"labels": {"zone": "us"}}, {"prefer": {"zone": ("eu",)}}),
        ({}, {"requires": {"zone": ("eu",)}}),
        ({"kinds": ("task",)}, {"kind": "command", "settings": '{"run": "true"}'}),
    ],
)
async def test_nothing_waits_for_a_worker_that_cannot_take_it(store, worker, job):
    parent, _ = await running_parent(store, **worker)
    definition, *_ = await defined(store, "child", near="parent", **job)
    (id,) = await enqueued(store, job="child", parent=parent.id)

    needs = definition.definition.needs
    assert "seat" not in needs
    assert (await claim(store, queues=("default", "mail"), kinds=[needs])).one.id == id


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
