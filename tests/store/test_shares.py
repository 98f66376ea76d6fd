"""How much of a resource a tenant and a key may take."""

import asyncio

import pytest

from daybell.api.guard import LARGE_PARTS
from daybell.core.limits import LARGE_BYTES_MAX
from daybell.store.shares import Holder, Shares

A, A2, B = Holder("a", "1"), Holder("a", "2"), Holder("b", "1")


def take_all(shares: Shares, holder: Holder) -> int:
    while shares.take(holder):
        pass
    return shares.held(holder)


def test_a_key_gets_a_third_a_tenant_half_and_the_next_one_its_part():
    shares = Shares(300)

    assert take_all(shares, A) == 100
    assert take_all(shares, A2) == 34
    assert shares.held(A) + shares.held(A2) <= 150
    assert take_all(shares, B) > 50
    assert take_all(shares, Holder("c")) > 20


def test_amounts_of_an_eighth_leave_a_part_for_the_third_tenant():
    shares = Shares(LARGE_BYTES_MAX, holder_max=LARGE_BYTES_MAX // LARGE_PARTS)
    amount = LARGE_BYTES_MAX // LARGE_PARTS
    taken = [
        sum(shares.take(Holder(tenant, str(key)), amount) for key in range(9) for _ in range(9))
        for tenant in "abc"
    ]

    assert taken[0] * amount <= LARGE_BYTES_MAX // 2
    assert all(taken)
    assert all(shares.held(Holder(tenant, "0")) == amount for tenant in "abc")


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_even_of_little_one_can_be_taken(capacity):
    assert take_all(Shares(capacity), A) == 1


def test_what_is_given_back_can_be_taken_and_leaves_no_trace():
    shares = Shares(9)
    for holder in (A, B):
        assert shares.take(holder, 2)

    shares.give_back(A, 2)
    shares.give_back(B, 2)

    assert (shares.used, vars(shares)["_held"], vars(shares)["_by_tenant"]) == (0, {}, {})
    assert take_all(shares, A) == 3


async def lined_up(shares: Shares, holder: Holder, served: list[Holder]) -> asyncio.Task[None]:
    async def run() -> None:
        await shares.wait(holder)
        served.append(holder)

    task = asyncio.create_task(run())
    await settled()
    return task


async def settled() -> None:
    """Let all tasks that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_of_those_that_wait_the_tenant_with_the_least_is_first():
    shares = Shares(1)
    served: list[Holder] = []
    await shares.wait(A)
    tasks = [await lined_up(shares, holder, served) for holder in (A, A, A, B, B)]

    for _ in range(5):
        shares.give_back(served[-1] if served else A)
        await settled()

    assert served == [A, B, A, B, A]
    shares.give_back(A)
    assert all(task.done() for task in tasks) and shares.used == 0


async def test_one_that_no_longer_waits_is_passed_over():
    shares = Shares(1)
    served: list[Holder] = []
    await shares.wait(A)
    first, second = [await lined_up(shares, holder, served) for holder in (A, B)]

    first.cancel()
    shares.give_back(A)
    await settled()
    shares.give_back(B)

    assert (served, second.done(), shares.used) == ([B], True, 0)


async def test_what_was_handed_to_one_that_is_gone_comes_back():
    shares = Shares(1)
    served: list[Holder] = []
    await shares.wait(A)
    first = await lined_up(shares, B, served)

    shares.give_back(A)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    assert (served, shares.used) == ([], 0)
