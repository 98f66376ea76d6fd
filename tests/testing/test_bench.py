"""An app on a bench: enqueued as in production, run by the real engine, and asked about."""

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest

from daybell import App, Context, PermanentError, Retry, RetryLater, UsageError
from daybell.core.execution import Outcome, State
from daybell.sdk.capture import masks
from daybell.testing import START, Bench


async def test_nothing_runs_until_the_test_says_so(app: App, bench: Bench):
    ran = []

    @app.task
    async def note(word: str):
        ran.append(word)

    await note.enqueue("a")
    assert (ran, bench.enqueued(note)) == ([], [{"word": "a"}])
    runs = await bench.run_due()

    assert (ran, bench.enqueued(note)) == (["a"], [])
    assert [(run.task, run.arguments, run.outcome) for run in runs] == [
        ("note", {"word": "a"}, Outcome.SUCCEEDED)
    ]


async def test_what_a_task_enqueues_runs_too_and_is_its_child(app: App, bench: Bench):
    @app.task
    async def parent():
        await child.enqueue()

    @app.task
    async def child():
        pass

    await parent.enqueue()
    first, second = await bench.run_due()

    assert (first.task, second.task) == ("parent", "child")
    assert second.execution.parent == first.execution.id


async def test_only_the_tasks_that_are_named_run(app: App, bench: Bench):
    @app.task
    async def left():
        pass

    @app.task
    async def right():
        pass

    await left.enqueue()
    await right.enqueue()
    runs = await bench.run_due(right)

    assert [run.task for run in runs] == ["right"]
    assert bench.enqueued(left) == [{}]


async def test_executions_run_one_after_the_other_best_priority_first(app: App, bench: Bench):
    seen = []

    @app.task
    async def step(name: str):
        seen.append(f"{name} begins")
        await asyncio.sleep(0)
        seen.append(f"{name} ends")

    await step.enqueue("low")
    await step.options(priority="high", queue="other").enqueue("high")
    await bench.run_due()

    assert seen == ["high begins", "high ends", "low begins", "low ends"]


async def test_a_delayed_execution_runs_when_the_clock_has_reached_it(app: App, bench: Bench):
    @app.task
    async def later():
        pass

    await later.options(delay="1h").enqueue()

    assert await bench.run_due() == []
    assert await bench.advance("59m59s") == []
    assert [run.state for run in await bench.advance("1s")] == [State.SUCCEEDED]


async def test_what_becomes_due_on_the_way_runs_at_its_own_time(app: App, bench: Bench):
    seen = []

    @app.task
    async def tick(name: str) -> None:
        seen.append((name, bench.now - START))
        if name == "first":
            await tick.options(delay="10m").enqueue("from first")

    await tick.options(delay="1h").enqueue("last")
    await tick.options(delay="20m").enqueue("first")
    await tick.options(at=START + timedelta(minutes=40)).enqueue("third")
    await bench.advance("2h")

    assert [(name, passed.total_seconds() / 60) for name, passed in seen] == [
        ("first", 20),
        ("from first", 30),
        ("third", 40),
        ("last", 60),
    ]
    assert bench.now == START + timedelta(hours=2)


async def test_the_clock_begins_where_it_is_told_to(app: App):
    moment = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)

    with Bench(app, now=moment) as bench:
        assert bench.now == moment
        await bench.advance_to(moment + timedelta(minutes=2))
        assert bench.now == datetime(2024, 3, 1, 0, 1, tzinfo=UTC)
        with pytest.raises(UsageError, match="not put back"):
            await bench.advance_to(moment)
        with pytest.raises(UsageError, match="'1h' is not a datetime"):
            await bench.advance_to("1h")  # pyright: ignore[reportArgumentType]


async def test_failures_are_retried_by_the_task_s_own_policy(app: App, bench: Bench):
    times = []

    @app.task(retries=Retry.delays("10s", "1m"))
    async def fetch(ctx: Context):
        times.append((ctx.attempt, ctx.failures, (bench.now - START).total_seconds()))
        raise ConnectionError("no answer")

    await fetch.enqueue()
    (first,) = await bench.run_due()
    rest = await bench.advance("1d")

    assert (first.state, type(first.error)) == (State.RETRYING, ConnectionError)
    assert [run.state for run in rest] == [State.RETRYING, State.DEAD]
    assert times == [(1, 0, 0), (2, 1, 10), (3, 2, 70)]


async def test_a_permanent_error_and_retry_later_mean_what_they_mean(app: App, bench: Bench):
    @app.task(retries=5)
    async def hopeless():
        raise PermanentError("never")

    @app.task
    async def busy(ctx: Context):
        if ctx.attempt == 1:
            raise RetryLater(delay="5m")

    await hopeless.enqueue()
    await busy.enqueue()
    first, second = await bench.run_due()
    (third,) = await bench.advance("5m")

    assert (first.state, second.state, second.has_failed) == (State.DEAD, State.SCHEDULED, False)
    assert (third.state, third.execution.failures) == (State.SUCCEEDED, 0)


async def test_what_expires_before_it_runs_is_skipped(app: App, bench: Bench):
    @app.task
    async def news():
        raise AssertionError("it is old")

    @app.task
    async def other():
        pass

    await news.options(expires="1m").enqueue()
    await bench.advance("1h", other)  # nobody serves the news

    assert [one.state for one in bench.executions(news)] == [State.SKIPPED]
    assert await bench.run_due() == []


async def test_a_unique_key_is_held_until_its_execution_has_ended(app: App, bench: Bench):
    @app.task
    async def sync_user(id: int):
        pass

    one = sync_user.options(unique_key="u1")
    assert [(await one.enqueue(1)).created, (await one.enqueue(1)).created] == [True, False]
    await bench.run_due()

    assert (await one.enqueue(1)).created


async def test_the_clock_is_never_put_back(app: App, bench: Bench):
    seen = []

    @app.task
    async def early():
        seen.append(bench.now)

    @app.task
    async def other():
        pass

    await early.enqueue()
    await bench.advance("1h", other)
    await bench.run_due()

    assert seen == [START + timedelta(hours=1)]


async def test_what_has_expired_frees_its_key_while_time_passes(app: App, bench: Bench):
    created = []

    @app.task
    async def held():
        pass

    @app.task
    async def asks():
        created.append((await held.options(unique_key="k").enqueue()).created)

    await held.options(unique_key="k", expires="1m", queue="stopped").enqueue()
    await (await app.client_for()).pause_queue("stopped")
    await asks.options(delay="30s").enqueue()
    await asks.options(delay="90s").enqueue()
    await bench.advance("90s")

    assert created == [False, True]


async def test_a_run_has_the_result_by_annotation(app: App, bench: Bench):
    @app.task
    async def moment() -> datetime:
        return START

    await moment.enqueue()
    (run,) = await bench.run_due()

    assert run.result == START


async def test_secrets_can_be_set_and_used_without_a_key_of_ones_own(app: App, bench: Bench):
    seen = []

    @app.task
    async def log_in(password: str) -> str:
        seen.append(password)
        return password

    await (await app.open()).set_secret("PASSWORD", "correct horse")
    await log_in.options().enqueue({"secret": "PASSWORD"})  # pyright: ignore[reportArgumentType]
    (run,) = await bench.run_due()

    assert seen == ["correct horse"]
    assert run.result == "***" and run.arguments == {"password": {"secret": "PASSWORD"}}
    masks.forget()


# Asking a bench what waits, and what it says when the answer is no.


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
