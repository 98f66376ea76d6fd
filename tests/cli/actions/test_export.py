"""`daybell export`, from the database and over HTTP."""

import json
from collections import Counter
from io import BytesIO

import pytest
from pyarrow import parquet

from daybell import App, every
from daybell.cli.actions import export
from daybell.client import when
from daybell.testing import Bench
from tests.cli.in_process import typing
from tests.cli.sides import a_world

ALL = "executions,attempts,logs,ticks"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with a_world(tmp_path_factory.mktemp("export")) as opened:
        yield opened


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs a command in this process."""
    monkeypatch.chdir(tmp_path)
    return typing(monkeypatch, capsys)


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("side", ["here", "there"])
def test_all_that_has_ended_is_exported_with_its_attempts_and_logs(world, run, tmp_path, side):
    asked = ("export", "--what", ALL, "--output", "all.jsonl")
    ended = run(*asked, **getattr(world, side).variables)

    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "all.jsonl")
    done = {row["execution_id"]: row for row in rows if row["kind"] == "executions"}
    assert sorted(row["status"] for row in done.values()) == ["dead"] * 4 + ["succeeded"]
    attempts = [row for row in rows if row["kind"] == "attempts"]
    assert {row["execution_id"] for row in attempts} == done.keys()
    assert {(row["attempt"], row["outcome"]) for row in attempts} == {
        (1, "succeeded"),
        (1, "failed"),
    }
    (line,) = [row for row in rows if row["kind"] == "logs"]
    assert (line["job"], line["message"]) == ("greet", "greeting Ada")
    assert ended.err.startswith("exported 5 executions, 5 attempts, 1 logs")


async def test_each_tick_is_exported_once_and_years_without_ticks_in_few_requests(monkeypatch):
    monkeypatch.setattr(export, "PAGE_ITEMS_MAX", 1)
    monkeypatch.setattr(when, "FIRES_MAX", 2)
    app = App("memory://")

    @app.task(schedule=every("12h"))
    async def seldom(): ...

    @app.task(schedule=every("1h"))
    async def often(): ...

    async with Bench(app) as bench:
        await bench.advance("1d")
        file = BytesIO()
        run = export.Export(await app.client_for(None), frozenset({"ticks"}), None)
        until = bench.now.timestamp() + 1
        windows = [None async for _ in run.write(export.JsonLines(file), 0.0, until)]

    rows = [json.loads(line) for line in file.getvalue().splitlines()]
    assert Counter(row["job"] for row in rows) == {"seldom": 2, "often": 24}
    assert len({(row["job"], row["at"]) for row in rows}) == len(rows)
    assert len(windows) < 100


def test_a_cursor_continues_behind_the_page_where_the_last_run_stopped(world, run, tmp_path):
    variables = world.here.variables
    listed = json.loads(run("executions", "list", "--limit", "3", "--json", **variables).out)
    asked = ("export", "--output", "some.jsonl", "--cursor", listed["next_cursor"])

    assert run(*asked, **variables).code == 0
    before = {row["execution_id"] for row in listed["items"]}
    some = {row["execution_id"] for row in rows_of(tmp_path / "some.jsonl")}
    assert run("export", "--output", "all.jsonl", **variables).code == 0
    every = {row["execution_id"] for row in rows_of(tmp_path / "all.jsonl")}

    assert some == every - before
    assert 0 < len(some) < len(every)


def test_a_range_is_about_the_end_and_not_about_the_beginning(world, run):
    assert run("export", "--until", "2020-01-01", **world.here.variables).out == ""
    assert len(run("export", "--since", "1d", **world.here.variables).out.splitlines()) == 5


def test_a_parquet_file_has_a_column_for_each_field(world, run, tmp_path):
    file = ("--format", "parquet", "--output", "e.parquet")

    ended = run("export", *file, **world.here.variables)

    table = parquet.read_table(tmp_path / "e.parquet")
    assert ended.code == 0, ended.err
    assert table.num_rows == 5
    row = next(row for row in table.to_pylist() if row["status"] == "succeeded")
    assert (row["job"], json.loads(row["args"]), row["attempt"]) == ("greet", {"name": "Ada"}, 1)
    assert row["finished_at"].tzinfo is not None
    again = run("export", *file, **world.here.variables)
    assert (again.code, "exists" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--what", "foo"), "executions, attempts, logs, ticks"),
        (("--format", "xml"), "jsonl, parquet"),
        (("--format", "parquet"), "--output FILE"),
        (("--since", "2999-01-01"), "--until"),
    ],
)
def test_wrong_input_is_refused_with_the_way_out(world, run, words, named):
    ended = run("export", *words, **world.here.variables)

    assert ended.code == 2
    assert named in ended.err


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_repeated_export_continues_where_it_ended(world, run, tmp_path, monkeypatch, side):
    monkeypatch.setattr(export, "LATE_SECONDS", 0.0)
    variables, name = getattr(world, side).variables, f"warehouse-{side}"
    first = run("export", "--policy", name, "--output", "first.jsonl", **variables)
    second = run("export", "--policy", name, "--output", "second.jsonl", **variables)

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert len(rows_of(tmp_path / "first.jsonl")) == 5
    assert rows_of(tmp_path / "second.jsonl") == []
    both = run("export", "--policy", name, "--since", "1d", **variables)
    assert (both.code, "--policy" in both.err) == (2, True)
    assert run("export", "--release", name, **variables).code == 0
    again = run("export", "--release", name, **variables)
    assert (again.code, "no export policy" in again.err) == (1, True)
