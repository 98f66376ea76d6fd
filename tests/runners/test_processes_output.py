"""What tasks in child processes print and log."""

import asyncio
import logging
import os

from daybell.core.execution import MASKED_CHARS_MAX
from tests.engine.virtual import until
from tests.runners import isolated
from tests.runners.pools import Started, a_pool, ran


async def test_output_is_heard_however_it_was_made(capsys, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # which is for C, too
    async with a_pool() as pool:
        started = Started(pool, isolated.print_all_ways)
        await started.result()
        await ran(pool, isolated.whoami)

    said = started.running.said
    assert {line for level, _, line in said if level == "stdout"} == {
        "from Python", "from a descriptor", "from C", "from a program"
    }  # fmt: skip
    assert ("stderr", "", "to stderr") in said
    printed = capsys.readouterr()
    assert "from a program\n" in printed.out
    assert printed.err == "to stderr\n"


async def test_what_was_printed_last_still_belongs_to_its_task():
    async with a_pool(children=2) as pool:
        tasks = [Started(pool, isolated.print_one, text=str(number)) for number in range(200)]
        for task in tasks:
            await task.result()

    said = [[line for *_, line in task.running.said] for task in tasks]
    assert said == [[str(number)] for number in range(200)]


async def test_output_is_heard_while_the_task_runs(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with a_pool() as pool:
        started = Started(pool, isolated.print_twice, fifo=str(fifo))
        await until(lambda: started.running.said, within=30)

        await asyncio.to_thread(fifo.write_text, "go on")

        await started.result()
        assert [line for *_, line in started.running.said] == ["first", "second"]


async def test_records_of_logging_are_heard_and_logged_here_as_well(caplog):
    async with a_pool() as pool:
        started = Started(pool, isolated.log_from_everywhere)
        await started.result()

    said = started.running.said
    assert said[:2] == [
        ("warning", "daybell.task.resize", "from the context"),
        ("error", "mine", "from a thread"),
    ]
    assert said[2][:2] == ("error", "mine")
    assert said[2][2].startswith("half ?\nTraceback")
    assert ("mine", logging.ERROR, "from a thread") in caplog.record_tuples


async def test_of_an_endless_record_more_comes_than_is_kept_and_the_rest_is_counted():
    async with a_pool() as pool:
        started = Started(pool, isolated.log_much, chars=1_000_000)
        await started.result()

    assert started.running.said == [("warning", "mine", "x" * MASKED_CHARS_MAX)]
    assert started.running.lengths == [1_000_000]
