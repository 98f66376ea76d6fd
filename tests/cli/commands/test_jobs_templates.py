"""Templates: kept, shown and removed, and applied with their jobs."""

import json

import pytest

from tests.cli.job_files import a_world


@pytest.fixture
def world(monkeypatch, capsys, tmp_path):
    return a_world(monkeypatch, capsys, tmp_path)


def test_templates_and_their_jobs_come_together(world):
    world.write(
        a="jobs:\n- name: users\n  template: dump\n  parameters: {table: users}\n",
        z="name: dump\nparameters: {table: string}\n"
        "job:\n  sql: {connection: main, statement: s, parameters: {t: {parameter: table}}}\n",
    )

    dry = world.applied("--dry-run")
    world.applied()

    assert "+ template dump\n" in dry
    assert "+ users\n" in dry
    assert world.applied() == "= 2 unchanged\nnothing to do\n"
    world.write(a="jobs:\n- name: users\n  template: dump\n  parameters: {tabel: users}\n")
    wrong = world.apply()
    assert wrong.code == 2
    assert "jobs/a.yaml:4: job 'users': template dump has no parameter 'tabel'" in wrong.err
    world.write(a="name: x\ntemplate: nope\n")
    assert "jobs/a.yaml:2: job 'x': there is no template named 'nope'" in world.apply().err


def test_templates_are_kept_shown_and_removed(world):
    text = (
        "name: dump\ndescription: Saves a table\nparameters:\n  table: string\n"
        "  rows: {type: integer, default: 5, minimum: 1}\njob:\n  command:\n    run: [dump,"
        " {parameter: table}, {join: [--rows=, {parameter: rows}]}]\n"
    )
    world.write(t=text, bad="name: x\njob:\n  comand: ls\n")

    none = world.typed("templates", "list")
    made = world.typed("templates", "create", "-f", "jobs/t.yaml")
    twice = world.typed("templates", "create", "-f", "jobs/t.yaml")
    again = world.typed("templates", "create", "-f", "jobs/t.yaml", "--replace", "--json")
    bad = world.typed("templates", "create", "-f", "jobs/bad.yaml")
    shown = world.typed("templates", "show", "dump")
    (world.folder / "jobs" / "t.yaml").write_text(
        world.typed("templates", "show", "dump", "--yaml").out
    )
    world.remove("bad")

    assert none.out == "no templates; daybell templates create -f FILE makes one\n"
    assert made.out == "template dump is at version 1; parameters: table, rows\n"
    assert (twice.code, "--replace takes its place" in twice.err) == (1, True)
    assert json.loads(again.out)["name"] == "dump"
    assert (bad.code, "jobs/bad.yaml:3: template 'x': a job has no field 'comand'" in bad.err) == (
        2,
        True,
    )
    assert "string, required" in shown.out
    assert "integer, default 5, at least 1" in shown.out
    assert world.applied() == "= 1 unchanged\nnothing to do\n"
    assert "table, rows" in world.typed("templates", "list").out
    assert world.typed("templates", "delete", "dump").code == 2
    assert world.typed("templates", "delete", "dump", "--yes").out == "template dump is deleted\n"
    assert world.typed("templates", "show", "dump").code == 1
