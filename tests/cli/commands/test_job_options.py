"""Jobs without code, made and changed at the command line."""

import asyncio
import json

import pytest

from daybell import Client
from daybell.cli.actions import definitions
from daybell.cli.references import format_references, parse_reference
from daybell.core.job import JobDefinition
from tests.cli.in_process import Said, Typed, typing


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/daybell.db"

    async def make() -> None:
        async with Client(url, migrate=True) as client:
            await client.define("greet", queue="mail", retries=7)

    asyncio.run(make())
    return url


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path, url) -> Typed:
    monkeypatch.chdir(tmp_path)
    return typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=url, COLUMNS="200")


@pytest.fixture
def definition(url):
    """What the store knows of a job."""

    def definition(name: str) -> JobDefinition:
        async def ask() -> JobDefinition:
            async with Client(url) as client:
                return (await client.job(name)).definition

        return asyncio.run(ask())

    return definition


@pytest.fixture
def settings(definition):
    return lambda name: (definition(name).kind, json.loads(definition(name).settings))


def made(said: Said) -> Said:
    assert said.code == 0, said.err
    return said


@pytest.mark.parametrize(
    ("words", "kind", "kept"),
    [
        (["--task", "greet"], "task", {"task": "greet"}),
        (["--command", "python x.py 'a b'"], "command", {"run": "python x.py 'a b'"}),
        (["--", "python", "x.py", "--cron", "a b"], "command",
         {"run": ["python", "x.py", "--cron", "a b"]}),
        (["--", "echo", "@secret:A"], "command", {"run": ["echo", {"secret": "A"}]}),
        (["--command", "echo '@secret:A b'"], "command",
         {"run": ["echo", {"join": [{"secret": "A"}, " b"]}]}),
        (["--command", "a | b", "--shell", "--env", "A=x=y", "--env", "B=@secret:C",
          "--directory", "/tmp", "--stdin", "hello", "--success-code", "0", "--success-code", "3",
          "--retry-code", "75", "--grace", "1m", "--output", "json"], "command",
         {"run": "a | b", "shell": True, "env": {"A": "x=y", "B": {"secret": "C"}},
          "directory": "/tmp", "stdin": "hello", "success_codes": [0, 3], "retry_codes": [75],
          "grace": 60.0, "output": "json"}),
        (["--http", "https://example.org"], "http", {"url": "https://example.org"}),
        (["--http", "https://example.org", "--header", "Authorization: Bearer @secret:T",
          "--header", "X:1", "--body", '{"a": 1}', "--expect", "204", "--expect", "3xx",
          "--redirects", "2", "--method", "put"], "http",
         {"url": "https://example.org", "method": "PUT", "body": {"a": 1}, "expect": [204, "3xx"],
          "redirects": 2,
          "headers": {"Authorization": {"join": ["Bearer ", {"secret": "T"}]}, "X": "1"}}),
        (["--http", "https://a", "--body", '{"a": ["Bearer @secret:T", 1]}'], "http",
         {"url": "https://a", "method": "POST",
          "body": {"a": [{"join": ["Bearer ", {"secret": "T"}]}, 1]}}),
        (["--http", "https://example.org", "--body", "{no json"], "http",
         {"url": "https://example.org", "method": "POST", "body": "{no json"}),
        (["--http", "https://example.org", "--body", "5"], "http",
         {"url": "https://example.org", "method": "POST", "body": "5"}),
        (["--sql", "select :a, :b, :c, :d", "--connection", "main", "--parameter", "a=5",
          "--param", "b=x y", "--parameter", 'c="5"', "--parameter", "d=@secret:D"], "sql",
         {"statement": "select :a, :b, :c, :d", "connection": "main",
          "parameters": {"a": 5, "b": "x y", "c": "5", "d": {"secret": "D"}}}),
        (["--notify", "json://localhost", "--notify", "@secret:HOOK", "--title", "Hi", "--body",
          "{text}"], "notify",
         {"to": ["json://localhost", {"secret": "HOOK"}], "title": "Hi", "body": "{text}"}),
    ],
)  # fmt: skip
def test_a_job_runs_what_was_typed(typed, settings, words, kind, kept):
    made(typed("jobs", "create", "job", *words))

    assert settings("job") == (kind, kept)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "say what it runs: --task NAME, --command LINE"),
        (["--cron", "@daily"], "say what it runs"),
        (["--command", "a", "--http", "http://a"], "--command and --http both say what it runs"),
        (["--command", "a", "--", "b"], "--command and -- both say what it runs; give one"),
        (["--task", "greet", "--from-file", "x.yaml"], "--task and --from-file both say"),
        (["--command", "python", "x.py"], "(x.py); quote a command, or put it after --"),
        (["--", ], "after -- comes a command, and there is none"),
        (["--http", "http://a", "--env", "A=1"], "--env is for --command, not for --http"),
        (["--command", "a", "--header", "A: 1"], "--header is for --http, not for --command"),
        (["--command", "a", "--no-shell", "--body", "1"], "--body is for --http or --notify"),
        (["--task", "greet", "--parameter", "a=1"], "--parameter is for --sql or --template"),
        (["--from-file", "x.yaml", "--shell"], "--shell is for --command, not for --from-file"),
        (["--command", "a", "--env", "A"], "--env 'A' is not of the form NAME=VALUE"),
        (["--command", "a", "--env", "A=1", "--env", "A=2"], "--env A is given twice"),
        (["--http", "http://a", "--header", "A"], "--header 'A' is not of the form 'NAME: VALUE'"),
        (["--command", "echo @secret:A", "--shell"], "cannot have a secret in it; pass it as"),
        (["--shell", "--", "a", "b"], "--shell is for a line"),
        (["--command", "echo 'a"], "cannot be split into words"),
        (["--command", "a", "--grace", "soon"], "grace"),
        (["--sql", "select 1"], "sql has no connection"),
        (["--sql", "select '@secret:A'", "--connection", "m"], "a statement cannot have a secret"),
        (["--sql", "@nowhere.sql", "--connection", "main"], "@nowhere.sql cannot be read"),
        (["--http", "ftp://a"], "must begin with http"),
        (["--notify", "json://a"], "notify says nothing"),
        (["--template", "nope"], "nope"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_sentence(typed, words, error):
    said = typed("jobs", "create", "job", *words)

    assert said.code in (1, 2)
    assert error in said.err
    assert said.err.count("\n") == 1
    assert typed("jobs", "show", "job").code == 1


def test_a_job_without_a_time_says_how_to_run_it(typed):
    said = made(typed("jobs", "create", "my job", "--command", "true"))

    words = "my job is at version 1 and runs when triggered: daybell jobs trigger 'my job'\n"
    assert said.out == words


def test_a_workflow_that_must_be_given_something_says_how(typed, tmp_path):
    nodes = [{"name": "n", "command": ["df", {"param": "day"}, {"param": "at"}]}]
    file = tmp_path / "etl.json"
    file.write_text(json.dumps({"workflow": {"params": ["day", "at"], "nodes": nodes}}))

    said = made(typed("jobs", "create", "etl", "--from-file", str(file)))
    timed = typed("jobs", "create", "two", "--from-file", str(file), "--cron", "0 3 * * *")

    assert said.out.endswith("""daybell jobs trigger etl --args '{"day": …, "at": …}'\n""")
    assert timed.err.endswith("""; it takes day, at. Say --args '{"day": …, "at": …}'\n""")


def test_what_looks_wrong_is_told_beside_the_answer(typed):
    said = made(typed("jobs", "create", "job", "--command", "a | b", "--env", "A=@secret:NO"))

    assert "warning: without a shell, '|' is only a word" in said.err
    assert "warning: secret NO is not set" in said.err
    assert "warning" not in said.out
    as_json = typed("jobs", "update", "job", "--queue", "slow", "--json")
    assert json.loads(as_json.out)["queue"] == "slow"


def test_texts_come_from_files(typed, settings, tmp_path):
    (tmp_path / "q.sql").write_text("select\n1")

    made(typed("jobs", "create", "job", "--sql", "@q.sql", "--connection", "main"))
    made(typed("jobs", "create", "tell", "--notify", "json://a", "--body", "@@here: @secret:A"))
    wrong = typed("jobs", "create", "wrong", "--notify", "json://a", "--body", "@here")

    assert settings("job")[1]["statement"] == "select\n1"
    assert settings("tell")[1]["body"] == {"join": ["@here: ", {"secret": "A"}]}
    assert (wrong.code, "text that begins with @ is written @@" in wrong.err) == (2, True)


def test_a_change_leaves_what_is_not_said(typed, settings, definition):
    made(typed("jobs", "create", "job", "--http", "http://a", "--header", "A: 1", "--expect", "204",
               "--cron", "@daily"))  # fmt: skip

    made(typed("jobs", "update", "job", "--method", "POST"))
    assert settings("job") == (
        "http",
        {"url": "http://a", "method": "POST", "headers": {"A": "1"}, "expect": [204]},
    )
    made(typed("jobs", "update", "job", "--header", "B: 2", "--http", "http://b"))
    assert settings("job")[1]["headers"] == {"B": "2"}
    assert settings("job")[1]["url"] == "http://b"
    made(typed("jobs", "update", "job", "--command", "a | b", "--shell", "--env", "A=1"))
    made(typed("jobs", "update", "job", "--command", "c | d"))
    assert settings("job") == ("command", {"run": "c | d", "shell": True, "env": {"A": "1"}})
    made(typed("jobs", "update", "job", "--", "echo", "--http"))
    assert settings("job") == ("command", {"run": ["echo", "--http"], "env": {"A": "1"}})
    assert len(definition("job").schedules) == 1
    refused = typed("jobs", "update", "job", "--method", "GET")
    assert (refused.code, "--method is for --http, and job is of kind command" in refused.err) == (
        2,
        True,
    )


def test_what_somebody_else_changed_meanwhile_is_not_changed_back(typed, definition, monkeypatch):
    made(typed("jobs", "create", "job", "--http", "http://a"))
    whole = definitions.work_changes

    async def slowly(client, known, work):
        await client.update("job", http={"url": "http://b", "expect": 204})
        return await whole(client, known, work)

    monkeypatch.setattr(definitions, "work_changes", slowly)
    said = typed("jobs", "update", "job", "--method", "POST")

    assert (said.code, "is at version 2, not 1" in said.err) == (1, True)
    assert "http://b" in definition("job").settings


def test_a_template_knows_what_is_text(typed, settings, tmp_path):
    (tmp_path / "t.yaml").write_text(
        "name: dump\nparameters: {table: string, rows: integer, token: secret}\n"
        "job:\n  sql:\n    connection: main\n    statement: select 1\n    rows: {parameter: rows}\n"
        "    parameters: {t: {parameter: table}, k: {parameter: token}}\n"
    )
    made(typed("templates", "create", "-f", "t.yaml"))

    made(typed("jobs", "create", "job", "--template", "dump", "--param", "table=5", "--parameter",
               "rows=7", "--parameter", "token=@secret:T"))  # fmt: skip

    kind, kept = settings("job")
    assert (kind, kept["rows"]) == ("sql", 7)
    assert kept["parameters"] == {"t": "5", "k": {"secret": "T"}}
    assert "template" in typed("jobs", "show", "job").out
    wrong = typed("jobs", "create", "other", "--template", "dump", "--param", "rows=x")
    assert wrong.code == 2


def test_one_job_comes_from_a_file(typed, settings, definition, tmp_path):
    (tmp_path / "job.yaml").write_text("name: nightly\ncommand: ls\nqueue: a\nretries: 1\n")
    (tmp_path / "nameless.json").write_text('{"http": "http://a"}')
    (tmp_path / "many.yaml").write_text("name: a\n---\nname: b\n")
    (tmp_path / "set.yaml").write_text("jobs: []\n")
    (tmp_path / "bad.toml").write_text('name = "x"\nqueu = "y"\n')
    (tmp_path / "bad.yaml").write_text("name: x\ncommand: ls\ntimeout: soon\n")

    made(typed("jobs", "create", "--from-file", "job.yaml", "--queue", "b"))
    made(typed("jobs", "create", "other", "--from-file", "nameless.json"))

    assert (definition("nightly").queue, definition("nightly").retry.retries) == ("b", 1)
    assert settings("other") == ("http", {"url": "http://a"})
    made(typed("jobs", "update", "nightly", "--from-file", "nameless.json"))
    assert settings("nightly")[0] == "http"
    for words, error in (
        (["--from-file", "nameless.json"], "nameless.json:1: the job has no name"),
        (["x", "--from-file", "job.yaml"], "job.yaml:1: this is job 'nightly', not 'x'"),
        (["x", "--from-file", "many.yaml"], "many.yaml has 2 documents in it, not one job"),
        (["x", "--from-file", "set.yaml"], "daybell apply -f set.yaml"),
        (["x", "--from-file", "bad.toml"], "bad.toml: job 'x' has no field 'queu'; did you mean"),
        (["x", "--from-file", "bad.yaml"], "bad.yaml:3: "),
        (["x", "--from-file", "nowhere.yaml"], "nowhere.yaml cannot be read: No such file"),
    ):
        said = typed("jobs", "create", *words)
        assert (said.code, error in said.err) == (2, True), said.err


def test_a_job_is_shown_with_what_it_runs(typed):
    for name, *words in (
        ("a", "--command", "x | y", "--shell", "--env", "A=@secret:B"),
        ("b", "--http", "http://a", "--header", "C: d", "--expect", "204", "--body", "hi"),
        ("c", "--sql", "select :x\nfrom t", "--connection", "main", "--parameter", "x=1"),
        ("d", "--notify", "mailto://user:hunter2@example.org", "--title", "Hi"),
        ("e", "--task", "greet"),
    ):
        made(typed("jobs", "create", name, *words))

    listed = typed("jobs", "list").out

    for words in ("sh -c 'x | y'", "POST http://a", "main: select :x from t", "tells mailto://…"):
        assert words in listed
    assert "A=@secret:B" in typed("jobs", "show", "a").out
    shown = typed("jobs", "show", "b").out
    assert all(word in shown for word in ("POST http://a", "C: d", "204", "hi"))
    assert "x=1" in typed("jobs", "show", "c").out
    shown = typed("jobs", "show", "d").out
    assert "hunter2" not in shown + listed
    assert "greet" in typed("jobs", "show", "e").out


def test_versions_are_compared(typed):
    made(typed("jobs", "create", "job", "--command", "ls", "--cron", "0 0 * * *"))
    one = typed("jobs", "diff", "job")
    made(typed("jobs", "update", "job", "--cron", "0 1 * * *"))
    made(typed("jobs", "update", "job", "--http", "http://a"))

    last = made(typed("jobs", "diff", "job")).out
    first = made(typed("jobs", "diff", "job", "1", "2")).out
    back = json.loads(typed("jobs", "diff", "job", "3", "1", "--json").out)
    none = made(typed("jobs", "diff", "job", "2", "2")).out

    assert (one.code, "has one version only" in one.err) == (2, True)
    assert "~ job: version 2 → version 3, since" in last
    assert '    command: "ls" → (not set)\n    http: "http://a"\n' in last
    assert '    schedule: "0 0 * * *" → "0 1 * * *"\n' in first
    assert {change["field"] for change in back["changes"]} == {"http", "command", "schedule"}
    assert "no difference" in none
    assert "has no version 9" in typed("jobs", "diff", "job", "9").err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("@secret:A", {"secret": "A"}),
        ("x@secret:A y", {"join": ["x", {"secret": "A"}, " y"]}),
        ("@secret:A@secret:B", {"join": [{"secret": "A"}, {"secret": "B"}]}),
        ("user@secret:8080", "user@secret:8080"),
        ("@secret:", "@secret:"),
    ],
)
def test_secrets_are_named_within_a_text(text, value):
    assert parse_reference(text) == value
    assert format_references(value) == text
