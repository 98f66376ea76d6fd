"""Bodies of requests to the API, and decoders of its JSON: the inverse of `client/wire.py`.

Fields that only workers and schedulers need are not sent over HTTP and keep their defaults. Invalid
input is refused here, with the same message as on the database and without a request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack
from uuid import UUID

import msgspec

from daybell.client.declarations import ApplyOutcome
from daybell.client.remote.transport import ANSWER_BYTES_MAX, Parameters, Transport
from daybell.client.requests import (
    ARGS_PREFIX,
    BOUNDS,
    ONE_OPTIONS,
    EnqueueOptions,
    Filters,
    Time,
    check_options,
    read_ago,
    read_bound,
    read_filter,
    read_pattern,
    read_time,
)
from daybell.client.schedules import Backfill, BackfilledTick
from daybell.core import payload
from daybell.core.execution import (
    Enqueued,
    Execution,
    Outcome,
    Priority,
    State,
)
from daybell.core.job import Job, JobDefinition, JobStatus, WaitsFor
from daybell.core.limits import PAGE_ITEMS_MAX, check_key
from daybell.core.options import Arguments, read_args
from daybell.core.retry import Retry
from daybell.core.schedule import Schedule
from daybell.core.units import Instant, format_duration, from_iso, to_iso
from daybell.core.views import ExecutionFilter, Page
from daybell.errors import NotFound

T = TypeVar("T")
Wire = Mapping[str, Any]

_DEFINITION: Final = frozenset(field.name for field in msgspec.structs.fields(JobDefinition))


def page(of: Wire, item: Callable[[Wire], T]) -> Page[T]:
    """A page of a list."""
    return Page(items=tuple(map(item, of["items"])), next_cursor=of["next_cursor"])


def answer(kind: type[T]) -> Callable[[Any], T]:
    """Return a reader of answers of this type."""
    return lambda of: msgspec.convert(of, kind)


def page_of(item: Callable[[Wire], T]) -> Callable[[Wire], Page[T]]:
    """What reads pages of such things."""
    return lambda of: page(of, item)


async def whole(
    transport: Transport,
    path: str,
    item: Callable[[Wire], T],
    parameters: Parameters | None = None,
) -> list[T]:
    """All of a list, page by page."""
    found, cursor, read = list[T](), None, page_of(item)
    while True:
        asked = {**(parameters or {}), "limit": PAGE_ITEMS_MAX, "cursor": cursor}
        page = await transport.get(path, asked, read=read)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


async def complete_page(
    transport: Transport, path: str, item: Callable[[Wire], T], asked: Parameters
) -> Page[T]:
    """A page of a list; items that the list leaves large values out of are read one by one."""
    of = await transport.get(path, asked, read=dict[str, Any])
    found: list[T] = []
    for one in of["items"]:
        if not one.get("truncated"):
            found.append(item(one))
            continue
        with suppress(NotFound):  # it was deleted since
            found.append(await transport.get(one["link"].removeprefix("/api/v1"), read=item))
    return Page(items=tuple(found), next_cursor=of["next_cursor"])


def items_of(item: Callable[[Wire], T], name: str = "items") -> Callable[[Wire], list[T]]:
    """What reads lists of such things."""
    return lambda of: [item(one) for one in of[name]]


def job(of: Wire) -> Job:
    """A job at one of its versions. Fields that a newer server adds are passed over."""
    fields = {name: value for name, value in of.items() if name in _DEFINITION}
    schedules = [_rule(one) for one in of["schedules"]]
    fields |= {
        "priority": Priority.parse(of["priority"]),
        "retry": Retry.from_json(text(of["retry"])),
        "settings": text(of["settings"]),
        "args": text(of["args"]),
        "schedules": tuple(one for one in schedules if one is not None),
        "misfire": json.dumps(of["misfire"], sort_keys=True) if of["misfire"] else "",
        "template": "" if of.get("template") is None else text(of["template"]),
    }
    retry = fields.pop("retry")
    return Job(
        id=UUID(of["job_id"]),
        tenant=of["tenant"],
        version=of["version"],
        definition=msgspec.structs.replace(msgspec.convert(fields, JobDefinition), retry=retry),
        created_at=from_iso(of["created_at"]),
        author=of["author"],
        is_current=of["is_current"],
        paused_at=time(of["paused_at"]),
        pause_note=of["pause_note"],
    )


def _rule(of: Wire) -> str | None:
    """What a definition says of a schedule; None for one that was added beside it, or that follows
    from its dependencies.
    """
    if "schedule_id" not in of:
        return rule_text(of)
    is_own = of["is_declared"] and "after" not in of["rule"]
    return rule_text(of["rule"]) if is_own else None


def rule_text(of: Wire) -> str:
    """A rule as `core.when.Schedule` writes it."""
    return json.dumps(of, sort_keys=True, separators=(",", ":"))


def standing(of: Wire) -> JobStatus:
    """A job with what it does now."""
    last = of["last_execution"]
    return JobStatus(
        job=job(of),
        status=of["status"],
        next_run_at=time(of["next_run_at"]),
        schedules=tuple(map(schedule, of["schedules"])),
        last_execution=None if last is None else execution(last),
        has_more_schedules=of["has_more_schedules"],
        waits_for=tuple(WaitsFor(**one) for one in of.get("waits_for", ())),
    )


def launched(of: Wire) -> tuple[Job, Enqueued]:
    """A job that was made, and what it runs."""
    return standing(of).job, Enqueued(UUID(of["execution_id"]), created=True)


def applied(of: Wire) -> ApplyOutcome:
    """What declaring a job has done."""
    return ApplyOutcome(
        action=of["action"],
        before=of["before"],
        after=of["after"],
        job=None if of["job"] is None else standing(of["job"]).job,
        warnings=list(of["warnings"]),
    )


def schedule(of: Wire) -> Schedule:
    """A schedule as people see it."""
    return Schedule(
        id=UUID(of["schedule_id"]),
        tenant=of["tenant"],
        job=of["job"],
        rule=rule_text(of["rule"]),
        next_at=time(of["next_run_at"]),
        name=of["name"],
        args=text(of["args"]),
        delay=of["delay"],
        is_reboot=of["is_reboot"],
        is_declared=of["is_declared"],
        is_paused=of["is_paused"],
        last_at=time(of["last_run_at"]),
        succeeded_for=time(of["last_success_at"]),
        fired=of["fired"],
        skipped=of["skipped"],
        missed=of["missed"],
        failures=of["failures"],
        since=time(of.get("since")),
        own_gate=of.get("overlap_by") == "schedule",
    )


def backfill(of: Wire, *, none: UUID) -> Backfill:
    """What a backfill has done, or would do; `none` stands for ids that are not told."""
    return Backfill(
        id=identity(of["backfill_id"]) or none,
        job=of["job"],
        ticks=tuple(
            BackfilledTick(
                schedule=none,
                name=one["schedule"],
                at=from_iso(one["scheduled_for"]),
                execution=identity(one["execution_id"]),
                created=one["created"],
            )
            for one in of["items"]
        ),
        looked_at=of["ticks"],
        is_dry_run=of["dry_run"],
    )


def execution(of: Wire) -> Execution:
    """An execution without its attempts."""
    return Execution(
        id=UUID(of["execution_id"]),
        tenant=of["tenant"],
        job=of["job"],
        version=of["version"],
        state=State(of["status"]),
        queue=of["queue"],
        priority=Priority.parse(of["priority"]),
        args=text(of["args"]),
        attempt=of["attempt"],
        failures=of["failures"],
        crashes=of["crashes"],
        created_at=from_iso(of["created_at"]),
        run_at=from_iso(of["run_at"]),
        scheduled_for=time(of["scheduled_for"]),
        expires_at=time(of["expires_at"]),
        started_at=time(of["started_at"]),
        finished_at=time(of["finished_at"]),
        worker=identity(of["worker_id"]),
        unique_key=of["unique_key"],
        retries=of["retries"],
        timeout=of["timeout"],
        schedule=identity(of["schedule_id"]),
        parent=identity(of["parent_id"]),
        node=of.get("node"),
        outcome=None if of["outcome"] is None else Outcome(of["outcome"]),
        result=text_or_none(of["result"]),
        error=failure(of["error"]),
        reason=of["reason"],
        progress=of["progress"],
        note=of["note"],
        cancel_requested_at=time(of["cancel_requested_at"]),
        is_discarded=of["is_discarded"],
        truncated=of.get("truncated", False),
    )


def enqueued(of: Wire) -> Enqueued:
    """The answer to an enqueue."""
    status = of.get("status")
    state = None if status is None else State(status)
    return Enqueued(UUID(of["execution_id"]), created=bool(of["created"]), state=state)


def cancelled(of: Wire) -> int:
    """How many were cancelled."""
    return int(of["cancelled"])


def is_paused(of: Wire) -> bool:
    """Whether a queue gives nothing out."""
    return bool(of["is_paused"])


def time(said: str | None) -> Instant | None:
    """A time, if there is one."""
    return None if said is None else from_iso(said)


def identity(said: str | None) -> UUID | None:
    """An id, if there is one."""
    return None if said is None else UUID(said)


def text(value: Any) -> str:
    """The JSON text that a value was read from."""
    return payload.encode(value, what="the answer", bytes_max=ANSWER_BYTES_MAX)


def text_or_none(value: Any) -> str | None:
    """The same, where there may be none."""
    return None if value is None else text(value)


def failure(value: Any) -> str | None:
    """An error as it is kept; one that another program wrote in its own way is plain text."""
    return value if isinstance(value, str) else text_or_none(value)


Body = dict[str, Any]


def encode_execution(
    job: str,
    args: Arguments | None,
    *,
    unique_key: str | None,
    what: str,
    **options: Unpack[EnqueueOptions],
) -> Body:
    """What is said of one execution; without arguments it is called as its job says."""
    check_options(options, ONE_OPTIONS, what)
    pattern = read_pattern(job, **options)
    said: Body = {
        "delay": None if pattern.delay is None else format_duration(pattern.delay),
        "at": None if pattern.at is None else to_iso(pattern.at),
        "expires": pattern.expires_in,
        "priority": None if pattern.priority is None else pattern.priority.label,
        "queue": pattern.queue,
        "retries": pattern.retries,
        "timeout": pattern.timeout,
        "unique_key": None if unique_key is None else check_key(unique_key),
        "force": pattern.force or None,
        "args": None if args is None else msgspec.Raw(read_args(args).encode()),
    }
    return {key: value for key, value in said.items() if value is not None}


def read_filters(given: Filters) -> ExecutionFilter:
    """Refuse filters that make no sense. Names and lengths of time are for the server to read."""
    checked: dict[str, Any] = {**given, "worker": None}
    return read_filter(now=0.0, **checked)


def encode_filters(given: Filters, states: frozenset[State] | None = None) -> Body:
    """Which executions are asked for, as a filter of a body; of these states, if there are any."""
    where = read_filters(given)
    states = where.states if states is None else states
    worker = given.get("worker")
    said: Body = {
        "job_id": where.job,
        "status": None if states is None else sorted(states),
        "queue": where.queue,
        "worker_id": None if worker is None else str(worker),
        "workflow_id": None if where.parent is None else str(where.parent),
        "args": None if where.content is None else dict(where.content.args) or None,
        "unique_key": given.get("unique_key"),
        "error": given.get("error"),
        **{name: bound(given.get(name), name) for name in BOUNDS},
    }
    return {key: value for key, value in said.items() if value is not None}


def encode_parameters(given: Filters, states: frozenset[State] | None = None) -> Body:
    """The same as parameters of an address."""
    said = encode_filters(given, states)
    args: Body = said.pop("args", {})
    nodes = {"nodes": "true"} if given.get("nodes") else {}
    return {**said, **nodes, **{f"{ARGS_PREFIX}{name}": value for name, value in args.items()}}


def bound(value: Time | None, what: str) -> str | None:
    """Where a range begins or ends, as it is sent."""
    if value is None or read_ago(value) is not None:
        return None if value is None else str(value)
    return to_iso(read_bound(value, what))


def encode_time(value: datetime | str | Instant) -> str:
    """A moment, or where a range begins or ends."""
    return value if isinstance(value, str) else to_iso(read_time(value, "time"))
