"""`/executions`: what runs, ran and will run."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import Raw

from daybell.api import shapes
from daybell.api.answers import answer, answer_page, encode
from daybell.api.body import checked, read_body, read_bytes, read_json
from daybell.api.caller import Caller, Operator, Viewer, api_of
from daybell.api.contract import LOCATION, REPLAYED, IdempotencyKey, operation
from daybell.api.idempotency import Try, once
from daybell.api.lists import (
    ARGS_PARAMETER,
    BoundFilter,
    Cursor,
    JobFilter,
    Limit,
    Selected,
    StatusFilter,
    TextFilter,
    WorkerFilter,
    either,
)
from daybell.api.naming import told
from daybell.api.rules import Id
from daybell.api.schema import Again, Nothing
from daybell.api.stream import follow_log, read_place, wants_stream
from daybell.client import wire
from daybell.client.logs import PARTS_PER_READ, START
from daybell.client.requests import Filters, read_id
from daybell.client.why import why
from daybell.core import payload
from daybell.core.audit import NewEntry
from daybell.core.execution import State
from daybell.core.instant import to_iso
from daybell.core.limits import PAGE_BYTES_MAX, PAGE_ITEMS_DEFAULT
from daybell.core.log import LogPart
from daybell.core.view import Counts
from daybell.errors import UsageError

router = APIRouter(tags=["executions"])

WorkflowFilter = Annotated[
    Id | None, Query(description="What belongs to this execution: the nodes of a workflow's run.")
]
WithNodes = Annotated[
    bool, Query(description="Also nodes of workflows' runs, which are left out otherwise.")
]
ExecutionPath = Annotated[
    str,
    Path(
        alias="id",
        description="An execution's id.",
        max_length=100,
        json_schema_extra={"format": "uuid"},
    ),
]


async def list_executions(
    request: Request,
    caller: Viewer,
    selected: Selected,
    status: StatusFilter = None,
    workflow_id: WorkflowFilter = None,
    nodes: WithNodes = False,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """List executions, newest first.

    `status` may be repeated, and `pending` means not started. `since` and `until` are about when
    they were created. `arg.NAME`, `unique_key`, `error`, `ended_since` and `ended_until` search:
    a page reads 5,000 executions at most, those that the other filters let through. It may be
    short or empty. Follow `next_cursor` until it is null.
    """
    filters: Filters = {**selected, "status": status, "parent": workflow_id, "nodes": nodes}
    page = await caller.client.executions(limit=limit, cursor=cursor, **filters)
    items = await told(api_of(request).job_ids, caller, page.items)
    return answer_page(page, items, cursor=lambda one: str(one.id))


_LIST: dict[str, Any] = {
    "answers": shapes.ExecutionPage,
    "says": "A page of executions.",
    "errors": (404,),
    "parameters": [ARGS_PARAMETER],
}
router.get("/executions", **operation("list_executions", **_LIST))(list_executions)
# The same under another name, which some expect.
router.get("/job/executions", **operation("list_job_executions", **_LIST))(list_executions)


@router.get(
    "/counts",
    **operation("count_executions", answers=shapes.StateCounts, says="How many.", errors=(404,)),
)
async def count_executions(
    caller: Viewer,
    job_id: JobFilter = None,
    job: JobFilter = None,
    status: StatusFilter = None,
    worker_id: WorkerFilter = None,
    queue: TextFilter = None,
    since: BoundFilter = None,
    until: BoundFilter = None,
    workflow_id: WorkflowFilter = None,
    nodes: WithNodes = False,
    dead_letters: Annotated[bool, Query(description="Only dead letters.")] = False,
) -> Response:
    """Count executions by state. States without any are left out.

    A count reads 10,000 executions of a kind: of the states in `at_least` there may be more.
    """
    filters: Filters = {
        "job": either(job, job_id),
        "status": status,
        "worker": worker_id,
        "queue": queue,
        "since": since,
        "until": until,
        "parent": workflow_id,
        "nodes": nodes,
    }
    if dead_letters:
        # Of the dead, those that a retry would take are the letters.
        count = await caller.client.count_retryable(**{**filters, "status": "dead"})
        at_least = () if count.is_exact else (State.DEAD,)
        counts = Counts({State.DEAD: int(count)}, at_least=at_least)
    else:
        counts = await caller.client.count(**filters)
    return answer(wire.counts(counts))


@router.get(
    "/executions/{id}",
    **operation(
        "get_execution",
        answers=shapes.ExecutionDetail,
        says="The execution, with its attempts and its timeline.",
        errors=(404,),
    ),
)
async def get_execution(request: Request, id: ExecutionPath, caller: Viewer) -> Response:
    """Show an execution, with its ended attempts, its steps or nodes, and what happened to it."""
    found = await caller.client.story(id)
    (said,) = await told(api_of(request).job_ids, caller, [found.detail.execution])
    said |= {**wire.detail(found.detail), "timeline": found.timeline, "steps": found.told_steps}
    run = found.run
    if run is not None:
        said["progress"] = run.percent
    return answer({**said, "workflow": None if run is None else wire.run(run)})


_LOGS = operation(
    "get_execution_logs",
    answers=shapes.LogPage,
    says="Lines of its log; or, to who accepts text/event-stream, the log as it grows.",
    errors=(404,),
)
_LOGS["responses"][200]["content"]["text/event-stream"] = {"schema": {"type": "string"}}


@router.get("/executions/{id}/logs", **_LOGS)
async def get_logs(
    request: Request,
    id: ExecutionPath,
    caller: Viewer,
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    cursor: Cursor = None,
) -> Response:
    """Show what an execution said: its log, and what it printed. Logs come in pages of parts."""
    known = read_id(id)
    if wants_stream(request):
        return await follow_log(request, caller, known)
    await caller.client.execution(known)
    after = _place(cursor)
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
    return answer({"items": lines, "next_cursor": more, "end_cursor": end})


def _lines(part: LogPart) -> list[Raw]:
    """The lines of a part as JSON."""
    return [
        Raw(
            encode(
                {
                    "at": to_iso(line.at),
                    "attempt": part.attempt,
                    "level": line.level,
                    "source": line.source,
                    "message": line.message,
                }
            )
        )
        for line in part.lines
    ]


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return START
    place = read_place(cursor)
    if place == START:
        raise UsageError("cursor is not one that came with a page of this log", field="cursor")
    return place


_CANCEL = operation(
    "cancel_execution",
    answers=shapes.Cancelled,
    says="It has ended.",
    body=Nothing,
    is_optional=True,
    errors=(404,),
    also={202: "It runs; asked to stop."},
)


@router.post("/executions/{id}/cancel", **_CANCEL)
async def cancel_execution(request: Request, id: ExecutionPath, caller: Operator) -> Response:
    """Cancel an execution: at once if it has not started, else by asking it to stop."""
    await read_body(request, Nothing, optional=True)
    with caller.auditing("execution.cancel", id):
        outcome = str(await caller.client.cancel(id))
    is_asked = outcome == "requested"
    state = State.CANCELLED if outcome == "cancelled" else State.RUNNING
    if outcome == "finished":
        state = (await caller.client.execution(id)).execution.state
    said = {"execution_id": str(read_id(id)), "status": str(state), "cancel_requested": is_asked}
    return answer(said, status=202 if is_asked else 200)


@router.post(
    "/executions/{id}/retry",
    **operation(
        "retry_execution",
        answers=shapes.Retried,
        status=202,
        says="It runs again, itself or as a new one.",
        body=Again,
        is_optional=True,
        examples={
            "although it succeeded": {"force": True},
            "a workflow, from one of its nodes": {"from": "load"},
        },
        errors=(404, 409),
        headers={**LOCATION, **REPLAYED},
    ),
)
async def retry_execution(
    request: Request, id: ExecutionPath, caller: Operator, key: IdempotencyKey = None
) -> Response:
    """Run an execution again: a dead one itself, a cancelled one as a new execution.

    `force` does the latter for one that succeeded, or was discarded. Of a workflow's run, what has
    succeeded is kept; `from` names a node to begin with, as a new execution.
    """
    raw = await read_bytes(request)
    wanted = checked(read_json(raw), Again) if raw else Again.model_validate({})
    known = read_id(id)

    async def perform(this: Try) -> Response:
        made = await _retried(caller, known, this) if this.is_repeated else None
        return await _runs(caller, known, made or await _retry(caller, known, this, wanted))

    return await once(request, caller, key, raw, perform)


async def _retry(caller: Caller, id: UUID, this: Try, wanted: Again) -> UUID:
    def told(made: UUID) -> NewEntry:
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


async def _retried(caller: Caller, id: UUID, this: Try) -> UUID | None:
    """What runs because of an earlier try: a dead one that was revived cannot be once more."""
    entry = await caller.recorded("execution.retry", id, this.made("entry"))
    return None if entry is None else UUID(payload.decode(entry.after or "{}")["execution_id"])


async def _runs(caller: Caller, old: UUID, made: UUID) -> Response:
    state = (await caller.client.execution(made)).execution.state
    return answer(
        {"execution_id": str(made), "status": str(state), "created": made != old},
        status=202,
        headers={"Location": f"/api/v1/executions/{made}"},
    )


@router.get(
    "/executions/{id}/why",
    **operation("explain_execution", answers=shapes.Why, says="Why.", errors=(404,)),
)
async def explain_execution(id: ExecutionPath, caller: Viewer) -> Response:
    """Say why an execution has not run, or has not ended."""
    return answer(wire.reason(await why(caller.client, id)))


def read_selection(said: dict[str, Any]) -> Filters:
    """Return a filter of a body as the client takes it."""
    filters: Filters = {
        "job": either(said.get("job"), said.get("job_id")),
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
    }
    return filters
