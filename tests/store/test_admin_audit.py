"""The audit log: no change without an entry, and no entry without a change."""

import asyncio
import sqlite3

import asyncpg
import pytest

from daybell.core.access import AuditFilter, Quotas
from daybell.core.execution import Cancellation, Revival
from daybell.core.schedule import Overlap
from daybell.core.views import ExecutionFilter, Retention
from daybell.errors import (
    DuplicateKey,
    JobNotFound,
    QuotaExceeded,
    TenantNotFound,
    UsageError,
    VersionConflict,
)
from tests.builders import (
    TENANT,
    a_job,
    add_tenants,
    an_entry,
    an_execution,
    dead,
    defined,
    enqueued,
)
from tests.sweeps import retain

OTHER = "acme"
DAY = 86400.0


async def actions(store, *, tenant=TENANT, **where):
    page = await store.admin.list_audit(tenant, AuditFilter(**where))
    return [entry.action for entry in page.items]


async def test_a_change_is_on_record_with_who_what_and_when(store, clock):
    entry = an_entry("queue.pause", actor="key deploy", before="{}", after='{"a": 1}', source="::1")

    audited = store.audited(TENANT, entry)
    await audited.catalog.pause_queue(TENANT, "mail", paused=True)

    (kept,) = (await store.admin.list_audit(TENANT)).items
    assert (kept.id, kept.tenant, kept.at) == (entry.id, TENANT, clock.now())
    assert (kept.actor, kept.action, kept.target) == ("key deploy", "queue.pause", "resize")
    assert (kept.before, kept.after, kept.source) == ("{}", '{"a": 1}', "::1")


CHANGES = {
    "define_jobs": lambda s: s.catalog.define_jobs(TENANT, [a_job("other")]),
    "launch": lambda s: s.catalog.launch(TENANT, a_job("other"), an_execution("other")),
    "delete_job": lambda s: s.catalog.delete_job(TENANT, "resize"),
    "pause_job": lambda s: s.schedules.pause_job(TENANT, "resize"),
    "pause_queue": lambda s: s.catalog.pause_queue(TENANT, "mail", paused=True),
    "enqueue": lambda s: enqueued(s),
    "set_quotas": lambda s: s.admin.set_quotas(TENANT, jobs=5),
    "add_tenant": lambda s: s.admin.add_tenant(OTHER, Quotas(jobs=5)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_every_sort_of_change_brings_its_entry(store, change):
    await defined(store)

    audited = store.audited(TENANT, an_entry())
    await change(audited)

    assert len(await actions(store)) == 1


@pytest.mark.parametrize("overlap", [None, Overlap.QUEUE])
async def test_an_enqueue_whose_key_is_held_is_not_on_record(store, overlap):
    await defined(store, overlap=overlap)
    await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    audited = store.audited(TENANT, an_entry())
    (held,) = await audited.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert not held.created
    assert await actions(store) == []


async def test_only_the_first_change_of_a_block_brings_it(store):
    audited = store.audited(TENANT, an_entry())
    await audited.catalog.list_queues(TENANT)
    await audited.catalog.pause_queue(TENANT, "mail", paused=True)
    await audited.catalog.pause_queue(TENANT, "images", paused=True)

    assert len(await actions(store)) == 1


async def test_what_only_looks_or_changes_nothing_is_not_on_record(store):
    await defined(store)
    await store.catalog.pause_queue(TENANT, "mail", paused=True)

    audited = store.audited(TENANT, an_entry())
    await audited.catalog.get_job(TENANT, "resize")
    await audited.catalog.list_queues(TENANT)
    await audited.catalog.pause_queue(TENANT, "mail", paused=True)
    await audited.catalog.pause_queue(TENANT, "images", paused=False)

    assert await actions(store) == []


async def test_a_definition_that_is_there_already_is_not_on_record(store):
    await defined(store)

    audited = store.audited(TENANT, an_entry("job.update"))
    await audited.catalog.define_jobs(TENANT, [a_job()])
    await audited.admin.set_quotas(TENANT, jobs=None)
    assert await actions(audited) == []
    await audited.catalog.define_jobs(TENANT, [a_job(), a_job("other")])
    await store.catalog.delete_job(TENANT, "resize")
    audited = store.audited(TENANT, an_entry("job.create"))
    await audited.catalog.define_jobs(TENANT, [a_job()])

    assert set(await actions(store)) == {"job.update", "job.create"}


async def test_what_can_be_neither_cancelled_nor_revived_is_not_on_record(store):
    await defined(store)
    (held,), (free,) = await dead(store, unique_key="k"), await dead(store)
    await enqueued(store, unique_key="k")

    audited = store.audited(TENANT, an_entry("execution.retry"))
    assert await audited.queue.revive(TENANT, [held]) == [Revival.KEY_HELD]
    assert await audited.queue.cancel(TENANT, [held]) == [Cancellation.FINISHED]
    assert await actions(audited) == []
    assert await audited.queue.revive(TENANT, [held, free]) == [Revival.KEY_HELD, Revival.REVIVED]

    assert await actions(store) == ["execution.retry"]


async def test_of_many_who_create_a_tenant_at_once_one_is_on_record(place, store):
    others = [place.connect() for _ in range(4)]
    for other in others:
        await other.open()

    async def create(store):
        audited = store.audited(TENANT, an_entry("tenant.create"))
        await audited.admin.add_tenant("new", Quotas(jobs=1))

    try:
        tries = await asyncio.gather(*(create(o) for o in others * 10), return_exceptions=True)
    finally:
        for other in others:
            await other.close()

    refused = [one for one in tries if one is not None]
    assert len(refused) == 39 and all(isinstance(one, DuplicateKey) for one in refused)
    assert await actions(store) == ["tenant.create"]


async def test_what_is_refused_is_not_on_record_and_what_follows_is(store):
    await defined(store)

    audited = store.audited(TENANT, an_entry("job.update"))
    with pytest.raises(JobNotFound):
        await audited.catalog.delete_job(TENANT, "nothing")
    with pytest.raises(VersionConflict):
        await audited.catalog.define_jobs(TENANT, [a_job("new"), a_job(expect=7, timeout=5.0)])
    assert await actions(audited) == []
    await audited.catalog.define_jobs(TENANT, [a_job(timeout=5.0)])

    assert await actions(store) == ["job.update"]


async def test_a_change_is_not_made_without_its_entry(store):
    audited = store.audited("nobody", an_entry())
    with pytest.raises(TenantNotFound):
        await audited.catalog.define_jobs(TENANT, [a_job()])

    assert (await store.catalog.list_jobs(TENANT)).items == ()


async def test_blocks_of_several_tasks_do_not_mix_even_if_some_fail(store):
    async def define(n):
        audited = store.audited(TENANT, an_entry(target=f"job {n}"))
        await audited.catalog.define_jobs(TENANT, [a_job(f"job {n}", expect=n % 2)])

    answers = await asyncio.gather(*(define(n) for n in range(20)), return_exceptions=True)

    assert [type(answer) for answer in answers[:2]] == [type(None), VersionConflict]
    page, jobs = await store.admin.list_audit(TENANT), await store.catalog.list_jobs(TENANT)
    assert {entry.target for entry in page.items} == {job.name for job in jobs.items}
    assert len(page.items) == len(jobs.items) == 10


async def test_each_view_has_its_own_entry_and_the_store_none(store):
    outer = store.audited(TENANT, an_entry("outer.change"))
    inner = outer.audited(TENANT, an_entry("inner.change"))

    await store.catalog.pause_queue(TENANT, "a", paused=True)
    assert await actions(store) == []
    await inner.catalog.pause_queue(TENANT, "b", paused=True)
    await outer.catalog.pause_queue(TENANT, "c", paused=True)

    assert set(await actions(store)) == {"inner.change", "outer.change"}


async def test_only_the_first_change_brings_the_entry_from_whichever_task(store):
    audited = store.audited(TENANT, an_entry("queue.pause"))

    await asyncio.gather(*(audited.catalog.pause_queue(TENANT, one, paused=True) for one in "abcd"))

    assert await actions(store) == ["queue.pause"]


async def test_an_entry_that_was_written_already_is_not_written_twice(store):
    entry = an_entry()
    audited = store.audited(TENANT, entry)
    await audited.catalog.pause_queue(TENANT, "mail", paused=True)

    audited = store.audited(TENANT, entry)
    await audited.catalog.pause_queue(TENANT, "images", paused=True)
    await store.admin.write_audit(TENANT, [entry, entry])

    assert len(await actions(store)) == 1


async def test_entries_can_be_written_by_themselves(store):
    await store.admin.write_audit(TENANT, [an_entry("a.b"), an_entry("c.d")])
    await store.admin.write_audit(TENANT, [])

    assert set(await actions(store)) == {"a.b", "c.d"}


async def test_entries_come_newest_first_in_pages(store, clock):
    for n in range(5):
        await store.admin.write_audit(TENANT, [an_entry(f"job.{n}")])
        await clock.advance(n % 2)

    seen, cursor = [], None
    while True:
        page = await store.admin.list_audit(TENANT, limit=2, cursor=cursor)
        seen += [entry.action for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert seen == [f"job.{n}" for n in (4, 3, 2, 1, 0)]


async def test_entries_can_be_filtered(store, clock):
    await store.admin.write_audit(TENANT, [an_entry("job.create", actor="ana", target="a")])
    await clock.advance(10)
    at = clock.now()
    await store.admin.write_audit(TENANT, [an_entry("job.pause", actor="bob", target="b")])
    await clock.advance(10)
    await store.admin.write_audit(TENANT, [an_entry("jobs.purge", actor="ana", target="b")])

    assert await actions(store, actor="ana") == ["jobs.purge", "job.create"]
    assert await actions(store, action="job") == ["job.pause", "job.create"]
    assert await actions(store, action="job.pause") == ["job.pause"]
    assert await actions(store, target="b") == ["jobs.purge", "job.pause"]
    assert await actions(store, since=at) == ["jobs.purge", "job.pause"]
    assert await actions(store, until=at) == ["job.create"]
    assert await actions(store, actor="ana", target="b", since=at) == ["jobs.purge"]
    assert await actions(store, action="jo") == []


async def test_an_entry_of_another_tenant_is_neither_seen_nor_in_the_way(store):
    await add_tenants(store, [OTHER])
    entry = an_entry("theirs.all")
    await store.admin.write_audit(OTHER, [entry])

    assert await actions(store) == []
    assert (await store.admin.list_audit(TENANT, cursor=str(entry.id))).items == ()
    await store.admin.write_audit(TENANT, [an_entry("mine.all", id=entry.id)])
    assert await actions(store) == ["mine.all"]


async def test_a_cursor_that_is_none_is_refused(store):
    with pytest.raises(UsageError, match="cursor"):
        await store.admin.list_audit(TENANT, cursor="7")


@pytest.mark.parametrize("wrong", [{"target": "\0"}, {"actor": "x" * 1001}, {"after": "\ud800"}])
async def test_an_entry_that_cannot_be_kept_is_refused_before_anything_is_done(store, wrong):
    with pytest.raises(UsageError):
        store.audited(TENANT, an_entry(**wrong))

    assert (await store.catalog.list_jobs(TENANT)).items == ()


async def test_entries_are_removed_after_a_year_and_not_earlier(store, clock):
    await store.admin.write_audit(TENANT, [an_entry("old.entry")])
    await clock.advance(1)
    await store.admin.write_audit(TENANT, [an_entry("new.entry")])
    await clock.advance(365 * DAY - 1)

    assert (await retain(store, Retention(finished=0.0))).others == 0
    await clock.advance(0.5)
    assert (await retain(store, Retention(finished=0.0))).others == 1

    assert await actions(store) == ["new.entry"]


@pytest.mark.parametrize("statement", ["UPDATE {} SET actor = 'eve'", "DELETE FROM {}"])
async def test_entries_cannot_be_changed_or_removed_past_the_store(place, store, statement):
    await store.admin.write_audit(TENANT, [an_entry(actor="ana")])

    with pytest.raises(Exception, match="append-only"):
        await past_the_store(place, statement)

    (entry,) = (await store.admin.list_audit(TENANT)).items
    assert entry.actor == "ana"


async def past_the_store(place, statement):
    """What somebody can do who has the file, or the owner's password."""
    if place.kind == "sqlite":
        with sqlite3.connect(place.url) as connection:
            connection.execute(statement.format("audit"))
        return
    connection = await asyncpg.connect(place.url)
    try:
        await connection.execute(statement.format("daybell.audit"))
    finally:
        await connection.close()


# Entries that come with executions.

GROUPS = {
    "alike": lambda: [an_execution(), an_execution()],
    "not alike": lambda: [an_execution(), an_execution(delay=5.0)],
    "with a key": lambda: [an_execution(unique_key="k")],
}


@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
async def test_executions_bring_their_entries(store, clock, group, is_limited):
    await defined(store)
    if is_limited:
        await store.admin.set_quotas(TENANT, queued=5)
    entries = [an_entry("job.trigger", after='{"a": 1}'), an_entry("job.trigger")]

    await store.queue.enqueue(TENANT, group(), entries=entries)

    kept = (await store.admin.list_audit(TENANT)).items
    assert {entry.id for entry in kept} == {entry.id for entry in entries}
    assert {entry.at for entry in kept} == {clock.now()}
    assert {entry.after for entry in kept} == {'{"a": 1}', None}


async def test_executions_that_are_sent_again_bring_their_entries_once(store):
    await defined(store)
    group, entry = [an_execution()], an_entry()

    await store.queue.enqueue(TENANT, group, entries=[entry])
    await store.queue.enqueue(TENANT, group, entries=[entry])
    await store.queue.enqueue(TENANT, group, entries=[entry], repeat=True)

    assert len(await actions(store)) == 1


async def test_executions_that_are_refused_bring_no_entry(store):
    await defined(store)
    with pytest.raises(JobNotFound):
        await store.queue.enqueue(TENANT, [an_execution(job="nobody")], entries=[an_entry()])
    await store.admin.set_quotas(TENANT, queued=0)
    with pytest.raises(QuotaExceeded):
        await store.queue.enqueue(TENANT, [an_execution()], entries=[an_entry()])

    assert await actions(store) == []


async def test_an_entry_that_cannot_be_kept_keeps_its_executions_out(store):
    await defined(store)

    with pytest.raises(UsageError, match="actor"):
        await store.queue.enqueue(TENANT, [an_execution()], entries=[an_entry(actor="\0")])

    assert await actions(store) == []
    assert not any((await store.catalog.count_executions(TENANT, ExecutionFilter())).values())
