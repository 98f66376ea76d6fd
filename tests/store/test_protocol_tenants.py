"""Tenants: every operation that is bound to one, found in the protocol itself, is tried here.

`OPERATIONS` calls each of them with ids and names that somebody may know. A new operation without
an entry makes a test fail.
"""

import contextlib
import inspect
import re
from typing import NamedTuple
from uuid import UUID

import pytest

from daybell.core.alerts.incidents import MoveKind
from daybell.core.alerts.rules import ALERT_RULES
from daybell.core.execution import Claimed, NewLogPart, Priority
from daybell.core.flow import LimitChange
from daybell.core.ids import mint
from daybell.core.job import TEMPLATES
from daybell.core.monitoring.stats import StatQuery
from daybell.core.views import ExecutionFilter, JobFilter
from daybell.errors import DaybellError, ExecutionNotFound, TenantNotFound
from daybell.store.protocol import Store
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_key,
    a_report,
    a_request,
    a_schedule,
    a_secret,
    a_session,
    a_step,
    a_template,
    a_tick,
    a_worker,
    add_tenants,
    an_alert,
    an_entry,
    an_event,
    an_execution,
    an_incident_move,
    claim,
    claimed,
    dead,
    defined,
    enqueued,
    finished,
    fired,
    look,
    put,
    registered,
    success,
)
from tests.ports import PORTS, operations_of
from tests.store.runs import a_plan
from tests.sweeps import set_gates

OTHER = "acme"
EVERYTHING = ExecutionFilter()


class Known(NamedTuple):
    """What one may know of a tenant: names, ids, and an execution in a worker's hands."""

    job: str
    job_id: UUID
    queue: str
    gate: str
    queued: UUID
    dead: UUID
    schedule: UUID
    worker: UUID
    running: Claimed
    key: UUID
    entry: UUID
    request: UUID
    secret: str
    template: str
    alert: str
    incident: UUID
    depending: UUID


async def populated(store, clock):
    """The things of the default tenant."""
    (job,) = await defined(store, "resize", queue="images")
    await set_gates(store, TENANT, {"narrow": 1})
    await store.catalog.pause_queue(TENANT, "paused", paused=True)
    schedule = a_schedule(next_at=clock.now())
    await store.schedules.put_schedules(TENANT, [schedule])
    await store.schedules.fire([a_firing(schedule, a_tick(clock.now(), queue="fired"))])
    (dead_letter,) = await dead(store, queue="images")
    await finished(store, queue="images")
    hands = await claimed(store, queue="images")
    await store.runs.record(TENANT, worker=hands.worker, steps=[a_step(hands.one)])
    await store.runs.publish(TENANT, an_event())
    (queued,) = await enqueued(store, queue="images")
    after = a_schedule("load", next_at=clock.now())
    await put(store, after, dependencies=("resize",))
    minds = a_tick(clock.now(), job="load", schedule=after.id, wait_for_dependencies=True)
    (depending,) = await fired(store, after, minds)
    key, entry, request = a_key(digest=b"k" * 32), an_entry(), a_request()
    await store.admin.add_key(TENANT, key)
    await store.admin.write_audit(TENANT, [entry])
    await store.admin.begin_request(TENANT, request)
    await store.admin.set_secret(TENANT, a_secret("TOKEN"))
    await store.admin.put_record(TENANT, TEMPLATES, a_template("monthly"))
    await store.admin.put_record(TENANT, ALERT_RULES, an_alert("overdue"))
    incident = an_incident_move(MoveKind.OPEN, "overdue")
    await store.admin.move_incident(TENANT, incident)
    return Known(
        "resize",
        job.id,
        "images",
        "narrow",
        queued,
        dead_letter,
        schedule.id,
        hands.worker,
        hands.one,
        key.id,
        entry.id,
        request.id,
        "TOKEN",
        "monthly",
        "overdue",
        incident.id,
        depending,
    )


def unknown():
    """The same, but nobody has them."""
    running = Claimed(
        id=mint(),
        attempt=1,
        lease=mint(),
        tenant=TENANT,
        job="nothing",
        version=1,
        kind="task",
        queue="nowhere",
        priority=Priority.NORMAL,
        args="{}",
        failures=0,
        crashes=0,
        created_at=0.0,
        run_at=0.0,
    )
    a, b, c, d, e, f, g, h, i, j = [mint() for _ in range(10)]
    names = "NONE", "blank", "norule"
    return Known("nothing", a, "nowhere", "nogate", b, c, d, e, running, f, g, h, *names, i, j)


OPERATIONS = {
    "define_jobs": lambda s, t, k: s.catalog.define_jobs(t, [a_job(k.job, id=mint())]),
    "launch": lambda s, t, k: s.catalog.launch(t, a_job(k.job, id=mint()), an_execution(k.job)),
    "get_job": lambda s, t, k: s.catalog.get_job(t, k.job),
    "get_jobs": lambda s, t, k: s.catalog.get_jobs(t, [k.job]),
    "list_jobs": lambda s, t, k: s.catalog.list_jobs(t, JobFilter(prefix=k.job)),
    "find_job": lambda s, t, k: s.catalog.find_job(t, k.job_id),
    "list_versions": lambda s, t, k: s.catalog.list_versions(t, k.job),
    "list_job_schedules": lambda s, t, k: s.schedules.list_job_schedules(t, k.job),
    "delete_job": lambda s, t, k: s.catalog.delete_job(t, k.job),
    "list_limits": lambda s, t, k: s.catalog.list_limits(t),
    "change_limit": lambda s, t, k: s.catalog.change_limit(t, "shared", LimitChange(pause=60.0)),
    "limit_wait": lambda s, t, k: s.catalog.limit_wait(t, k.queued),
    "pause_queue": lambda s, t, k: s.catalog.pause_queue(t, k.queue, paused=True),
    "enqueue": lambda s, t, k: s.queue.enqueue(t, [an_execution(k.job)]),
    "load": lambda s, t, k: s.queue.load(t, [an_execution(k.job)]),
    "claim": lambda s, t, k: s.queue.claim(
        t, worker=k.worker, lease=k.running.lease, queues=[k.queue], limit=9
    ),
    "apply": lambda s, t, k: s.queue.apply(t, worker=k.worker, transitions=[success(k.running)]),
    "report": lambda s, t, k: s.queue.report(
        t, worker=k.worker, reports=[a_report(k.running, progress=5.0)]
    ),
    "write_log": lambda s, t, k: s.queue.write_log(
        t,
        worker=k.worker,
        parts=[NewLogPart(k.running.id, k.running.attempt, k.running.lease, 2, "hello")],
    ),
    "read_log": lambda s, t, k: s.catalog.read_log(t, k.running.id),
    "read_traces": lambda s, t, k: s.queue.read_traces(t, [k.running.id]),
    "read_logs": lambda s, t, k: s.catalog.read_logs(t, [k.running.id]),
    "cancel": lambda s, t, k: s.queue.cancel(t, [k.queued, k.running.id, k.dead]),
    "revive": lambda s, t, k: s.queue.revive(t, [k.dead]),
    "discard": lambda s, t, k: s.queue.discard(t, [k.dead]),
    "register": lambda s, t, k: s.queue.register(t, a_worker(id=mint()), lease=60.0),
    "renew": lambda s, t, k: s.queue.renew(t, worker=k.worker, lease=60.0, leases=[]),
    "renew_idle": lambda s, t, k: s.queue.renew_idle(t, workers=[k.worker], lease=60.0),
    "record_sole": lambda s, t, k: s.queue.record_sole(t, worker=k.worker, execution=k.running.id),
    "drain": lambda s, t, k: s.queue.drain(t, k.worker),
    "release": lambda s, t, k: s.queue.release(t, worker=k.worker, leases=[k.running.lease]),
    "retire": lambda s, t, k: s.queue.retire(t, k.worker),
    "list_workers": lambda s, t, k: s.catalog.list_workers(t, include_dead=True),
    "offers": lambda s, t, k: s.catalog.offers(t),
    "put_schedules": lambda s, t, k: s.schedules.put_schedules(t, [a_schedule(k.job)]),
    "delete_schedules": lambda s, t, k: s.schedules.delete_schedules(t, [k.schedule]),
    "next_schedules": lambda s, t, k: s.schedules.next_schedules(t),
    "list_schedules": lambda s, t, k: s.schedules.list_schedules(t),
    "list_ticks": lambda s, t, k: s.schedules.list_ticks(t, k.schedule),
    "list_occurrences": lambda s, t, k: s.schedules.list_occurrences(
        t, k.schedule, since=0, until=9e9
    ),
    "pause_job": lambda s, t, k: s.schedules.pause_job(t, k.job),
    "resume_job": lambda s, t, k: s.schedules.resume_job(t, k.job),
    "expand": lambda s, t, k: s.runs.expand(
        t, worker=k.worker, claimed=k.running, plan=a_plan({"a": []})
    ),
    "get_run": lambda s, t, k: s.runs.get_run(t, k.running.id),
    "node_attempts": lambda s, t, k: s.runs.node_attempts(t, k.running.id),
    "rerun": lambda s, t, k: s.runs.rerun(t, k.dead, an_execution(k.job)),
    "steps": lambda s, t, k: s.runs.steps(t, k.running.id),
    "record": lambda s, t, k: s.runs.record(t, worker=k.worker, steps=[a_step(k.running, n=1)]),
    "publish": lambda s, t, k: s.runs.publish(t, an_event(execution=k.running.id)),
    "list_listeners": lambda s, t, k: s.schedules.list_listeners(t, "paid"),
    "watched_files": lambda s, t, k: s.schedules.watched_files(t, "in"),
    "note_files": lambda s, t, k: s.schedules.note_files(t, "in", seen={}, gone=["a"]),
    "publish_many": lambda s, t, k: s.runs.publish_many(t, [an_event(execution=k.running.id)]),
    "firing_events": lambda s, t, k: s.runs.firing_events(t, k.schedule, [0.0]),
    "node_waits": lambda s, t, k: s.runs.node_waits(t, k.running.id),
    "list_events": lambda s, t, k: s.runs.list_events(t),
    "ended_since": lambda s, t, k: s.schedules.ended_since(t, [(k.job, 0.0)]),
    "upstream": lambda s, t, k: s.schedules.upstream(t, [(k.job, 9e9)]),
    "release_dependents": lambda s, t, k: s.schedules.release_dependents(t, [k.depending]),
    "rule_out_dependents": lambda s, t, k: s.schedules.rule_out_dependents(t, [k.depending]),
    "get_execution": lambda s, t, k: s.catalog.get_execution(t, k.queued),
    "list_executions": lambda s, t, k: s.catalog.list_executions(
        t, ExecutionFilter(worker=k.worker)
    ),
    "count_executions": lambda s, t, k: s.catalog.count_executions(t, ExecutionFilter(job=k.job)),
    "estimate_executions": lambda s, t, k: s.catalog.estimate_executions(
        t, ExecutionFilter(job=k.job)
    ),
    "job_activity": lambda s, t, k: s.catalog.job_activity(t, [k.job]),
    "job_ids": lambda s, t, k: s.catalog.job_ids(t, [k.job]),
    "list_queues": lambda s, t, k: s.catalog.list_queues(t),
    "get_position": lambda s, t, k: s.catalog.get_position(t, k.queued),
    "list_demands": lambda s, t, k: s.catalog.list_demands(t, [k.queue]),
    "list_backlogs": lambda s, t, k: s.catalog.list_backlogs(t, k.queue),
    "activity": lambda s, t, k: s.catalog.activity(t),
    "read_totals": lambda s, t, k: s.catalog.read_totals(t, jobs=10),
    "read_stats": lambda s, t, k: s.catalog.read_stats(
        t,
        StatQuery(job=k.job, since=0.0, until=9e9 // 3600 * 3600, step=3600),
        with_unfinished=True,
    ),
    "listen": lambda s, t, k: listened(s, t, k.queue),
    "add_key": lambda s, t, k: s.admin.add_key(t, a_key(id=k.key)),
    "add_session": lambda s, t, k: s.admin.add_session(t, b"k" * 32, a_session()),
    "list_keys": lambda s, t, k: s.admin.list_keys(t),
    "revoke_key": lambda s, t, k: s.admin.revoke_key(t, k.key),
    "set_quotas": lambda s, t, k: s.admin.set_quotas(t, jobs=5),
    "audited": lambda s, t, k: audited(s, t, k.queue),
    "write_audit": lambda s, t, k: s.admin.write_audit(t, [an_entry(id=k.entry)]),
    "read_audit_chain": lambda s, t, k: s.admin.read_audit_chain(t, after=0, limit=10),
    "list_audit": lambda s, t, k: s.admin.list_audit(t, cursor=str(k.entry)),
    "begin_request": lambda s, t, k: s.admin.begin_request(t, a_request(id=k.request)),
    "answer_request": lambda s, t, k: s.admin.answer_request(t, "k", status=200, answer="{}"),
    "set_secret": lambda s, t, k: s.admin.set_secret(t, a_secret(k.secret)),
    "list_secrets": lambda s, t, k: s.admin.list_secrets(t),
    "delete_secret": lambda s, t, k: s.admin.delete_secret(t, k.secret),
    "fetch_secrets": lambda s, t, k: s.admin.fetch_secrets(t, [k.secret]),
    "put_record of templates": lambda s, t, k: s.admin.put_record(
        t, TEMPLATES, a_template(k.template)
    ),
    "get_record of templates": lambda s, t, k: s.admin.get_record(t, TEMPLATES, k.template),
    "list_records of templates": lambda s, t, k: s.admin.list_records(t, TEMPLATES),
    "delete_record of templates": lambda s, t, k: s.admin.delete_record(t, TEMPLATES, k.template),
    "put_record of alert rules": lambda s, t, k: s.admin.put_record(
        t, ALERT_RULES, an_alert(k.alert)
    ),
    "get_record of alert rules": lambda s, t, k: s.admin.get_record(t, ALERT_RULES, k.alert),
    "list_records of alert rules": lambda s, t, k: s.admin.list_records(t, ALERT_RULES),
    "delete_record of alert rules": lambda s, t, k: s.admin.delete_record(t, ALERT_RULES, k.alert),
    "list_incidents": lambda s, t, k: s.admin.list_incidents(
        t, rule=k.alert, cursor=str(k.incident)
    ),
    "move_incident": lambda s, t, k: s.admin.move_incident(
        t, an_incident_move(MoveKind.CLOSE, k.alert, id=k.incident, version=1)
    ),
}


async def listened(store, tenant, queue):
    stop = await store.listen(tenant, [queue], lambda: None)
    await stop()


async def audited(store, tenant, queue):
    await store.audited(tenant, an_entry()).catalog.pause_queue(tenant, queue, paused=True)


async def answer(call, known):
    """What a call says, with what is known replaced by its name."""
    try:
        text = repr(await call)
    except DaybellError as error:
        text = f"{type(error).__name__}: {error}"
    pairs = list(zip(known._fields, known, strict=True))
    pairs += [("running", known.running.id), ("lease", known.running.lease)]
    for name, value in pairs:
        text = text.replace(str(value), f"<{name}>")
    return re.sub(r"'[0-9a-f-]{36}'", "<new>", text)


async def everything_of(store, tenant):
    """All that a tenant can see."""
    jobs = (await store.catalog.list_jobs(tenant)).items
    executions = (await store.catalog.list_executions(tenant, EVERYTHING)).items
    return {
        "jobs": [(await store.catalog.list_versions(tenant, job.name)).items for job in jobs],
        "executions": [await store.catalog.get_execution(tenant, one.id) for one in executions],
        "steps": [await store.runs.steps(tenant, one.id) for one in executions],
        "events": (await store.runs.list_events(tenant)).items,
        "workers": await store.catalog.list_workers(tenant, include_dead=True),
        "schedules": await store.schedules.list_schedules(tenant),
        "queues": await store.catalog.list_queues(tenant),
        "keys": await store.admin.list_keys(tenant),
        "secrets": await store.admin.list_secrets(tenant),
        "alerts": (await store.admin.list_records(tenant, ALERT_RULES)).items,
        "incidents": (await store.admin.list_incidents(tenant)).items,
        "templates": (await store.admin.list_records(tenant, TEMPLATES)).items,
        "audit": (await store.admin.list_audit(tenant)).items,
    }


def tenant_bound():
    """The operations whose first argument is a tenant."""
    found = []
    for declared in (Store, *PORTS.values()):
        for name in operations_of(declared):
            parameters = list(inspect.signature(getattr(declared, name)).parameters)
            if parameters[1:2] == ["tenant"]:
                found.append(name)
    return found


def test_every_operation_bound_to_a_tenant_is_tried_here():
    assert {name.split()[0] for name in OPERATIONS} == set(tenant_bound())


async def test_an_unknown_tenant_is_not_found_by_any_of_them(store):
    for name, operation in OPERATIONS.items():
        with pytest.raises(TenantNotFound, match="nobody"):
            await operation(store, "nobody", unknown())
            pytest.fail(f"{name} answers a tenant that does not exist")


async def test_what_another_tenant_has_is_answered_like_the_unknown_by_all_of_them(store, clock):
    theirs, nobodys = await populated(store, clock), unknown()
    before = await everything_of(store, TENANT)

    for name, operation in OPERATIONS.items():
        # Two new tenants for each, so that no operation meets what another one left.
        await add_tenants(store, [f"knows {name}", f"guesses {name}"])
        known = await answer(operation(store, f"knows {name}", theirs), theirs)
        guessed = await answer(operation(store, f"guesses {name}", nobodys), nobodys)

        assert known.replace(f"knows {name}", f"guesses {name}") == guessed, name
        assert await everything_of(store, TENANT) == before, name


async def test_a_tenant_sees_nothing_of_another(store, clock):
    await add_tenants(store, [OTHER])
    await populated(store, clock)

    assert await everything_of(store, OTHER) == {
        "jobs": [],
        "executions": [],
        "steps": [],
        "events": (),
        "workers": [],
        "schedules": [],
        "queues": [],
        "keys": [],
        "secrets": [],
        "alerts": (),
        "incidents": (),
        "templates": (),
        "audit": (),
    }
    assert await store.catalog.count_executions(OTHER, EVERYTHING) == {}


async def test_the_same_names_mean_different_things_to_each_tenant(store):
    await add_tenants(store, [OTHER])
    (mine,) = await defined(store, timeout=1.0)
    (theirs,) = await defined(store, timeout=2.0, tenant=OTHER)
    await set_gates(store, TENANT, {"g": 1})
    await set_gates(store, OTHER, {"g": 1})

    await enqueued(store, gate="g", unique_key="k")
    (other,) = await enqueued(store, gate="g", unique_key="k", tenant=OTHER)

    assert (mine.version, theirs.version) == (1, 1)
    assert mine.id != theirs.id
    assert (await claim(store, tenant=OTHER)).one.id == other
    assert len((await claim(store)).executions) == 1


async def test_pausing_a_queue_pauses_nobody_elses(store):
    await add_tenants(store, [OTHER])
    await enqueued(store)
    (id,) = await enqueued(store, tenant=OTHER)

    await store.catalog.pause_queue(TENANT, "default", paused=True)

    assert (await claim(store, tenant=OTHER)).one.id == id
    assert (await claim(store)).executions == []


async def test_a_worker_claims_only_for_its_tenant(store):
    await add_tenants(store, [OTHER])
    await enqueued(store)
    worker = await registered(store, tenant=OTHER)

    assert (await claim(store, worker=worker, tenant=OTHER)).executions == []
    with pytest.raises(DaybellError):
        await claim(store, worker=worker)


async def test_a_cursor_of_another_tenant_shows_nothing_of_it(store, clock):
    await add_tenants(store, [OTHER])
    theirs = await populated(store, clock)
    await enqueued(store, tenant=OTHER)

    page = await store.catalog.list_executions(OTHER, EVERYTHING, cursor=str(theirs.queued))

    assert {one.tenant for one in page.items} <= {OTHER}


async def test_an_id_that_another_tenant_has_is_never_acknowledged_in_vain(store, clock):
    await add_tenants(store, [OTHER])
    theirs = await populated(store, clock)
    await defined(store, tenant=OTHER)
    before = await look(store, theirs.queued)

    with contextlib.suppress(DaybellError):
        (made,) = await store.queue.enqueue(OTHER, [an_execution(id=theirs.queued, args='"mine"')])
        assert made.created
        assert (await look(store, theirs.queued, tenant=OTHER)).args == '"mine"'

    assert await look(store, theirs.queued) == before


async def test_a_worker_or_schedule_of_another_tenant_cannot_be_taken_over(store, clock):
    await add_tenants(store, [OTHER])
    theirs = await populated(store, clock)
    await defined(store, tenant=OTHER)
    before = await everything_of(store, TENANT)
    await clock.advance(1)

    with contextlib.suppress(DaybellError):
        await store.queue.register(OTHER, a_worker(id=theirs.worker, name="mallory"), lease=9999.0)
    with contextlib.suppress(DaybellError):
        await store.schedules.put_schedules(OTHER, [a_schedule(id=theirs.schedule, rule='"mine"')])

    assert await everything_of(store, TENANT) == before


async def test_a_finished_execution_of_another_tenant_is_not_found(store):
    await add_tenants(store, [OTHER])
    (done,) = await finished(store)
    (gone,) = await dead(store)

    for id in (done, gone):
        with pytest.raises(ExecutionNotFound):
            await store.catalog.get_execution(OTHER, id)
