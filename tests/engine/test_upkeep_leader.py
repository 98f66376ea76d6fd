"""The small lease for upkeep."""

import pytest

from daybell.core.ids import mint
from daybell.engine.loop import ManualClock
from daybell.engine.upkeep import DUTY_PAUSE_SECONDS, DUTY_SECONDS, LEADER_TERM_SECONDS, Leader
from daybell.errors import Unavailable
from tests.engine.faults import faulty
from tests.engine.tasks import a_store


class Duty:
    """A duty that is done when its list of answers is used up."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.done = 0

    async def __call__(self):
        self.done += 1
        answer = self._answers.pop(0) if self._answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


def a_leader(store, clock, *duties):
    return Leader(store, holder=mint(), clock=clock, duties=duties)


async def test_one_of_several_leads(store, clock):
    first, second = Duty(), Duty()
    leaders = [a_leader(store, clock, first), a_leader(store, clock, second)]

    for _ in range(3):
        for leader in leaders:
            await leader.tick()
        clock.advance(LEADER_TERM_SECONDS / 3)

    assert [leader.epoch for leader in leaders] == [1, None]
    assert (first.done, second.done) == (1, 0)


async def test_who_resigns_is_followed_at_once(store, clock):
    one, other = a_leader(store, clock), a_leader(store, clock)
    await one.tick()
    await other.tick()

    await one.resign()
    await other.tick()
    await one.tick()

    assert (one.epoch, other.epoch) == (None, 2)


async def test_who_does_not_lead_has_nothing_to_resign(store, clock):
    one, other = a_leader(store, clock), a_leader(store, clock)
    await one.tick()
    await other.tick()

    await other.resign()

    assert store.count("resign") == 0


async def test_who_is_silent_is_followed_when_its_lease_has_ended(store, clock):
    one, other = a_leader(store, clock), a_leader(store, clock)
    await one.tick()

    clock.advance(LEADER_TERM_SECONDS + 1)
    await other.tick()
    await one.tick()

    assert (one.epoch, other.epoch) == (None, 2)


async def test_duties_are_done_once_a_period(store, clock):
    duty = Duty()
    leader = a_leader(store, clock, duty)

    done = []
    for _ in range(3):
        for _ in range(4):
            assert await leader.tick() is None
            clock.advance(DUTY_SECONDS / 4)
        done.append(duty.done)

    assert done == [1, 2, 3]


async def test_duties_are_repeated_soon_while_there_is_more(store, clock):
    long, short = Duty(True, True), Duty()
    leader = a_leader(store, clock, long, short)

    pauses = [await leader.tick() for _ in range(5)]

    assert pauses == [DUTY_PAUSE_SECONDS, DUTY_PAUSE_SECONDS, None, None, None]
    assert (long.done, short.done) == (3, 3)
    assert store.count("lead") == 5


async def test_a_duty_that_failed_is_done_at_the_next_tick(store, clock):
    duty = Duty(Unavailable("away"))
    leader = a_leader(store, clock, duty)

    with pytest.raises(Unavailable):
        await leader.tick()
    await leader.tick()
    await leader.tick()

    assert duty.done == 2
