"""The throw-away PostgreSQL starts, survives crashes and never outlives its owner."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import asyncpg
import pytest

from tests import postgres
from tests.postgres import Postgres, eventually, started

ROOT = Path(__file__).parent.parent

OWNER = """
import sys
from tests.postgres import Postgres

server = Postgres()
server.start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server():
    with Postgres() as running:
        yield running


async def ask(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def start_owner() -> tuple[subprocess.Popen[str], int, Path]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout
    pid, folder = owner.stdout.readline().split()
    return owner, int(pid), Path(folder)


def end(owner: subprocess.Popen[str], how: signal.Signals) -> None:
    with owner:  # closes the pipes, too
        owner.send_signal(how)


async def test_it_answers_with_the_version_asked_for(server):
    answer = await ask(server.url(), "SHOW server_version")

    assert str(answer).startswith("18.")


@pytest.mark.all_only
async def test_the_older_version_runs_too():
    with Postgres(version="16") as older:
        answer = await ask(older.url(), "SHOW server_version")

    assert str(answer).startswith("16.")


async def test_settings_are_given_by_keyword():
    with Postgres(max_connections=20, work_mem="5MB") as small:
        assert await ask(small.url(), "SHOW max_connections") == "20"
        assert await ask(small.url(), "SHOW work_mem") == "5MB"
        assert await ask(small.url(), "SHOW fsync") == "off"
        assert await ask(small.url(), "SHOW synchronous_commit") == "on"


@pytest.mark.all_only
async def test_a_durable_server_syncs_and_compresses_its_log():
    with Postgres(durable=True) as careful:
        assert await ask(careful.url(), "SHOW fsync") == "on"
        assert await ask(careful.url(), "SHOW full_page_writes") == "on"
        assert await ask(careful.url(), "SHOW wal_compression") in ("lz4", "off")


async def test_acknowledged_rows_survive_a_crash_of_the_server():
    with Postgres() as server:
        url = server.url()
        await ask(url, "CREATE TABLE kept (x int)")
        await ask(url, "INSERT INTO kept SELECT generate_series(1, 1000)")

        server.restart(signal.SIGQUIT)

        assert server.url() == url
        assert await ask(url, "SELECT count(*) FROM kept") == 1000


async def test_a_database_is_copied_from_its_template(server):
    server.create_database("pattern")
    await ask(server.url("pattern"), "CREATE TABLE pattern AS SELECT 42 AS x")

    copy = server.create_database(template="pattern")

    assert await ask(copy, "SELECT x FROM pattern") == 42


async def test_a_database_is_dropped_although_somebody_is_connected(server):
    connection = await asyncpg.connect(server.create_database("doomed"))

    server.drop_database("doomed")

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await ask(server.url("doomed"), "SELECT 1")
    connection.terminate()


def test_a_failed_start_says_why_and_leaves_nothing_behind():
    server = Postgres(shared_buffers="no such size")

    with pytest.raises(RuntimeError, match="shared_buffers"), server:
        pass

    assert not server.folder.exists()


def test_close_removes_the_server_and_its_folder():
    with Postgres() as server:
        pid = server.pid
        assert started(pid)

    assert started(pid) is None
    assert not server.folder.exists()


def test_it_dies_with_its_owner_even_when_the_owner_is_killed():
    owner, pid, folder = start_owner()
    assert started(pid)

    end(owner, signal.SIGKILL)

    assert eventually(lambda: started(pid) is None, 20)
    assert eventually(lambda: not folder.exists(), 20)


def test_a_sweep_clears_what_a_dead_owner_left_and_spares_the_living(server):
    owner, pid, folder = start_owner()
    # Without its watchdog the server outlives its owner: only the sweep is left to find it.
    os.kill(watchdog_of(folder), signal.SIGKILL)
    end(owner, signal.SIGKILL)
    assert started(pid)

    postgres.sweep()

    assert started(pid) is None
    assert not folder.exists()
    assert server.folder.exists()
    assert started(server.pid)


def watchdog_of(folder: Path) -> int:
    """Find the watchdog by its command line, as nobody but the killed owner knows its pid."""
    for process in Path("/proc").glob("[0-9]*"):
        words = postgres.read_lines(process / "cmdline")
        if words and words[0].rstrip("\0").endswith(f"postgres.py\0{folder}"):
            return int(process.name)
    raise AssertionError(f"no watchdog for {folder}")


def test_a_recycled_pid_does_not_pass_for_the_owner(tmp_path):
    alive = tmp_path / f"{postgres.PREFIX}{os.getpid()}-{started(os.getpid())}-x"
    recycled = tmp_path / f"{postgres.PREFIX}{os.getpid()}-1-x"

    assert postgres.owner_is_alive(alive)
    assert not postgres.owner_is_alive(recycled)


def test_hidden_binaries_are_copied_once_even_by_many_at_a_time(tmp_path):
    binaries = tmp_path / "package" / "pginstall18" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "postgres").write_text("the server")
    libraries = tmp_path / "package.libs"
    libraries.mkdir()
    (libraries / "libpq.so").write_text("the library")
    copies: list[Path] = []

    callers = [
        threading.Thread(target=lambda: copies.append(postgres.shared_copy(binaries)))
        for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    (copy,) = set(copies)
    try:
        assert len(copies) == 8
        assert (copy / "postgres").read_text() == "the server"
        assert (copy.parents[2] / "package.libs" / "libpq.so").exists()
        assert postgres.is_reachable_by_all(copy)
    finally:
        shutil.rmtree(copy.parents[2])
