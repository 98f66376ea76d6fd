"""Output of child processes: what tasks print and log, cut into lines."""

import asyncio
import logging
import os

import pytest

from daybell.core.execution import MASKED_CHARS_MAX
from daybell.core.limits import LOG_LINE_CHARS_MAX
from daybell.runners.processes import LINE_CHARS_MAX, OutputPipe
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
        await until(lambda: started.running.said, within=60)

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


# What a child prints, cut into lines: nothing of a line comes after its cut.

SECRET = "hunter2-hunter2"


@pytest.fixture
def said():
    return []


@pytest.fixture
async def output(said):
    output = OutputPipe("stdout", say=lambda *words: said.append(words))
    yield output
    output.close()


@pytest.fixture
async def prints(output):
    writer = os.dup(output.writer)
    output.start()

    def prints(text: str) -> None:
        """In pieces that a pipe can hold, each read by itself."""
        data = text.encode()
        for start in range(0, len(data), 1000):
            os.write(writer, data[start : start + 1000])
            output.read()

    yield prints
    os.close(writer)


async def test_the_rest_of_a_line_that_is_too_long_is_dropped_and_counted(prints, said, capsys):
    before = "x" * (LINE_CHARS_MAX - 7)

    prints(f"{before}{SECRET}{'y' * 100_000}\nthe next\n")

    dropped = len(SECRET) - 7 + 100_000
    assert said == [
        ("stdout", "", f"{before}hunter2", LINE_CHARS_MAX + dropped),
        ("stdout", "", "the next", 8),
    ]
    # What goes on is not masked by who hears it: nothing of what was cut may show.
    shown = before[: LINE_CHARS_MAX - LOG_LINE_CHARS_MAX]
    assert capsys.readouterr().out == (
        f"{shown}… ({LINE_CHARS_MAX + dropped:,} characters)\nthe next\n"
    )


async def test_the_longest_line_is_whole_and_the_next_task_starts_a_new_one(prints, output, said):
    prints("x" * LINE_CHARS_MAX)
    output.end_line()
    prints("y" * (LINE_CHARS_MAX + 1))
    output.end_line()
    prints("ä\n\nz")
    output.end_line()
    output.end_line()

    assert [(line, length) for *_, line, length in said] == [
        ("x" * LINE_CHARS_MAX, LINE_CHARS_MAX),
        ("y" * LINE_CHARS_MAX, LINE_CHARS_MAX + 1),
        ("ä", 1),
        ("", 0),
        ("z", 1),
    ]


async def test_what_goes_on_is_masked_here_and_what_is_said_by_who_hears_it(said, capsys):
    output = OutputPipe(
        "stdout", say=lambda *words: said.append(words), mask=lambda text: text.replace(SECRET, "*")
    )
    writer = os.dup(output.writer)
    output.start()

    os.write(writer, f"it is {SECRET}\n".encode())
    output.read()
    os.close(writer)
    output.close()

    assert capsys.readouterr().out == "it is *\n"
    assert said == [("stdout", "", f"it is {SECRET}", len(SECRET) + 6)]
