"""Leadership: one holder at a time, and an epoch that rises with every change."""

from daybell.core.ids import mint

ADA, BOB = mint(), mint()


async def test_the_first_to_ask_leads(store, clock):
    leadership = await store.lead("upkeep", holder=ADA, lease=30.0)

    assert (leadership.name, leadership.holder) == ("upkeep", ADA)
    assert (leadership.epoch, leadership.until) == (1, clock.now() + 30)


async def test_nobody_else_leads_while_the_lease_lasts(store, clock):
    await store.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(29)

    assert await store.lead("upkeep", holder=BOB, lease=30.0) is None


async def test_the_holder_keeps_it_by_asking_again(store, clock):
    await store.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(20)

    leadership = await store.lead("upkeep", holder=ADA, lease=30.0)

    assert (leadership.epoch, leadership.until) == (1, clock.now() + 30)
    await clock.advance(29)
    assert await store.lead("upkeep", holder=BOB, lease=30.0) is None


async def test_a_lease_that_ended_can_be_taken_with_a_higher_epoch(store, clock):
    await store.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(31)

    leadership = await store.lead("upkeep", holder=BOB, lease=30.0)

    assert (leadership.holder, leadership.epoch) == (BOB, 2)
    assert await store.lead("upkeep", holder=ADA, lease=30.0) is None


async def test_a_holder_that_was_away_comes_back_with_a_higher_epoch(store, clock):
    await store.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(31)

    leadership = await store.lead("upkeep", holder=ADA, lease=30.0)

    assert (leadership.holder, leadership.epoch) == (ADA, 2)


async def test_one_who_resigns_lets_another_lead_at_once(store):
    await store.lead("upkeep", holder=ADA, lease=30.0)

    await store.resign("upkeep", holder=ADA)

    leadership = await store.lead("upkeep", holder=BOB, lease=30.0)
    assert (leadership.holder, leadership.epoch) == (BOB, 2)


async def test_only_the_holder_can_resign(store):
    await store.lead("upkeep", holder=ADA, lease=30.0)

    await store.resign("upkeep", holder=BOB)
    await store.resign("nothing", holder=BOB)

    assert await store.lead("upkeep", holder=BOB, lease=30.0) is None
    assert (await store.lead("upkeep", holder=ADA, lease=30.0)).epoch == 1


async def test_names_do_not_know_each_other(store):
    first = await store.lead("upkeep", holder=ADA, lease=30.0)
    second = await store.lead("metrics", holder=BOB, lease=30.0)

    assert (first.epoch, second.epoch) == (1, 1)


async def test_who_leads_is_listed_by_name_while_it_lasts(store, clock):
    assert await store.list_leaders() == []
    later = await store.lead("upkeep", holder=ADA, lease=30.0)
    sooner = await store.lead("scheduler", holder=BOB, lease=10.0)

    assert await store.list_leaders() == [sooner, later]

    await clock.advance(10)
    assert await store.list_leaders() == [later]
    await store.resign("upkeep", holder=ADA)
    assert await store.list_leaders() == []
