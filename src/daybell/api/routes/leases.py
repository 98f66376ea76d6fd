"""Routes of `/leases`: remote workers, which have no access to the database."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta, Raw
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from daybell.api.caller import Caller, Invalid, answer_json
from daybell.api.fields import UUID_FORMAT
from daybell.api.guard import IDLE
from daybell.api.requests import read_bytes, read_header
from daybell.api.router import Routes
from daybell.client import answers, wire
from daybell.client.leases.polls import GroupKey, Polls, WaitEnd
from daybell.client.leases.protocol import (
    AttemptEnd,
    ClaimBody,
    Departure,
    DetailsRequest,
    Fenced,
    LeaseRenewal,
    LogReport,
    ProgressBody,
    ResultsReport,
    StepsReport,
    WorkerRegistration,
    claim_answer,
    lease_answer,
    log_part_of,
    move_of,
    new_step_of,
    report_of,
    step_answer,
    verdict_answer,
)
from daybell.core.access import Action, Role, matches
from daybell.core.event import check_step
from daybell.core.execution import Claimed, Execution, ExecutionDetail, State
from daybell.core.ids import id_in, is_owned, mint, mint_owned
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.core.limits import BULK_BYTES_MAX, REQUEST_BYTES_MAX, check_name, text_fault
from daybell.core.references import names_in, names_in_args
from daybell.core.worker import LEASE_SECONDS, NewWorker
from daybell.core.workflow.graph import Graph, decode_args, plain_by_name
from daybell.core.workflow.run import node_name
from daybell.errors import (
    AccessDenied,
    ExecutionNotFound,
    LeaseLost,
    PayloadError,
    SecretNotFound,
    Unavailable,
    UsageError,
    shown,
)

router = Routes("/leases", tag="leases")
# An operation of a worker. Its handler reads the body.
_operation = partial(router.post, role=Role.WORKER, action=None, is_body_read=False, errors=(409,))

B = TypeVar("B", bound=msgspec.Struct)
T = TypeVar("T")

DEFINITIONS_MAX: Final = 1_000  # kept in memory
PLAN_CHARS: Final = 50_000  # a larger workflow is planned in a thread

LeasePath = Annotated[
    str, Meta(description="The `worker_id` of the registration.", max_length=100), UUID_FORMAT
]


@_operation(
    "",
    id="register_worker",
    answers=wire.WorkerLease,
    status=201,
    says="It is live until `lease_until`.",
    body=WorkerRegistration,
    examples={"a worker": {"name": "edge-1", "queues": ["mail"], "concurrency": 10}},
)
async def register_worker(request: Request, caller: Caller) -> Response:
    """Register a worker, which has a lease from then on.

    A worker whose answer was lost registers again. The id that it did not learn of ends with its
    lease.
    """
    said = await _read(request, WorkerRegistration)
    queues = _own_queues(caller, said.queues)
    token = _token(request)
    worker = said.worker_id or mint_owned(token)
    if said.worker_id is not None and not is_owned(worker, token):
        raise UsageError(
            "this worker_id was not made with this key; leave it out, and the server makes one",
            field="worker_id",
        )
    if said.replaces is not None and not is_owned(said.replaces, token):
        raise UsageError("this is no worker of this key", field="replaces")
    renewal = await caller.client.store.queue.register(
        caller.tenant,
        NewWorker(
            id=worker,
            name=check_name(said.name, what="worker"),
            host=_plain(said.host, "host"),
            pid=said.pid,
            version=_plain(said.version, "version"),
            queues=tuple(queues),
            kinds=tuple(said.kinds),
            labels=said.labels,
            capacity=said.concurrency,
            tasks=said.tasks,
        ),
        lease=said.lease,
        replaces=said.replaces,
    )
    return answer_json(lease_answer(worker, renewal), status=HTTPStatus.CREATED)


@_operation(
    "/{worker}/claim",
    id="claim_executions",
    answers=wire.LeaseClaim,
    says="What it claimed, perhaps nothing.",
    body=ClaimBody,
    examples={
        "wait for work": {
            "lease_id": "019a8c20-1f40-7c55-9d02-3c7e8a1b2f66",
            "queues": ["mail"],
            "limit": 10,
            "wait": 30,
        }
    },
)
async def claim_executions(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Claim executions, and wait for some up to `wait` seconds.

    After a lost answer, the same `lease_id` brings the same executions again, and no others.
    """
    said = await _read(request, ClaimBody)
    known = _own(request, worker)
    queues = _own_queues(caller, ["default"] if said.queues is None else said.queues)
    polls, store, tenant = _polls(request), caller.client.store, caller.tenant
    key = GroupKey(tenant, tuple(sorted(set(queues))), tuple(sorted(set(said.kinds))))
    until = asyncio.get_running_loop().time() + said.wait
    may_recall = said.is_first
    answer = wire.LeaseClaim(lease_id=said.lease_id, executions=[])
    while True:
        is_limited = False
        if said.limit:
            group = polls.group(key)
            found = group.last_claim(said.lease_id) if may_recall else None
            if found is None:
                found = await group.claim(
                    said.limit,
                    lambda: store.queue.claim(
                        tenant,
                        worker=known,
                        lease=said.lease_id,
                        queues=queues,
                        limit=said.limit,
                        kinds=said.kinds,
                    ),
                )
            answer, is_limited, may_recall = claim_answer(found), found.is_limited, True
            if found.executions:
                polls.held.add(tenant, known, found)
                return answer_json(answer)
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or is_limited:
            return answer_json(answer)
        signal = await _wait(request, polls, key, caller, known, left)
        if signal is WaitEnd.DUE and said.limit:
            continue
        return answer_json(
            msgspec.structs.replace(
                answer, is_due=signal is WaitEnd.DUE, has_news=signal is WaitEnd.NEWS
            )
        )


async def _wait(
    request: Request, polls: Polls, key: GroupKey, caller: Caller, worker: UUID, seconds: float
) -> WaitEnd:
    """Wait without the share of a request in progress. Raises ClientDisconnect when the client is
    gone: a claim for it would keep executions from others.
    """
    loop = asyncio.get_running_loop()
    async with _idle(request):
        gone = loop.create_task(_until_gone(request))
        wait = loop.create_task(polls.wait(caller.client.store, key, worker, seconds))
        try:
            await asyncio.wait((gone, wait), return_when=asyncio.FIRST_COMPLETED)
            if wait.done():
                return wait.result()
        finally:
            gone.cancel()
            wait.cancel()
            await asyncio.gather(gone, wait, return_exceptions=True)
    raise ClientDisconnect


def _idle(request: Request) -> AbstractAsyncContextManager[None]:
    """Return the context in which a request waits without the share of one in progress."""
    found: Any = request.scope.get(IDLE, nullcontext)
    return found()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@_operation(
    "/{worker}/renew",
    id="renew_lease",
    answers=wire.WorkerLease,
    says="It is live until `lease_until`.",
    body=LeaseRenewal,
)
async def renew_lease(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Renew the lease of a worker, and hear which attempts to stop.

    Every third of the lease. An error `lease-lost` means that others may have its executions.
    """
    said = await _read(request, LeaseRenewal)
    known, polls, store = _own(request, worker), _polls(request), caller.client.store
    polls.held.keep(caller.tenant, known, said.lease_ids)
    polls.forget_news(caller.tenant, known)
    if said.lease_ids:
        renewal = await store.queue.renew(
            caller.tenant, worker=known, lease=said.lease, leases=said.lease_ids
        )
    else:
        async with _idle(request):  # it waits for the renewals of others
            renewal = await polls.renewals.renew(store, caller.tenant, known, said.lease)
    return answer_json(lease_answer(known, renewal))


@_operation(
    "/{worker}/reports",
    id="report_results",
    answers=wire.ReportVerdicts,
    says="All results are on record, except those listed.",
    body=ResultsReport,
    bytes_max=BULK_BYTES_MAX,
    examples={
        "a success and a failure": {
            "results": [
                {
                    "execution_id": "019a8c20-1f40-7c55-9d02-3c7e8a1b2f66",
                    "attempt": 1,
                    "lease_id": "019a8c1e-6c00-7a3b-8f21-5b1f0c9d4e11",
                    "outcome": "succeeded",
                    "result": {"rows": 42},
                },
                {
                    "execution_id": "019a8c20-1f40-7c55-9d02-3c7e8a1b2f67",
                    "attempt": 2,
                    "lease_id": "019a8c1e-6c00-7a3b-8f21-5b1f0c9d4e11",
                    "outcome": "failed",
                    "error": {"type": "Timeout", "message": "no answer within 5 s"},
                },
            ]
        }
    },
)
async def report_results(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Report the ends of attempts.

    Each is written under its fence, independently of the others. After a lost answer, the same
    report is answered as the first time.
    """
    said = await _read(request, ResultsReport, bytes_max=BULK_BYTES_MAX)
    known, polls, store = _own(request, worker), _polls(request), caller.client.store
    verdicts: list[Verdict] = []
    moves: list[Transition] = []
    for end in said.results:
        claimed = await _find_claimed(request, caller, known, end)
        try:
            moves.append(await _move(request, caller, end, claimed))
        except UsageError as error:
            verdicts.append(Verdict(end.execution_id, end.attempt, Ruling.REFUSED, str(error)))
    if moves:
        verdicts += await store.queue.apply(caller.tenant, worker=known, transitions=moves)
    refused = {(one.id, one.attempt) for one in verdicts if one.ruling is Ruling.REFUSED}
    for move in moves:
        if (fence := (move.id, move.attempt)) not in refused:
            polls.held.leave(caller.tenant, known, move.lease, fence)
    return answer_json(wire.ReportVerdicts(items=list(map(verdict_answer, verdicts))))


async def _find_claimed(
    request: Request, caller: Caller, worker: UUID, end: Fenced | AttemptEnd
) -> Claimed | None:
    """Return what a worker claimed; None: it does not hold that any more. Raises Unavailable if the
    worker is dead, and nothing has been taken from it yet.
    """
    store = caller.client.store
    try:
        held = await _polls(request).held.find(store, caller.tenant, worker, end.lease_id)
    except LeaseLost:
        with suppress(ExecutionNotFound):
            detail = await _held(caller, worker, end.execution_id)
            if detail.execution.attempt == end.attempt:
                raise Unavailable(f"worker {worker} is dead, and its work goes to others") from None
        return None
    return held.get((end.execution_id, end.attempt))


async def _move(
    request: Request, caller: Caller, end: AttemptEnd, claimed: Claimed | None
) -> Transition:
    definition = None
    if claimed is not None and end.error is not None and end.status is None:
        job = await _definition(request, caller, claimed.job, claimed.version)
        definition = _of_node(job, claimed.node)
    jitter = mint().int % 65536 / 65536
    return move_of(end, claimed, definition, jitter=jitter)


@_operation(
    "/{worker}/progress",
    id="report_progress",
    answers=wire.StaleReports,
    says="It is on record, except of those listed.",
    body=ProgressBody,
    bytes_max=BULK_BYTES_MAX,
)
async def report_progress(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Report the start, the progress and the checkpoints of running attempts."""
    said = await _read(request, ProgressBody, bytes_max=BULK_BYTES_MAX)
    known, queue = _own(request, worker), caller.client.store.queue
    if said.sole_suspect is not msgspec.UNSET:
        is_live = await queue.record_sole(caller.tenant, worker=known, execution=said.sole_suspect)
        if not is_live:
            raise LeaseLost(f"worker {known} is not registered or was declared dead")
    stale: list[tuple[UUID, int]] = []
    if said.reports:
        reports = [_at(number, report_of, one) for number, one in enumerate(said.reports)]
        stale = await queue.report(caller.tenant, worker=known, reports=reports)
    return answer_json(
        wire.StaleReports(stale=[wire.HeldAttempt(id, attempt) for id, attempt in stale])
    )


@_operation(
    "/{worker}/logs",
    id="write_logs",
    answers=wire.LogReceipt,
    says="They are on record, as far as the worker holds the executions.",
    body=LogReport,
    bytes_max=BULK_BYTES_MAX,
)
async def write_logs(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Store parts of the logs of running attempts. The last part comes with the result."""
    said = await _read(request, LogReport, bytes_max=BULK_BYTES_MAX)
    known = _own(request, worker)
    parts = [log_part_of(one) for one in said.parts]
    await caller.client.store.queue.write_log(caller.tenant, worker=known, parts=parts)
    return answer_json(wire.LogReceipt(parts=len(parts)))


@_operation(
    "/{worker}/steps",
    id="record_steps",
    answers=wire.RecordedSteps,
    says="The steps on record.",
    body=StepsReport,
    bytes_max=BULK_BYTES_MAX,
    errors=(404, 409),
)
async def record_steps(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Record steps of durable functions; or read those of an execution, with `recall`."""
    said = await _read(request, StepsReport, bytes_max=BULK_BYTES_MAX)
    known, runs = _own(request, worker), caller.client.store.runs
    if said.recall is not None:
        await _held(caller, known, said.recall)
        found: Sequence[Any] = await runs.steps(caller.tenant, said.recall)
    else:
        new = [_at(number, new_step_of, one) for number, one in enumerate(said.steps)]
        checked = [check_step(one) for one in new]
        found = await runs.record(caller.tenant, worker=known, steps=checked) if checked else []
    return answer_json(wire.RecordedSteps(items=list(map(step_answer, found))))


@_operation(
    "/{worker}/details",
    id="get_held_details",
    answers=wire.HeldDetails,
    says="The job, the attempts before, and the secrets.",
    body=DetailsRequest,
    errors=(404, 409),
)
async def get_held_details(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Read the job of an execution that the worker holds, and secrets that the two refer to.

    Secrets take a key with the action `secrets`, and TLS or a connection within one machine.
    """
    said = await _read(request, DetailsRequest)
    held = await _held(caller, _own(request, worker), said.execution_id)
    execution = held.execution
    definition = await _definition(request, caller, execution.job, execution.version)
    secrets: dict[str, str] = {}
    if said.secrets:
        _check_secrets(request, caller, said.secrets, execution, definition)
        secrets = await _open_secrets(caller, said.secrets)
    return answer_json(
        wire.HeldDetails(
            definition=Raw(definition.to_json().encode()),
            attempts=[answers.attempt(one) for one in held.attempts],
            secrets=secrets,
        )
    )


def _check_secrets(
    request: Request,
    caller: Caller,
    names: Sequence[str],
    execution: Execution,
    definition: JobDefinition,
) -> None:
    """Refuse secrets to a caller that may not have them. Raises AccessDenied."""
    is_allowed = caller.key is None or (
        caller.scope is not None and Action.SECRETS in caller.scope.actions
    )
    if not is_allowed:
        raise AccessDenied(
            "secrets take a worker's key with the action secrets: daybell keys create NAME --role"
            " worker --action secrets"
        )
    if not _is_private(request):
        raise AccessDenied(
            "secrets are sent over TLS, or within one machine; use the https:// address of this"
            " server"
        )
    settings: Any = msgspec.json.decode(_of_node(definition, execution.node).settings or "{}")
    known = names_in_args(decode_args(execution.args)) | names_in(settings)
    for name in names:
        if name not in known:
            raise AccessDenied(
                f"neither the arguments of execution {execution.id} nor its job refer to a secret"
                f" {shown(name)}"
            )


async def _open_secrets(caller: Caller, names: Sequence[str]) -> dict[str, str]:
    sealed = await caller.client.store.admin.fetch_secrets(caller.tenant, names)
    for name in names:
        if name not in sealed:
            raise SecretNotFound(f"there is no secret named {shown(name)}")
    sealer = caller.client.sealer()
    return {name: sealer.open(caller.tenant, one) for name, one in sealed.items()}


def _is_private(request: Request) -> bool:
    """Return True if nobody on the network can read the answer."""
    if request.scope["scheme"] == "https":
        return True
    try:
        return ipaddress.ip_address((request.scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False


@_operation(
    "/{worker}/expand",
    id="begin_run",
    answers=wire.RunBegun,
    says="The run goes on without a worker.",
    body=Fenced,
    errors=(404, 409),
)
async def begin_run(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Begin the run of a workflow that the worker has claimed. The server makes its plan."""
    said = await _read(request, Fenced)
    known, polls, store = _own(request, worker), _polls(request), caller.client.store
    claimed = await _find_claimed(request, caller, known, said)
    is_begun = False
    if claimed is not None:
        definition = await _definition(request, caller, claimed.job, claimed.version)
        if definition.kind != "workflow":
            raise UsageError(f"job {shown(claimed.job)} is no workflow", field="execution_id")
        given = decode_args(claimed.args)
        args = given if claimed.node is None else plain_by_name(given)
        if len(definition.settings) > PLAN_CHARS:
            plan = await asyncio.to_thread(_plan, definition, args)
        else:
            plan = _plan(definition, args)
        is_begun = await store.runs.expand(caller.tenant, worker=known, claimed=claimed, plan=plan)
        polls.held.leave(caller.tenant, known, said.lease_id, (said.execution_id, said.attempt))
    return answer_json(wire.RunBegun(is_begun=is_begun))


def _plan(definition: JobDefinition, args: dict[str, Any]) -> Any:
    return Graph.from_settings(definition.settings).plan(args)


@_operation(
    "/{worker}/drain",
    id="leave_lease",
    answers=wire.Released,
    says="Others get what it held.",
    body=Departure,
    is_body_optional=True,
)
async def leave_lease(request: Request, worker: LeasePath, caller: Caller) -> Response:
    """Give back what the worker holds, uncharged, and end it."""
    said = await _read(request, Departure, is_optional=True)
    known, polls, queue = _own(request, worker), _polls(request), caller.client.store.queue
    if said.lease_ids is None:
        # A renewal that names no claim gives all of them back.
        renewal = await queue.renew(caller.tenant, worker=known, lease=LEASE_SECONDS, leases=())
        released = renewal.returned
        polls.held.keep(caller.tenant, known, ())
    else:
        released = 0
        if said.lease_ids:
            released = await queue.release(caller.tenant, worker=known, leases=said.lease_ids)
        for lease in said.lease_ids:
            polls.held.drop(caller.tenant, known, lease)
    if said.is_over:
        await queue.retire(caller.tenant, known)
    return answer_json(wire.Released(released=released))


# What all of these operations check.


async def _read(
    request: Request,
    model: type[B],
    *,
    bytes_max: int = REQUEST_BYTES_MAX,
    is_optional: bool = False,
) -> B:
    """Return the body of a worker's request. Raises Invalid and PayloadError."""
    raw = await read_bytes(request, bytes_max=bytes_max)
    if not raw and is_optional:
        raw = b"{}"
    if not raw:
        raise PayloadError("the body is empty; send a JSON object", field="body")
    try:
        return _DECODERS[model].decode(raw)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        field = path.rstrip("`").removeprefix("$").lstrip(".")
        raise Invalid([(field, message)]) from None
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the body is not readable JSON: {error}", field="body") from None


_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    model: msgspec.json.Decoder(model)
    for model in (
        WorkerRegistration,
        ClaimBody,
        LeaseRenewal,
        ResultsReport,
        ProgressBody,
        LogReport,
        StepsReport,
        DetailsRequest,
        Fenced,
        Departure,
    )
}


def _at(number: int, make: Callable[[Any], T], one: Any) -> T:
    """Convert an item of a body; an error names its position."""
    try:
        return make(one)
    except UsageError as error:
        raise UsageError(f"item {number}: {error}", field=error.field) from None


def _plain(text: str, field: str) -> str:
    if fault := text_fault(text):
        raise UsageError(f"{field} {fault}", field=field)
    return text


def _token(request: Request) -> str:
    """Return the key of a request; empty without one, as under `daybell dev`."""
    sent = read_header(request, b"authorization") or ""
    return sent.strip().partition(" ")[2].strip()


def _own(request: Request, worker: str) -> UUID:
    """Return the id of a worker that was registered with the caller's key. Raises LeaseLost: the
    workers of another key look like those that are dead.
    """
    known = id_in(worker)
    if known is None or not is_owned(known, _token(request)):
        raise LeaseLost(f"no worker {shown(worker)} was registered with this key; register one")
    return known


def _own_queues(caller: Caller, queues: Sequence[str]) -> list[str]:
    """Return queues that the caller's key may serve. Raises AccessDenied."""
    for name in queues:
        check_name(name, what="queue")
        if caller.scope is not None and not matches(name, caller.scope.queues):
            raise AccessDenied(
                f"this key is limited to {caller.scope.describe()}; queue {shown(name)} is not in"
                " it"
            )
    return list(dict.fromkeys(queues))


async def _held(caller: Caller, worker: UUID, id: UUID) -> ExecutionDetail:
    """Return an execution that a worker holds now. Raises ExecutionNotFound: others look like
    those that do not exist.
    """
    detail = await caller.client.store.catalog.get_execution(caller.tenant, id)
    one = detail.execution
    if one.state is not State.RUNNING or one.worker != worker:
        raise ExecutionNotFound(f"no execution {id}")
    return detail


def _polls(request: Request) -> Polls:
    """Return the waits of an application; create them if its server has not."""
    state = request.app.state
    if not hasattr(state, "polls"):
        state.polls = Polls(asyncio.get_running_loop().time)
    return state.polls


async def _definition(request: Request, caller: Caller, job: str, version: int) -> JobDefinition:
    """Return a version of a job; versions never change."""
    kept = _polls(request).definitions
    key = caller.tenant, job, version
    if key not in kept:
        found = await caller.client.store.catalog.get_job(caller.tenant, job, version=version)
        kept[key] = found.definition
        if len(kept) > DEFINITIONS_MAX:
            kept.popitem(last=False)
    return kept[key]


def _of_node(definition: JobDefinition, label: str | None) -> JobDefinition:
    """Return the definition by which an execution runs: that of its node, if it is one."""
    if label is None or definition.kind != "workflow":
        return definition
    graph = Graph.from_settings(definition.settings)
    return graph.definition_of(node_name(label), definition)
