"""What commands say to somebody who has not read everything: the next step, in their words."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from daybell import Client
from daybell.cli.views.transcripts import LOOK_SECONDS, WaitObserver, wait_for_end
from daybell.core.execution import Failure
from daybell.engine.loop import ManualClock
from daybell.errors import Conflict
from tests.builders import apply, claim, death
from tests.cli.in_process import Typed, typing
from tests.workflows import work

ERROR = Failure(type="CommandFailed", message="exit code 3:\ndisk full\x1b[2J\nid  none\n")


class World:
    """A folder with a store, and somebody who types."""

    def __init__(self, folder, typed: Typed, url: str) -> None:
        self.folder = folder
        self.typed = typed
        self.url = url

    def ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            async with Client(self.url) as client:
                return await question(client)

        return asyncio.run(ask())

    def apply(self, text: str):
        (self.folder / "jobs.yaml").write_text(text)
        return self.typed("apply", "-f", "jobs.yaml")

    def a_dead_one(self, job: str) -> str:
        async def die(client: Client) -> str:
            made = await client.enqueue(job)
            hands = await claim(client.store, tenant=client.tenant, kinds=["command"])
            move = death(hands.executions[0], error=ERROR.to_json())
            await apply(client.store, hands, move, tenant=client.tenant)
            return str(made.id)

        return self.ask(die)


@pytest.fixture
def world(monkeypatch, capsys, tmp_path):
    url = f"sqlite:///{tmp_path}/daybell.db"

    async def make() -> None:
        async with Client(url, migrate=True) as client:
            await client.create("report", command="python report.py")

    asyncio.run(make())
    monkeypatch.chdir(tmp_path)
    return World(tmp_path, typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=url), url)


def test_who_runs_an_old_version_again_is_told_so(world):
    same, old = world.a_dead_one("report"), world.a_dead_one("report")

    assert world.typed("executions", "retry", same).out == f"{same} runs again\n"
    world.ask(lambda client: client.update("report", command="python report.py --all"))

    assert world.typed("executions", "retry", old).out == (
        f"{old} runs again, as version 1; the job is at version 2 now:"
        " `daybell jobs trigger report` runs that\n"
    )


@pytest.mark.parametrize("words", [("executions", "show"), ("executions", "wait")])
def test_an_error_of_several_lines_has_them_indented(world, words):
    id = world.a_dead_one("report")

    said = world.typed(*words, id).out.splitlines()

    at = next(number for number, line in enumerate(said) if line.startswith("error "))
    first = said[at].index("CommandFailed")
    assert said[at][first:] == "CommandFailed: exit code 3:"
    # What does not print stays harmless, and no line can be taken for a field.
    assert said[at + 1 : at + 3] == [" " * first + "disk full\\u001b[2J", " " * first + "id  none"]


def test_a_table_has_an_error_in_one_line(world):
    id = world.a_dead_one("report")

    lines = world.typed("executions", "list").out.splitlines()

    assert len(lines) == 2
    assert lines[1].startswith(id)
    assert "disk full" in lines[1]


def test_all_that_is_wrong_with_a_job_is_told_at_once(world):
    said = world.apply(
        "name: a\n"
        "command: ls\n"
        "directory: /srv\n"
        "mode: rate\n"
        "queu: mail\n"
        "wibble: 1\n"
        "schedule: 99 * * * *\n"
        "retries: three\n"
        "timeout: soon\n"
    )

    assert said.code == 2
    lines = said.err.splitlines()
    assert lines[:3] == [
        "error: jobs.yaml:3: job 'a' has no field 'directory'; it goes under command, beside run",
        "error: jobs.yaml:4: job 'a' has no field 'mode'; it goes under schedule, beside cron",
        "error: jobs.yaml:5: job 'a' has no field 'queu'; did you mean 'queue'?",
    ]
    assert lines[3].startswith("error: jobs.yaml:6: job 'a' has no field 'wibble'; it has what")
    rest = {line.split(":", 3)[2]: line for line in lines[4:-1]}
    assert list(sorted(rest)) == ["7", "8", "9"]
    assert "minute '99' has 99; it takes 0-59" in rest["7"]
    assert "retries='three' is not how often to try again; give a whole number" in rest["8"]
    assert lines[-1] == "nothing was changed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("command: 5\nretries: -1", ["2: job 'x': command", "3: job 'x': retries"]),
        ("command: ls\nhttp: http://example.org", ["3: job 'x': command and http are two things"]),
        ("command: ls\nmisfire: never\nmisfire_limit: 3", ["3: job 'x': misfire 'never'"]),
        ("http: {url: ftp://x}\nbody: x", ["3: job 'x' has no field 'body'; it goes under http",
                                           "2: job 'x': url must begin"]),
        ("notify: {to: json://example.org, body: b}\nbody: x", ["it goes under notify"]),
        ("command: ls\nschedule:\n  crn: '@daily'", ["4: job 'x': a schedule has no 'crn'; did you"
                                                     " mean 'cron'?"]),
        ("command: ls\nschedule:\n  tz: UTC", ["3: job 'x': schedule does not say when; it takes"]),
        ("command: ls\nschedule:\n  cron: 0 25 * * *", ["4: job 'x': hour '25'"]),
        ("command: ls\nschedule: {cron: '@daily', tzz: UTC}", ["has no 'tzz'; did you mean 'tz'?"]),
        ("command: ls\ndependencies: [y]\nretries: x", ["4: job 'x': retries='x'",
                                                        "3: job 'x': there is no job named 'y'"]),
        ("comand: ls\nretries: x", ["2: job 'x' has no field 'comand'; did you mean 'command'?",
                                    "3: job 'x': retries='x'"]),
        ("comand: ls", ["2: job 'x' has no field 'comand'; did you mean 'command'?"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_no_more_than_that(world, text, words):
    *faults, last = world.apply(f"name: x\n{text}\n").err.splitlines()

    assert last == "nothing was changed"
    for fault, word in zip(faults, words, strict=True):
        assert word in fault


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["jobs", "create", "x", "--command", "ls | wc"],
            "warning: without a shell, '|' is only a word; --shell runs the command by sh -c",
        ),
        (
            ["jobs", "create", "x", "--sql", "SELECT 1"],
            "name one with --connection",
        ),
        (["jobs", "trigger", "report", "--args", "[1]"], "as a JSON object such as"),
        (["jobs", "rollback", "report", "9"], "job report has no version 9; it has 1 only"),
        (["jobs", "create", "x", "--template", "purg"], "did you mean 'purge'?"),
        (
            ["jobs", "create", "x", "--template", "purge", "--parameter", "token=abc"],
            "is not a reference to a secret, such as @secret:NAME",
        ),
        (["jobs", "trigger", "report", "--delay"], "see daybell jobs trigger --help"),
        (["worker", "--queues", ""], "--queues is empty; name queues, or leave it out"),
        (["apply", "-f", "."], "files that end with .yaml, .yml, .json, .toml are read"),
        (["apply", "-f", ".", "--prune"], "say --prune --yes"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_command_line(world, words, said):
    template = {
        "name": "purge",
        "parameters": {"token": {"type": "secret"}},
        "job": {"command": "ls", "env": {"TOKEN": {"parameter": "token"}}},
    }
    world.ask(lambda client: client.set_template(template))

    assert said in world.typed(*words).err


def test_who_may_force_it_is_told_how(world):
    world.ask(lambda client: client.update("report", overlap="skip"))
    world.typed("jobs", "trigger", "report")

    assert world.typed("jobs", "trigger", "report").err.endswith("cancel it, or add --force\n")


async def test_who_stops_waiting_is_told_that_it_goes_on(capsys):
    async with Client("memory://") as client:
        await client.create("report", command="python report.py")
        id = (await client.trigger("report")).id
        waiting = asyncio.create_task(wait_for_end(client, id, seconds=None, as_json=False))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.05)
        waiting.cancel()  # as Ctrl-C does
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert capsys.readouterr().err.splitlines()[-1] == (
        f"it goes on; see `daybell executions wait {id}`, cancel with `daybell executions cancel"
        f" {id}`"
    )


async def test_who_waits_is_told_once_what_is_missing(capsys):
    clock = ManualClock()
    async with Client("memory://") as client:
        await client.create("etl", workflow={"nodes": [{"name": "disk", "command": "df"}]})
        id = (await client.enqueue("etl")).id
        await work(client.store, rounds=1)
        run = await client.execution(id)
        onlooker = WaitObserver(client, clock)

        await onlooker.look(run)
        assert capsys.readouterr().err == "", "it may be done in a moment"
        for _ in range(3):
            clock.advance(LOOK_SECONDS)
            await onlooker.look(run)

    assert capsys.readouterr().err == (
        "node disk: no live worker takes queue 'default'; start one with"
        " `daybell worker --allow-command`, in memory://\n"
    )


async def test_who_waits_for_a_short_time_is_told_what_is_missing_when_it_is_up(capsys):
    async with Client("memory://") as client:
        await client.create("etl", workflow={"nodes": [{"name": "disk", "command": "df"}]})
        id = (await client.enqueue("etl")).id
        await work(client.store, rounds=1)

        with pytest.raises(Conflict, match=r"is still running after 0 s; it goes on"):
            await wait_for_end(client, id, seconds=0, as_json=True)

    assert capsys.readouterr().err == (
        "node disk: no live worker takes queue 'default'; start one with"
        " `daybell worker --allow-command`, in memory://\n"
    )


async def test_what_was_said_at_once_is_not_said_again(capsys):
    clock = ManualClock()
    async with Client("memory://") as client:
        await client.create("report", command="df")
        waiting = await client.execution((await client.enqueue("report")).id)
        onlooker = WaitObserver(client, clock)
        await onlooker.report(waiting)
        assert "no live worker" in capsys.readouterr().err

        clock.advance(LOOK_SECONDS)
        await onlooker.look(waiting)

    assert capsys.readouterr().err == ""
