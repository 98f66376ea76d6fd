"""Jobs that are declared: what a request makes, and the request that makes it again."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.client import Client
from daybell.client import schedules as room
from daybell.client.declarations import Change, diff_requests
from daybell.core.job import JobDefinition
from daybell.core.job_request import build_request
from daybell.core.retry import Retry
from daybell.errors import DuplicateKey, InvalidSchedule, JobNotFound, UsageError, VersionConflict
from tests.refusals import refuses

TEMPLATE = {
    "name": "backup",
    "parameters": {"database": "string", "keep": {"type": "integer", "default": 7}},
    "job": {
        "command": ["pg_dump", {"parameter": "database"}],
        "args": {"keep": {"parameter": "keep"}},
        "queue": "slow",
    },
}
REFERENCE = {"join": ["Bearer ", {"secret": "TOKEN"}]}

words = st.text("aé 'x-", min_size=1, max_size=5)
flags = st.booleans()
values = st.one_of(
    words, st.integers(0, 9), flags, st.none(), st.just({"secret": "A"}), st.just(REFERENCE),
    st.just("\ud800"),
)  # fmt: skip
texts = words | st.just(REFERENCE)
env = st.dictionaries(st.sampled_from(["A", "B"]), texts, max_size=2)


def some(**fields):
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


COMMAND = st.one_of(
    st.fixed_dictionaries({"command": st.sampled_from(["df -h", ["df", "-h"], ["a", REFERENCE]])}),
    st.fixed_dictionaries(
        {"command": st.sampled_from(["df", "w | wc"])}, optional={"shell": flags, "env": env}
    ),
    st.fixed_dictionaries(
        {
            "command": st.fixed_dictionaries(
                {"run": st.just("df")},
                optional={
                    "shell": flags,
                    "env": env,
                    "directory": st.just("/srv"),
                    "stdin": texts,
                    "success_codes": st.sampled_from([0, [0], [0, 3]]),
                    "retry_codes": st.sampled_from([75, [1, 2], []]),
                    "grace": st.sampled_from(["5s", 5, 0.5]),
                    "output": st.sampled_from(["text", "json"]),
                },
            )
        }
    ),
)
HTTP = st.one_of(
    st.just({"http": "https://example.org"}),
    st.fixed_dictionaries(
        {
            "http": st.fixed_dictionaries(
                {"url": st.sampled_from(["https://example.org", {"secret": "URL"}])},
                optional={
                    "method": st.sampled_from(["get", "PUT"]),
                    "headers": st.just({"X-A": REFERENCE}),
                    "body": values,
                    "expect": st.sampled_from([200, "2xx", [200, "3xx"]]),
                    "redirects": st.sampled_from([True, False, 2]),
                },
            )
        }
    ),
)
SQL = st.fixed_dictionaries(
    {
        "sql": st.fixed_dictionaries(
            {"connection": st.just("main"), "statement": st.sampled_from(["SELECT 1", "\ud800"])},
            optional={
                "parameters": st.dictionaries(st.just("a"), values),
                "rows": st.sampled_from([0, 5, 1000]),
            },
        )
    }
)
NOTIFY = st.fixed_dictionaries(
    {
        "notify": st.fixed_dictionaries(
            {"to": st.sampled_from(["json://a", ["json://a", {"secret": "B"}]]), "body": texts},
            optional={"title": texts, "format": st.sampled_from(["text", "html"])},
        )
    }
)
FROM_TEMPLATE = st.fixed_dictionaries(
    {
        "template": st.just("backup"),
        "parameters": st.fixed_dictionaries(
            {"database": words}, optional={"keep": st.integers(1, 9)}
        ),
    }
)
RULES = st.sampled_from(
    [
        "0 0 * * *",
        "H H * * *",
        "@reboot",
        {"cron": "0 6 * * *", "tz": "Europe/Rome", "dst": {"gap": "skip"}},
        {"every": "5m", "mode": "delay"},
        {"every": "90s", "jitter": "10s", "start_at": "2030-01-01T00:00:00Z"},
        {"at": "2031-01-01T00:00:00+01:00"},
        {"rrule": "FREQ=WEEKLY;BYDAY=MO", "calendar": {"country": "DE"}},
    ]
)
POLICIES = some(
    schedule=st.one_of(RULES, st.lists(RULES, min_size=1, max_size=3), st.just("manual")),
    args=st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2),
    queue=st.sampled_from(["default", "slow"]),
    priority=st.sampled_from(["critical", "medium", "low"]),
    retries=st.sampled_from([0, 3, 9]),
    backoff=st.sampled_from(["exponential", {"base": "2s", "jitter": 0}, {"delays": ["1s", 9]}]),
    timeout=st.sampled_from([None, 60, "1h30m"]),
    expires=st.sampled_from([None, "5m"]),
    max_crashes=st.sampled_from([1, 3]),
    on_lost=st.sampled_from(["retry", "dead"]),
    store_result=flags,
    description=st.sampled_from(["", "Ünïcode"]),
    user_id=st.sampled_from([None, "ada"]),
    overlap=st.sampled_from([None, "queue", "allow"]),
    misfire=st.sampled_from(["fire_all", {"policy": "skip", "grace": "1m"}]),
    misfire_limit=st.sampled_from([None, 5]),
    pause_after_failures=st.sampled_from([None, 5]),
    dependencies=st.sampled_from([[], ["resize"], None]),
    source=st.sampled_from(["", "apply", "apply:nightly"]),
).filter(lambda said: not (said.get("schedule") == "manual" and said.get("dependencies")))
KINDS = st.one_of(COMMAND, HTTP, SQL, NOTIFY, FROM_TEMPLATE, st.just({"task": "resize"}))


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        await opened.define("resize", queue="images", retries=Retry.fixed("5s"), timeout="30s")
        yield opened


@given(kind=KINDS, policies=POLICIES)
@settings(max_examples=150, deadline=None)
def test_a_request_is_what_makes_the_same_job_again(kind, policies):
    async def apply_twice():
        async with Client("memory://") as client:
            await client.define("resize", retries=Retry.fixed("5s"), timeout="30s", queue="images")
            await client.set_template(TEMPLATE)
            made = await client.apply_job("job", **kind, **policies)
            assert made.job is not None
            asked: Any = build_request((await client.job("job")).definition)
            again = await client.apply_job(**asked)
            copied: Any = {**asked, "name": "copy"}
            copy = await client.apply_job(**copied)
            versions = [await client.job(name) for name in ("job", "copy")]
            return made, again, copy, [one.definition for one in versions]

    made, again, copy, definitions = asyncio.run(apply_twice())

    assert (made.action, again.action, copy.action) == ("created", "unchanged", "created")
    assert again.job == made.job
    assert again.before == again.after == made.after
    assert definitions[1] == msgspec.structs.replace(definitions[0], name="copy")


async def test_what_is_declared_is_made_then_changed_then_left_alone(client):
    made = await client.apply_job("disk", command="df", schedule="@daily", author="ana")
    same = await client.apply_job("disk", command="df", schedule={"cron": "@daily"})
    changed = await client.apply_job("disk", command="df -h", retries=5)

    assert (made.action, made.before, made.job.version) == ("created", None, 1)
    assert made.after == {"name": "disk", "command": "df", "schedule": "0 0 * * *"}
    assert (same.action, same.job.version, same.job.author) == ("unchanged", 1, "ana")
    assert (changed.action, changed.job.version) == ("changed", 2)
    assert changed.before == made.after
    assert changed.after == {"name": "disk", "command": "df -h", "retries": 5}
    assert await room.schedules(client, "disk") == []


async def test_a_dry_run_changes_nothing(client):
    made = await client.apply_job("disk", command="df", dry_run=True)
    await client.apply_job("disk", command="df")
    changed = await client.apply_job("disk", command="du", dry_run=True)

    assert (made.action, made.job) == ("created", None)
    assert (changed.action, changed.job.version) == ("changed", 1)
    assert changed.after["command"] == "du"
    assert (await client.job("disk")).definition.settings == '{"run":"df"}'
    with refuses(UsageError, field="dependencies"):
        await client.apply_job("disk", command="df", dependencies=["nobody"], dry_run=True)


async def test_a_task_is_declared_with_what_its_own_job_has(client):
    made = await client.apply_job("thumbs", task="resize")
    freed = await client.apply_job("thumbs", task="resize", timeout=None)

    assert made.job.definition.timeout == 30.0
    assert made.after["queue"] == "images"
    assert (freed.job.definition.timeout, freed.after["timeout"]) == (None, None)


async def test_a_job_that_code_defines_is_not_declared(client):
    with pytest.raises(DuplicateKey, match="defined by code"):
        await client.apply_job("resize", command="df")
    with pytest.raises(DuplicateKey, match="defined by code"):
        await client.apply_job("resize", task="resize", dry_run=True)

    assert (await client.job("resize")).version == 1


async def test_a_deleted_job_is_made_again(client):
    await client.apply_job("disk", command="df")
    await client.delete_job("disk")

    made = await client.apply_job("disk", command="df")

    assert (made.action, made.before) == ("created", None)
    assert (await client.job("disk")).version == made.job.version


async def test_what_is_declared_is_for_the_version_that_was_seen(client):
    await client.apply_job("disk", command="df", expect=0)

    for expect in (0, 2):
        with pytest.raises(VersionConflict, match=f"is at version 1, not {expect}"):
            await client.apply_job("disk", command="du", expect=expect)
    with refuses(VersionConflict):
        await client.apply_job("other", command="du", expect=1)
    assert (await client.apply_job("disk", command="du", expect=1)).job.version == 2


async def test_a_time_that_has_passed_since_is_left_alone(client):
    past = {"at": "2001-01-01T00:00:00Z"}
    definition = JobDefinition(
        name="once", kind="command", settings='{"run":"df"}',
        schedules=('{"at":"2001-01-01T00:00:00Z"}',),
    )  # fmt: skip
    await client.define_jobs([definition])

    same = await client.apply_job("once", command="df", schedule=past)
    other = await client.apply_job("once", command="du", schedule=past)

    assert (same.action, other.action) == ("unchanged", "changed")
    with refuses(InvalidSchedule, field="schedule.at"):
        await client.apply_job("new", command="df", schedule=past)
    with refuses(InvalidSchedule, field="schedule"):
        await client.apply_job("new", command="df", schedule=[{"delay": "5m"}])


async def test_what_differs_only_in_its_type_is_a_change(client):
    await client.apply_job("disk", command="df", args={"a": 1, "b": 0})

    same = await client.apply_job("disk", command="df", args={"b": 0, "a": 1})
    other = await client.apply_job("disk", command="df", args={"a": True, "b": False})

    assert (same.action, other.action) == ("unchanged", "changed")


def test_changes_are_told_field_by_field():
    before = {"command": "df", "env": {"A": "x", "B": "y"}, "retries": 3, "args": {"n": 1}}
    after = {"command": ["df"], "env": {"B": "z", "C": "c"}, "timeout": None, "args": {"n": 1}}

    assert diff_requests(before, after) == [
        Change(field="command", before="df", after=["df"]),
        Change(field="env.A", before="x"),
        Change(field="env.B", before="y", after="z"),
        Change(field="env.C", after="c"),
        Change(field="retries", before=3),
        Change(field="timeout", after=None),
    ]
    assert diff_requests(after, dict(reversed(after.items()))) == []


async def test_a_job_is_made_from_a_template_with_what_is_said_beside_it(client):
    kept = await client.set_template(TEMPLATE, author="ana")

    parameters = {"database": "shop"}
    made = await client.create("backup-shop", template="backup", parameters=parameters, retries=0)
    other = await client.create(
        "backup-crm", template="backup", parameters={"database": "crm", "keep": 1}, queue="fast"
    )

    definition = made.definition
    assert (definition.kind, definition.queue, definition.args) == ("command", "slow", '{"keep":7}')
    assert definition.settings == '{"run":["pg_dump","shop"]}'
    assert msgspec.json.decode(definition.template) == {
        "name": "backup", "version": kept.version, "parameters": parameters,
    }  # fmt: skip
    assert (other.definition.queue, other.definition.args) == ("fast", '{"keep":1}')
    assert (kept.author, definition.retry.retries) == ("ana", 0)


@pytest.mark.parametrize(
    ("fields", "message", "field"),
    [
        ({}, "needs the parameter database", "parameters.database"),
        ({"parameters": {"database": 5}}, "5 is not text", "parameters.database"),
        ({"parameters": {"database": "x", "kep": 5}}, "has no parameter 'kep'", "parameters.kep"),
        ({"parameters": ["x"]}, "must be given by name", "parameters"),
        ({"parameters": {"database": "x"}, "command": "df"}, "a job runs one", "template"),
        ({"parameters": {"database": "x"}, "env": {"A": "x"}}, "env is for a command", "env"),
        ({"made_from": {"name": "a", "version": 1, "parameters": {}}}, "leave it out", "made_from"),
    ],
)
async def test_a_template_is_filled_in_as_it_says(client, fields, message, field):
    await client.set_template(TEMPLATE)

    with pytest.raises(UsageError, match=message) as caught:
        await client.create("job", template="backup", **fields)

    assert caught.value.field == field


async def test_a_job_stays_what_it_was_when_its_template_changes(client):
    await client.set_template(TEMPLATE)
    fields = {"template": "backup", "parameters": {"database": "shop"}}
    first = await client.apply_job("backup-shop", **fields)
    changed = {**TEMPLATE, "job": {**TEMPLATE["job"], "queue": "fast"}}
    await client.set_template(changed, expect=1)

    assert (await client.job("backup-shop")).definition == first.job.definition
    again = await client.apply_job("backup-shop", **fields)
    await client.delete_template("backup", expect=2)

    assert {one.field for one in diff_requests(again.before, again.after)} == {
        "queue", "made_from.version",
    }  # fmt: skip
    assert (await client.job("backup-shop")).definition.queue == "fast"
    by_hand = await client.update("backup-shop", command="pg_dump crm")
    assert by_hand.definition.template == ""
    with refuses(UsageError, field="template"):
        await client.update("backup-shop", **fields)


@pytest.mark.parametrize(
    ("job", "message", "field"),
    [
        ({"queue": "slow"}, "it names nothing to run", "job.task"),
        ({"command": "df", "http": "https://a.example"}, "a job runs one", "job.http"),
        ({"command": "df", "scedule": "@daily"}, "did you mean 'schedule'", "job.scedule"),
        ({"command": "echo 'it"}, "cannot be split", "job.command"),
        ({"command": "df", "timeout": "soon"}, "cannot be read", "job.timeout"),
        ({"command": "df", "name": "x"}, "a template's job has no name", "job.name"),
    ],
)
async def test_a_template_of_no_job_is_refused(client, job, message, field):
    with pytest.raises(UsageError, match=message) as caught:
        await client.set_template({"name": "broken", "job": job})

    assert caught.value.field == field
    assert await client.templates() == []


async def test_what_was_a_job_without_code_is_found_under_its_name(client):
    with pytest.raises(JobNotFound):
        await client.warnings("nobody")
