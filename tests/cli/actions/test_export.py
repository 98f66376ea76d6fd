"""`daybell export`, from the database and over HTTP."""

import json

import pytest
from pyarrow import parquet

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
