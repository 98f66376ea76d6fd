"""What tasks say, from their mouth to the store."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from daybell.core.execution import LAST, MASKED_CHARS_MAX, State, lines_of
from daybell.core.limits import LOG_CHARS_MAX, LOG_LINE_CHARS_MAX
from daybell.engine.attempt import Attempt, AttemptHost
from tests.builders import TENANT, enqueued, look, no_transaction
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_claimed, a_store, a_worker
from tests.engine.virtual import VirtualClock, in_virtual_time, until


def a_run(mask: Callable[[str], str] = str) -> Attempt:
    return Attempt(
        a_claimed(),
        AttemptHost(VirtualClock(), mask=mask, begin=no_transaction),
    )


def said(run: Attempt) -> list[tuple[str, str]]:
    lines = lines_of(run.take_log() or "")
    return [(line.level, line.message) for line in lines]


async def kept(store: Any, id: Any) -> list[str]:
    parts = await store.catalog.read_log(TENANT, id)
    return [line.message for part in parts for line in part.lines]


async def gone(store: Any, id: Any) -> bool:
    return (await look(store, id)).state is State.SUCCEEDED


@in_virtual_time
async def test_what_is_printed_becomes_lines():
    run = a_run()
    for text in ("one", " line\ntwo", "\n", "\nthe rest"):
        run.print("stdout", text)
    run.print("stderr", "oh")

    assert said(run) == [
        ("stdout", "one line"),
        ("stdout", "two"),
        ("stdout", ""),
        ("stdout", "the rest"),
        ("stderr", "oh"),
    ]


@in_virtual_time
async def test_a_line_without_end_is_cut_and_not_gathered_for_ever():
    run = a_run()
    for _ in range(300):
        run.print("stdout", "x" * 1000)
        assert run.log is not None and len((run.log.begun or {})["stdout"][0]) < 20_000
    run.print("stdout", "\nshort\n")

    (_, cut), (_, short) = said(run)
    assert cut == f"{'x' * LOG_LINE_CHARS_MAX}… (300,000 characters)"
    assert short == "short"


@in_virtual_time
async def test_no_half_of_a_secret_is_kept_of_a_text_that_is_cut():
    secret = "hunter2-hunter2"
    shrinks = "key:" + "k" * 8_000 + " "  # to what a mask makes of it, and so moves what is behind

    for size in range(10):
        text = f"{shrinks * 2}{'.' * (366 + size)}{secret}{'x' * 50_000}"
        ways: list[Callable[[Attempt], object]] = [
            lambda run, text=text: run.say("info", "", text),
            lambda run, text=text: [run.print("stdout", f"{text[:9_000]}"),
                                    run.print("stdout", f"{text[9_000:]}\n")],
            lambda run, text=text: run.report(note=text[:MASKED_CHARS_MAX]),
        ]  # fmt: skip
        for way in ways:
            run = a_run(lambda text: re.sub("k{100,}", "…", text.replace(secret, "***")))
            way(run)

            kept = f"{run.note}{run.take_log()}"
            assert "hunter" not in kept


@in_virtual_time
async def test_a_line_that_is_cut_says_how_long_it_was():
    run = a_run(lambda text: text.replace("secret", "*"))
    run.say("info", "", "secret" * 3 + "x" * 9_000)
    run.say("info", "", "secret" * 3_000)
    run.say("info", "", "x" * 100, length=70_000)

    (_, long), (_, longer), (_, part) = said(run)
    assert long == f"***{'x' * (LOG_LINE_CHARS_MAX - 3)}… (9,018 characters)"
    assert longer.endswith("… (18,000 characters)")
    assert part == "… (70,000 characters)"


@in_virtual_time
async def test_of_too_much_the_beginning_is_kept_and_the_rest_counted():
    run = a_run()
    for number in range(20_000):
        run.say("info", "", f"{number} {'x' * 90}")

    messages = [message for _, message in said(run)]
    assert messages[0].startswith("0 ")
    assert 5_000 < len(messages) < 12_000
    left_out = 20_000 - len(messages) + 1
    assert messages[-1].startswith(f"{left_out:,} more lines were left out")
    assert sum(map(len, messages)) < LOG_CHARS_MAX


@in_virtual_time
async def test_what_is_printed_when_there_is_no_more_room_is_counted_line_by_line():
    run = a_run()
    run.print("stdout", f"{'x' * 90}\n" * 20_000)
    run.print("stderr", "one ")
    for text in ("li", "ne\ntwo\n\nfo", "ur\n", "the rest"):
        run.print("stdout", text)
    run.print("stderr", "line")

    messages = [message for _, message in said(run)]
    printed = 20_000 + 4 + 2  # with the rest of either stream
    assert messages[-1].startswith(f"{printed - len(messages) + 1:,} more lines were left out")
    assert set(messages[:-1]) == {"x" * 90}


@in_virtual_time
async def test_lines_are_masked_and_a_broken_mask_keeps_nothing():
    def broken(text: str) -> str:
        raise ValueError(text)

    masked, unmasked = a_run(lambda text: text.replace("hunter2", "***")), a_run(broken)
    for run in (masked, unmasked):
        run.say("info", "", "the password is hunter2")

    assert said(masked) == [("info", "the password is ***")]
    assert said(unmasked) == [("info", "(left out: the masking function raised ValueError)")]


@in_virtual_time
async def test_a_mask_that_forgets_to_return_keeps_nothing():
    run = a_run(lambda text: None)  # pyright: ignore[reportArgumentType, reportUnknownLambdaType]
    run.say("info", "", "the password is hunter2")
    run.say("info", "", "the password is hunter2" * 10_000)

    left_out = "(left out: the masking function returned no text but NoneType)"
    assert said(run) == [("info", left_out), ("info", f"{left_out}… (230,000 characters)")]


@in_virtual_time
async def test_what_was_said_is_there_as_soon_as_the_end_is():
    async def talk(running):
        running.say("info", "shop", "hello")

    store = faulty(await a_store())
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=talk))
    await worker.start()
    await until(lambda: store.count("apply") == 1)

    assert await kept(store, id) == ["hello"]
    await worker.stop()


@in_virtual_time
async def test_what_a_long_task_says_is_written_while_it_runs():
    go_on = asyncio.Event()

    async def talk(running):
        running.say("info", "shop", "first")
        await go_on.wait()
        running.say("info", "shop", "second")

    store = await a_store()
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=talk))
    await worker.start()
    await asyncio.sleep(2)
    assert await kept(store, id) == ["first"]

    go_on.set()
    await asyncio.sleep(1)
    assert await kept(store, id) == ["first", "second"]
    await worker.stop()


@in_virtual_time
async def test_nothing_said_is_lost_or_doubled_while_the_store_is_away():
    async def talk(running):
        for number in range(8):
            running.say("info", "shop", str(number))
            await asyncio.sleep(1)

    store = faulty(await a_store())
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=talk), lease=60.0)
    await worker.start()
    await asyncio.sleep(2.7)
    store.is_away = True
    await asyncio.sleep(2)
    store.is_away = False
    store.fail("write_log", after=True)  # written, but nobody hears of it
    await asyncio.sleep(60)

    assert await gone(store, id)
    assert await kept(store, id) == [str(number) for number in range(8)]
    await worker.stop()


@in_virtual_time
async def test_a_log_that_cannot_be_kept_holds_up_no_end(caplog):
    async def talk(running):
        running.say("info", "shop", "hello")
        await asyncio.sleep(2)

    store = faulty(await a_store())
    [id] = await enqueued(store)
    store.fail("write_log", *[RuntimeError("broken")] * 5)
    worker = a_worker(store, Tasks(resize=talk))
    await worker.start()
    await asyncio.sleep(3)

    assert await gone(store, id)
    assert "cannot be stored" in caplog.text
    await worker.stop()


@in_virtual_time
async def test_the_last_progress_is_kept_with_the_end():
    async def work(running):
        running.report(progress=50.0, note="half")
        running.report(progress=100.0, note="done")

    store = await a_store()
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=work))
    await worker.start()
    await asyncio.sleep(1)

    ended = await look(store, id)
    assert (ended.state, ended.progress, ended.note) == (State.SUCCEEDED, 100.0, "done")
    await worker.stop()


@pytest.mark.parametrize("count", [1, 3])
@in_virtual_time
async def test_every_attempt_has_its_own_log(count):
    async def fail(running):
        running.say("info", "shop", f"attempt {running.claimed.attempt}")
        raise ValueError("no")

    store = await a_store()
    [id] = await enqueued(store, retries=count - 1)
    worker = a_worker(store, Tasks(resize=fail))
    await worker.start()
    await asyncio.sleep(600)

    parts = await store.catalog.read_log(TENANT, id)
    assert [(part.attempt, part.number) for part in parts] == [(n + 1, LAST) for n in range(count)]
    await worker.stop()
