"""One run: start a fleet and a load, inject faults, check the history, and report."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.chaos import recovery, tasks
from daybell.chaos.checker import (
    RULES,
    History,
    ScheduleHistory,
    Violation,
    check_history,
    count_decisions,
    courses,
    cursors,
)
from daybell.chaos.faults import (
    FROZEN_LEASES,
    NOT_OF_SERVERS,
    Fault,
    Hold,
    Kind,
    Proxy,
    ServerProxy,
    can_stand_before,
    draw_faults,
)
from daybell.chaos.fleet import (
    FLEET,
    FLEET_PROCESSES,
    ROLES,
    SCHEDULER,
    SERVER,
    WORKER,
    Fleet,
    FleetEvent,
    environment,
    find_tracebacks,
)
from daybell.chaos.load import Load, Submitter
from daybell.chaos.recovery import (
    SLACK_SECONDS,
    STALL,
    STALL_SECONDS,
    Return,
    Sample,
    count_unjudged,
    judge_service,
    quantile,
)
from daybell.chaos.tasks import SCHEDULED, START, TENANT, app
from daybell.chaos.workflow_checker import (
    FLOW_RULES,
    WAIT_RULES,
    EventFigures,
    count_events,
    count_workflows,
    find_late_nodes,
)
from daybell.chaos.workflows import (
    NAMES,
    WorkflowFigures,
    definitions,
    draw_workflows,
    flow_runs,
    recorded_steps,
)
from daybell.client import Client
from daybell.client.executions import executions as list_executions
from daybell.client.workers import workers as list_workers
from daybell.core.execution import PENDING, Execution, State
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.units import Instant, Seconds
from daybell.engine.loop import SystemClock
from daybell.engine.upkeep import sweep_seconds
from daybell.errors import Conflict, Unavailable, UsageError

# The result of a run, for people and for programs.


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures, and broken promises."""

    seed: int
    seconds: Seconds
    lease: Seconds
    asked: int
    acknowledged: int
    attempts: int  # starts, as recorded by the tasks
    states: dict[str, int]
    faults: dict[str, int]  # faults, by kind
    by_themselves: int  # processes that ended unexpectedly and were started again
    answers_lost: int
    waits: Sequence[Seconds]  # of executions of a lost worker, until they started again
    disturbed: int  # those that count from the end of a trouble of the store
    suspects: int  # further ones, that had to wait for other suspects
    promised: Seconds  # limit of such a wait
    returns: Sequence[Return]  # of the database
    schedules: int
    ticks: dict[str, int]  # on record, by kind of decision
    workflows: WorkflowFigures
    events: EventFigures
    fired: int  # events that fired a job
    requests: int  # bulks, each sent several times under its key
    answers: int  # answers to these
    unfinished: int
    notes: Sequence[str]
    violations: Sequence[Violation]

    @property
    def is_ok(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        broken = Counter(violation.rule for violation in self.violations)
        return {
            "is_ok": self.is_ok,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "lease_seconds": self.lease,
            "asked": self.asked,
            "acknowledged": self.acknowledged,
            "attempts": self.attempts,
            "states": self.states,
            "faults": self.faults,
            "ended_by_themselves": self.by_themselves,
            "answers_lost": self.answers_lost,
            "restarts": {
                "count": len(self.waits),
                "p50_seconds": round(quantile(self.waits, 0.5), 3),
                "p99_seconds": round(quantile(self.waits, 0.99), 3),
                "max_seconds": round(max(self.waits, default=0.0), 3),
                "promised_seconds": self.promised,
                "from_the_end_of_another_fault": self.disturbed,
                "suspects": self.suspects,
            },
            "returns": [
                {
                    "first_start_seconds": round(one.first_start, 3),
                    "backlog_max": one.backlog,
                    "shrinks_after_seconds": None if one.shrinks is None else round(one.shrinks, 1),
                }
                for one in self.returns
            ],
            "schedules": self.schedules,
            "ticks": self.ticks,
            "workflows": msgspec.to_builtins(self.workflows),
            "events": msgspec.to_builtins(self.events) | {"fired": self.fired},
            "requests": {"sent": self.requests, "answers": self.answers},
            "unfinished": self.unfinished,
            "notes": list(self.notes),
            "broken": dict(broken),
            "violations": [{"rule": one.rule, "what": one.what} for one in self.violations],
        }

    def fields(self) -> dict[str, str]:
        """Return the same as lines with a name."""
        counts = Counter(violation.rule for violation in self.violations)
        return {
            "seed": str(self.seed),
            "enqueued": f"{self.acknowledged:,} acknowledged of {self.asked:,} asked for",
            "ran": f"{self.attempts:,} attempts; {_listed(self.states)}",
            "faults": _listed(self.faults) or "none",
            "ended alone": f"{self.by_themselves} processes" if self.by_themselves else "",
            "answers lost": f"{self.answers_lost} after their commit" if self.answers_lost else "",
            "orphans": self._orphans(),
            "after restarts": "; ".join(map(_return, self.returns)),
            "ticks": f"{_listed(self.ticks) or 'none'} of {self.schedules} schedules;"
            f" {counts['tick doubled']} doubled, {counts['tick lost']} lost",
            "workflows": self._workflows(),
            "events": f"{self.events.acknowledged:,} acknowledged of {self.events.asked:,} sent;"
            f" {self.events.taken:,} ended a wait, {self.events.early:,} were there before it;"
            f" {self.fired:,} fired a job",
            "requests": f"{self.requests:,} bulks under one key each, {self.answers:,} answers",
            "at the end": f"{self.unfinished:,} unfinished" if self.unfinished else "all is done",
            "notes": "; ".join(self.notes),
            "violations": _listed(counts) or "none",
        }

    def _workflows(self) -> str:
        seen = self.workflows
        return (
            f"{seen.acknowledged:,} runs acknowledged of {seen.asked:,} asked for;"
            f" {_listed(seen.states) or 'none'} with those inside them; {seen.nodes:,} nodes;"
            f" {seen.steps:,} steps on record, {seen.steps_again:,} done again"
        )

    def _orphans(self) -> str:
        if not self.waits:
            return "none"
        half, most = quantile(self.waits, 0.5), quantile(self.waits, 0.99)
        return (
            f"{len(self.waits)} restarted after {half:.1f} s (p50), {most:.1f} s (p99),"
            f" {max(self.waits):.1f} s (max); {self.promised:g} s are promised;"
            f" {self.disturbed} count from the end of another fault"
            + (f"; {self.suspects} suspects are not held to it" if self.suspects else "")
        )


def _return(one: Return) -> str:
    said = f"{one.first_start:.1f} s to the first start"
    if one.shrinks == 0.0:
        return f"{said}, {one.backlog:,} waiting at most"
    if one.shrinks is None:
        return f"{said}, a backlog of {one.backlog:,} that does not shrink"
    return f"{said}, a backlog of {one.backlog:,} shrinks after {one.shrinks:.1f} s"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


UNFINISHED: Final = [*PENDING, State.RUNNING]
UP_SECONDS: Final = 60.0  # for the processes to come up
RETURN_SECONDS: Final = 30.0  # for workers to return when all faults have ended
SAMPLE_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.2
ANSWERS: Final = 4  # lost at a time
LATE_STATEMENTS: Final = 3  # held at a time
LATE_SECONDS: Final = (1.0, 3.0)  # duration
HOLDS_OF_WORKERS: Final = 0.25  # of all held commits; the others are of schedulers
OF_REMOTE_WORKERS: Final = 0.6  # of the faults of connections; the others are of the database
HOLD_WITHIN_SECONDS: Final = 3.0  # until a matching statement is sent
SERVERS: Final = 2
LOAD: Final = "load"  # the role of the client that the load uses
PREFIX: Final = "daybell-chaos-"

# Faults that make the store unreachable, and the duration if it is not known: a moment.
TROUBLES: Final[dict[str, Seconds]] = {
    Kind.CUT: 0.1,
    Kind.SLOW: 0.0,
    Kind.DEAF: 0.0,
    Kind.HOLD: 0.0,
    STALL: 0.0,
    Kind.DELAY: 0.0,
    Kind.RESTART: 0.0,
    Kind.OUTAGE: 0.0,
}

# Faults with a growing backlog, as the store is away or slow for all.
KEEP_FROM_WORK: Final = {Kind.RESTART, Kind.OUTAGE, Kind.DEAF, Kind.HOLD, Kind.SLOW, Kind.DELAY}

Restart = Callable[[], Awaitable[None]]
Tell = Callable[[str], None]


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run."""

    seconds: Seconds = 60.0
    seed: int = 1
    workers: int = 3
    schedulers: int = 2
    rate: float = 300.0
    lease: Seconds = 2.0
    concurrency: int = 50
    remote: bool = False  # workers work by way of the servers, without the database
    only: Collection[Kind] = tuple(Kind)  # the possible faults
    peace: Seconds = 90.0  # for the last execution when all faults have ended


async def chaos(
    url: str, options: ChaosOptions, *, restart: Restart | None = None, tell: Tell = lambda _: None
) -> Summary:
    """Run chaos on a store, in a tenant of its own. `restart` crashes the database server and
    brings it back. A cancellation ends the processes and cancels the enqueued work.
    """
    if url.startswith("memory:"):
        raise UsageError(
            "memory:// is in one process, and chaos kills processes; name a file or a server",
            field="database_url",
        )
    if options.remote and not options.schedulers:
        raise UsageError(
            "with remote workers, only schedulers take work from workers that are lost; start one",
            field="schedulers",
        )
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    is_wanted = True
    try:
        async with AsyncExitStack() as stack:
            owner = await stack.enter_async_context(Client(url))
            await _prepare(owner, options.seed)
            stack.push_async_callback(_clear, owner.for_tenant(TENANT))
            proxy = None
            if url.startswith("postgres") and can_stand_before(url):
                proxy = await stack.enter_async_context(Proxy(url, clock=SystemClock()))
                await proxy.open(*ROLES, LOAD)
            run = ChaosRun(owner.for_tenant(TENANT), url, options, folder, proxy, restart, tell)
            stack.callback(run.fleet.kill_all)
            summary = await run.run()
        is_wanted = not summary.is_ok
    except asyncio.CancelledError:
        is_wanted = False
        raise
    finally:
        if is_wanted and os.listdir(folder):  # empty if nothing was started
            tell(f"logs and effects are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return summary


async def _prepare(owner: Client, seed: int) -> None:
    await owner.ensure_tenant(TENANT)
    client = owner.for_tenant(TENANT)
    if others := await _alive(client):
        raise Conflict(
            f"another chaos run is on this store, with {others} workers; wait until it is over"
        )
    await _define(client, seed)
    if (await client.count(status=UNFINISHED)).total:
        await _clear(client)  # remains of a run that was killed
        await _define(client, seed)


async def _define(client: Client, seed: int) -> None:
    await client.define_jobs(app.definitions(), author="code")
    # A repeated seed needs workflows of its own.
    await client.define_jobs(definitions(draw_workflows(seed)), author="code", promote=True)


async def _alive(client: Client) -> int:
    """Return the number of workers, without dead processes that are not reaped."""
    now = (await client.health()).now
    return sum(worker.lease_until > now for worker in await list_workers(client))


async def _clear(client: Client) -> None:
    for job in (*app.tasks, *NAMES):
        await client.delete_job(job, force=True)


class ChaosRun:
    """The parts of a run."""

    def __init__(
        self,
        client: Client,
        url: str,
        options: ChaosOptions,
        folder: Path,
        proxy: Proxy | None,
        restart: Restart | None,
        tell: Tell,
    ) -> None:
        self.clock = SystemClock()
        self.fleet = Fleet(
            folder,
            environment=self._environment,
            concurrency=options.concurrency,
            clock=self.clock,
        )
        self._client = client
        self._url = url
        self._is_file = url.startswith("sqlite")
        self._options = options
        self._folder = folder
        self._proxy = proxy
        self._relay = ServerProxy(self.fleet.servers, clock=self.clock) if options.remote else None
        self._worker_key = ""
        self._restart = restart
        self._tell = tell
        self._samples: list[Sample] = []
        self._back_at: list[Seconds] = []
        self._done: Counter[str] = Counter()
        self._began = 0.0
        self._load: Load | None = None
        self._faults: set[asyncio.Task[None]] = set()

    async def run(self) -> Summary:
        if self._relay is None:
            return await self._run()
        self._worker_key = (await self._client.create_key("chaos-worker", role="worker")).token
        async with self._relay:
            return await self._run()

    async def _run(self) -> Summary:
        options = self._options
        since = (await self._client.health()).now
        if not options.schedulers:
            await self._silence()
        first = await cursors(self._client, SCHEDULED)
        counts = {WORKER: options.workers, SCHEDULER: options.schedulers, SERVER: SERVERS, FLEET: 1}
        for role, count in counts.items():
            for _ in range(count):
                self.fleet.start(role)
        await self._until_up()
        key = await self._client.create_key("chaos", role="operator")
        submitter = Submitter(self.fleet.servers, key.token, clock=self.clock)
        async with Client(self._url_of(LOAD), tenant=TENANT) as client:
            load = self._load = Load(
                client, submitter, rate=options.rate, seed=options.seed, clock=self.clock
            )
            self._began = self.clock.monotonic()
            work = [
                asyncio.create_task(load.run(options.seconds)),
                asyncio.create_task(self._inflict()),
            ]
            beside = [
                asyncio.create_task(self.fleet.watch()),
                asyncio.create_task(self._sample()),
                asyncio.create_task(self._note_stalls()),
            ]
            try:
                await asyncio.gather(*work)
                self._tell("the faults are over; waiting for the last executions")
                await self.fleet.calm()
                due = await self._until_fired()
                await self._silence()
                is_quiet = await self._until_quiet(since)
                missing = await self._missing_workers()
            finally:
                for one in (*work, *beside):
                    one.cancel()
                await asyncio.gather(*work, *beside, return_exceptions=True)
                await load.abandon()
                await submitter.close()
        await self._client.revoke_key(key.key_id)
        await self.fleet.stop()
        last = await cursors(self._client, SCHEDULED)
        history = await self._history(
            load, since, missing, await courses(self._client, first, last, due)
        )
        return self._judge(history, is_quiet)

    async def _history(
        self, load: Load, since: Instant, missing: list[str], courses: list[ScheduleHistory]
    ) -> History:
        executions, doubled = await self._executions(since)
        workers = await list_workers(self._client, include_dead=True)
        return History(
            calls=load.calls,
            cancels=load.cancels,
            effects=tasks.read_effects(self._folder),
            executions=executions,
            happenings=self.fleet.happenings,
            courses=courses,
            runs=await flow_runs(self._client, draw_workflows(self._options.seed), executions),
            steps=await recorded_steps(self._client, executions),
            sends=load.sends,
            submissions=load.submissions,
            publications=load.publications,
            doubled=doubled,
            workers=[one for one in workers if one.started_at >= since],
            missing=missing,
            over_at=self._began + self._options.seconds,
        )

    def _environment(self, role: str) -> dict[str, str]:
        lease = self._options.lease
        if self._relay is not None and role in (WORKER, FLEET):
            return environment(lease=lease, API_URL=self._relay.url, API_KEY=self._worker_key)
        return environment(lease=lease, DATABASE_URL=self._url_of(role))

    def _url_of(self, role: str) -> str:
        return self._url if self._proxy is None else self._proxy.url_of(role)

    async def _until_up(self) -> None:
        deadline = self.clock.monotonic() + UP_SECONDS
        workers = self._options.workers + FLEET_PROCESSES
        while await _alive(self._client) < workers or len(self.fleet.servers()) < SERVERS:
            if self.clock.monotonic() > deadline:
                raise Unavailable(
                    f"the processes did not come up; their logs are in {self._folder}"
                )
            await self.clock.sleep(POLL_SECONDS)

    async def _missing_workers(self) -> list[str]:
        """Return workers that are missing, although there was no fault for long."""
        deadline = self.clock.monotonic() + RETURN_SECONDS
        while True:
            now = (await self._client.health()).now
            there = {one.name for one in await list_workers(self._client) if one.lease_until > now}
            missing = [name for name in self.fleet.workers() if name not in there]
            if not missing or self.clock.monotonic() > deadline:
                return missing
            await self.clock.sleep(POLL_SECONDS)

    async def _inflict(self) -> None:
        options = self._options
        faults = draw_faults(
            options.seed,
            seconds=options.seconds,
            lease=options.lease,
            has_proxy=(self._proxy or self._relay) is not None,
            has_restart=self._restart is not None,
            only=set(options.only) - (NOT_OF_SERVERS if self._proxy is None else set()),
        )
        for fault in faults:
            await self.clock.sleep(max(0.0, self._began + fault.at - self.clock.monotonic()))
            if await self._hit(fault):
                self._done[fault.kind] += 1

    async def _hit(self, fault: Fault) -> bool:
        role = fault.role
        match fault.kind:
            case Kind.KILL:
                return self.fleet.kill(role, fault.pick)
            case Kind.DRAIN:
                return self.fleet.drain(role, fault.pick)
            case Kind.FREEZE:
                return self.fleet.freeze(role, fault.pick, fault.length)
            case Kind.EXIT:
                assert self._load is not None
                self._load.exit()
            case Kind.RESTART:
                await self._restart_database()
            case Kind.HOLD:
                self._begin(self._hold_commit(fault))
            case _:
                self._disturb(self._disturbed(fault), fault)
        return True

    def _disturbed(self, fault: Fault) -> Proxy:
        """Return the connections that a fault hits: those to the database, or of remote workers."""
        is_of_workers = fault.kind not in NOT_OF_SERVERS and fault.pick < OF_REMOTE_WORKERS
        found = self._relay if self._proxy is None or is_of_workers else self._proxy
        found = found or self._proxy
        assert found is not None
        return found

    def _disturb(self, proxy: Proxy, fault: Fault) -> None:
        length = fault.length
        self._note(fault.kind, length=length)
        match fault.kind:
            case Kind.CUT:
                proxy.cut_all()
            case Kind.LOSE:
                proxy.lose_answers(ANSWERS)
            case Kind.LATE:
                for turn in range(LATE_STATEMENTS):
                    share = (fault.pick + turn / LATE_STATEMENTS) % 1
                    self._begin(self._hold_enqueue(proxy, share))
            case Kind.DELAY:
                self._begin(proxy.delay(length))
            case Kind.DEAF:
                self._begin(proxy.deafen(length))
            case Kind.SLOW:
                lease = self._options.lease
                self._begin(proxy.slow_down(length, lag=lease * (0.08 + 0.08 * fault.pick)))
                self.fleet.freeze(WORKER, fault.pick, FROZEN_LEASES * lease)
            case _:
                self._begin(proxy.shut(length))

    async def _hold_enqueue(self, proxy: Proxy, share: float) -> None:
        """Make a client repeat an enqueue that arrives for the first time later."""
        least, most = LATE_SECONDS
        seconds = least + share * (most - least)
        hold = Hold(
            role=LOAD,
            statement=b"INSERT INTO daybell.live",
            is_single=True,
            breaks=True,
            seconds=seconds,
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(proxy.hold(hold), HOLD_WITHIN_SECONDS)

    async def _hold_commit(self, fault: Fault) -> None:
        """Keep a transaction open after all its writes."""
        assert self._proxy is not None
        # A scheduler has fired; a worker has done anything.
        is_worker = fault.pick < HOLDS_OF_WORKERS
        hold = Hold(
            role=WORKER if is_worker else SCHEDULER,
            statement=b"COMMIT",
            after=b"" if is_worker else b"daybell.schedule",
            seconds=fault.length,
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._proxy.hold(hold), HOLD_WITHIN_SECONDS)
            self._note(fault.kind, length=fault.length)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._faults.add(task)
        task.add_done_callback(self._faults.discard)

    async def _restart_database(self) -> None:
        assert self._restart is not None
        since = self.clock.monotonic()
        await self._restart()
        now = self.clock.monotonic()
        self.fleet.happenings.append(FleetEvent(since, Kind.RESTART, length=now - since))
        self._back_at.append(now)

    def _note(self, what: str, *, length: Seconds = 0.0) -> None:
        self.fleet.happenings.append(FleetEvent(self.clock.monotonic(), what, length=length))

    async def _note_stalls(self) -> None:
        """Record when this process, and with it every connection, got no time from the machine."""
        while True:
            since = self.clock.monotonic()
            await self.clock.sleep(POLL_SECONDS / 4)
            late = self.clock.monotonic() - since - POLL_SECONDS / 4
            if late > STALL_SECONDS:
                self.fleet.happenings.append(FleetEvent(since, STALL, length=late))

    async def _sample(self) -> None:
        """Sample the backlog, and print progress."""
        for turn in range(1_000_000):
            await self.clock.sleep(SAMPLE_SECONDS)
            try:
                waiting = (await self._client.count(status=["queued"], nodes=True)).total
            except Unavailable:
                continue
            self._samples.append(Sample(self.clock.monotonic(), waiting))
            assert self._load is not None
            if turn % 5 == 0:
                self._tell(
                    f"{self.clock.monotonic() - self._began:4.0f} s"
                    f"  {self._load.acknowledged:,} enqueued, {waiting:,} waiting,"
                    f" {sum(self._done.values())} faults"
                )

    async def _until_fired(self) -> Instant:
        """Wait for the schedules that are due after the last fault; return the time."""
        due = (await self._client.health()).now
        deadline = self.clock.monotonic() + self._options.peace
        while self._options.schedulers and self.clock.monotonic() < deadline:
            found = await cursors(self._client, SCHEDULED)
            if all(one.next_at is None or one.next_at > due for one in found.values()):
                break
            await self.clock.sleep(POLL_SECONDS)
        return due if self._options.schedulers else float("-inf")

    async def _silence(self) -> None:
        """Pause all schedules."""
        for job in SCHEDULED:
            await self._client.pause(job, "the run is over")

    async def _until_quiet(self, since: Instant) -> bool:
        deadline = self.clock.monotonic() + self._options.peace
        while self.clock.monotonic() < deadline:
            left = await self._client.count(status=UNFINISHED, since=since, nodes=True)
            if not left.total:
                return True
            await self.clock.sleep(POLL_SECONDS)
        return False

    async def _executions(self, since: Instant) -> tuple[dict[UUID, Execution], list[UUID]]:
        """Return all executions, and the ids of duplicates."""
        found: dict[UUID, Execution] = {}
        doubled: list[UUID] = []
        cursor: str | None = None
        while True:
            page = await list_executions(
                self._client, nodes=True, since=since, limit=PAGE_ITEMS_MAX, cursor=cursor
            )
            for execution in page.items:
                if execution.id in found:
                    doubled.append(execution.id)
                found[execution.id] = execution
            cursor = page.next_cursor
            if cursor is None:
                return found, doubled

    def _judge(self, history: History, is_quiet: bool) -> Summary:
        options = self._options
        promised = options.lease + sweep_seconds(options.lease) + SLACK_SECONDS
        violations = check_history(history, (*RULES, *FLOW_RULES, *WAIT_RULES))
        violations += [Violation("did not end", what) for what in self.fleet.faults]
        violations += [
            Violation("unexpected error", what) for what in find_tracebacks(self._folder)
        ]
        if not is_quiet:
            violations.append(
                Violation("not quiet", f"unfinished {options.peace:g} s after the last fault")
            )
        troubles = recovery.find_troubles(history, self._samples, lengths=TROUBLES)
        found = recovery.find_orphans(history, troubles=troubles, within=promised)
        violations += recovery.find_late_orphans(found, within=promised)
        violations += find_late_nodes(history, troubles=troubles, within=promised)
        violations += judge_service(history, lease=options.lease)
        few = round(options.rate)
        away = [one.at for one in history.happenings if one.what in KEEP_FROM_WORK]
        judged = [
            at
            for at in self._back_at
            if not recovery.is_busy(
                history, at, at + recovery.SHRINKS_WITHIN_SECONDS, lease=options.lease
            )
        ]
        violations += recovery.find_stuck_returns(self._samples, judged, few=few, away_at=away)
        starts = [effect.at for effect in history.effects if effect.what == START]
        assert self._load is not None
        return Summary(
            seed=options.seed,
            seconds=options.seconds,
            lease=options.lease,
            asked=len(history.calls),
            acknowledged=self._load.acknowledged,
            attempts=len(starts),
            states=dict(Counter(str(one.state) for one in history.executions.values())),
            faults=dict(self._done),
            by_themselves=sum(one.what.startswith("ended by itself") for one in history.happenings),
            answers_lost=sum(one.lost for one in (self._proxy, self._relay) if one is not None),
            waits=[one.waited for one in found if not one.is_suspect],
            disturbed=sum(one.counted_from > one.lost_at for one in found if not one.is_suspect),
            suspects=sum(one.is_suspect for one in found),
            promised=promised,
            returns=recovery.find_returns(
                self._samples, starts, self._back_at, few=few, away_at=away
            ),
            schedules=len(history.courses),
            ticks=count_decisions(history.courses),
            workflows=count_workflows(history),
            events=count_events(history),
            fired=sum(bool(one.answers) for one in history.publications),
            requests=len(history.submissions),
            answers=sum(len(one.answers) for one in history.submissions),
            unfinished=sum(one.state in UNFINISHED for one in history.executions.values()),
            notes=self._notes(
                count_unjudged(history, lease=options.lease) + len(self._back_at) - len(judged)
            ),
            violations=violations,
        )

    def _notes(self, unjudged: int) -> list[str]:
        notes: list[str] = []
        if unjudged:
            notes.append(f"{unjudged} faults were not judged: the machine was too busy")
        assert self._load is not None
        if self._load.left_out:
            notes.append(f"{self._load.left_out:,} were not asked for: the machine is too slow")
        if not self._is_file and self._proxy is None:
            notes.append("connections were left alone: the URL names several hosts, or TLS")
        if not self._is_file and self._restart is None:
            notes.append("the server was not restarted: no command for it was given")
        return notes
