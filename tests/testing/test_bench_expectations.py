"""Asking a bench what waits, and what it says when the answer is no."""

from datetime import date, timedelta

import pytest

from daybell import App
from daybell.testing import START, Bench


@pytest.fixture
def send_email(app: App):
    @app.task(queue="mail")
    async def send_email(to: str, on: date | None = None):
        if to == "nobody":
            raise LookupError("no such address")

    return send_email


@pytest.fixture
def report(app: App):
    @app.task
    async def report():
        pass

    return report


async def test_arguments_are_as_the_task_will_get_them(bench: Bench, send_email):
    await send_email.enqueue("ada", on=date(2030, 1, 2))
    await send_email.enqueue(to="bob")

    assert bench.enqueued(send_email) == [{"to": "ada", "on": date(2030, 1, 2)}, {"to": "bob"}]


async def test_what_will_be_tried_again_waits_as_well(app: App, bench: Bench):
    @app.task(retries=1)
    async def fails(x: int):
        raise ConnectionError

    await fails.enqueue(1)
    await bench.run_due()

    assert bench.enqueued(fails) == [{"x": 1}]


@pytest.mark.parametrize(
    ("expected", "fits"),
    [
        ({}, True),
        ({"arguments": {"to": "ada"}}, True),
        ({"arguments": {"to": "bob"}}, False),
        ({"arguments": {"cc": "ada"}}, False),
        ({"delay": "1h"}, True),
        ({"delay": 3601}, False),
        ({"at": START + timedelta(hours=1)}, True),
        ({"at": START}, False),
        ({"queue": "mail"}, True),
        ({"queue": "default"}, False),
        ({"priority": "high"}, True),
        ({"priority": "low"}, False),
        ({"unique_key": "k"}, True),
        ({"unique_key": "K"}, False),
        ({"arguments": {"to": "ada"}, "queue": "default"}, False),
    ],
)
async def test_each_expectation_is_compared(bench: Bench, send_email, expected, fits):
    options = send_email.options(delay="1h", priority="high", unique_key="k")
    await options.enqueue("ada", on=date(2030, 1, 2))

    if fits:
        bench.assert_enqueued(send_email, **expected)
        with pytest.raises(AssertionError, match="send_email"):
            bench.assert_not_enqueued(send_email, **expected)
    else:
        bench.assert_not_enqueued(send_email, **expected)
        with pytest.raises(AssertionError, match="no send_email"):
            bench.assert_enqueued(send_email, **expected)


async def test_how_many_is_counted(bench: Bench, send_email):
    await send_email.enqueue_many([{"to": "ada"}, {"to": "bob"}])

    bench.assert_enqueued(send_email, count=2)
    bench.assert_enqueued(send_email, {"to": "ada"}, count=1)
    bench.assert_enqueued(send_email, {"to": "eve"}, count=0)
    with pytest.raises(AssertionError, match="2 instead of 1 send_email waits"):
        bench.assert_enqueued(send_email, count=1)


async def test_what_has_run_does_not_wait_any_more(bench: Bench, send_email):
    await send_email.enqueue("ada")
    await bench.run_due()

    bench.assert_not_enqueued(send_email)


async def test_the_message_tells_what_there_is(bench: Bench, send_email, report):
    await send_email.enqueue("nobody")
    await bench.run_due()
    await bench.advance("30d")
    await send_email.options(delay="1h", unique_key="k").enqueue("bob")
    await report.enqueue()
    await report.enqueue()

    with pytest.raises(AssertionError) as caught:
        bench.assert_enqueued(send_email, {"to": "ada"}, delay="5m", queue="mail", priority="low")

    assert str(caught.value).splitlines() == [
        "no send_email with {'to': 'ada'}, delay 5m, queue mail, priority low waits",
        "of send_email there wait:",
        "  {'to': 'bob'}: scheduled, due in 1h; queue mail, priority normal, key 'k'",
        "of send_email there ended:",
        "  {'to': 'nobody'}: dead (retries_used_up), failed with LookupError: no such address;"
        " queue mail, priority normal",
        "others that wait: report ×2",
    ]


async def test_a_long_list_is_cut(bench: Bench, send_email):
    await send_email.enqueue_many([{"to": f"n{number}"} for number in range(30)])

    with pytest.raises(AssertionError, match="and 20 more"):
        bench.assert_not_enqueued(send_email)
