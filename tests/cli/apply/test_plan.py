"""The plan of `daybell apply`: steps, their effects, differences as text, and deletions."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell import Client
from daybell.cli.apply.declarations import Declarations
from daybell.cli.apply.files import Document
from daybell.cli.apply.plan import ApplyPlan, apply_step, echo_change, lines_of, make_plan
from daybell.client.declarations import diff_requests
from daybell.core.options import OPTIONS
from daybell.errors import Unavailable
from tests.cli.job_files import PING, REPORT, a_world
from tests.cli.terminal import Typing


@pytest.fixture
def world(monkeypatch, capsys, tmp_path):
    return a_world(monkeypatch, capsys, tmp_path)


def test_files_name_jobs_of_which_any_fires_another(world):
    load = 'name: load\ncommand: ls\nschedule: [{after_any: [extract]}, "0 0 * * *"]\n'
    world.write(a=load, b="name: extract\ncommand: ls\n")

    first, second = world.applied(), world.applied()
    world.write(b="name: extract\ncommand: ls\nschedule: {after_any: [load]}\n")
    circle = world.apply()
    world.write(a=load.replace("extract", "nowhere"), b="name: extract\ncommand: ls\n")
    missing = world.apply()

    assert first.index("+ extract") < first.index("+ load")
    assert "2 unchanged" in second
    assert (circle.code, "lead in a circle" in circle.err) == (2, True)
    assert missing.code == 2
    assert "there is no job named 'nowhere'" in missing.err


def test_jobs_are_made_changed_and_left_alone(world):
    world.write(a=REPORT, b=PING)

    first = world.applied()
    second = world.applied()
    world.write(a=REPORT.replace("0 0", "0 1").replace("retries: 3", "retries: 5"))
    third = world.applied()

    assert first == (
        "+ report\n"
        '    command: "python report.py"\n'
        '    schedule: "0 0 * * *"\n'
        "+ ping\n"
        '    http: {"url": "http://example.org", "expect": [204]}\n'
        "2 created\n"
    )
    assert second == "= 2 unchanged\nnothing to do\n"
    assert third == (
        "~ report\n"
        '    schedule: "0 0 * * *" → "0 1 * * *"\n'
        "    retries: 5\n"
        "= 1 unchanged\n"
        "1 changed\n"
    )
    assert world.versions() == {"ping": 1, "report": 2}
    assert world.source("report") == "apply"


def test_a_dry_run_shows_all_and_changes_nothing(world):
    world.write(a=REPORT, t="name: t\njob: {command: ls}\n")
    world.applied()
    audited = world.typed("audit", "list").out
    assert "job.apply" in audited
    assert "template.create" in audited
    world.write(a=REPORT.replace("0 0", "0 1"), b=PING, t="name: t\njob: {command: pwd}\n")

    shown = world.applied("--dry-run")
    world.remove("b")
    world.remove("a")
    pruned = world.applied("--dry-run", "--prune")

    for line in ("+ ping", "~ report", "~ template t", '    job.command: "ls" → "pwd"'):
        assert f"{line}\n" in shown
    assert "nothing was changed; without --dry-run: 1 created, 2 changed\n" in shown
    assert "- report\n" in pruned
    assert "without --dry-run: 1 changed, 1 deleted" in pruned
    assert world.versions() == {"report": 1}
    assert world.ask(lambda client: client.template("t")).version == 1
    assert world.typed("audit", "list").out == audited


def test_all_that_is_wrong_is_told_before_anything_is_changed(world):
    world.write(
        a=REPORT,
        b="name: bad\ncommand: ls\ntimeout: soon\n---\nname: worse\nhttp:\n  url: ftp://x\n",
        c="name: a\nname: b\n",
        d=REPORT,
        e="name: f\ncommand: ls\ndependencies: [nowhere]\n",
    )

    said = world.apply()

    assert said.code == 2
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0].startswith("error: jobs/c.yaml:2: 'name' is there twice")
    assert lines[1].startswith("error: jobs/d.yaml:1: job 'report' is declared twice: in jobs/a")
    assert lines[2].startswith("error: jobs/b.yaml:3: job 'bad': timeout 'soon'")
    assert lines[3].startswith("error: jobs/b.yaml:7: job 'worse': url must begin with http")
    # What the other one lacks may be in the file that cannot be read.
    assert lines[4:] == ["nothing was changed"]
    assert world.versions() == {}
    world.remove("c")
    assert "e.yaml:3: job 'f': there is no job named 'nowhere'" in world.apply().err


def test_jobs_may_depend_on_each_other_within_the_files(world):
    world.write(
        a="name: load\ncommand: ls\ndependencies: [extract, transform]\n",
        b="name: transform\ncommand: ls\ndependencies: [extract]\n---\n"
        "name: extract\ncommand: ls\n",
    )

    world.applied()
    assert world.applied() == "= 3 unchanged\nnothing to do\n"
    # Turned round: each step is made when it leads in no circle.
    world.write(
        a="name: load\ncommand: ls\n",
        b="name: transform\ncommand: ls\ndependencies: [load]\n---\n"
        "name: extract\ncommand: ls\ndependencies: [transform, load]\n",
    )
    world.applied()

    job = world.ask(lambda client: client.job("extract"))
    assert job.definition.dependencies == ("transform", "load")
    world.write(a="name: load\ncommand: ls\ndependencies: [extract]\n")
    circle = world.apply()
    assert (circle.code, "dependencies lead in a circle" in circle.err) == (2, True)


def test_a_job_made_by_hand_is_taken_over_in_sight(world):
    world.typed("jobs", "create", "ping", "--http", "http://example.org", "--expect", "204")
    world.write(b=PING)

    said = world.apply("--set", "one")
    again = world.apply("--set", "two", "--dry-run")
    nameless = world.apply("--json")

    assert said.out == '~ ping\n    source: "apply:one"\n1 changed\n'
    assert "warning: ping: it belongs to no set; this takes it over\n" in said.err
    assert "warning: ping: it belongs to the set one; this takes it over\n" in again.err
    (item,) = json.loads(nameless.out)["items"]
    assert "it belongs to the set one; this takes it over" in item["warnings"]
    assert "without a name; this takes it over" in world.apply("--set", "one").err
    assert "takes it over" not in world.apply("--set", "one").err


def test_a_job_that_code_defines_is_refused(world):
    world.ask(lambda client: client.define("report"))
    world.write(a=REPORT, b=PING)

    said = world.apply()

    assert said.code == 2
    assert "jobs/a.yaml:1: job 'report': job 'report' is defined by code" in said.err
    assert set(world.versions()) == {"report"}


def test_a_failure_in_the_middle_says_what_was_done(world, monkeypatch):
    world.write(a="name: a\ncommand: ls\n", b="name: b\ncommand: ls\n", c="name: c\ncommand: ls\n")

    async def fail_at_b(client, step, *, source: str) -> None:
        if step.name == "b":
            raise Unavailable("gone")
        await apply_step(client, step, source=source)

    with monkeypatch.context() as patch:
        patch.setattr("daybell.cli.apply.command.apply_step", fail_at_b)
        said = world.apply()
        as_json = world.apply("--json")

    assert said.code == 1
    assert "error: jobs/b.yaml:1: job b: gone" in said.err
    assert said.out.endswith("done: a\nnot done: b, c; repeating it is safe\n")
    items = json.loads(as_json.out)["items"]
    assert {item["name"]: item["done"] for item in items} == {"a": True, "b": False, "c": False}
    assert set(world.versions()) == {"a"}
    assert "2 created\n" in world.applied()


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(world, monkeypatch):
    world.write(a=REPORT)
    world.applied()
    world.write(a=REPORT.replace("0 0", "0 1"))

    async def late(client, step, *, source: str) -> None:
        await client.update("report", queue="other")
        await apply_step(client, step, source=source)

    monkeypatch.setattr("daybell.cli.apply.command.apply_step", late)
    said = world.apply()

    assert said.code == 1
    assert "is at version 2, not 1" in said.err
    job = world.ask(lambda client: client.job("report"))
    assert (job.version, job.definition.queue) == (2, "other")


def test_the_plan_is_printed_for_programs(world):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.write(a=REPORT.replace("0 0", "0 1"))
    world.remove("b")

    plan = json.loads(world.applied("--json", "--dry-run"))

    assert (plan["changed"], plan["unchanged"], plan["in_no_file"]) == (1, 0, ["ping"])
    (item,) = plan["items"]
    assert (item["name"], item["action"], item["file"]) == ("report", "changed", "jobs/a.yaml:1")
    assert item["changes"] == [{"field": "schedule", "before": "0 0 * * *", "after": "0 1 * * *"}]
    assert item["done"] is False


def test_what_is_shown_as_yaml_is_a_file(world):
    world.typed("jobs", "create", "job", "--http", "http://a", "--header", "A: Bearer @secret:T",
                "--body", "a\nb\n", "--cron", "0 2 * * *", "--tz", "Europe/Rome", "--queue", "1e5",
                "--every", "5m", "--retries", "0", "--misfire", "skip")  # fmt: skip
    shown = world.typed("jobs", "show", "job", "--yaml").out
    world.write(a=shown)

    assert world.applied() == '~ job\n    source: "apply"\n1 changed\n'


def test_warnings_are_told_once_for_all_jobs(world):
    world.write(a="".join(f"---\nname: j{n}\ncommand: ls\n" for n in range(7)))

    said = world.apply()

    (line,) = [line for line in said.err.splitlines() if "runs commands" in line]
    assert line.startswith("warning: j0, j1, j2, j3, j4 and 2 more: no live worker")
    assert "warning" not in world.apply().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["apply"], "say which files: -f FILE, or -f FOLDER"),
        (["apply", "-f", "nowhere"], "there is no file or folder 'nowhere'"),
        (["apply", "-f", "jobs", "--set", "a/b"], "set name 'a/b' contains '/'"),
    ],
)
def test_misuse_is_told(world, words, error):
    said = world.typed(*words)

    assert (said.code, error in said.err) == (2, True)


FIELDS = sorted(OPTIONS.keys() - {"source"})
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["5m", "0 0 * * *", "t", "http://a", "\0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.text(max_size=3) | st.sampled_from(["run", "url", "cron", "secret", "join"]), inner,
        max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), junk, max_size=3), st.sampled_from([None, "ls"]))
def test_whatever_a_file_says_is_taken_or_refused_with_a_sentence(fields, command):
    said = {"name": "a", **fields} | ({} if command is None else {"command": command})
    found = Declarations([Document(said, 1, {}, "a.yaml")])

    async def plan() -> ApplyPlan:
        async with Client("memory://", migrate=True) as client:
            await client.set_template({"name": "t", "job": {"command": "ls"}})
            return await make_plan(client, found, source="apply", prune=False)

    planned = asyncio.run(plan())

    assert planned.faults or [step.name for step in planned.steps] == ["a"]


# What differs, as people read it.


def lines(before, after):
    return list(lines_of(diff_requests(before, after)))


def test_a_field_is_shown_with_what_it_was_and_is():
    before = {"schedule": "0 0 * * *", "queue": "mail", "http": {"headers": {"A": "1"}}}
    after = {"schedule": "0 1 * * *", "retries": 3, "http": {"headers": {"A": "1", "B": "2"}}}

    assert lines(before, after) == [
        '    schedule: "0 0 * * *" → "0 1 * * *"',
        '    queue: "mail" → (not set)',
        '    http.headers.B: "2"',
        "    retries: 3",
    ]


def test_a_long_text_is_shown_by_its_lines():
    text = "".join(f"line {number}\n" for number in range(10))

    assert lines({"body": text}, {"body": text.replace("line 5", "line five")}) == [
        "    body:",
        "      @@ -4,5 +4,5 @@",
        "        line 3",
        "        line 4",
        "      - line 5",
        "      + line five",
        "        line 6",
        "        line 7",
    ]


def test_a_text_that_only_ends_otherwise_is_still_shown():
    assert lines({"body": "a\nb"}, {"body": "a\nb\n"}) == [
        "    body:",
        '      - "a\\nb"',
        '      + "a\\nb\\n"',
    ]


def test_what_is_new_or_gone_is_shown_whole():
    words = [f"word number {number}" for number in range(6)]

    assert lines({}, {"command": words})[:2] == ["    command:", "      + - word number 0"]
    assert lines({"command": words}, {})[:2] == ["    command:", "      - - word number 0"]


def test_secrets_are_shown_by_name():
    env = {"TOKEN": {"secret": "API_TOKEN"}}

    assert lines({}, {"env": env}) == ['    env: {"TOKEN": {"secret": "API_TOKEN"}}']


def test_nothing_that_is_shown_moves_the_cursor(capsys):
    echo_change("+", "a\x1b[2J", diff_requests({}, {"body": "\x1b[31m\n" * 2, "b": "\x1b\u202e"}))

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\u001b[31m" in out


# Jobs that files no longer declare: which of them are deleted, and when nobody is.


def test_only_jobs_of_the_same_set_are_pruned(world):
    world.typed("jobs", "create", "by-hand", "--command", "ls")
    world.write(a=REPORT, b=PING)
    world.applied()
    world.write(a="name: other\ncommand: ls\n", b="name: third\ncommand: ls\n")
    world.applied("--set", "two")
    world.write(a="name: fourth\ncommand: ls\n")
    world.remove("b")

    told = world.applied("--set", "two", "--dry-run")
    asked = world.apply("--set", "two", "--prune")
    before = world.versions()
    done = world.applied("--set", "two", "--prune", "--yes")

    assert "2 jobs of this set are in no file; --prune deletes them: other, third\n" in told
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    assert "fourth" not in before
    assert "- other\n- third\n" in done
    assert "1 created, 2 deleted\n" in done
    assert set(world.versions()) == {"by-hand", "report", "ping", "fourth"}
    assert world.source("fourth") == "apply:two"


def test_who_needs_what_was_pruned_is_named_unless_it_went_too(world):
    world.write(a=REPORT, b=PING, c="name: c\ncommand: ls\ndependencies: [ping]\n")
    world.applied()
    world.typed("jobs", "create", "by-hand", "--command", "ls", "--depends-on", "ping")
    world.remove("b")
    world.remove("c")

    done = world.apply("--prune", "--yes")

    assert done.err == (
        "warning: job by-hand depends on ping, and waits in vain while it is not there\n"
    )


def test_what_was_pruned_is_told_also_if_nobody_knows_who_needs_it(world, monkeypatch):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")

    async def warnings(client, name, *, deleting: bool):
        raise Unavailable("Connection refused")

    monkeypatch.setattr(Client, "warnings", warnings)
    done = world.apply("--prune", "--yes")

    assert (done.code, done.err.count("Connection refused")) == (0, 1), done.err
    assert done.out.endswith("1 deleted\n")


def test_a_job_that_is_declared_again_after_it_was_pruned_comes_back(world):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")
    world.applied("--prune", "--yes")
    world.write(b=PING)

    again = world.applied()

    assert "+ ping\n" in again
    assert set(world.versions()) == {"report", "ping"}
    assert world.applied() == "= 2 unchanged\nnothing to do\n"


def test_who_prunes_at_a_terminal_is_asked_and_sees_colours(world):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")

    terminal = Typing("apply", "jobs", "--prune", folder=world.folder)
    terminal.type("n\n", after="no file declares (ping)?")

    assert terminal.end() == 1
    assert "\x1b[31m- ping\x1b[0m" in terminal.shown
    assert "nothing was done" in terminal.shown
    assert set(world.versions()) == {"report", "ping"}


@pytest.mark.parametrize("words", [[], ["--prune"], ["--yes"], ["--dry-run"]])
def test_an_empty_folder_deletes_nothing_unless_that_is_meant(world, words):
    world.write(a=REPORT)
    world.applied()
    world.write(a="# nothing\n")

    said = world.apply(*words)

    assert (said.code, "there are no jobs in jobs" in said.err) == (2, True)
    assert set(world.versions()) == {"report"}
    assert "1 deleted" in world.applied("--prune", "--yes")
    assert world.versions() == {}


def test_what_somebody_else_changed_meanwhile_is_not_pruned(world, monkeypatch):
    world.write(a=REPORT, b=PING)
    world.applied()
    world.remove("b")

    async def late(client, step, *, source: str) -> None:
        if step.name == "ping":
            await client.apply_job("ping", http="http://example.org", source="apply:other")
        await apply_step(client, step, source=source)

    monkeypatch.setattr("daybell.cli.apply.command.apply_step", late)
    said = world.apply("--prune", "--yes")

    assert (said.code, "is at version 2, not 1" in said.err) == (1, True)
    assert world.versions() == {"ping": 2, "report": 1}
