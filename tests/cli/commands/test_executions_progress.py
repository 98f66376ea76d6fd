"""`daybell progress`, which commands report with."""

import os
from contextlib import suppress

import pytest

from daybell.runners.command_processes import read_progress
from tests.cli.terminal import daybell


@pytest.fixture
def pipe(tmp_path):
    """A pipe like a worker's, and the file to read it from."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield path, fd
    os.close(fd)


@pytest.mark.parametrize(
    ("said", "percent"), [("0.00001", 0.00001), ("1e1", 10), ("99.9999", 99.9999), ("7%", 7)]
)
def test_a_worker_can_read_each_percentage(said, percent, pipe, tmp_path):
    path, fd = pipe

    done = daybell("progress", said, "a  note", folder=tmp_path, DAYBELL_PROGRESS=path)

    assert done == (0, "", "")
    assert read_progress(os.read(fd, 4096)) == (percent, "a note")


@pytest.mark.parametrize("said", ["abc", "101", "nan", "inf", ""])
def test_what_is_no_percentage_is_refused_in_words(said, tmp_path):
    done = daybell("progress", said, folder=tmp_path)

    assert done.code == 2
    assert done.err.startswith(f"error: '{said}' is no percentage; a number from 0 to 100 is")


def test_a_full_pipe_does_not_block_the_command(pipe, tmp_path):
    path, fd = pipe
    with suppress(BlockingIOError):
        while True:
            os.write(fd, b"1\n" * 2048)

    done = daybell("progress", "50", folder=tmp_path, DAYBELL_PROGRESS=path)

    assert (done.code, done.out) == (0, "")
    assert "is dropped: 50" in done.err


def test_a_worker_that_is_gone_is_an_error(tmp_path):
    done = daybell("progress", "50", folder=tmp_path, DAYBELL_PROGRESS=str(tmp_path / "none"))

    assert done.code == 1
    assert "the worker does not listen" in done.err
