"""Progress that commands report, in lines to a named pipe."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
import tempfile

import pytest

from daybell.runners import command_processes
from daybell.runners.command_processes import (
    LINE_BYTES_MAX,
    PAUSE_SECONDS,
    ProgressPipe,
    read_progress,
)
from tests.runners.running_commands import SECONDS, Job, some_commands

DAYBELL = f"{sys.executable} -m daybell"


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """Starts shell scripts, whose pipes are in a folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with some_commands() as commands:
        yield lambda script: Job(commands, command=script, shell=True)


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_line_is_the_progress_and_its_note(start, tmp_path):
    go = tmp_path / "go"
    script = f'echo "50 half way" > "$DAYBELL_PROGRESS"; while [ ! -e {go} ]; do sleep 0.01; done'
    job = start(script)

    await until(lambda: job.run.progress == 50)  # while it runs

    assert job.run.note == "half way"
    assert job.run.has_news
    go.touch()
    await job.result()


@pytest.mark.parametrize(
    ("script", "progress", "note"),
    [
        ("printf '12.5%% rows' > $DAYBELL_PROGRESS", 12.5, "rows"),  # without the end of the line
        ("for n in 1 2 3; do echo $n; done > $DAYBELL_PROGRESS", 3, None),
        (f"{DAYBELL} progress 70 'nearly there'", 70, "nearly there"),
        (f"{DAYBELL} progress 100", 100, None),
        # A program that closes what it inherits, as those in Python do, can still write.
        (
            f"""{sys.executable} -c 'import subprocess as s; s.run("echo 7 > $DAYBELL_PROGRESS","""
            """ shell=True, check=True)'""",
            7,
            None,
        ),
    ],
)
async def test_what_was_reported_last_is_known_when_it_has_ended(start, script, progress, note):
    job = start(script)

    await job.result()

    assert (job.run.progress, job.run.note) == (progress, note)
    assert job.log == []


@pytest.mark.parametrize(
    "line", ["halfway", "101", "-1", "nan", "1e2", "5 " + "x" * 5000, "0x10", "50%%", "٥٠ ok\x00"]
)
async def test_what_is_no_progress_is_ignored_and_said_once(start, tmp_path, line):
    (tmp_path / "lines").write_text(f"{line}\n" * 3)

    job = start(f"echo 30 > $DAYBELL_PROGRESS; sleep 0.3; cat {tmp_path}/lines > $DAYBELL_PROGRESS")
    await job.result()

    if line.startswith("٥٠"):  # digits are digits
        assert (job.run.progress, job.run.note) == (50, "ok")
        return
    assert job.run.progress == 30
    (said,) = job.log
    assert said[0] == "warning"
    assert "50 halfway" in said[1]


async def test_a_command_that_floods_does_not_occupy_the_worker(tmp_path):
    reports: list[tuple[float, str | None]] = []
    pipe = ProgressPipe(str(tmp_path / "pipe"), lambda *said: reports.append(said), pytest.fail)
    command = f"exec yes '42 flood' > {pipe.path}"
    flood = await asyncio.create_subprocess_shell(command)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        pipe.start()
        await until(lambda: len(reports) >= 4)
    finally:
        flood.kill()
        await flood.wait()
        pipe.close()

    assert set(reports) == {(42.0, "flood")}
    # One in each pause, and those at the beginning and at the end.
    assert len(reports) <= (loop.time() - began) / PAUSE_SECONDS + 2


async def test_a_line_that_is_written_in_parts_is_one_line(tmp_path):
    reports: list[tuple[float, str | None]] = []
    pipe = ProgressPipe(str(tmp_path / "pipe"), lambda *said: reports.append(said), pytest.fail)
    pipe.start()
    writer = os.open(pipe.path, os.O_WRONLY)

    os.write(writer, b"4")
    await until(lambda: pipe._rest == b"4")  # pyright: ignore[reportPrivateUsage]
    os.write(writer, b"2 parts\n")
    await until(lambda: reports)

    pipe.close()
    assert reports == [(42.0, "parts")]
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"50\n")
    os.close(writer)


async def test_a_line_without_end_is_not_kept(tmp_path):
    reports: list[tuple[float, str | None]] = []
    pipe = ProgressPipe(str(tmp_path / "pipe"), lambda *said: reports.append(said), lambda: None)
    pipe.start()
    writer = os.open(pipe.path, os.O_WRONLY)

    for _ in range(3):
        os.write(writer, b"7" * LINE_BYTES_MAX)
        await until(lambda: not is_readable(pipe.path))
    assert len(pipe._rest) == LINE_BYTES_MAX + 1  # pyright: ignore[reportPrivateUsage]
    os.write(writer, b"\n42\n")
    os.close(writer)
    await until(lambda: reports)

    pipe.close()
    assert reports == [(42.0, None)]


def is_readable(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return bool(select.select([fd], [], [], 0)[0])
    finally:
        os.close(fd)


async def test_nothing_of_it_outlives_the_command(start, tmp_path):
    job = start(f"stat -c %a $DAYBELL_PROGRESS; ls -d {tmp_path}/daybell-*")
    said = (await job.output()).split()

    assert said[0] == "600"
    folder = said[1]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    await until(lambda: not os.listdir(folder))


async def test_a_command_without_a_place_for_pipes_runs_all_the_same(start, monkeypatch, caplog):
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")

    assert await start("echo ${DAYBELL_PROGRESS-none}").output() == "none"
    assert await start("echo ${DAYBELL_PROGRESS-none}").output() == "none"

    assert caplog.text.count("commands cannot report progress here") == 1


async def test_a_folder_that_was_removed_is_made_again(start, tmp_path, caplog):
    script = "echo 40 > $DAYBELL_PROGRESS"
    await start(script).result()
    (folder,) = tmp_path.glob("daybell-*")
    await until(lambda: not os.listdir(folder))
    folder.rmdir()

    job = start(script)
    await job.result()

    assert job.run.progress == 40
    assert caplog.text == ""


async def test_an_error_is_kept_to_the_commands_that_have_it(start, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert await start("echo ${DAYBELL_PROGRESS-none}").output() == "none"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    job = start("echo 40 > $DAYBELL_PROGRESS")
    await job.result()

    assert job.run.progress == 40


def test_only_a_pipe_of_this_user_is_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "file").touch()

    for name in ("link", "file"):
        with pytest.raises(OSError):
            command_processes.open_pipe(str(tmp_path / name))
    os.close(command_processes.open_pipe(str(tmp_path / "pipe")))
    monkeypatch.setattr(os, "geteuid", lambda: -2)
    with pytest.raises(OSError, match="is not the pipe that the worker made"):
        command_processes.open_pipe(str(tmp_path / "pipe"))


async def test_the_folder_goes_with_the_worker(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with some_commands() as commands:
        await Job(commands, command="true").result()
        assert list(tmp_path.glob("daybell-*"))

    await until(lambda: not list(tmp_path.glob("daybell-*")))


WORKER = """\
import asyncio, os, sys
from tests.runners.running_commands import Job, some_commands

async def main():
    async with some_commands() as commands:
        job = Job(commands, command="echo $DAYBELL_PROGRESS; exec sleep 600", shell=True)
        while not job.said:
            await asyncio.sleep(0.01)
        print(job.said, flush=True)
        await job.result()

asyncio.run(main())
"""


async def test_the_folder_of_a_killed_worker_is_removed():
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    pipe = (await worker.stdout.readline()).decode().strip()
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)

    os.kill(worker.pid, signal.SIGKILL)
    await worker.wait()

    await until(lambda: not os.path.exists(os.path.dirname(pipe)))


def test_lines():
    assert read_progress(b"50") == (50.0, None)
    assert read_progress(b" 50 % half  way ") == (50.0, "half  way")
    assert read_progress(b"99.5 \xff") == (99.5, "\ufffd")
    assert read_progress(b"50 %x") == (50.0, "%x")
    assert read_progress(b"50 a\rb") == (50.0, "a\rb")
    assert read_progress(b"50halfway") is None
    assert read_progress(b"") is None


def test_no_line_takes_long_to_read():
    blanks = b" " * 2040
    assert read_progress(b"500 a" + b" " * 4085 + b"b") is None
    assert read_progress(b"5" + blanks + b"a" + blanks + b"b") == (
        5.0,
        f"a{blanks.decode()}b",
    )
    assert read_progress(blanks + b"x" + blanks) is None
    # Time is not measured. A match from the beginning with one repetition takes as many steps as
    # the line has characters; a second repetition multiplies them.
    pattern = command_processes._NUMBER.pattern  # pyright: ignore[reportPrivateUsage]
    assert sum(map(pattern.count, "*+")) == 1
