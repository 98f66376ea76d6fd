"""What a child prints, cut into lines: nothing of a line comes after its cut."""

import os

import pytest

from daybell.core.limits import LOG_LINE_CHARS_MAX
from daybell.runners.processes import LINE_CHARS_MAX, OutputPipe

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
