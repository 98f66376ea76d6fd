"""A store that is away when a process starts: some wait for it, unless waiting cannot help."""

import os
import signal
from typing import Any

import pytest

from tests.cli.terminal import Running, daybell
from tests.postgres import Postgres
from tests.stores import POSTGRES

SECRET = "hunter2"
APP = "from daybell import App\napp = App()\n"
WORKER = ["worker", "app.py"]
PROCESSES = ["worker", "app.py", "--processes", "2"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("words", [WORKER, PROCESSES, ["scheduler"]])
def test_who_runs_for_long_waits_for_the_store_and_says_so(words, folder):
    url = f"postgresql://me:{SECRET}@127.0.0.1:1/jobs"
    with Running(*words, folder=folder, DAYBELL_DATABASE_URL=url) as running:
        running.wait_for(r"postgresql://me:\*\*\*@127.0.0.1:1/jobs is away, waiting for it: Post")

        running.signal(signal.SIGTERM)

        assert running.end() == 0
    assert SECRET not in running.said
    assert "stopped before it was up" in running.said


@pytest.mark.postgres
def test_all_that_wait_begin_when_the_server_is_there(folder):
    with Postgres() as server:
        told: Any = {"DAYBELL_DATABASE_URL": server.create_database()}
        assert daybell("migrate", folder=folder, **told).code == 0
        server.stop()
        with (
            Running(*WORKER, folder=folder, **told) as worker,
            Running("scheduler", folder=folder, **told) as scheduler,
        ):
            for one in (worker, scheduler):
                one.wait_for("waiting for it")

            server.start()

            worker.wait_for(" runs jobs without code of default .* at a time")
            scheduler.wait_for("looking after")
            for one in (worker, scheduler):
                one.wait_for("is there")
                one.signal(signal.SIGTERM)
            assert (worker.end(), scheduler.end()) == (0, 0)


@pytest.mark.postgres
@pytest.mark.parametrize("words", [WORKER, PROCESSES, ["scheduler"]])
async def test_what_no_waiting_can_mend_is_said_at_once(words, folder, servers):
    async with servers.database(POSTGRES["postgres"]) as url:
        unknown = daybell(*words, folder=folder, DAYBELL_DATABASE_URL=f"{url}_and_more")
        too_old = daybell(*words, folder=folder, DAYBELL_DATABASE_URL=url)

    assert (unknown.code, too_old.code) == (1, 1)
    assert "refuses this access" in unknown.err
    assert "daybell migrate" in too_old.err
    assert "waiting" not in unknown.err + too_old.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_waited_for(folder):
    daybell("migrate", folder=folder)
    (folder / "daybell.db").chmod(0o400)

    ended = daybell(*WORKER, folder=folder)

    assert ended.code == 1
    assert "chmod" in ended.err
