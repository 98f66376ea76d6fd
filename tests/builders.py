"""Things to test with, made in a line each: what a test does not name does not matter to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core import checks
from daybell.core.access import (
    NO_QUOTAS,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    NewSession,
    Role,
    Tenant,
)
from daybell.core.alerts.incidents import IncidentMove, MoveKind
from daybell.core.alerts.rules import AlertRule
from daybell.core.event import NewEvent, NewStep, StepKind
from daybell.core.execution import Claimed, Execution, NewExecution, Outcome, State
from daybell.core.ids import mint
from daybell.core.job import Job, JobDefinition, NewJob, NewTemplate
from daybell.core.lifecycle import Transition, Verdict, after_success
from daybell.core.schedule import Firing, NewSchedule, Schedule, Tick
from daybell.core.subscription import Subscription
from daybell.core.views import ExecutionFilter, JobFilter
from daybell.core.worker import NewWorker, Report
from daybell.errors import DuplicateKey
from daybell.store.migrate import Migration, known_migrations, parse
from daybell.store.protocol import Store

TENANT = "default"
LEASE = 60.0


class Hands(NamedTuple):
    """A worker with what it has claimed."""

    worker: UUID
    executions: list[Claimed]
    lease: UUID
    next_due: float | None = None

    @property
    def one(self) -> Claimed:
        """The only execution that it has."""
        (claimed,) = self.executions
        return claimed


OF_NEW_JOBS = ("id", "author", "expect", "promote")


def a_job(name: str = "resize", **options: Any) -> NewJob:
    """A job; what is no field of NewJob goes into its definition, and `declared` are the schedules
    that come with it.
    """
    own = {key: options.pop(key) for key in OF_NEW_JOBS if key in options}
    own.setdefault("id", mint())
    declared = options.pop("declared", ())
    own["schedules"] = tuple(replace(one, is_declared=True) for one in declared)
    return NewJob(definition=JobDefinition(name=name, **options), **own)


def id_minted_at(instant: float) -> UUID:
    """An id of a machine whose clock shows this."""
    return UUID(int=int(instant * 1000) << 80 | mint().int & ((1 << 80) - 1))


def an_execution(job: str = "resize", **options: Any) -> NewExecution:
    options.setdefault("id", mint())
    return NewExecution(job=job, **options)


def a_worker(**options: Any) -> NewWorker:
    options.setdefault("id", mint())
    options.setdefault("name", "ada")
    return NewWorker(**options)


def a_schedule(job: str = "resize", **options: Any) -> NewSchedule:
    options.setdefault("id", mint())
    options.setdefault("rule", '{"every": 60}')
    options.setdefault("next_at", None)
    return NewSchedule(job=job, **options)


def a_firing(schedule: NewSchedule | Schedule, *ticks: Tick, **options: Any) -> Firing:
    """A firing of what the schedule has next, once, by default. A fixed delay then has no next
    time until its execution ends.
    """
    assert schedule.next_at is not None, "a schedule without a cursor does not fire"
    options.setdefault("tenant", TENANT)
    options.setdefault("expect", schedule.next_at)
    options.setdefault("next_at", schedule.next_at + 60 if schedule.delay is None else None)
    if not ticks:
        gates = {"own_gate": schedule.own_gate}
        ticks = (a_tick(options["expect"], job=schedule.job, schedule=schedule.id, **gates),)
    return Firing(schedule=schedule.id, ticks=ticks, **options)


def a_tick(at: float, *, job: str = "resize", **options: Any) -> Tick:
    """A tick that fires an execution of the job."""
    return Tick(at=at, execution=an_execution(job, scheduled_for=at, **options))


def a_key(**options: Any) -> NewKey:
    """A key with a token of its own."""
    options.setdefault("id", mint())
    options.setdefault("name", "deploy")
    options.setdefault("role", Role.OPERATOR)
    options.setdefault("digest", sha256(options["id"].bytes + mint().bytes).digest())
    options.setdefault("hint", "dbk_abcd")
    return NewKey(**options)


def a_session(**options: Any) -> NewSession:
    """A session with a token of its own."""
    options.setdefault("id", mint())
    options.setdefault("digest", sha256(options["id"].bytes + mint().bytes).digest())
    options.setdefault("hint", "dbk_sess")
    return NewSession(**options)


def an_entry(action: str = "job.update", **options: Any) -> NewAuditEntry:
    options.setdefault("id", mint())
    options.setdefault("actor", "ana")
    options.setdefault("target", "resize")
    return NewAuditEntry(action=action, **options)


def a_request(key: str = "k", **options: Any) -> NewRequest:
    options.setdefault("id", mint())
    options.setdefault("digest", b"d")
    return NewRequest(key=key, **options)


def a_secret(name: str = "TOKEN", **options: Any) -> NewSecret:
    options.setdefault("key_id", "k1")
    options.setdefault("sealed", b"\x00sealed\xff")
    return NewSecret(name=name, **options)


def a_template(name: str = "export", **job: Any) -> NewTemplate:
    """A template with one blank; the rest says what else its job has."""
    said = {"task": "export", "args": {"day": {"parameter": "day"}}, **job}
    return NewTemplate.parse({"name": name, "parameters": {"day": "string"}, "job": said})


def an_alert(name: str = "letters", on: str = "dead_letter", **fields: Any) -> AlertRule:
    """An alert rule that sends messages."""
    fields.setdefault("to", ["json://127.0.0.1:1/a"])
    return AlertRule.parse({"name": name, "on": on, **fields})


def a_subscription(name: str = "hooks", **fields: Any) -> Subscription:
    """A subscription to be stored, by default to all events."""
    return Subscription.parse({"name": name, "url": "https://example.org/hook", **fields})


def an_incident_move(kind: MoveKind, rule: str = "letters", **fields: Any) -> IncidentMove:
    """A move of an incident without a message."""
    fields.setdefault("id", mint())
    fields.setdefault("subject", "resize")
    return IncidentMove(kind=kind, rule=rule, **fields)


def a_report(claimed: Claimed, **options: Any) -> Report:
    options.setdefault("ran", 1.0)
    return Report(id=claimed.id, attempt=claimed.attempt, lease=claimed.lease, **options)


def a_step(claimed: Claimed, n: int = 0, **options: Any) -> NewStep:
    """A step that is done, by default; with an event, a wait for that."""
    options.setdefault("kind", StepKind.WAIT if "event" in options else StepKind.STEP)
    options.setdefault("name", "charge")
    return NewStep(id=claimed.id, attempt=claimed.attempt, lease=claimed.lease, n=n, **options)


def an_event(name: str = "paid", **options: Any) -> NewEvent:
    """An event that nobody has sent before."""
    options.setdefault("id", str(mint()))
    options.setdefault("source", "shop")
    return NewEvent(name=name, **options)


def a_move(claimed: Claimed, target: State, outcome: Outcome, **options: Any) -> Transition:
    options.setdefault("failures", claimed.failures)
    options.setdefault("crashes", claimed.crashes)
    return Transition(
        id=claimed.id,
        attempt=claimed.attempt,
        lease=claimed.lease,
        gate=claimed.gate,
        schedule=claimed.schedule,
        target=target,
        outcome=outcome,
        **options,
    )


def success(claimed: Claimed, *, result: str | None = '"done"', ran: float = 1.0) -> Transition:
    return after_success(claimed, result=result, ran=ran)


def retry(claimed: Claimed, *, delay: float = 10.0, **options: Any) -> Transition:
    options.setdefault("error", '{"type": "ValueError"}')
    options.setdefault("ran", 1.0)
    options.setdefault("failures", claimed.failures + 1)
    return a_move(claimed, State.RETRYING, Outcome.FAILED, delay=delay, **options)


def death(claimed: Claimed, **options: Any) -> Transition:
    options.setdefault("error", '{"type": "ValueError"}')
    options.setdefault("reason", "retries_used_up")
    options.setdefault("ran", 1.0)
    options.setdefault("failures", claimed.failures + 1)
    return a_move(claimed, State.DEAD, Outcome.FAILED, **options)


async def add_tenants(store: Store, names: Iterable[str]) -> None:
    """Create tenants; ones that exist are left as they are."""
    for name in names:
        with suppress(DuplicateKey):
            await store.admin.add_tenant(name)


async def tenant_names(store: Store) -> tuple[str, ...]:
    return tuple(one.name for one in await store.admin.list_tenants())


async def no_transaction() -> NoReturn:
    """Refuse to begin a transaction, as a store in memory does."""
    raise checks.no_transactions("in memory")


async def defined(store: Store, *names: str, tenant: str = TENANT, **definition: Any) -> list[Job]:
    """Define jobs of these names, or one; the rest says what they have in common."""
    jobs = [a_job(name, **definition) for name in names or ("resize",)]
    return await store.catalog.define_jobs(tenant, jobs)


async def put(
    store: Store, *schedules: NewSchedule, tenant: str = TENANT, **definition: Any
) -> None:
    """Keep these schedules, of jobs that are defined like this."""
    await defined(store, *{one.job for one in schedules}, tenant=tenant, **definition)
    await store.schedules.put_schedules(tenant, schedules)


async def shown(store: Store, schedule: NewSchedule, *, tenant: str = TENANT) -> Schedule:
    """A schedule as people see it."""
    (found,) = await store.schedules.list_schedules(tenant, ids=[schedule.id])
    return found


async def fired(
    store: Store, schedule: NewSchedule, *ticks: Tick, tenant: str = TENANT, **options: Any
) -> list[UUID]:
    """Fire a schedule from where it stands; answers the executions of its ticks."""
    current = await shown(store, schedule, tenant=tenant)
    firing = a_firing(current, *ticks, tenant=tenant, **options)
    assert await store.schedules.fire([firing]) == [True]
    return [tick.execution.id for tick in firing.ticks if tick.execution is not None]


async def enqueued(
    store: Store, count: int = 1, *, job: str = "resize", tenant: str = TENANT, **options: Any
) -> list[UUID]:
    """Enqueue so many alike; the job is defined if nobody has done so."""
    page = await store.catalog.list_jobs(tenant, JobFilter(prefix=job))
    if not any(known.name == job for known in page.items):
        await defined(store, job, tenant=tenant)
    new = [an_execution(job, **options) for _ in range(count)]
    return [answer.id for answer in await store.queue.enqueue(tenant, new)]


async def limit(store: Store, tenant: str = TENANT, **quotas: int) -> Tenant:
    """Give a tenant these quotas and no others."""
    return await store.admin.set_quotas(tenant, **{**asdict(NO_QUOTAS), **quotas})


async def registered(store: Store, *, tenant: str = TENANT, lease: float = LEASE) -> UUID:
    """A live worker's id."""
    worker = a_worker()
    await store.queue.register(tenant, worker, lease=lease)
    return worker.id


async def claim(
    store: Store,
    limit: int = 100,
    *,
    worker: UUID | None = None,
    lease: UUID | None = None,
    tenant: str = TENANT,
    queues: Sequence[str] = ("default",),
    **options: Any,
) -> Hands:
    """Claim what there is, by a new worker and under a new lease unless they are given."""
    worker = worker or await registered(store, tenant=tenant)
    lease = lease or mint()
    answer = await store.queue.claim(
        tenant, worker=worker, lease=lease, queues=queues, limit=limit, **options
    )
    return Hands(worker, answer.executions, lease, answer.next_due)


async def claimed(store: Store, count: int = 1, *, tenant: str = TENANT, **options: Any) -> Hands:
    """Enqueue so many, and claim them."""
    worker = options.pop("worker", None)
    ids = await enqueued(store, count, tenant=tenant, **options)
    queues = [options.get("queue", "default")]
    hands = await claim(store, count, worker=worker, tenant=tenant, queues=queues)
    assert {execution.id for execution in hands.executions} == set(ids), "others were in the way"
    return hands


async def apply(
    store: Store, hands: Hands, *moves: Transition, tenant: str = TENANT
) -> list[Verdict]:
    return await store.queue.apply(tenant, worker=hands.worker, transitions=moves)


async def finished(store: Store, count: int = 1, **options: Any) -> list[UUID]:
    """Executions that have succeeded."""
    hands = await claimed(store, count, **options)
    verdicts = await apply(
        store,
        hands,
        *(success(one) for one in hands.executions),
        tenant=options.get("tenant", TENANT),
    )
    assert verdicts == []
    return [one.id for one in hands.executions]


async def dead(store: Store, count: int = 1, **options: Any) -> list[UUID]:
    """Executions that are dead letters."""
    hands = await claimed(store, count, **options)
    verdicts = await apply(
        store,
        hands,
        *(death(one) for one in hands.executions),
        tenant=options.get("tenant", TENANT),
    )
    assert verdicts == []
    return [one.id for one in hands.executions]


async def look(store: Store, id: UUID, *, tenant: str = TENANT) -> Execution:
    """An execution as people see it."""
    return (await store.catalog.get_execution(tenant, id)).execution


async def states(store: Store, ids: Sequence[UUID], *, tenant: str = TENANT) -> list[State]:
    return [(await look(store, id, tenant=tenant)).state for id in ids]


async def count(store: Store, *, tenant: str = TENANT) -> int:
    """How many executions there are, however they stand."""
    return sum((await store.catalog.count_executions(tenant, ExecutionFilter())).values())


def brings(package: str, *sql: str) -> Callable[[str], list[Migration]]:
    """Stand in for `known_migrations`: the steps of a store, and those of a later release."""
    known = known_migrations(package)
    first = known[-1].version + 1
    later = [
        parse(f"{number:04}_later.sql", f"-- breaking\n{text}")
        for number, text in enumerate(sql, first)
    ]
    return lambda _: [*known, *later]


def steps(product: str) -> tuple[str, ...]:
    """The names of all migrations of a store, such as "sqlite"."""
    known = known_migrations(f"daybell.store.{product}")
    return tuple(f"{one.version:04}_{one.name}" for one in known)
