"""What live workers offer, as others are told who cannot run something."""

from daybell.core.worker import Offer
from tests.builders import TENANT, a_worker

QUEUES = ("default", "mail")


async def test_live_workers_that_are_alike_are_one_offer(store, clock):
    shop, mail = {"größe": "default", "sell": "default"}, {"send": "mail"}
    for _ in range(3):
        await store.register(TENANT, a_worker(queues=QUEUES, tasks=shop), lease=60.0)
    other = a_worker(queues=("mail",), kinds=("task", "http"), tasks=mail)
    await store.register(TENANT, other, lease=60.0)
    await store.register(TENANT, a_worker(queues=QUEUES), lease=60.0)  # it does not say
    await store.add_tenant("globex")
    await store.register("globex", a_worker(queues=QUEUES, tasks=mail), lease=60.0)

    found = await store.offers(TENANT)

    assert len(found) == 3
    assert Offer(queues=QUEUES, kinds=("task",), tasks=shop) in found
    assert Offer(queues=("mail",), kinds=("task", "http"), tasks=mail) in found
    assert Offer(queues=QUEUES, kinds=("task",), tasks=None) in found
    seen = {worker.id: worker.tasks for worker in await store.list_workers(TENANT)}
    assert seen[other.id] == mail


async def test_who_drains_is_dead_or_has_lost_its_lease_offers_nothing(store, clock):
    drained, retired, silent = (a_worker(queues=(name,)) for name in ("a", "b", "c"))
    for one in (drained, retired):
        await store.register(TENANT, one, lease=60.0)
    await store.register(TENANT, silent, lease=10.0)
    assert len(await store.offers(TENANT)) == 3

    await store.drain(TENANT, drained.id)
    await store.retire(TENANT, retired.id)
    assert [one.queues for one in await store.offers(TENANT)] == [("c",)]
    await clock.advance(11)
    assert await store.offers(TENANT) == []


def test_an_offer_is_for_its_queues_and_has_tasks_and_kinds():
    offer = Offer(queues=("mail",), kinds=("task", "http:private"), tasks={"send": "mail"})

    assert offer.has("task:send", queue="mail")
    assert offer.has("http:private", queue="mail")
    assert not offer.has("task:send", queue="default")
    assert not offer.has("task:sell", queue="mail")
    assert not offer.has("http:private", queue="default")
    assert not Offer(queues=("mail",), kinds=("http",), tasks={"send": "mail"}).has(
        "task:send", queue="mail"
    )
    assert not Offer(queues=("mail",), kinds=("task",), tasks=None).has("task:send", queue="mail")
