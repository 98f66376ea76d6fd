"""Routes of `/executions`: list, show, logs, cancel, retry; and triggers of a job."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import Again, Nothing, Trigger
from daybell.api.caller import Caller, answer_json, answer_page, encode
from daybell.api.contract import LOCATION, REPLAYED
from daybell.api.fields import (
    ARGS_PARAMETER,
    AgoBound,
    Cursor,
    ExecutionPath,
    JobFilter,
    LevelWord,
    Paged,
    QueryText,
    Search,
    Searched,
    Shorter,
    Sort,
    StatusFilter,
    Version,
    WithNodes,
    WorkerFilter,
    WorkflowFilter,
    choose_job,
)
from daybell.api.idempotency import IdempotentRequest, perform_once
from daybell.api.requests import may_repeat_keys, read_json, validate_body
from daybell.api.router import Reach, Routes
from daybell.api.stream import MEDIA_TYPE, follow_log, read_place, wants_stream
from daybell.client import answers, wire
from daybell.client.executions import execution as find_execution
from daybell.client.executions import (
    is_job_name,
    read_execution,
    read_executions,
)
from daybell.client.logs import PARTS_PER_READ, START, LogFilters
from daybell.client.requests import Filters, read_id
from daybell.core.access import Action, NewAuditEntry, Role
from daybell.core.execution import Enqueued, LogPart, NewExecution, State
from daybell.core.ids import id_in
from daybell.core.limits import PAGE_BYTES_MAX, PAYLOAD_DEPTH_MAX
from daybell.core.views import Counts, Page
from daybell.core.when.declared import is_fired_by_event
from daybell.core.when.event import drop_mapped
from daybell.errors import UsageError


def answer_executions(page: Page[wire.Execution]) -> Response:
    """The answer with a page of executions."""
    return answer_page(page, cursor=lambda one: str(one.execution_id))


router = Routes("", tag="executions")


class ListExecutions(Search):
    """The executions to list."""

    status: StatusFilter | None = None
    workflow_id: WorkflowFilter | None = None
    nodes: WithNodes = False
    sort: Sort | None = None


class CountExecutions(msgspec.Struct, kw_only=True):
    """The executions to count."""

    job_id: JobFilter | None = None
    job: JobFilter | None = None
    worker_id: WorkerFilter | None = None
    queue: Shorter | None = None
    since: AgoBound | None = None
    until: AgoBound | None = None
    status: StatusFilter | None = None
    workflow_id: WorkflowFilter | None = None
    nodes: WithNodes = False
    q: QueryText | None = None
    dead_letters: Annotated[bool, Meta(description="Only dead letters.")] = False
    estimate: Annotated[
        bool, Meta(description="Estimate the number of all, if not all of them are counted.")
    ] = False


def _by_state(query: ListExecutions | CountExecutions) -> Filters:
    return {"status": query.status, "parent": query.workflow_id, "nodes": query.nodes}


class LogQuery(msgspec.Struct, kw_only=True):
    """The lines to show."""

    attempt: Version | None = None
    cursor: Cursor | None = None


async def list_executions(
    request: Request,
    caller: Caller,
    query: ListExecutions,
) -> Response:
    """List executions, newest first, or in the order of `sort`.

    `status` may be repeated, and `pending` means not started. `since` and `until` are about when
    they were created. `arg.NAME`, `unique_key`, `error`, `ended_since` and `ended_until` search:
    a page reads 5,000 executions at most, those that the other filters let through. It may be
    short or empty. Follow `next_cursor` until it is null.
    """
    filters: Filters = {**query.read_filters(request), **_by_state(query)}
    page = await caller.client.executions(
        limit=query.limit, cursor=query.cursor, sort=query.sort, **filters
    )
    return answer_executions(page)


_LIST: dict[str, Any] = {
    "answers": Page[wire.Execution],
    "says": "A page of executions.",
    "errors": (404,),
    "parameters": [ARGS_PARAMETER],
}
router.get(
    "/executions",
    id="list_executions",
    live="execution_id",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    **_LIST,
)(list_executions)
# The same under another name, which some clients expect.
router.get(
    "/job/executions",
    id="list_job_executions",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    **_LIST,
)(list_executions)


@router.get(
    "/counts",
    id="count_executions",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.StateCounts,
    says="How many.",
    errors=(404,),
)
async def count_executions(
    caller: Caller,
    query: CountExecutions,
) -> Response:
    """Count executions by state. States without any are left out.

    A count reads 10,000 executions of a kind: of the states in `at_least` there may be more. Then
    `estimate` gives about how many there are, by a sample.
    """
    filters: Filters = {
        **_by_state(query),
        "job": choose_job(query.job, query.job_id),
        "worker": query.worker_id,
        "queue": query.queue,
        "since": query.since,
        "until": query.until,
        "q": query.q,
    }
    if query.dead_letters:
        # Dead letters are the dead executions that a retry would take.
        count = await caller.client.count_retryable(**{**filters, "status": "dead"})
        at_least = () if count.is_exact else (State.DEAD,)
        counts = Counts({State.DEAD: int(count)}, at_least=at_least)
        return answer_json(answers.state_counts(counts))
    counts = await caller.client.count(**filters)
    if query.estimate and counts.at_least:
        about = await caller.client.estimate(**filters)
        counts = replace(counts, estimate=max(about, counts.total))
    return answer_json(counts)


@router.get(
    "/executions/{id}",
    id="get_execution",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.ExecutionDetail,
    says="The execution, with its attempts and its timeline.",
    errors=(404,),
)
async def get_execution(id: ExecutionPath, caller: Caller) -> Response:
    """Show an execution, with its ended attempts, its steps or nodes, and what happened to it."""
    return answer_json(await caller.client.execution(id))


@router.get(
    "/executions/{id}/logs",
    id="get_execution_logs",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.LogPage,
    says="Lines of its log; for `Accept: text/event-stream`, the log as it grows.",
    media_types=(MEDIA_TYPE,),
    errors=(404,),
)
async def get_logs(
    request: Request,
    id: ExecutionPath,
    caller: Caller,
    query: LogQuery,
) -> Response:
    """Show what an execution said: its log, and what it printed. Logs come in pages of parts."""
    known, attempt, cursor = read_id(id), query.attempt, query.cursor
    if wants_stream(request):
        return await follow_log(request, caller, known)
    await find_execution(caller.client, known)
    after = _read_log_cursor(cursor)
    if attempt is not None:
        after = max(after, (attempt - 1, 2**31 - 1))
    read = await caller.client.log(known, after=after)
    parts, lines, left = list[LogPart](), list[Raw](), PAGE_BYTES_MAX
    for part in read:
        some = [] if attempt not in (None, part.attempt) else _lines(part)
        left -= sum(len(line) + 1 for line in map(bytes, some))
        if lines and left < 0:
            break
        parts.append(part)
        lines += some
    is_full = len(parts) < len(read) or len(read) == PARTS_PER_READ
    is_more = is_full and (attempt is None or parts[-1].attempt <= attempt)
    end = f"{parts[-1].attempt}.{parts[-1].number}" if parts else cursor
    more = end if is_more else None
    return answer_json({"items": lines, "next_cursor": more, "end_cursor": end})


class LogSearch(Paged):
    """The lines to search for."""

    q: (
        Annotated[
            Searched,
            Meta(
                description="A part of the message, in any case of letters.", examples=["timeout"]
            ),
        ]
        | None
    ) = None
    level: (
        Annotated[
            LevelWord,
            Meta(
                description="This level or a higher one. Output counts as info, output to stderr as"
                " warning."
            ),
        ]
        | None
    ) = None
    job_id: JobFilter | None = None
    job: JobFilter | None = None
    queue: Shorter | None = None
    status: StatusFilter | None = None
    since: AgoBound | None = None
    until: AgoBound | None = None


@router.get(
    "/logs",
    id="search_logs",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.FoundLine],
    says="A page of lines.",
    errors=(404,),
)
async def search_logs(caller: Caller, query: LogSearch) -> Response:
    """Search the log lines of executions: those created last first, the lines of each in order.

    `since` and `until` are about the lines. A page reads the logs of 200 executions and 8 MiB at
    most. It may be short or empty. Follow `next_cursor` until it is null.
    """
    filters: LogFilters = {
        "level": query.level,
        "job": choose_job(query.job, query.job_id),
        "queue": query.queue,
        "status": query.status,
        "since": query.since,
        "until": query.until,
    }
    page = await caller.client.search_logs(
        query.q, limit=query.limit, cursor=query.cursor, **filters
    )
    return answer_json(page)


def _lines(part: LogPart) -> list[Raw]:
    """Return the lines of a part as JSON."""
    return [Raw(encode(line)) for line in answers.log_lines(part)]


def _read_log_cursor(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return START
    place = read_place(cursor)
    if place == START:
        raise UsageError("cursor is not one that came with a page of this log", field="cursor")
    return place


@router.post(
    "/executions/{id}/cancel",
    id="cancel_execution",
    role=Role.OPERATOR,
    action=Action.CANCEL,
    reach=Reach.NAMES,
    answers=wire.Cancelled,
    says="It has ended.",
    body=Nothing,
    is_body_optional=True,
    errors=(404,),
    also={202: "It runs; asked to stop."},
)
async def cancel_execution(id: ExecutionPath, caller: Caller) -> Response:
    """Cancel an execution: at once if it has not started, else by asking it to stop."""
    client = caller.audited("execution.cancel", id)
    outcome = str(await client.cancel(id))
    is_asked = outcome == "requested"
    state = State.CANCELLED if outcome == "cancelled" else State.RUNNING
    if outcome == "finished":
        state = (await find_execution(caller.client, id)).execution.state
    said = wire.Cancelled(execution_id=read_id(id), status=state, cancel_requested=is_asked)
    return answer_json(said, status=202 if is_asked else 200)


@router.post(
    "/executions/{id}/retry",
    id="retry_execution",
    role=Role.OPERATOR,
    action=Action.RETRY,
    reach=Reach.NAMES,
    answers=wire.Enqueued,
    status=202,
    says="It runs again, itself or as a new one.",
    is_body_optional=True,
    examples={
        "although it succeeded": {"force": True},
        "a workflow, from one of its nodes": {"from": "load"},
    },
    errors=(404, 409),
    headers={**LOCATION, **REPLAYED},
)
async def retry_execution(
    request: Request, body: Again, raw: bytes, id: ExecutionPath, caller: Caller, key: str | None
) -> Response:
    """Run an execution again: a dead one itself, a cancelled one as a new execution.

    `force` does the latter for one that succeeded, or was discarded. Of a workflow's run, what has
    succeeded is kept; `from` names a node to begin with, as a new execution.
    """
    known = read_id(id)

    async def perform(this: IdempotentRequest) -> Response:
        made = await _find_retried(caller, known, this) if this.is_repeated else None
        return await _answer_retry(caller, known, made or await _retry(caller, known, this, body))

    return await perform_once(request, caller, key, raw, perform)


async def _retry(caller: Caller, id: UUID, this: IdempotentRequest, wanted: Again) -> UUID:
    def told(made: UUID) -> NewAuditEntry:
        after = {"execution_id": made}
        return caller.entry("execution.retry", id, after=after, id=this.made("entry"))

    made = await caller.client.retry(
        id,
        force=wanted.force,
        from_=wanted.from_,
        request=this.id,
        repeat=this.is_repeated,
        told=told,
    )
    return made.id


async def _find_retried(caller: Caller, id: UUID, this: IdempotentRequest) -> UUID | None:
    """Return the execution that an earlier attempt made: a dead one is revived only once."""
    entry = await caller.recorded("execution.retry", id, this.made("entry"))
    return None if entry is None else UUID(entry.after["execution_id"])


async def _answer_retry(caller: Caller, old: UUID, made: UUID) -> Response:
    state = (await find_execution(caller.client, made)).execution.state
    return answer_json(
        wire.Enqueued(execution_id=made, status=state, created=made != old),
        status=202,
        headers={"Location": f"/api/v1/executions/{made}"},
    )


@router.get(
    "/executions/{id}/why",
    id="explain_execution",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.Why,
    says="Why.",
    errors=(404,),
)
async def explain_execution(id: ExecutionPath, caller: Caller) -> Response:
    """Say why an execution has not run, or has not ended."""
    return answer_json(await caller.client.why(id))


def read_selection(said: dict[str, Any]) -> Filters:
    """Return a filter of a body as the client takes it."""
    filters: Filters = {
        "job": choose_job(said.get("job"), said.get("job_id")),
        "status": said.get("status"),
        "queue": said.get("queue"),
        "worker": said.get("worker_id"),
        "parent": said.get("workflow_id"),
        "since": said.get("since"),
        "until": said.get("until"),
        "args": said.get("args"),
        "unique_key": said.get("unique_key"),
        "error": said.get("error"),
        "ended_since": said.get("ended_since"),
        "ended_until": said.get("ended_until"),
        "q": said.get("q"),
    }
    return filters


# One execution of a job, requested by the job's name.

ID_CHARS_MIN: Final = 32


class PlainTrigger(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A body that says nothing but what the job is called with."""

    args: dict[str, Any]


_DECODER: Final = msgspec.json.Decoder(PlainTrigger)


def called_args(job: wire.JobVersion) -> Any:
    """Return the arguments of a trigger that gives none."""
    is_filled = any(map(is_fired_by_event, job.schedules))
    return drop_mapped(job.args or {}) if is_filled else job.args


async def trigger_execution(
    request: Request, caller: Caller, name: str, raw: bytes, key: str | None
) -> Response:
    """Run a job as a body says."""
    options = read_options(raw)

    async def perform(this: IdempotentRequest) -> Response:
        return await _enqueue_one(caller, name, options, this)

    return await perform_once(request, caller, key, raw, perform)


def read_options(raw: bytes) -> dict[str, Any]:
    """What a body says. All that is wrong with it is told at once."""
    if not raw:
        return {}
    plain = _read_plain(raw)
    if plain is not None:
        return {"args": plain}
    wanted = validate_body(read_json(raw), Trigger)
    return msgspec.to_builtins(wanted)


def _read_plain(raw: bytes) -> dict[str, Any] | None:
    """Return the arguments in a body that has nothing else, and nothing that could be refused;
    None: the body needs a full check.
    """
    if raw.count(b"{") + raw.count(b"[") > PAYLOAD_DEPTH_MAX:
        return None
    try:
        plain = _DECODER.decode(raw)
    except (ValueError, RecursionError):
        return None
    return None if may_repeat_keys(raw, plain) else plain.args


async def _enqueue_one(
    caller: Caller, name: str, options: dict[str, Any], this: IdempotentRequest
) -> Response:
    is_given = options.get("args") is not None
    new = await _read_execution(caller, name, options, this)
    if is_given:
        caller.check_args([new.args])
    made = await _submit(caller, new, this)
    is_now = new.delay is None and new.at is None
    is_sure = made.created and is_now and not made.at_gate and not this.is_repeated
    state = State.QUEUED if is_sure else await _state_of(caller, made)
    return answer_json(
        wire.Enqueued(execution_id=made.id, status=state, created=made.created),
        status=202,
        headers={"Location": f"/api/v1/executions/{made.id}"},
    )


async def _submit(caller: Caller, new: NewExecution, this: IdempotentRequest) -> Enqueued:
    """Enqueue an execution, and store the audit entry in the same transaction."""
    after = {"execution_id": new.id}
    entry = caller.entry("job.trigger", new.job, after=after, id=this.made("entry"))
    if new.unique_key is None:
        return await caller.client.submit(new, repeat=this.is_repeated, entry=entry)
    # Not in a group with others: if its key is held, no audit entry is stored.
    client = caller.client.audited(entry)
    (made,) = await client.submit_many([new], repeat=this.is_repeated)
    return made


async def _read_execution(
    caller: Caller, name: str, options: dict[str, Any], this: IdempotentRequest
) -> NewExecution:
    """Return the execution as a store takes it. The job is read only if the request needs it:
    for its name if this is its id, or for the arguments that its schedules use.
    """
    args = options.pop("args", None)
    id = this.made("execution")
    is_named = len(name) < ID_CHARS_MIN or id_in(name) is None
    if args is not None and is_named and not options:
        plain = read_executions([name], [args], [id])
        if plain is not None:
            return plain[0]
    if args is None or not is_named or not is_job_name(name):
        job = await caller.client.job_named(name)
        name, args = job.name, called_args(job) if args is None else args
    return read_execution(name, args, id=id, **options)


async def _state_of(caller: Caller, made: Enqueued) -> State:
    return (await find_execution(caller.client, made.id)).execution.state
