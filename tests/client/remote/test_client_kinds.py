"""Jobs without code and templates over HTTP, compared with a client of the store."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from daybell import every
from daybell.client import wire
from daybell.client.executions import read_execution
from daybell.core.ids import mint
from daybell.errors import DuplicateKey, TemplateNotFound, UsageError, VersionConflict

KINDS = {
    "command": {"command": "df -h", "shell": True, "env": {"A": {"secret": "B"}}},
    "words": {"command": {"run": ["df", {"secret": "C"}], "grace": timedelta(seconds=2)}},
    "http": {"http": {"url": "https://example.org", "body": {"a": 1}}, "schedule": every("5m")},
    "sql": {"sql": {"connection": "main", "statement": "SELECT 1"}, "retries": 1},
    "notify": {"notify": {"to": "json://example.org", "body": "x"}, "timeout": None},
    "template": {
        "template": "backup",
        "parameters": {"database": "shop"},
        "backoff": "exponential",
    },
    "manual": {"template": "backup", "parameters": {"database": "crm"}, "schedule": "manual"},
    "after": {"command": "df", "dependencies": ["resize"]},
    "after by template": {"template": "late", "parameters": {}},
    "task": {"task": "resize", "source": "apply:nightly", "expires": None},
}
TEMPLATE = {
    "name": "backup",
    "parameters": {"database": "string"},
    "job": {"command": ["pg_dump", {"parameter": "database"}], "schedule": "@daily"},
}
LATE = {
    "name": "late",
    "parameters": {},
    "job": {"command": "df", "dependencies": ["resize"]},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_of_any_kind_is_the_same_over_http(store, remote, kind):
    await store.set_template(TEMPLATE)
    await store.set_template(LATE)

    there = await remote.create("there", **KINDS[kind])
    here = await store.create("here", **KINDS[kind])

    assert there.definition == (await store.job("there")).definition
    assert there.definition == replace(here.definition, name="there")
    assert await remote.warnings("there") == await store.warnings("there")
    assert not await store.count(job="there")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_of_any_kind_is_declared_over_http(store, remote, kind):
    await store.set_template(TEMPLATE)
    await store.set_template(LATE)

    dry = await remote.apply_job("there", dry_run=True, **KINDS[kind])
    there = await remote.apply_job("there", **KINDS[kind])
    here = await store.apply_job("here", **KINDS[kind])
    again = await remote.apply_job(**there.after)

    assert (dry.action, dry.job, dry.after) == ("created", None, there.after)
    assert {**there.after, "name": "here"} == here.after
    assert (there.before, there.warnings) == (here.before, here.warnings)
    assert there.job.definition == (await store.job("there")).definition
    assert (again.action, again.job.version) == ("unchanged", 1)


async def test_what_a_job_runs_is_changed_over_http(store, remote):
    for client, name in ((remote, "there"), (store, "here")):
        await client.create(
            name, command={"run": "df", "directory": "/"}, shell=True, env={"A": "x"}
        )
        await client.update(name, command="df | wc", expect=1)
        await client.update(name, env=None)
        await client.update(name, retries=2, backoff={"delays": ["1s", "5s"]})

    there, here = await store.job("there"), await store.job("here")
    assert there.definition == replace(here.definition, name="there")
    assert there.definition.settings == '{"run":"df | wc","shell":true,"directory":"/"}'
    with pytest.raises(VersionConflict):
        await remote.apply_job("there", command="df", expect=1)
    with pytest.raises(DuplicateKey, match="defined by code"):
        await remote.apply_job("plain", command="df")
    for wrong in ({}, {"command": "df", "task": "plain"}, {"http": {"url": 5}}):
        with pytest.raises(UsageError):
            await remote.create("wrong", **wrong)


async def test_a_job_is_launched_over_http(store, remote):
    run = read_execution("disk", {"a": 1}, unique_key="k", id=mint())

    job, made = await remote.launch("disk", run, command="df")

    there = (await store.execution(made.id)).execution
    assert (job.definition.kind, there.args, there.unique_key) == ("command", '{"a":1}', "k")
    await store.set_template(TEMPLATE)
    for fields in (KINDS["template"], {"command": "df", "schedule": "@daily"}):
        for client in (store, remote):
            with pytest.raises(UsageError, match="without a schedule"):
                await client.launch("other", run, **fields)


async def test_templates_are_kept_over_http(store, remote):
    made = await remote.set_template(TEMPLATE, expect=0)
    changed = await remote.set_template({**TEMPLATE, "description": "x"}, expect=1)

    kept = wire.template(await store.template("backup"))
    assert wire.template(changed) == wire.template(await remote.template("backup")) == kept
    assert (made.version, changed.version) == (1, 2)
    assert [one.name for one in await remote.templates()] == ["backup"]
    with pytest.raises(DuplicateKey):
        await remote.set_template(TEMPLATE, expect=0)
    with pytest.raises(VersionConflict):
        await remote.delete_template("backup", expect=1)
    await remote.delete_template("backup")
    with pytest.raises(TemplateNotFound):
        await remote.template("backup")
