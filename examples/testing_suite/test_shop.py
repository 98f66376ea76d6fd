"""Run with `pytest examples/testing_suite`: no store, no worker, and no waiting."""

import asyncio

import pytest
from shop import outbox, place_order, send_email, ship


async def test_an_order_is_shipped_once_and_asked_about_in_two_weeks(daybell_bench):
    await place_order(7, "ada@example.org")
    await place_order(7, "ada@example.org")

    assert daybell_bench.enqueued(ship) == [{"order": 7, "to": "ada@example.org"}]
    daybell_bench.assert_enqueued(send_email, {"subject": "How was order 7?"}, delay="14d")


async def test_the_customer_hears_of_it_at_once_and_later(daybell_bench):
    await place_order(7, "ada@example.org")

    await daybell_bench.run_due()
    assert outbox == ["Order 7 is on its way -> ada@example.org"]
    await daybell_bench.advance("14d")
    assert outbox[1:] == ["How was order 7? -> ada@example.org"]


async def test_a_mail_is_tried_again_after_ten_seconds(daybell_bench):
    await send_email.enqueue("bob@down.example", subject="Hi")

    (failed,) = await daybell_bench.run_due()
    assert isinstance(failed.error, ConnectionError)
    assert failed.state == "retrying"
    (again,) = await daybell_bench.advance("10s")
    assert again.state == "succeeded"


def test_shipping_without_an_event_loop(daybell_bench):
    assert daybell_bench.sync.run(ship, 7, "ada@example.org") == "parcel-7"

    daybell_bench.assert_enqueued(send_email, {"to": "ada@example.org"}, queue="mail", count=1)


def test_an_exception_is_the_task_s_own(daybell_bench):
    with pytest.raises(ConnectionError, match="does not answer"):
        daybell_bench.sync.run(send_email, "bob@down.example", "Hi")


def test_a_task_is_still_a_function():
    class Attempt:
        attempt = 2

    asyncio.run(send_email(Attempt(), "eve@example.org", "Hi"))

    assert outbox[-1] == "Hi -> eve@example.org"
