"""Jobs without code: what says what they run, what they are then, and how that is changed."""

import msgspec
import pytest

from daybell.client import Client
from daybell.core.access import NewSecret
from daybell.core.ids import mint
from daybell.core.job import JobDefinition
from daybell.core.job_request import read_kind, write_kind
from daybell.core.options import CHOICES
from daybell.core.worker import NewWorker
from daybell.errors import DuplicateKey, UnknownJob, UsageError, VersionConflict
from tests.refusals import refuses

HTTP = {"url": "https://example.org", "headers": {"X-A": {"secret": "TOKEN"}}, "body": {"a": 1}}
SQL = {"connection": "warehouse", "statement": "SELECT :a", "parameters": {"a": {"secret": "A"}}}
NOTIFY = {"to": [{"secret": "CHAT"}], "title": "Done"}


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        await opened.define("resize", queue="images", retries=7, timeout="30s")
        yield opened


def settings_of(job):
    return msgspec.json.decode(job.definition.settings)


@pytest.mark.parametrize(
    ("fields", "kind", "settings"),
    [
        ({"command": "df -h"}, "command", {"run": "df -h"}),
        ({"command": ["df", {"secret": "X"}]}, "command", {"run": ["df", {"secret": "X"}]}),
        (
            {"command": "echo 'it", "shell": True, "env": {"A": {"secret": "B"}}},
            "command",
            {"run": "echo 'it", "shell": True, "env": {"A": {"secret": "B"}}},
        ),
        (
            {"command": {"run": "df", "env": {"A": "x"}, "directory": "/srv"}, "env": {"A": "x"}},
            "command",
            {"run": "df", "env": {"A": "x"}, "directory": "/srv"},
        ),
        ({"http": "https://example.org"}, "http", {"url": "https://example.org"}),
        ({"http": HTTP}, "http", {**HTTP, "method": "POST"}),
        ({"sql": SQL}, "sql", SQL),
        ({"notify": NOTIFY}, "notify", NOTIFY),
        ({"task": "resize", "command": None}, "task", {"task": "resize"}),
    ],
)
async def test_one_field_says_what_a_job_runs(client, fields, kind, settings):
    job = await client.create("made", **fields)

    assert (job.definition.kind, settings_of(job)) == (kind, settings)
    assert job.version == 1


@pytest.mark.parametrize(
    ("fields", "message", "field"),
    [
        ({}, "it names nothing to run; give one of task, command, http", "task"),
        ({"command": "df", "http": "https://example.org"}, "a job runs one", "http"),
        ({"task": "resize", "sql": SQL}, "task and sql are two things to run", "sql"),
        ({"shell": True}, "shell is for a command, and there is none", "command"),
        ({"task": "resize", "env": {"A": "x"}}, "env is for a command", "env"),
        ({"http": HTTP, "shell": False}, "shell is for a command", "shell"),
        ({"command": "df", "parameters": {}}, "parameters are a template's", "parameters"),
        ({"command": {"run": "df", "shell": True}, "shell": False}, "say it once", "shell"),
        ({"command": "echo 'it"}, "cannot be split into words", "command"),
        ({"command": 5}, "must be text, or a list of words", "command"),
        ({"http": {**HTTP, "headers": {"X-A": 5}}}, "must be text", "http.headers.X-A"),
        ({"command": {"join": ["ls ", {"secret": "S"}]}, "shell": True}, "'join'", "command.join"),
        ({"command": {"run": {"secret": "S"}, "shell": True}}, "must be text", "command"),
        ({"sql": {"connection": "w"}}, "sql has no statement", "sql.statement"),
        ({"sql": {**SQL, "statement": {"secret": "S"}}}, "must be SQL", "sql.statement"),
        ({"notify": {"to": "ana", "body": "x"}}, "has no scheme", "notify.to"),
        ({"command": "df", "env": {"A": 5}}, "must be text", "env.A"),
        ({"command": "df", "kind": "http"}, "has no field 'kind'", "kind"),
        ({"command": "df", "source": 5}, "must be text", "source"),
        ({"command": "df", "made_from": {"name": "x"}}, "must be an object with", "made_from"),
        ({"command": "df", "backoff": 5}, "must be a word", "backoff"),
        ({"template": "nothing"}, "there is no template named 'nothing'", "template"),
    ],
)
async def test_what_says_it_wrongly_is_refused_by_its_field(client, fields, message, field):
    with pytest.raises(UsageError, match=message) as caught:
        await client.create("made", **fields)

    assert caught.value.field == field
    assert [job.name for job in (await client.jobs()).items] == ["resize"]


async def test_a_task_is_called_as_its_own_job_and_other_kinds_as_usual(client):
    task = await client.create("thumbs", task="resize")
    command = await client.create("disk", command="df")

    assert (task.definition.queue, task.definition.retry.retries) == ("images", 7)
    assert (command.definition.queue, command.definition.retry.retries) == ("default", 3)
    assert (task.definition.timeout, command.definition.timeout) == (30.0, None)


async def test_a_statement_needs_a_worker_with_its_connection(client):
    job = await client.create("purge", sql=SQL)

    assert job.definition.needs == "sql:warehouse"


async def test_what_is_defined_by_kind_is_read_by_its_rules(client):
    with pytest.raises(UsageError, match="command has no 'cmd'"):
        await client.define("disk", kind="command", settings={"cmd": "df"})
    with pytest.raises(UsageError, match="http has no url"):
        await client.define("call", kind="http")


@pytest.mark.parametrize(
    ("made", "change", "settings"),
    [
        # A line takes the place of the line, an object that of all of it.
        ({"command": {"run": "df", "directory": "/"}, "env": {"A": "x"}}, {"command": "du -s"},
         {"run": "du -s", "directory": "/", "env": {"A": "x"}}),
        ({"command": {"run": "df", "directory": "/"}, "env": {"A": "x"}}, {"command": {"run": "w"}},
         {"run": "w"}),
        ({"command": "df", "shell": True}, {"command": "echo 'it"}, None),
        ({"command": "df", "shell": True}, {"command": "w | wc"}, {"run": "w | wc", "shell": True}),
        ({"command": "df", "shell": True}, {"shell": None}, {"run": "df"}),
        ({"command": "w", "env": {"A": "x"}}, {"env": {"B": "y"}}, {"run": "w", "env": {"B": "y"}}),
        ({"command": "df", "env": {"A": "x"}}, {"env": None}, {"run": "df"}),
        ({"http": HTTP}, {"env": None, "task": None, "timeout": 5}, None),
        ({"http": HTTP}, {"http": "https://example.net"},
         {**HTTP, "url": "https://example.net", "method": "POST"}),
        ({"sql": SQL}, {"sql": {**SQL, "statement": "SELECT 1"}}, {**SQL, "statement": "SELECT 1"}),
        ({"task": "resize"}, {"task": "shrink"}, {"task": "shrink"}),
        ({"task": "resize"}, {"command": "df"}, {"run": "df"}),
        ({"command": "df"}, {"task": "shrink"}, {"task": "shrink"}),
    ],
)  # fmt: skip
async def test_a_change_makes_a_version_that_runs_something_else(client, made, change, settings):
    await client.define("shrink")
    await client.create("job", queue="slow", description="kept", **made)

    job = await client.update("job", **change)

    assert job.version == 2
    assert settings is None or settings_of(job) == settings
    assert (job.definition.queue, job.definition.description) == ("slow", "kept")
    first = await client.job("job", version=1)
    assert (await client.rollback("job", 1)).definition == first.definition


async def test_what_runs_something_else_begins_without_arguments(client):
    await client.create("job", task="resize", args={"width": 5})

    same = await client.update("job", task="resize", timeout=5)
    other = await client.update("job", notify=NOTIFY)

    assert (same.definition.args, other.definition.args) == ('{"width":5}', "{}")


@pytest.mark.parametrize(
    ("job", "change", "message"),
    [
        ("resize", {"command": "df"}, "job resize is defined by code"),
        ("resize", {"task": "resize"}, "job resize is defined by code"),
        ("resize", {"env": {"A": "x"}}, "job resize is defined by code"),
        ("call", {"env": {"A": "x"}}, "env is for a command"),
        ("call", {"sql": SQL, "command": "df"}, "a job runs one"),
        ("disk", {"task": "nobody"}, "no task named 'nobody'"),
        ("disk", {"task": "call"}, "is a http, not a task"),
        ("disk", {"command": []}, "command is empty"),
        ("disk", {"sql": "SELECT 1"}, "must be given by name"),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(client, job, change, message):
    await client.create("call", http="https://example.org")
    await client.create("disk", command="df")

    with pytest.raises((UsageError, UnknownJob), match=message):
        await client.update(job, **change)

    assert (await client.job(job)).version == 1


@pytest.mark.parametrize("beside", [{}, {"shell": True}, {"directory": "/", "env": {"A": "x"}}])
def test_what_a_job_runs_is_said_as_it_would_be_asked_for(beside):
    settings = read_kind("command", {"command": {"run": "df", **beside}})
    definition = JobDefinition(
        name="disk", kind="command", settings=msgspec.json.encode(settings).decode()
    )

    said = write_kind(definition)

    assert read_kind("command", said) == settings
    rest = {name: beside[name] for name in beside if name == "directory"}
    assert said["command"] == ({"run": "df", **rest} if rest else "df")
    assert said.keys() <= {*CHOICES, "shell", "env"}


async def test_what_looks_wrong_is_told(client):
    secrets = {"A": {"secret": "ONE"}, "B": {"join": ["x", {"secret": "TWO"}]}}
    await client.store.admin.set_secret(
        "default", NewSecret(name="TWO", key_id="k", sealed=b"sealed")
    )
    await client.create(
        "disk", command="df | wc", env=secrets, dependencies=["resize"], args={"a": {"secret": "X"}}
    )
    await client.create("thumbs", task="resize")

    told = await client.warnings("disk")

    assert len(told) == 4, told
    assert "without a shell, '|' is only a word" in told[0]
    assert told[1].startswith("secret ONE is not set")
    assert told[2].startswith("secret X is not set")
    assert "--allow-command" in told[3]
    assert await client.warnings("thumbs") == []

    offers = NewWorker(id=mint(), name="w", queues=("default",), kinds=("task", "command"))
    await client.store.queue.register("default", offers, lease=15.0)
    assert len(await client.warnings("disk")) == 3


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:8080/healthz", "127.0.0.1 is in 127.0.0.0/8, this machine"),
        ("https://[fd00::1]/", "fd00::1 is in fc00::/7, a private network"),
        ("http://LocalHost./", "localhost is this machine"),
        ("http://8.8.8.8/", None),
        ("http://intern.example/", None),  # only a worker can look that up
        ({"secret": "URL"}, None),
    ],
)
async def test_a_request_to_a_private_address_is_warned_of_where_nobody_sends_it(client, url, why):
    async def told():
        return [one for one in await client.warnings("ping") if "private" in one]

    async def there(*kinds: str):
        offers = NewWorker(id=mint(), name="w", queues=("default",), kinds=kinds)
        await client.store.queue.register("default", offers, lease=15.0)

    await client.create("ping", http={"url": url})
    await there("task", "http")
    assert len(await told()) == (why is not None)
    assert all(why in one and "--allow-private-http" in one for one in await told())

    await there("http", "http:private")
    assert await told() == []


async def test_a_node_that_sends_one_is_warned_of_too(client):
    nodes = [{"name": "ping", "http": "http://10.1.2.3/"}]
    await client.create("flow", workflow={"nodes": nodes}, queue="web")

    told = [one for one in await client.warnings("flow") if "private addresses" in one]

    assert len(told) == 1
    assert "--allow-private-http --queues web" in told[0]


async def test_a_job_is_launched_whatever_it_runs(client):
    from daybell.client.executions import read_execution

    run = read_execution("disk", {}, unique_key=None, id=mint())
    job = await client.launch("disk", run, command="df")

    assert (job.kind, job.execution_id) == ("command", run.id)
    with pytest.raises(DuplicateKey):
        await client.launch(
            "disk", read_execution("disk", {}, unique_key=None, id=mint()), command="w"
        )
    with refuses(UsageError, field="schedule"):
        await client.launch("other", run, command="df", schedule="@daily")


async def test_a_change_is_for_the_version_that_was_seen(client):
    await client.create("disk", command="df")
    await client.update("disk", command="du", expect=1)

    with refuses(VersionConflict):
        await client.update("disk", command="w", expect=1)
