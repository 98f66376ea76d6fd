"""Which server a command asks, what its key opens, and what is told when neither will do."""

import asyncio
import re

import pytest

from daybell import Client
from tests.cli.in_process import typing
from tests.cli.sides import a_world
from tests.cli.terminal import Running, daybell

URL, KEY = "DAYBELL_API_URL", "DAYBELL_API_KEY"


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
            return (await client.for_tenant("other").create_key("theirs", role="viewer"))[1]

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


def test_a_worker_needs_a_store_unless_its_app_names_one(folder):
    url = "http://127.0.0.1:1"
    (folder / "own.py").write_text('from daybell import App\napp = App("sqlite:///own.db")\n')

    refused = daybell("worker", "app:app", folder=folder, DAYBELL_API_URL=url)
    own = daybell("worker", "own:app", "--tenant", "a/b", folder=folder, DAYBELL_API_URL=url)

    assert refused.code == 2
    assert "daybell worker works on the database itself" in refused.err
    assert "tenant name 'a/b'" in own.err  # it got that far


def test_an_address_of_something_else_is_told(run, world):
    ended = run("jobs", "list", **world.there.variables | {URL: f"{world.address}/elsewhere"})

    assert ended.code == 1
    assert "there is nothing at this path" in ended.err


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
