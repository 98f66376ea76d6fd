"""Code that goes back: `worker` and `doctor` say so, `dev` and `jobs declare` make it current."""

import asyncio
import json

import pytest

from daybell import Client
from daybell.cli.actions.definitions import is_private_store
from daybell.cli.connection import current_actor
from tests.cli.in_process import typing
from tests.cli.terminal import Running, daybell

APP = """\
from daybell import App, cron

app = App()

@app.task(schedule=cron("0 {hour} * * *"))
async def report(): ...

@app.task
async def greet(): ...
"""
# Not of the same size, or Python would take what it has compiled within the same second for this.
OLD, NEW = APP.format(hour=1), APP.format(hour=15)
STAYS = "warning: this code has an older version of a job, which does not become current by itself"


def versions(folder):
    async def asked():
        async with Client(f"sqlite:///{folder}/daybell.db") as client:
            return [(job.version, job.author) for job in await client.versions("report")]

    return asyncio.run(asked())


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Types a command in a folder where the code is old again, and a newer version is current."""
    monkeypatch.chdir(tmp_path)
    # Files of their own: this process imports each once.
    for name, text in (("before.py", OLD), ("between.py", NEW), ("now.py", OLD)):
        (tmp_path / name).write_text(text)
    typed = typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=f"sqlite:///{tmp_path}/daybell.db")
    for name in ("before.py", "between.py"):
        assert typed("jobs", "declare", name) == (0, "as the code says: 2 jobs\n", "")
    return typed


def audited(folder):
    async def asked():
        async with Client(f"sqlite:///{folder}/daybell.db") as client:
            return [(one.actor, one.action) for one in (await client.audit()).items]

    return asyncio.run(asked())


def test_a_worker_leaves_it_and_says_so_once_and_dev_goes_back(tmp_path):
    file = tmp_path / "shop.py"
    for text in (OLD, NEW):
        file.write_text(text)
        assert daybell("jobs", "declare", "shop.py", folder=tmp_path).code == 0
    file.write_text(OLD)

    with Running("worker", "shop.py", "--processes", "2", folder=tmp_path) as running:
        running.wait_for("worker .* runs ", times=2)
        said = running.said
    left = versions(tmp_path)
    with Running("dev", "shop.py", "--port", "0", folder=tmp_path) as running:
        running.wait_for("health ")
        back = running.said

    code = "code:shop:app"
    assert said.count("older version") == 1
    assert f"{STAYS}: report (version 1; current is 2, since " in said
    assert left == [(2, code), (1, code)]
    assert "note: went back to what the code says: report (version 1; current was 2, since " in back
    assert STAYS not in back
    assert versions(tmp_path) == [(3, code), (2, code), (1, code)]
    assert audited(tmp_path) == [(current_actor(), "job.declare")]


@pytest.mark.parametrize(
    ("url", "is_one_developers"),
    [
        ("sqlite:///daybell.db", True),
        ("memory://", True),
        ("postgresql://db/jobs", False),
        ("postgres://db/jobs", False),
    ],
)
def test_what_may_be_the_store_of_many_is_not_gone_back_in_by_dev(url, is_one_developers):
    assert is_private_store(url) is is_one_developers


def test_declaring_makes_what_the_code_says_current(typed, tmp_path):
    back = typed("jobs", "declare", "now.py", "--json")
    again = typed("jobs", "declare", "now.py")
    audited = json.loads(typed("audit", "list", "--json").out)["items"]

    assert json.loads(back.out) == {"jobs": ["report", "greet"], "back": {"report": 3}}
    assert again == (0, "as the code says: 2 jobs\n", "")
    assert [version for version, _ in versions(tmp_path)] == [3, 2, 1]
    (entry,) = audited
    assert (entry["actor"], entry["action"]) == (current_actor(), "job.declare")
    assert entry["before"] == {"report": 2}


def test_declaring_tells_which_jobs_went_back(typed):
    assert typed("jobs", "declare", "now.py").out == (
        "report is again what it was, as version 3\nas the code says: 2 jobs\n"
    )


def test_declaring_needs_an_app(typed):
    nothing = typed("jobs", "declare")

    assert (nothing.code, "say which app" in nothing.err) == (2, True)


def test_the_doctor_compares_an_app_with_the_store(typed):
    def code(*words):
        checks = json.loads(typed("doctor", *words, "--json").out)["checks"]
        return [(one["is_ok"], one["found"]) for one in checks if one["name"] == "code"]

    ((is_ok, found),) = code("now.py")
    before, without = code("between.py"), code()
    typed("jobs", "rollback", "report", "1")
    after = code("now.py")

    assert not is_ok
    assert found.startswith("1 of 2 jobs in an older version: report (version 1; current is 2, ")
    assert before == after == [(True, "2 jobs, none in an older version")]
    assert without == []


def test_new_code_is_no_problem_for_the_doctor_and_broken_code_is(typed, tmp_path):
    (tmp_path / "newer.py").write_text(APP.format(hour=7))
    (tmp_path / "broken.py").write_text("import nothing_like_that\n")

    newer = json.loads(typed("doctor", "newer.py", "--json").out)["checks"]
    broken = typed("doctor", "broken.py", "--json")

    assert [one["is_ok"] for one in newer if one["name"] == "code"] == [True]
    found = {one["name"]: one for one in json.loads(broken.out)["checks"]}
    assert (broken.code, "nothing_like_that" in found["app"]["found"]) == (1, True)
    assert "code" not in found
    assert found["store"]["is_ok"]
