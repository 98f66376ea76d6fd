"""Workflows in the terminal: files of them, their runs, and beginning again."""

import asyncio
import json
import re

import pytest

from daybell import App, Client
from tests.cli.in_process import Typed, typing
from tests.workflows import ETL, work

FILE = """\
name: nightly
schedule: "0 2 * * *"
workflow:
  nodes:
    - name: extract
      task: resize
    - {name: each, task: resize, map: {output: extract}, args: {row: {item: true}}}
    - name: inner
      job: other
  edges:
    - [each, inner]
"""


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def make() -> None:
        async with Client(url, migrate=True) as client:
            await client.define("resize", queue="default")

    asyncio.run(make())
    return url


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path, url) -> Typed:
    monkeypatch.chdir(tmp_path)
    return typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=url, COLUMNS="160")


@pytest.fixture
def run(url):
    """A run of a workflow in which node `a` has failed."""

    async def make() -> str:
        async with Client(url) as client:
            await client.create("etl", workflow=ETL)
            id = (await client.enqueue("etl")).id
            await work(client.store, failing=["a"])
            return str(id)

    return asyncio.run(make())


def works(url) -> list[list[str]]:
    async def make() -> list[list[str]]:
        async with Client(url) as client:
            return await work(client.store)

    return asyncio.run(make())


def test_files_have_workflows_in_any_order(typed, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.yaml").write_text(FILE)
    (tmp_path / "jobs" / "b.yaml").write_text("name: other\ncommand: df\n")

    first, again = typed("apply", "-f", "jobs"), typed("apply", "-f", "jobs")
    shown = typed("jobs", "show", "nightly", "--yaml")

    assert first.code == 0, first.err
    assert "2 unchanged" in again.out, again.out
    assert "job: other" in shown.out
    (tmp_path / "again.yaml").write_text(shown.out.replace("nightly", "weekly"))
    made = typed("jobs", "create", "weekly", "--from-file", "again.yaml")
    assert made.code == 0, made.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("task: resize\n", "taks: resize\n", "a.yaml:6: job 'nightly': node 'extract' has no"),
        ("job: other", "job: othre", "a.yaml:9: job 'nightly': there is no job named 'othre'"),
        ("[each, inner]", "[each, iner]", "a.yaml:11: job 'nightly': an edge names 'iner'"),
        ("map: {output: extract}", "map: 5", "a.yaml:7: job 'nightly': node 'each' is mapped"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(typed, tmp_path, old, new, said):
    (tmp_path / "a.yaml").write_text(FILE.replace(old, new, 1))
    (tmp_path / "b.yaml").write_text("name: other\ncommand: df\n")

    answer = typed("apply", "-f", "a.yaml", "-f", "b.yaml")

    assert answer.code != 0
    assert said in answer.err


def test_a_run_is_shown_with_its_nodes(typed, run):
    shown, as_json = typed("executions", "show", run), typed("executions", "show", run, "--json")

    lines = {line.split()[0]: line for line in shown.out.splitlines() if line.strip()}
    assert "dead" in lines["a"] and "extract" in lines["a"]
    assert "3 of 3" in lines["b"]
    assert "waited" in lines["node"]
    assert "upstream_failed" in lines["load"]
    assert "5 of 5 nodes ended (100 %)" in shown.out
    assert json.loads(as_json.out)["workflow"]["nodes"][0]["name"] == "extract"


def test_what_happened_to_a_run_is_shown_moment_by_moment(typed, run):
    shown = typed("executions", "show", run, "--timeline").out.splitlines()
    told = json.loads(typed("executions", "show", run, "--timeline", "--json").out)["items"]

    assert shown[0].split() == ["at", "since", "node", "event", "attempt", "worker"]
    assert len(shown) == len(told) + 1
    assert any(re.search(r"Z  \+\S+ m?s +created$", line) for line in shown)
    assert any(re.search(r" a +dead$", line) for line in shown)
    assert shown[-1].endswith(" ended: dead")
    assert told[-1]["event"] == "ended"
    assert {one["node"] for one in told if one["event"] == "ready"} == {"extract", "a", "b", "tell"}


def test_nodes_are_listed_with_their_run(typed, run):
    listed = json.loads(typed("executions", "list", "--workflow", run[-8:], "--json").out)
    plain = json.loads(typed("executions", "list", "--json").out)
    everything = json.loads(typed("executions", "list", "--nodes", "--json").out)

    assert sorted(one["node"] for one in listed["items"]) == [
        "a", "b[0]", "b[1]", "b[2]", "extract", "tell",
    ]  # fmt: skip
    assert [one["execution_id"] for one in plain["items"]] == [run]
    assert len(everything["items"]) == 7


def test_a_run_goes_on_with_what_failed_or_from_a_node(typed, run, url):
    again = typed("executions", "retry", run)
    assert (again.code, again.out) == (0, f"{run} runs again\n")
    assert works(url) == [["a"], ["load"]]

    other = typed("executions", "retry", run, "--from", "load")
    assert other.code == 0 and f"{run} runs again as " in other.out
    assert works(url) == [["load"]]

    wrong = typed("executions", "retry", run, "--from", "lod")
    assert wrong.code != 0 and "the run has no node 'lod'; did you mean 'load'?" in wrong.err
    many = typed("executions", "retry", "--all", "--from", "load")
    assert many.code != 0 and "--from is for one run; give its id" in many.err


def test_a_run_from_a_node_says_that_it_is_not_of_the_current_version(typed, run, url):
    async def change() -> None:
        async with Client(url) as client:
            await client.update("etl", description="changed")

    same = typed("executions", "retry", run, "--from", "load")
    asyncio.run(change())
    older = typed("executions", "retry", run, "--from", "load")

    assert "version" not in same.out
    assert ", as version 1; the job is at version 2 now: `daybell jobs trigger etl`" in older.out


@pytest.fixture
def tidied(url):
    """A run that succeeded, though its node `fragile` failed."""
    nodes = [
        {"name": "fragile", "task": "resize", "retries": 0},
        {"name": "tidy", "task": "resize", "rule": "all_done"},
    ]

    async def make() -> str:
        async with Client(url) as client:
            await client.create("w", workflow={"nodes": nodes, "edges": [["fragile", "tidy"]]})
            id = (await client.enqueue("w")).id
            await work(client.store, failing=["fragile"])
            return str(id)

    return asyncio.run(make())


def test_a_run_that_succeeded_with_failed_nodes_says_so_and_the_way_to_begin_there(typed, tidied):
    shown, refused = typed("executions", "show", tidied), typed("executions", "retry", tidied)
    as_json = json.loads(typed("executions", "show", tidied, "--json").out)

    assert "succeeded, with failed nodes: fragile\n" in shown.out
    assert (as_json["status"], as_json["workflow"]["failed"]) == ("succeeded", ["fragile"])
    why = typed("executions", "why", tidied).out
    assert "it has succeeded, with failed nodes: fragile." in why
    assert f"`daybell executions retry {tidied} --from fragile`" in why
    assert refused.code == 1 and "--from fragile" in refused.err
    assert typed("executions", "retry", tidied, "--from", "fragile").code == 0


def test_a_branch_in_a_file_is_shown_in_words(typed, tmp_path):
    nodes = "[{name: pick, task: resize, branch: [a, b]}, {name: a, job: w}, {name: b, job: w}]"
    (tmp_path / "w.yaml").write_text("name: w\ncommand: df\nschedule: manual\n")
    (tmp_path / "p.yaml").write_text(f"name: p\nschedule: manual\nworkflow: {{nodes: {nodes}}}\n")
    assert typed("apply", "-f", "w.yaml", "-f", "p.yaml").code == 0
    assert typed("jobs", "trigger", "p").code == 0
    (listed,) = json.loads(typed("executions", "list", "--json").out)["items"]

    shown = typed("executions", "show", listed["execution_id"]).out
    written = typed("jobs", "show", "p", "--yaml").out

    assert "pick if it says a" in shown and "pick if it says b" in shown
    assert "branch" in written and "edges" not in written


def test_a_node_that_runs_another_job_is_listed_with_its_workflow(typed, url):
    app = App(url)

    @app.task
    async def look() -> None: ...

    with app.workflow("inner") as inner:
        look.node()
    with app.workflow("outer") as outer:
        inner.node("sub")

    async def make() -> None:
        async with app, app.worker():
            await (await outer.enqueue()).result(timeout=300)

    asyncio.run(make())

    whole = typed("executions", "list", "--nodes").out
    (last,) = typed("executions", "list", "--nodes", "--limit", "1").out.splitlines()[1:2]

    assert "outer: sub" in whole and "inner: look" in whole and "inner: sub" not in whole
    assert "inner: look" in last, "its run is on another page"


def test_jobs_that_are_nodes_are_listed_as_such(typed, url):
    async def make() -> None:
        async with Client(url) as client:
            await client.define("clean", schedule="@daily")
            await client.define("free")
            for name in ("etl", "more"):
                nodes = [{"name": "a", "task": "resize"}, {"name": "b", "task": "clean"}]
                await client.create(name, workflow={"nodes": nodes}, schedule="@daily")
            await client.create("outer", workflow={"nodes": [{"name": "c", "job": "free"}]})

    asyncio.run(make())

    for words in ((), ("--prefix", "r"), ("--limit", "5")):
        listed = {line.split()[0]: line for line in typed("jobs", "list", *words).out.splitlines()}
        if "resize" in listed:
            assert "node of etl and 1 more" in listed["resize"]
        if "clean" in listed:
            assert "node of" not in listed["clean"], "it has times of its own"
            assert "node of outer" in listed["free"]


def test_the_log_of_a_run_says_where_its_nodes_logs_are(typed, tidied):
    said = typed("executions", "logs", tidied)
    nodes = json.loads(typed("executions", "list", "--workflow", tidied, "--json").out)["items"]

    for one in nodes:
        assert f"{one['node']}: daybell executions logs {one['execution_id']}" in said.err


def test_why_says_what_a_run_waits_for(typed, url):
    async def begin() -> str:
        async with Client(url) as client:
            await client.create("etl", workflow=ETL)
            id = (await client.enqueue("etl")).id
            await work(client.store, rounds=2)
            return str(id)

    why = typed("executions", "why", asyncio.run(begin()))

    assert "1 of its 5 nodes have ended; it waits for a (queued), b (running)" in why.out


PARAMS = """\
name: inner
workflow:
  params:
    - day
    - {name: limit, default: 10}
  nodes:
    - {name: n, task: resize, args: {day: {param: day}, limit: {param: limit}}}
---
name: outer
workflow:
  params: [day]
  nodes:
    - {name: inner, job: inner, args: {day: {param: day}}}
"""


def test_parameters_in_files_are_shown_and_given_with_args(typed, tmp_path):
    (tmp_path / "a.yaml").write_text(PARAMS.replace("day", "date"))
    before = typed("apply", "-f", "a.yaml")
    (tmp_path / "a.yaml").write_text(PARAMS)
    changed, again = typed("apply", "-f", "a.yaml"), typed("apply", "-f", "a.yaml")

    shown = typed("jobs", "show", "inner")
    without, wrong = (
        typed("jobs", "trigger", "inner"),
        typed("jobs", "trigger", "outer", "--args", '{"dya": 1}'),
    )
    given = typed("jobs", "trigger", "inner", "--args", '{"day": "monday"}')
    (run,) = json.loads(typed("executions", "list", "--json").out)["items"]

    assert (before.code, changed.code, given.code) == (0, 0, 0), before.err + changed.err
    assert "2 unchanged" in again.out
    assert "parameters  day (must be given), limit=10" in shown.out
    assert without.err == (
        "error: workflow 'inner' must be given day; it takes day, limit=10."
        """ Say --args '{"day": …}'\n"""
    )
    assert "has no parameter 'dya'; did you mean 'day'?" in wrong.err
    assert '{"day":"monday"}' in typed("executions", "show", run["execution_id"]).out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    - day\n", "    - 5\n", "a.yaml:4: job 'inner': 5 is no parameter"),
        (
            "{param: limit}",
            "{param: limt}",
            "a.yaml:7: job 'inner': node 'n' refers to a parameter",
        ),
    ],
)
def test_what_is_wrong_with_parameters_in_a_file_is_told_with_its_line(
    typed, tmp_path, old, new, said
):
    (tmp_path / "a.yaml").write_text(PARAMS.replace(old, new, 1))

    answer = typed("apply", "-f", "a.yaml")

    assert answer.code != 0
    assert said in answer.err
