"""A store within a scope: what is outside of it is not there, and what is not known is refused."""

import pytest

from daybell.core.access import Scope
from daybell.core.execution import Cancellation, NewLogPart, Revival
from daybell.core.views import ExecutionFilter, JobFilter
from daybell.errors import AccessDenied, ExecutionNotFound, JobNotFound
from daybell.store.scope import OF_EXECUTION, OF_JOB, OPEN, ScopedStore
from tests.builders import TENANT, a_job, an_execution, claim, defined, enqueued
from tests.ports import OPERATIONS, PORTS, operation_of

# Whoever adds an operation to stores decides here whether a key with a scope can use it.
CLOSED = {
    "list_listeners", "watched_files", "note_files",
    "activity", "change_limit", "list_limits", "miscounts", "upkeep", "add_key", "add_session",
    "add_tenant", "list_tenant_work",
    "apply", "begin", "claim", "close", "delete_record", "delete_schedules", "delete_secret",
    "dependents", "drain", "due_schedules", "expand", "fetch_secrets", "find_key",
    "figures", "fire", "get_record", "has_keys", "lead", "list_keys", "list_records",
    "list_tenants", "listen", "listen_schedules", "load", "next_schedules",
    "lost", "migrate", "open", "pending_migrations", "put_record", "put_schedules",
    "read_audit_chain", "read_totals", "read_traces", "record", "record_sole", "register",
    "release",
    "release_dependents", "renew", "renew_idle", "report", "resign", "retire", "revoke_key",
    "rule_out_dependents", "schedules_ahead", "set_quotas", "set_secret",
    "alert_work", "outbox_work", "dispatch",
    "list_incidents", "move_incident", "touch_keys", "turn_back", "write_log",
}  # fmt: skip


async def test_every_operation_is_limited_open_or_closed(store):
    scoped = ScopedStore(store, Scope(jobs=("a",)))
    parts = [scoped, *(getattr(scoped, port) for port in PORTS)]
    limited = {name for one in parts for name in vars(type(one)) if name in OPERATIONS}

    assert CLOSED | OPEN | OF_EXECUTION | OF_JOB | limited == OPERATIONS
    assert not CLOSED & (OPEN | OF_EXECUTION | OF_JOB | limited)
    for name in sorted(CLOSED):
        with pytest.raises(AccessDenied, match="limited to jobs a; this is about the tenant"):
            await operation_of(scoped, name)(TENANT, None)


async def names_in_pages(store, limit, where):
    found, cursor = [], None
    while True:
        page = await store.catalog.list_jobs(TENANT, where, limit=limit, cursor=cursor)
        found += [one.name for one in page.items]
        assert page.next_cursor is None or page.next_cursor == found[-1]
        if page.next_cursor is None:
            return found
        assert len(page.items) == limit
        cursor = page.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_jobs_of_several_patterns_come_in_pages(store, limit):
    names = sorted(f"{one}{number}" for one in ("a-", "ab", "b-", "c") for number in range(3))
    await defined(store, "a", *names)
    await defined(store, "b-other", queue="other")
    scope = Scope(jobs=("b-*", "a", "a-*", "a-1*", "c2", "none", "none-*"), queues=("def*",))
    wanted = ["a", *(one for one in names if one.startswith(("a-", "b-"))), "c2"]

    for scoped, found in (
        (ScopedStore(store, scope), wanted),
        (ScopedStore(store, Scope(jobs=scope.jobs)), [*wanted[:-1], "b-other", "c2"]),
        (ScopedStore(store, Scope(queues=("default",))), ["a", *names]),
    ):
        assert await names_in_pages(scoped, limit, JobFilter()) == found
        some = [one for one in found if one.startswith("a-")]
        assert await names_in_pages(scoped, limit, JobFilter(prefix="a-")) == some
        assert await names_in_pages(scoped, limit, JobFilter(queue="nowhere")) == []
        own = [one for one in found if one != "b-other"]
        assert await names_in_pages(scoped, limit, JobFilter(queue="default")) == own


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_jobs_of_other_queues_are_left_out_by_the_store(store, limit):
    for name, queue in {"a": "mail", "b": "mail-eu", "c": "other", "d": "mail_"}.items():
        await defined(store, name, queue=queue)
    for patterns, found in (
        (("mail*",), ["a", "b", "d"]),
        (("mail",), ["a"]),
        (("mail-*", "other"), ["b", "c"]),
        (("*",), ["a", "b", "c", "d"]),
        (("mai", "%*", "mail?"), []),
    ):
        where = JobFilter(queues=patterns)
        assert await names_in_pages(store, limit, where) == found
        scoped = ScopedStore(store, Scope(queues=patterns))
        assert await names_in_pages(scoped, limit, JobFilter()) == found


async def test_many_jobs_of_other_queues_are_no_reason_to_refuse(store, monkeypatch):
    await defined(store, "a", "z", queue="ours")
    await defined(store, *(f"m{number}" for number in range(30)), queue="theirs")
    asked, list_jobs = [], store.catalog.list_jobs

    async def counted(*args, **options):
        asked.append(args)
        return await list_jobs(*args, **options)

    monkeypatch.setattr(store.catalog, "list_jobs", counted)
    page = await ScopedStore(store, Scope(queues=("ours",))).catalog.list_jobs(TENANT, limit=2)

    assert [one.name for one in page.items] == ["a", "z"]
    assert page.next_cursor is None and len(asked) == 1


async def test_versions_from_another_queue_are_not_shown(store):
    for queue in ("theirs", "ours", "theirs", "ours"):
        await defined(store, "moved", queue=queue)
    await defined(store, "moved", queue="ours", description="of ours")
    scoped = ScopedStore(store, Scope(queues=("ours",)))

    everything = (await store.catalog.list_versions(TENANT, "moved")).items
    page = await scoped.catalog.list_versions(TENANT, "moved")

    own = [one.version for one in everything if one.definition.queue == "ours"]
    assert [one.version for one in page.items] == own
    assert 0 < len(own) < len(everything)


async def test_what_is_out_of_scope_is_not_there(store):
    await defined(store, "ours", "theirs")
    (ours,) = await enqueued(store, job="ours")
    (theirs,) = await enqueued(store, job="theirs")
    other = (await store.catalog.get_job(TENANT, "theirs")).id
    scoped = ScopedStore(store, Scope(jobs=("ours",)))

    assert (await scoped.catalog.get_job(TENANT, "ours")).name == "ours"
    assert set(await scoped.catalog.get_jobs(TENANT, ["ours", "theirs"])) == {"ours"}
    assert (await scoped.catalog.get_execution(TENANT, ours)).execution.id == ours
    for name in ("theirs", "nothing"):
        with pytest.raises(JobNotFound, match=f"^no job named '{name}'$"):
            await scoped.catalog.get_job(TENANT, name)
        with pytest.raises(JobNotFound, match=f"^no job named '{name}'$"):
            await scoped.catalog.list_versions(TENANT, name)
    with pytest.raises(JobNotFound, match=f"^no job with the id {other}$"):
        await scoped.catalog.find_job(TENANT, other)
    for operation in ("get_execution", *sorted(OF_EXECUTION)):
        with pytest.raises(ExecutionNotFound, match=f"^no execution {theirs}$"):
            await operation_of(scoped, operation)(TENANT, theirs)
    page = await scoped.catalog.list_executions(
        TENANT, ExecutionFilter(ids=frozenset({ours, theirs}))
    )
    assert [one.id for one in page.items] == [ours]
    assert [
        one.id for one in (await scoped.catalog.list_executions(TENANT, ExecutionFilter())).items
    ] == [ours]
    assert await scoped.queue.discard(TENANT, [theirs]) == [False]
    assert await scoped.queue.revive(TENANT, [theirs]) == [Revival.UNKNOWN]
    assert await scoped.queue.cancel(TENANT, [theirs, ours]) == [
        Cancellation.UNKNOWN,
        Cancellation.CANCELLED,
    ]


async def test_logs_out_of_scope_are_not_read(store):
    await defined(store, "ours", "theirs")
    (ours,) = await enqueued(store, job="ours")
    (theirs,) = await enqueued(store, job="theirs")
    scoped = ScopedStore(store, Scope(jobs=("ours",)))
    hands = await claim(store, 2)
    new = [NewLogPart(one.id, 1, hands.lease, 1, "hello") for one in hands.executions]
    await store.queue.write_log(TENANT, worker=hands.worker, parts=new)
    logs = await scoped.catalog.read_logs(TENANT, [theirs, ours])
    assert [one.execution for one in logs.items] == [ours]
    assert (await scoped.catalog.read_logs(TENANT, [theirs])).items == ()


async def test_a_definition_out_of_scope_is_refused(store):
    await defined(store, "ours", "theirs")
    scoped = ScopedStore(store, Scope(jobs=("our*",), queues=("default",)))
    run = a_job("ours-2", kind="workflow", settings='{"nodes": [{"name": "n", "job": "theirs"}]}')

    for wrong in (run, a_job("ours-2", dependencies=("theirs",))):
        with pytest.raises(JobNotFound, match=r"^no job named 'theirs'$"):
            await scoped.catalog.define_jobs(TENANT, [wrong])
        with pytest.raises(JobNotFound, match=r"^no job named 'theirs'$"):
            await scoped.catalog.launch(TENANT, wrong, an_execution("ours-2"))
    for wrong in (a_job("theirs"), a_job("ours", queue="other")):
        with pytest.raises(AccessDenied):
            await scoped.catalog.define_jobs(TENANT, [wrong])
    with pytest.raises(AccessDenied, match="queue 'other' is not in it"):
        await scoped.queue.enqueue(TENANT, [an_execution("ours", queue="other")])
    with pytest.raises(JobNotFound, match=r"^no job named 'theirs'$"):
        await scoped.queue.enqueue(TENANT, [an_execution("ours"), an_execution("theirs")])

    assert [one.name for one in (await store.catalog.list_jobs(TENANT)).items] == ["ours", "theirs"]
    assert (await store.catalog.list_executions(TENANT, ExecutionFilter())).items == ()
    (made,) = await scoped.catalog.define_jobs(TENANT, [a_job("ours-2", dependencies=("ours",))])
    assert made.version == 1
