"""The interface of both clients: the same verbs and answers on a store and over HTTP."""

import inspect
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from daybell import Calendar, Client, RemoteClient, Retry, cron, every
from daybell.client import wire
from daybell.client.executions import read_execution
from daybell.client.logs import START
from daybell.client.remote import transport
from daybell.client.retries import RetryOutcome
from daybell.core.access import Role
from daybell.core.execution import LAST, Cancellation, NewLogPart, Revival, State, line_text
from daybell.core.ids import mint
from daybell.errors import (
    AccessDenied,
    Conflict,
    DuplicateKey,
    ExecutionInTheWay,
    ExecutionNotFound,
    JobNotFound,
    PayloadError,
    TemplateNotFound,
    TenantNotFound,
    Unavailable,
    UsageError,
    VersionConflict,
)
from tests.builders import apply, claim, death, retry, success
from tests.client.remote.losing import losing
from tests.refusals import refuses

# What only programs beside the store can say, or what the server decides itself.
ONLY_ON_THE_STORE = {
    "client",
    "parent",
    "id",
    "repeat",
    "request",
    "told",
    "entry",
    "sweep",
    "is_bound",
}


def verbs(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


async def test_a_change_of_the_schedule_keeps_what_it_does_not_name(client):
    weekend = Calendar(business_days=True)
    await client.create("nightly", command="ls", schedule=cron("@daily", tz="Asia/Tokyo"))
    await client.update("nightly", calendar=weekend.to_dict(), jitter="5s")

    job = await client.update("nightly", schedule=cron("0 3 * * *"))
    reset = await client.update("nightly", schedule={"cron": "0 4 * * *", "calendar": None})

    kept = cron("0 3 * * *", tz="Asia/Tokyo", calendar=weekend, jitter="5s")
    assert job.definition.schedules == (kept.to_json(),)
    left = cron("0 4 * * *", tz="Asia/Tokyo", jitter="5s")
    assert reset.definition.schedules == (left.to_json(),)


@pytest.mark.parametrize("name", verbs(RemoteClient))
def test_a_verb_takes_what_it_takes_on_the_store(name):
    here, there = verbs(Client)[name], verbs(RemoteClient)[name]

    for parameter in list(there.parameters.values())[1:]:
        known = here.parameters[parameter.name]
        assert parameter.kind is known.kind
        assert parameter.default == known.default or name == "schedules"
    assert {*here.parameters} - {*there.parameters} <= {*ONLY_ON_THE_STORE, "self"}


async def test_a_job_is_read_as_the_store_has_it(store, client):
    known = await store.job("resize")
    told = await client.job("resize")
    assert (told.job_id, told.definition) == (known.job_id, known.definition)
    assert (await client.job_named(known.job_id)).definition == known.definition
    assert len((await client.versions_page("resize")).items) == 1
    (schedule,) = await client.schedules("resize")
    assert schedule == (await store.schedules("resize"))[0]
    assert [one.name for one in (await client.jobs(prefix="res")).items] == ["resize"]
    assert [one.name for one in (await client.jobs(queue="images")).items] == ["plain"]
    assert (await client.standing("plain")).status == "manual"
    with refuses(JobNotFound):
        await client.job("nope")
    with pytest.raises(JobNotFound, match="no job named 'rezise'; did you mean 'resize'"):
        await client.job_named("rezise")


async def test_a_definition_says_the_same_over_http(store, client):
    told = {
        "schedule": [every("5m"), {"cron": "0 6 * * mon", "tz": "Europe/Rome"}],
        "retries": Retry.fixed("5s", retries=7),
        "timeout": timedelta(minutes=2),
        "priority": "high",
        "misfire": "fire_all",
        "misfire_limit": 5,
        "args": {"width": 100},
        "start_at": datetime(2030, 1, 1, tzinfo=UTC),
        "overlap": "queue",
        "user_id": "ada",
    }

    there = await client.create("thumbs", task="resize", **told)
    here = await store.create("thumbs-too", task="resize", **told)

    same = here.definition.to_json().replace("thumbs-too", "thumbs")
    assert (await store.job("thumbs")).definition.to_json() == same
    assert there.name == "thumbs"


async def test_a_job_without_a_schedule_waits_to_be_triggered(store, client):
    await client.create("later", task="resize")

    assert (await store.standing("later")).status == "manual"
    assert not (await store.count(job="later")).total


async def test_a_change_is_made_to_the_version_that_was_seen(store, client):
    first = await client.job("plain")

    changed = await client.update("plain", expect=first.version, description="thumbnails")

    assert (changed.version, changed.definition.description) == (2, "thumbnails")
    with pytest.raises(VersionConflict):
        await client.update("plain", expect=first.version, description="others")
    back = await client.rollback("plain", 1)
    assert (back.version, back.definition.description) == (3, "")


async def test_what_a_server_does_not_take_is_refused_here(client):
    with refuses(UsageError, field="settings"):
        await client.update("plain", settings={"task": "other"})
    with pytest.raises(UsageError, match="did you mean 'queue'"):
        await client.create("new", task="plain", qeue="images")


async def test_many_are_enqueued_all_or_nothing(store, remote):
    made = await remote.enqueue_many("plain", ({"width": width} for width in range(3)))

    assert made.count == 3
    assert (await store.count(job="plain")).executions == {State.QUEUED: 3}
    assert (await store.execution(made.executions[1].id)).args == {"width": 1}
    with pytest.raises(PayloadError):
        await remote.enqueue_many("plain", [{"width": 1}, {"width": float("nan")}])
    with refuses(UsageError, field="args"):
        await remote.enqueue_many("plain", ({} for _ in range(10_001)))
    assert (await remote.enqueue_many("plain", [])).count == 0
    assert (await store.count(job="plain")).executions == {State.QUEUED: 3}


async def test_one_is_enqueued_under_its_key(client):
    first = await client.enqueue("plain", {"name": "Zoë"}, unique_key="k", delay="1h")
    again = await client.enqueue("plain", unique_key="k")

    assert (again.id, again.created) == (first.id, False)
    assert (await client.execution(first.id)).args == {"name": "Zoë"}


async def test_what_is_in_the_way_is_named(client):
    first = await client.trigger("resize")

    with pytest.raises(ExecutionInTheWay) as caught:
        await client.trigger("resize")

    assert caught.value.execution == first.id
    assert (await client.trigger("resize", force=True)).created


async def test_executions_are_cancelled_by_filter(store, client):
    await client.enqueue_many("plain", [{}, {}])

    assert await client.count_cancellable(job="plain", since="2020-01-01") == 2
    steps: list[int] = []
    assert await client.cancel_many(job="plain", on_step=steps.append) == Counter(
        {Cancellation.CANCELLED: 2}
    )
    assert steps == [2]
    assert (await client.count(job="plain")).executions == {State.CANCELLED: 2}
    assert await client.count_retryable(job="plain", status="cancelled") == 2
    assert await client.retry_many(job="plain", status="cancelled") == Counter(
        {RetryOutcome.RENEWED: 2}
    )


async def test_what_is_created_is_created_once_although_the_answer_is_lost(store, address):
    token = (await store.create_key("root", role="superadmin")).token
    async with losing(address) as way, RemoteClient(way.url, key=token) as remote:
        way.to_lose = 1
        one = await remote.trigger("plain")
        way.to_lose = 1
        many = await remote.enqueue_many("plain", [{}, {}, {}])
        way.to_lose = 1
        job = await remote.create("thumbs", task="plain")
        way.to_lose = 1
        filled = await remote.backfill("resize", "2026-01-01", "2026-01-04")
        way.to_lose = 1
        counted = await remote.count(job="plain")  # what only looks is asked again, too
        way.to_lose = 1
        with pytest.raises(Unavailable, match="the connection broke"):
            await remote.pause_queue("images")  # whoever asked can ask again
        ended = str(filled.items[0].execution_id)
        await store.cancel(ended)
        way.to_lose = 1
        renewed = await remote.retry(ended)

    assert way.lost == 7
    assert renewed.created
    assert one.created and all(made.created for made in many.executions)
    assert counted == await store.count(job="plain")
    assert counted.executions == {State.QUEUED: 4}
    assert (job.version, filled.created) == (1, 3)
    assert (await store.count(job="resize")).total == 4  # one of them cancelled


async def test_one_execution_is_cancelled_once(client):
    made = await client.enqueue("plain")

    assert await client.cancel(made.id) is Cancellation.CANCELLED
    assert await client.cancel(made.id) is Cancellation.FINISHED
    with pytest.raises(ExecutionNotFound):
        await client.cancel(mint())


async def test_dead_letters_are_decided_on(store, client):
    await client.enqueue_many("plain", [{}, {}, {}])
    hands = await claim(store.store, queues=["images"])
    moves = [death(one) for one in hands.executions]
    await store.store.queue.apply("default", worker=hands.worker, transitions=moves)
    one, two, three = (
        letter.execution_id for letter in (await client.dead_letters(job="plain")).items
    )

    await client.discard(one)
    with pytest.raises(Conflict, match="not on the dead-letter list"):
        await client.discard(one)
    assert await client.count_dead_letters(queue="images") == 2
    assert await client.count_retryable(since="2020-01-01") == 2
    assert await client.retry_dead_letters([two, one]) == Counter(
        {Revival.REVIVED: 1, Revival.NOT_LISTED: 1}
    )
    assert await client.discard_dead_letters(job="plain") == (1, 0)
    assert await client.retry_dead_letters([]) == Counter()
    assert (await client.execution(three)).is_discarded


async def test_a_log_is_read_as_it_grows(store, client):
    made = await client.enqueue("plain")
    hands = await claim(store.store, queues=["images"])

    async def say(*numbers):
        parts = [
            NewLogPart(
                made.id, 1, hands.lease, number, line_text(number, "info", "app", "é" * number)
            )
            for number in numbers
        ]
        await store.store.queue.write_log("default", worker=hands.worker, parts=parts)

    async def heard(after):
        parts = [part async for part in client.log_parts(made.id, after=after)]
        lines = [len(line.message) for part in parts for line in part.lines]
        return lines, (parts[-1].attempt, parts[-1].number) if parts else after

    assert await heard(START) == ([], START)
    await say(*range(1, 26))  # several pages
    lines, end = await heard(START)
    assert lines == list(range(1, 26))
    assert await heard(end) == ([], end)
    await say(26)
    assert await heard(end) == ([26], (1, 26))
    assert (await heard((0, 2**31 - 1)))[0] == list(range(1, 27))


async def test_a_log_has_several_attempts(store, remote):
    made = await remote.enqueue("plain")
    first = await claim(store.store, queues=["images"])
    said = line_text(1.5, "stdout", "", "x" * 10_000)
    await apply(store.store, first, replace(retry(first.one, delay=0.0), log=said))
    second = await claim(store.store, queues=["images"])
    await apply(store.store, second, replace(death(second.one), log=said))

    here = [list(part.lines) async for part in store.log_parts(made.id)]
    there = [part async for part in remote.log_parts(made.id)]

    assert [list(part.lines) for part in there] == here
    assert [(part.attempt, part.number) for part in there] == [(1, LAST), (2, LAST)]


async def test_keys_are_made_listed_and_revoked(store, remote, address):
    key = await remote.create_key("deploy", role="operator", expires="90d")
    token = key.token

    assert (key.role, key.tenant) == (Role.OPERATOR, "default")
    assert {one.name for one in await remote.keys()} == {"deploy", "root"}
    async with RemoteClient(address, key=token) as other:
        assert await other.queues()
        with pytest.raises(AccessDenied, match="role admin"):
            await other.create_key("more", role="viewer")
    assert (await remote.revoke_key(key.key_id)).revoked_at is not None
    with refuses(UsageError, field="role"):
        await remote.create_key("more", role="king")


async def test_tenants_are_made_and_limited(store, client, address):
    made = await client.add_tenant("acme", jobs=5)

    assert made == await store.tenant_record("acme")
    with pytest.raises(DuplicateKey):
        await client.add_tenant("acme")
    changed = await client.update_tenant("acme", running=2)
    assert (changed.quotas.jobs, changed.quotas.running) == (5, 2)
    changed = await client.update_tenant("acme", weight=2.5)
    assert (changed.quotas.running, changed.weight) == (2, 2.5)
    with refuses(UsageError, field="weight"):
        await client.update_tenant("acme", weight=0)
    assert [one.name for one in await client.tenants()] == ["acme", "default"]
    assert await client.tenant_record("acme") == changed
    with pytest.raises(TenantNotFound):
        await client.update_tenant("nobody", jobs=1)
    with refuses(UsageError, field="cats"):
        await client.update_tenant("acme", cats=1)


async def test_the_audit_log_is_read_as_it_is(store, remote):
    await remote.pause("resize", "disk")
    await remote.pause_queue("images")

    entries = await remote.audit(action="job.pause")

    known = await store.audit(action="job.pause")
    assert entries == known
    assert len((await remote.audit(limit=1)).items) == 1
    assert (await remote.audit(since=0.0, until=1.0)).items == ()
    check = await remote.verify_audit(limit=1)
    assert (check.entries, check.next_cursor) == (1, check.head)
    wrong = await remote.verify_audit(cursor="1:" + "0" * 64)
    assert wrong == await store.verify_audit(cursor="1:" + "0" * 64)
    assert wrong.broken.number == 2


async def test_the_whole_is_seen_at_a_glance(store, client):
    await client.enqueue("plain")

    seen = await client.stats()

    assert [(queue.name, queue.queued) for queue in seen.queues] == [
        ("default", 0),
        ("images", 1),
    ]
    assert abs((await client.health()).now - (await store.health()).now) < 60
    assert await client.leaders() == await store.leaders()
    assert await client.purge_queue("images") == 1


async def test_a_list_of_many_pages_is_read_to_its_end(store, remote, monkeypatch):
    monkeypatch.setattr(transport, "PAGE_ITEMS_MAX", 2)
    for n in range(5):
        await store.pause_queue(f"q{n}")
        await store.define("plain", retries=n + 5)

    assert await remote.queues() == await store.queues()
    versions = await remote.transport.all("/jobs/plain/versions", wire.ListedVersion)
    assert versions == list((await store.versions_page("plain")).items)
    assert len(versions) > 5


async def test_many_are_decided_on_by_times_that_no_request_reads_anew(remote, monkeypatch):
    sent = []
    ask = remote._ask

    async def recorded(method, path, answer, *body, **options):
        sent.extend(one["filter"] for one in body)
        return await ask(method, path, answer, *body, **options)

    monkeypatch.setattr(remote, "_ask", recorded)
    lengths = {"since": "4h", "until": "4s", "ended_since": "3h ago", "ended_until": "1h"}
    await remote.cancel_many(**lengths)
    await remote.retry_many(**lengths)
    await remote.retry_dead_letters(**lengths)
    await remote.discard_dead_letters(**lengths)

    assert len(sent) == 4
    assert all(datetime.fromisoformat(one[name]).tzinfo for one in sent for name in lengths)


# Jobs without code and templates over HTTP, compared with a client of the store.

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
async def test_a_job_of_any_kind_is_the_same_over_http(store, client, kind):
    await store.set_template(TEMPLATE)
    await store.set_template(LATE)

    there = await client.create("there", **KINDS[kind])
    here = await store.create("here", **KINDS[kind])

    assert there.definition == (await store.job("there")).definition
    assert there.definition == replace(here.definition, name="there")
    assert await client.warnings("there") == await store.warnings("there")
    assert not (await store.count(job="there")).total


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_of_any_kind_is_declared_over_http(store, client, kind):
    await store.set_template(TEMPLATE)
    await store.set_template(LATE)

    dry = await client.apply_job("there", dry_run=True, **KINDS[kind])
    there = await client.apply_job("there", **KINDS[kind])
    here = await store.apply_job("here", **KINDS[kind])
    again = await client.apply_job(**there.after)

    assert (dry.action, dry.job, dry.after) == ("created", None, there.after)
    assert {**there.after, "name": "here"} == here.after
    assert (there.before, there.warnings) == (here.before, here.warnings)
    assert there.job.definition == (await store.job("there")).definition
    assert (again.action, again.job.version) == ("unchanged", 1)


async def test_what_a_job_runs_is_changed_over_http(store, client):
    for each, name in ((client, "there"), (store, "here")):
        await each.create(name, command={"run": "df", "directory": "/"}, shell=True, env={"A": "x"})
        await each.update(name, command="df | wc", expect=1)
        await each.update(name, env=None)
        await each.update(name, retries=2, backoff={"delays": ["1s", "5s"]})

    there, here = await store.job("there"), await store.job("here")
    assert there.definition == replace(here.definition, name="there")
    assert there.definition.settings == '{"run":"df | wc","shell":true,"directory":"/"}'
    with pytest.raises(VersionConflict):
        await client.apply_job("there", command="df", expect=1)
    with refuses(DuplicateKey):
        await client.apply_job("plain", command="df")
    for wrong in ({}, {"command": "df", "task": "plain"}, {"http": {"url": 5}}):
        with pytest.raises(UsageError):
            await client.create("wrong", **wrong)


async def test_a_job_is_launched_over_http(store, client):
    run = read_execution("disk", {"a": 1}, unique_key="k", id=mint())

    job = await client.launch("disk", run, command="df")

    there = await store.execution(job.execution_id)
    assert (job.kind, there.args, there.unique_key) == ("command", {"a": 1}, "k")
    await store.set_template(TEMPLATE)
    for fields in (KINDS["template"], {"command": "df", "schedule": "@daily"}):
        with refuses(UsageError, field="schedule"):
            await client.launch("other", run, **fields)


async def test_templates_are_kept_over_http(store, client):
    made = await client.set_template(TEMPLATE, expect=0)
    changed = await client.set_template({**TEMPLATE, "description": "x"}, expect=1)

    assert changed == await client.template("backup") == await store.template("backup")
    assert (made.version, changed.version) == (1, 2)
    assert [one.name for one in await client.templates()] == ["backup"]
    with pytest.raises(DuplicateKey):
        await client.set_template(TEMPLATE, expect=0)
    with pytest.raises(VersionConflict):
        await client.delete_template("backup", expect=1)
    await client.delete_template("backup")
    with pytest.raises(TemplateNotFound):
        await client.template("backup")


async def test_a_search_in_logs_is_the_same_over_http(store, client):
    await store.enqueue("plain")
    hands = await claim(store.store, queues=["images"])
    log = line_text(60.0, "info", "app", "hi")
    await apply(store.store, hands, replace(success(hands.one), log=log))

    for options in ({}, {"job": "plain", "status": ["succeeded"], "since": 59.0, "limit": 1}):
        there = await client.search_logs("HI", **options)
        assert there == await store.search_logs("HI", **options) and len(there.items) == 1
    with refuses(UsageError, field="level"):
        await client.search_logs(level="loud")


async def test_statistics_are_the_same_over_http(store, client):
    await store.enqueue_many("plain", [{}] * 2)

    for options in ({}, {"job": "plain", "since": "3h", "step": "10m"}, {"queue": "images"}):
        there = await client.series(["enqueued", "delay_p99"], **options)
        assert there == await store.series(["enqueued", "delay_p99"], **options)
    assert await client.job_stats("plain") == await store.job_stats("plain")
    with refuses(UsageError, field="metric"):
        await client.series(["latency"])
    with refuses(UsageError, field="step"):
        await client.series(["dead"], step="90s")
