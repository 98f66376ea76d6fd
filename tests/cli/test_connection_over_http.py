"""Commands over HTTP: the same answers as on the database, the choice of server, and keys.

What is done to one side is done to the other, and what is said must be the same, but for ids, times
and who did it.
"""

import asyncio
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daybell import Client
from tests.cli.in_process import Said, typing
from tests.cli.sides import Side, a_world
from tests.cli.terminal import Running, daybell, environment


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with a_world(tmp_path_factory.mktemp("http")) as opened:
        yield opened


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs a command in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return typing(monkeypatch, capsys)


ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ACTOR = re.compile(r"(?<=\(dbk_....), [0-9a-f-]{36}(?=\))")  # the id of a key, which only one has
CHANGING = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"(in )?\b\d+(\.\d+)?(ms| ms|s| s|m|h)\b( ago)?|\bnow\b"), "<when>"),
    (re.compile(r" at \d\d:\d\d:\d\d\b"), " at <time>"),
    (re.compile(r"dbk_[\w-]+"), "<token>"),
    (re.compile(r"\d+\.\d/s"), "<rate>"),
    (re.compile(r'"(enqueued|finished|failed)": [\d.]+'), "<rate>"),
    (re.compile(r"(sqlite:///\S+|http://[\d.:]+)"), "<place>"),
    # Over HTTP it is the key that does things, and the terminal's user on the database.
    (re.compile(r'"(author|created_by|actor|source)": "[^"]*"'), "<who>"),
    (re.compile(r"\b(cli\b|key superadmin) ?\S*"), "<who>"),
    (re.compile(r"\b\d+:[0-9a-f]{64}"), "<head>"),
    (re.compile(r"[ ]{2,}"), "  "),
]


def plain(text: str) -> str:
    """What does not differ between two runs of the same command."""
    known: dict[str, str] = {}
    text = ACTOR.sub("", text)
    text = ID.sub(lambda found: known.setdefault(found[0], f"<id {len(known) + 1}>"), text)
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text


@pytest.fixture
def same(world, run):
    """Runs a command on both sides and holds them to the same words; answers what was said."""

    def same(*words: str, here: str = "", there: str = "") -> tuple[Said, Said]:
        """An id that differs between the sides is written as ID."""

        def on(side: Side, id: str) -> Said:
            return run(*(id if word == "ID" else word for word in words), **side.variables)

        ours, theirs = on(world.here, here), on(world.there, there)
        assert plain(theirs.err) == plain(ours.err), words
        assert plain(theirs.out) == plain(ours.out), words
        assert theirs.code == ours.code, words
        return ours, theirs

    return same


def ids(said: tuple[Said, Said], position: int = 0) -> dict[str, str]:
    """The id that each side named, as arguments of the next command."""
    ours, theirs = (ID.findall(one.out)[position] for one in said)
    return {"here": ours, "there": theirs}


@pytest.mark.parametrize(
    "words",
    [
        "jobs list",
        "jobs list --json",
        "jobs list --prefix re --limit 1",
        "jobs list --limit 1",
        "jobs list --status scheduled --status dead",
        "jobs list --search REP --queue default --json",
        "jobs show report",
        "jobs show report --json",
        "jobs show report --version 1",
        "jobs versions report",
        "jobs versions report --json",
        "executions list",
        "executions list --json",
        "executions list --status dead --job fail --since 1h --until 0s",
        "executions list --limit 1",
        "dead-letters list --json",
        "dead-letters list --queue default",
        "dead-letters list --group --error RuntimeError",
        "executions list --arg name=ada --json",
        "executions list --error ValueError --ended-since 1h --unique-key k",
        "queues list",
        "queues list --json",
        "workers list --dead",
        "workers list --leaders",
        "keys list --json",
        "tenants list",
        "tenants list --json",
        "audit list --since 1h --target nobody --json",
        "audit verify --tenant default",
        "audit verify --json",
        "top --once --interval 1s",
        "jobs backfill report --since 7d --dry-run --json",
    ],
)
def test_looking_is_the_same(same, words):
    ours, _ = same(*words.split())

    assert ours.code == 0
    assert ours.out


def test_an_execution_is_shown_with_all_that_is_known_of_it(same):
    dead = ids(same("executions", "list", "--status", "dead"))
    done = ids(same("executions", "list", "--status", "succeeded"))

    for one in (dead, done):
        same("executions", "show", "ID", **one)
        same("executions", "show", "ID", "--json", **one)
        same("executions", "show", "ID", "--timeline", **one)
        same("executions", "logs", "ID", **one)
        same("executions", "logs", "ID", "-f", "--json", **one)
        same("executions", "wait", "ID", **one)
        same("executions", "why", "ID", **one)
    ours, _ = same("executions", "logs", "ID", **done)
    assert "greeting Ada" in ours.out
    short = {side: id[-8:] for side, id in done.items()}
    same("executions", "show", "ID", **short)


def test_a_job_lives_and_dies_the_same(same):
    for words in (
        "jobs create nightly --task report --every 1h --mode delay --retries 5 --timeout 90s",
        "jobs show nightly",
        "jobs create weekly --task greet --json",
        "jobs show weekly",
        "jobs update nightly --queue slow --priority high --json",
        "jobs update nightly --retries 0 --json",
        "jobs update report --misfire-limit 5 --jitter 5m --max-executions 9 --json",
        "jobs update report --gap skip --retries 2 --json",
        "jobs update nightly --jitter 5m --json",
        "jobs pause nightly --note disk",
        "jobs list --json",
        "jobs pause nightly",
        "jobs resume nightly",
        "jobs resume nightly",
        "jobs rollback nightly 1",
        "jobs rollback nightly 99",
        "jobs versions nightly",
        "jobs trigger nightly",
        "jobs trigger nightly",
        "jobs create child --task greet --depends-on nightly",
        "jobs delete nightly",
        "jobs delete nightly --yes",
        "jobs show nightly",
        "jobs show nightly --json",
        "jobs trigger nightly",
        "jobs pause nightly",
        "jobs create another --task greet --depends-on weekly",
        "jobs delete weekly --yes --json",
        "jobs create later --task greet --delay 2h",
        "jobs update later --manual",
        "jobs delete later --yes",
    ):
        same(*words.split())


def test_jobs_without_code_live_the_same(same):
    for words in (
        ["create", "shell", "--command", "a | b", "--cron", "@daily", "--env", "A=@secret:NO"],
        ["create", "words", "--json", "--", "python", "x.py", "--flag", "@secret:NO"],
        ["create", "web", "--http", "http://a", "--header", "A: 1", "--body", '{"a": [1]}'],
        ["create", "query", "--sql", "select :a", "--connection", "main", "--parameter", "a=1"],
        ["create", "tell", "--notify", "json://localhost", "--title", "Hi"],
        ["update", "web", "--method", "GET", "--expect", "204"],
        ["update", "shell", "--shell", "--grace", "9s", "--json"],
        ["update", "shell", "--header", "A: 1"],
        ["update", "words", "--http", "http://b", "--queue", "other"],
        ["update", "words", "--http", "ftp://b"],
        ["diff", "web"],
        ["diff", "words", "--json"],
        ["diff", "words", "9"],
        ["show", "web", "--yaml"],
        ["show", "shell"],
        ["show", "words", "--json"],
        ["versions", "words"],
        ["list"],
        ["rollback", "words", "1"],
        ["show", "words", "--yaml"],
        ["create", "bad", "--sql", "select 1"],
        ["create", "bad", "--template", "nope"],
        *(["delete", name, "--yes"] for name in ("shell", "words", "web", "query", "tell")),
    ):
        same("jobs", *words)


def test_files_are_applied_the_same(same, tmp_path):
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    template = "name: dump\nparameters: {to: string}\njob: {http: {parameter: to}}\n"
    (jobs / "t.yaml").write_text(template)
    (jobs / "a.yaml").write_text(
        "name: a\ncommand: ls\nschedule: '0 0 * * *'\ndependencies: [b]\ntimeout: 90\n"
        "---\nname: b\ntemplate: dump\nparameters: {to: 'http://a'}\n"
        "backoff: {backoff: fixed, delay: 5s}\n"
        "---\nname: c\ntask: report\nargs: {day: friday}\nschedule: {every: 5m}\n"
    )
    same("apply", "-f", "jobs", "--dry-run")
    same("apply", "-f", "jobs")
    again, _ = same("apply", "-f", "jobs")
    assert again.out == "= 4 unchanged\nnothing to do\n"
    (jobs / "a.yaml").write_text("name: a\ncommand: ls\nschedule: '0 1 * * *'\nretries: 0\n")
    (jobs / "t.yaml").write_text(template.replace("job:", "description: x\njob:"))
    same("apply", "-f", "jobs", "--json")
    same("apply", "-f", "jobs", "--prune")
    same("apply", "-f", "jobs", "--prune", "--yes")
    (jobs / "b.yaml").write_text(
        "name: x\nhttp: {url: ftp://a}\n---\nname: y\ncommand: ls\ntimeout: soon\n---\n"
        "name: z\ncommand: ls\ndependencies: [nope]\n---\nname: report\ncommand: ls\n---\n"
        "name: w\ntask: nope\n---\nname: v\ncommand: ls\nhttp: http://a\n"
    )
    wrong, _ = same("apply", "-f", "jobs")
    assert wrong.code == 2
    assert len(wrong.err.splitlines()) == 7
    for words in (
        "templates list",
        "templates list --json",
        "templates show dump",
        "templates show dump --yaml",
        "templates show nope",
        "templates create -f jobs/t.yaml",
        "templates create -f jobs/t.yaml --replace",
        "templates delete dump",
        "templates delete dump --yes --json",
        "jobs delete a --yes",
    ):
        same(*words.split())


def test_dead_letters_are_decided_on_the_same(same):
    listed = same("executions", "list", "--status", "dead")
    one, two, three = (ids(listed, position) for position in range(3))

    same("dead-letters", "discard", "ID", **one)
    same("dead-letters", "discard", "ID", **one)
    same("executions", "retry", "ID", **one)
    same("executions", "retry", "ID", "--force", **one)
    same("dead-letters", "retry", "ID", **two)
    same("dead-letters", "retry", "ID", **two)
    same("executions", "retry", "ID", **three)
    same("dead-letters", "retry", "--job", "greet", "--yes")
    same("dead-letters", "retry", "--error", "Error", "--arg", "name=nobody", "--yes")
    same("dead-letters", "retry", "--job", "fail", "--queue", "default", "--yes")
    same("dead-letters", "discard", "--all", "--yes")


def test_executions_are_made_cancelled_and_repeated_the_same(same):
    made = ids(same("jobs", "trigger", "greet", "--args", '{"name": "Zoë"}', "--priority", "high"))
    same("executions", "show", "ID", **made)
    same("executions", "wait", "ID", "--timeout", "0s", **made)
    same("executions", "why", "ID", "--json", **made)
    same("executions", "cancel", "ID", **made)
    same("executions", "cancel", "ID", **made)
    same("executions", "retry", "ID", **made)
    same("executions", "logs", "ID", **made)
    for words in (
        "jobs trigger greet --unique-key k --delay 1h --json",
        "jobs trigger greet --unique-key k --delay 1h --json",
        "jobs trigger greet --at 2099-01-01T00:00:00Z --queue other",
        "executions retry --status succeeded --force --yes --json",
        "executions retry --since 1h --yes",
        "executions retry --all --yes",
        "executions cancel --unique-key k --yes --json",
        "executions retry --error Error --ended-since 1h --yes --json",
        "jobs trigger greet --delay 90000s --json",
        "executions cancel --job greet --yes",
        "executions cancel --all --yes",
        "queues pause other",
        "queues pause nobodys",
        "queues list",
        "queues resume other",
        "jobs trigger greet --queue other",
        "queues purge other --yes",
        "queues purge other --yes",
        "jobs backfill report --since 7d --yes",
        "jobs backfill report --since 7d --yes --json",
        "executions cancel --job report --yes --json",
        "workers drain 01a1e243-6747-7443-abea-80b5ac48ed2a",
    ):
        same(*words.split())


def test_keys_and_tenants_are_managed_the_same(same):
    same("keys", "create", "deploy", "--role", "operator", "--expires", "90d")
    same("keys", "create", "look", "--role", "viewer", "--json")
    same("keys", "revoke", "deploy")
    for words in (
        "keys revoke deploy",
        "keys revoke look",
        "tenants create acme --jobs 5",
        "tenants create acme",
        "tenants update acme --queued 10 --jobs none",
        "tenants update acme --queued none",
        "tenants update nobody --queued 10",
        "tenants list --json",
        "jobs list --tenant acme",
        "keys create ops --role admin --tenant acme",
        "jobs create new --task report --tenant acme",
    ):
        same(*words.split())


@pytest.mark.parametrize(
    "words",
    [
        "jobs show nope",
        "jobs show a/versions",
        "jobs show ..",
        "jobs pause x/resume",
        "jobs delete a/b --yes",
        "jobs show report --version 9",
        "jobs create report --task report",
        "jobs create new --task nope",
        "jobs create new --task report --cron nonsense",
        "jobs create new --task report --at 2001-01-01T00:00:00Z",
        "jobs create new/er --task report",
        "jobs update report --timeout soon",
        "jobs update report --overlap sometimes",
        "jobs update nope --queue a",
        "jobs trigger nope",
        "jobs trigger report --delay soon",
        "jobs trigger report --args [1]",
        "jobs trigger report --args {",
        "jobs trigger greet --priority urgent",
        "jobs backfill greet --since 7d",
        "jobs backfill report --since 2099-01-01",
        "jobs resume nope",
        "jobs delete nope --yes",
        "jobs show reprot",
        "jobs versions reprot",
        "jobs trigger reprot",
        "executions cancel --job reprot --yes",
        "executions show 01a1e243-6747-7443-abea-80b5ac48ed2a",
        "executions cancel 01a1e243-6747-7443-abea-80b5ac48ed2a",
        "executions retry 01a1e243-6747-7443-abea-80b5ac48ed2a",
        "executions show nonsense",
        "executions show 0123456",
        "executions list --status nope",
        "executions list --since soon",
        "executions list --cursor nonsense",
        "executions cancel --status succeeded --yes",
        "executions cancel --job nope --yes",
        "executions retry --status running --yes",
        "dead-letters discard 01a1e243-6747-7443-abea-80b5ac48ed2a",
        "dead-letters retry 01a1e243-6747-7443-abea-80b5ac48ed2a",
        "queues pause no/such",
        "workers drain nonsense",
        "jobs list --status nope",
        "keys create k --role king",
        "keys create a/b --role viewer",
        "keys create k --role viewer --expires soon",
        "keys revoke nope",
        "tenants create a/b",
        "tenants create acme --jobs many",
        "tenants update acme",
        "tenants update a/b --jobs 1",
    ],
)
def test_mistakes_are_told_the_same(same, words):
    ours, _ = same(*words.split())

    assert ours.code != 0
    assert ours.err


def test_the_guide_shows_what_works(world, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "guide" / "http.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(**world.there.variables),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert (done.stdout, done.stderr) == (
        "queued\npaused\nno job named 'gret'; did you mean 'greet'?\n",
        "",
    )


@pytest.fixture
def limited(world, run):
    """Runs a command over HTTP with a key that is limited so."""

    def limited(*words: str, role: str = "admin", **limits: Any) -> Said:
        async def make() -> str:
            async with Client(world.there.url) as client:
                return (await client.create_key("limited", role=role, **limits)).token

        return run(*words, DAYBELL_API_URL=world.address, DAYBELL_API_KEY=asyncio.run(make()))

    return limited


def test_a_key_that_may_only_trigger_is_told_what_it_started(limited):
    done = limited("jobs", "trigger", "greet", actions=["trigger"])
    later = limited("jobs", "trigger", "greet", "--delay", "1h", "--json", actions=["trigger"])
    waiting = limited("jobs", "trigger", "greet", "--wait", actions=["trigger"])
    unknown = limited("jobs", "trigger", "nothing", actions=["trigger"])

    assert (done.code, done.err) == (0, "") and done.out.endswith(" is queued\n")
    assert later.code == 0 and '"status": "scheduled"' in later.out
    assert waiting.code == 1
    assert "is queued and goes on; it cannot be waited for: this key is" in waiting.err
    assert unknown.code == 1 and "no job named 'nothing'" in unknown.err


def test_a_key_that_may_not_see_workers_waits_without_the_hint(limited):
    words = ("jobs", "trigger", "greet", "--wait", "--timeout", "0.1s")
    ended = limited(*words, jobs=["greet"], actions=["read", "trigger"])

    assert ended.code == 1 and "is still queued after 0.1 s" in ended.err
    assert "tenant as a whole" not in ended.err


def test_pausing_takes_the_action_pause_alone(limited):
    paused = limited("jobs", "pause", "report", actions=["pause"])
    resumed = limited("jobs", "resume", "report", actions=["pause"])

    assert paused.code == 0 and paused.out.startswith("report is paused: its schedules do not")
    assert resumed == (0, "report is not paused any more\n", "")


def test_secrets_take_the_action_secrets_alone_and_a_key_at_the_server(limited, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0123456789")))

    made = limited("secrets", "set", "TOKEN", actions=["secrets"])
    gone = limited("secrets", "delete", "TOKEN", "--yes", actions=["secrets"])

    assert made.code == 1 and "error: the server has no key that seals secrets; its" in made.err
    assert gone.code == 1 and "no secret named 'TOKEN'" in gone.err


@pytest.mark.parametrize(
    "words",
    [
        "executions retry --job report --yes",
        "executions cancel --job report --yes",
        "dead-letters retry --job report --yes",
        "dead-letters discard --job report --yes",
    ],
)
def test_a_refusal_is_shown_where_nothing_matches(limited, words):
    refused = limited(*words.split(), actions=["read"])
    allowed = limited(*words.split())

    verb = words.split()[1]
    assert (refused.code, refused.out) == (1, "") and f"takes the action {verb}" in refused.err
    assert allowed.code == 0 and allowed.out.startswith("no")


def test_limits_to_jobs_are_told_with_options_of_the_terminal(limited):
    listed = limited("executions", "list", jobs=["re*", "greet"])
    part = limited("executions", "show", "abcdef", jobs=["re*", "greet"])

    assert listed.code == 1 and listed.err.endswith("name one of these jobs with --job\n")
    assert part.code == 1 and part.err.endswith("; give the whole id of the execution\n")


def test_a_deleted_job_of_code_is_not_to_be_created(same):
    same("jobs", "delete", "fail", "--yes")
    ours, _ = same("jobs", "trigger", "fail")

    assert "it was deleted; a start of its app, or an enqueue in code" in ours.err


# Which server a command asks, what its key opens, and what is told when neither will do.

URL, KEY = "DAYBELL_API_URL", "DAYBELL_API_KEY"


def test_a_server_whose_store_is_away_says_so(run, world, tmp_path):
    away = "postgresql://127.0.0.1:1/daybell"
    with Running("server", "--port", "0", folder=tmp_path, DAYBELL_DATABASE_URL=away) as server:
        (line,) = server.wait_for("listening: ")
        (address,) = re.findall(r"http://[\d.:]+", line)

        said = run("jobs", "list", DAYBELL_API_URL=address, DAYBELL_API_KEY="dbk_any")

    assert said.code == 1
    assert said.err.startswith(f"error: {address}: the store cannot be used now")


@pytest.mark.parametrize(
    ("key", "said"),
    [(None, "takes a key: set DAYBELL_API_KEY"), ("dbk_wrong", "does not know this key")],
)
def test_a_wrong_key_is_told(run, world, key, said):
    variables = {"DAYBELL_API_URL": world.address} | ({} if key is None else {KEY: key})

    ended = run("jobs", "list", **variables)

    assert ended.code == 1
    assert said in ended.err
    assert "dbk_wrong" not in ended.err


def test_a_key_opens_what_its_role_allows(run, world):
    variables = {"DAYBELL_API_URL": world.address, KEY: world.keys["operator"]}

    refused = run("jobs", "create", "new", "--task", "report", **variables)
    foreign = run("jobs", "list", "--tenant", "acme", **variables)
    own = run("jobs", "list", "--tenant", "default", **variables)

    assert refused.code == foreign.code == 1
    assert "this takes a key with the role admin; this one's role is operator" in refused.err
    assert "tenant 'acme' is not this key's" in foreign.err
    assert own.code == 0


def test_the_key_decides_whose_jobs_these_are(run, world):
    async def prepare():
        async with Client(world.there.url) as client:
            await client.ensure_tenant("other")
            return (await client.for_tenant("other").create_key("theirs", role="viewer")).token

    key = asyncio.run(prepare())

    theirs = run("jobs", "list", DAYBELL_API_URL=world.address, DAYBELL_API_KEY=key)
    named = run("jobs", "list", "--tenant", "other", **world.there.variables)

    assert theirs.out == named.out == "no jobs; a worker defines those of its app\n"


def test_a_store_that_is_named_wins_over_a_server(run, world):
    ended = run("jobs", "list", "--database-url", world.here.url, DAYBELL_API_URL="http://[::1]:1")

    assert ended.code == 0
    assert "report" in ended.out


def test_a_server_may_be_named_by_a_flag(run, world):
    key = {KEY: world.keys["operator"], URL: "http://[::1]:1"}

    named = run("--api-url", world.address, "jobs", "list", **key)
    both = run("--api-url", world.address, "jobs", "list", "--database-url", world.here.url)

    assert named.code == 0
    assert "report" in named.out
    assert both.code == 2
    assert "exclude each other" in both.err
    after = run("jobs", "list", "--api-url", world.address)
    assert (after.code, "--api-url here; it goes before the command" in after.err) == (2, True)
    migrate = run("--api-url", world.address, "migrate")
    assert "and only --api-url is given" in migrate.err


@pytest.mark.parametrize("command", ["migrate", "doctor", "scheduler", "server", "bench", "chaos"])
def test_a_command_that_needs_a_store_is_not_content_with_a_server(run, world, command):
    ended = run(command, DAYBELL_API_URL=world.address)

    assert ended.code == 2
    assert f"daybell {command} works on the database itself" in ended.err


def test_a_worker_works_by_way_of_a_server_unless_its_app_names_a_store(folder):
    url = "http://127.0.0.1:1"
    (folder / "own.py").write_text('from daybell import App\napp = App("sqlite:///own.db")\n')

    remote = daybell("worker", "app:app", "--prune", folder=folder, DAYBELL_API_URL=url)
    own = daybell("worker", "own:app", "--tenant", "a/b", folder=folder, DAYBELL_API_URL=url)

    assert remote.code == 2
    assert "in the database, which this worker does not reach" in remote.err
    assert "tenant name 'a/b'" in own.err  # it got that far


def test_an_address_of_something_else_is_told(run, world):
    ended = run("jobs", "list", **world.there.variables | {URL: f"{world.address}/elsewhere"})

    assert ended.code == 2
    assert "is DAYBELL_API_URL the address of a `daybell server`?" in ended.err


def test_the_key_of_the_environment_goes_to_no_server_that_only_a_file_names(run, world, tmp_path):
    (tmp_path / "daybell.toml").write_text(f'api_url = "{world.address}"')
    key = world.keys["operator"]

    refused = run("jobs", "list", DAYBELL_API_KEY=key)
    named = run("jobs", "list", DAYBELL_API_KEY=key, DAYBELL_API_URL=world.address)
    by_flag = run("--api-url", world.address, "jobs", "list", DAYBELL_API_KEY=key)

    assert refused.code == 2
    assert "DAYBELL_API_KEY is not sent to it" in refused.err
    assert key not in refused.err
    assert (named.code, by_flag.code) == (0, 0)


def test_a_file_may_have_both_a_server_and_its_key(run, world, tmp_path):
    key = world.keys["operator"]
    (tmp_path / "daybell.toml").write_text(f'api_url = "{world.address}"\napi_key = "{key}"')

    assert run("jobs", "list").code == 0
