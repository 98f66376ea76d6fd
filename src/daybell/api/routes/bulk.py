"""Routes for many executions: enqueue, cancel and retry; and `/dead-letters`."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import Item, Items, LetterSelection, Retrial, Selection
from daybell.api.caller import ERRORS_MAX, Caller, Invalid, answer_json
from daybell.api.contract import REPLAYED
from daybell.api.fields import ARGS_PARAMETER, Search
from daybell.api.idempotency import IdempotentRequest, perform_once
from daybell.api.requests import (
    may_repeat_keys,
    read_json,
    refuse_repeated_keys,
    validate_body,
    yield_to_loop,
)
from daybell.api.router import Reach, Routes
from daybell.api.routes.executions import answer_executions, read_selection
from daybell.client import answers, wire
from daybell.client.executions import Sweep, read_execution, read_executions
from daybell.client.requests import CONTENT
from daybell.core.access import Action, Role
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.limits import (
    BULK_BYTES_MAX,
    ENQUEUE_BATCH_MAX,
    PAGE_ITEMS_MAX,
    REQUEST_BYTES_MAX,
)
from daybell.core.views import Page, Total
from daybell.errors import InvalidArguments, PayloadError, PayloadTooLarge, UsageError

WHOLE_BYTES: Final = 256 * 1024  # of a body that is read without a pause
PART_BYTES: Final = 64 * 1024  # likewise, of a larger one
SWEEP_PAGES: Final = 20  # of a search, in one request
RANK_BITS: Final = 14  # of a position in a batch
OPTIONS: Final = (
    "unique_key",
    "delay",
    "at",
    "expires",
    "priority",
    "queue",
    "retries",
    "timeout",
    "force",
    "cache",
)

router = Routes("/executions", tag="executions")


class PlainItem(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One execution that says nothing but what is to run."""

    job: str
    args: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class FullItem(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False, omit_defaults=True
):
    """One execution as it comes in. What its fields may be is for the client to say."""

    job: str
    args: dict[str, Any] | None = None
    unique_key: str | None = None
    delay: float | str | None = None
    at: str | None = None
    expires: float | str | None = None
    priority: str | None = None
    queue: str | None = None
    retries: int | None = None
    timeout: float | str | None = None
    force: bool = False
    cache: str | None = None


Part: TypeAlias = Sequence[PlainItem] | Sequence[FullItem]
EXAMPLE: Final = '[{"job": "resize", "args": {"width": 100}}]'
NO_LIST: Final = ("body", f"must be a list of executions, such as {EXAMPLE}")
_AT: Final = re.compile(r"\[([0-9]+)\]")
_DECODER: Final = msgspec.json.Decoder(list[FullItem])
_PLAIN_DECODER: Final = msgspec.json.Decoder(list[PlainItem])
_SPLITTING_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])


@router.post(
    "",
    id="enqueue_executions",
    role=Role.OPERATOR,
    action=Action.TRIGGER,
    reach=Reach.NAMES,
    answers=wire.EnqueuedMany,
    status=202,
    says="They will run.",
    body=Items,
    examples={
        "two": [
            {"job": "resize", "args": {"width": 100}},
            {"job": "resize", "args": {"width": 200}, "priority": "high"},
        ]
    },
    errors=(404, 409),
    headers=REPLAYED,
    bytes_max=BULK_BYTES_MAX,
)
async def enqueue_executions(
    request: Request, caller: Caller, raw: bytes, key: str | None
) -> Response:
    """Enqueue up to 10,000 executions, all or nothing. The answer is in the order given."""
    parts = [part async for part in read_items(raw)]

    async def perform(this: IdempotentRequest) -> Response:
        return await _enqueue(caller, parts, this)

    return await perform_once(request, caller, key, raw, perform)


async def read_items(raw: bytes) -> AsyncGenerator[Part]:
    """The executions that a body asks for, in parts. The first mistake in it is told with its
    place. Between two parts of a large body other requests go on.
    """
    if not raw:
        raise PayloadError("the body is empty; send a JSON list of executions", field="body")
    if len(raw) <= WHOLE_BYTES or (items := _split(raw)) is None:
        part = _read_part(raw, 0)
        if not part:
            raise PayloadError("the list is empty; send at least one execution", field="body")
        _check_count(len(part))
        yield part
        return
    start = end = 0
    while start < len(items):
        size = 0
        while end < len(items) and (end == start or size < PART_BYTES):
            size += memoryview(items[end]).nbytes
            end += 1
        yield _read_part(b"[%b]" % b",".join(items[start:end]), start)
        start = end
        await yield_to_loop()


def _split(raw: bytes) -> Sequence[msgspec.Raw] | None:
    """Return the raw items of a list, if there are not too many and none is too large; None: the
    body is empty or no JSON, and the decoder reports the error.
    """
    try:
        items = _SPLITTING_DECODER.decode(raw)
    except msgspec.ValidationError:
        raise Invalid([NO_LIST]) from None
    except (ValueError, RecursionError):
        return None
    _check_count(len(items))
    longest = max((memoryview(item).nbytes for item in items), default=0)
    if longest > REQUEST_BYTES_MAX:
        raise PayloadTooLarge(
            f"one execution has {longest:,} bytes; the limit is {REQUEST_BYTES_MAX:,}", field="body"
        )
    return items or None


def _read_part(raw: bytes, start: int) -> Part:
    """Return the executions of a part; `start` is the position of the first one in the body."""
    try:
        return _decoded(raw)
    except msgspec.ValidationError as error:
        raise Invalid(_faults(raw, str(error), start)) from None


def _check_count(count: int) -> None:
    if count > ENQUEUE_BATCH_MAX:
        raise PayloadTooLarge(
            f"{count:,} executions are too many for one request; the limit is"
            f" {ENQUEUE_BATCH_MAX:,}",
            field="body",
        )


def _decoded(raw: bytes) -> Part:
    """Return the items, by the same rules as a single one. Raises ValidationError, PayloadError."""
    try:
        asked = _decoded_fast(raw)
    except msgspec.ValidationError:
        raise
    except (ValueError, RecursionError) as error:
        if len(raw) > REQUEST_BYTES_MAX:
            raise PayloadError(f"the body cannot be read: {error}", field="body") from None
        # This decoder reports the error, or reads half a character; the fast ones do not.
        return msgspec.convert(read_json(raw), list[FullItem])
    if may_repeat_keys(raw, asked):
        refuse_repeated_keys(raw)
    return asked


def _decoded_fast(raw: bytes) -> Part:
    # Most items only name the job and its arguments; they are read in half the time.
    with suppress(msgspec.ValidationError):
        return _PLAIN_DECODER.decode(raw)
    return _DECODER.decode(raw)


def _faults(raw: bytes, said: str, start: int) -> list[tuple[str, str]]:
    """Return the errors of the first execution that cannot be read."""
    items = read_json(raw)
    message, _, place = said.partition(" - at `$")
    at = _AT.match(place)
    if not isinstance(items, list) or at is None:
        return [NO_LIST]
    here = f"[{start + int(at[1])}]"
    try:
        validate_body(cast("list[Any]", items)[int(at[1])], Item)
    except Invalid as error:
        return [(f"{here}.{field}", text) for field, text in error.found]
    except PayloadError:
        return [(here, f"must be an object, such as {EXAMPLE[1:-1]}")]
    return [(here + place[at.end() :].rstrip("`"), message)]


async def _enqueue(caller: Caller, parts: Sequence[Part], this: IdempotentRequest) -> Response:
    news: list[NewExecution] = []
    wrong: list[tuple[str, str]] = []
    start = 0
    for part in parts:
        if start:
            await yield_to_loop()
        news += read_all(part, this, start, wrong)
        start += len(part)
        if len(wrong) >= ERRORS_MAX:
            break
    if wrong:
        raise Invalid(wrong)
    caller.check_args(new.args for new in news)
    try:
        made = await _submit(caller, news, this)
    except InvalidArguments as error:
        if len(news) > 1 or error.field is None:
            raise
        raise InvalidArguments(str(error), field=f"[0].{error.field}") from None
    created = sum(one.created for one in made)
    items = [wire.EnqueuedItem(execution_id=one.id, created=one.created) for one in made]
    said = wire.EnqueuedMany(count=len(made), created=created, items=items)
    return answer_json(said, status=202)


async def _submit(
    caller: Caller, news: Sequence[NewExecution], this: IdempotentRequest
) -> list[Enqueued]:
    """Enqueue executions, and store the audit entry in the same transaction."""
    jobs = ", ".join(sorted({new.job for new in news}))[:200]
    after: dict[str, Any] = {"count": len(news), "first": news[0].id}
    id = this.made("entry")
    if all(new.unique_key is None for new in news):
        entry = caller.entry("execution.enqueue", jobs, after=after, id=id)
        return await caller.client.submit_many(news, repeat=this.is_repeated, entry=entry)
    # Keys may be held, perhaps all of them: then no audit entry is stored.
    after["with_keys"] = sum(new.unique_key is not None for new in news)
    client = caller.audited("execution.enqueue", jobs, after=after, id=id)
    return await client.submit_many(news, repeat=this.is_repeated)


def read_all(
    asked: Part, this: IdempotentRequest, start: int, wrong: list[tuple[str, str]]
) -> list[NewExecution]:
    """The executions as a store takes them. What is wrong with them is added to `wrong`; `start` is
    the position of the first one in the body.
    """
    if isinstance(asked[0], PlainItem):
        ids = None if this.id is None else [_id(this, start + at) for at in range(len(asked))]
        args = [one.args or {} for one in asked]
        plain = read_executions([one.job for one in asked], args, ids)
        if plain is not None:
            return plain
    news: list[NewExecution] = []
    for position, one in enumerate(asked, start):
        try:
            news.append(_read_one(one, position, this))
        except PayloadTooLarge:
            raise
        except UsageError as error:
            field = f".{error.field}" if error.field else ""
            wrong.append((f"[{position}]{field}", str(error)))
            if len(wrong) >= ERRORS_MAX:
                break
    return news


def _read_one(one: PlainItem | FullItem, position: int, this: IdempotentRequest) -> NewExecution:
    options: dict[str, Any] = {
        name: value for name in OPTIONS if (value := getattr(one, name, None)) is not None
    }
    id = None if this.id is None else _id(this, position)
    args = one.args or None  # of one that is plain, it may be unset
    return read_execution(one.job, args, id=id, **options)


def _id(this: IdempotentRequest, position: int) -> UUID:
    return this.made(position, rank=position, rank_bits=RANK_BITS)


@router.post(
    "/cancel",
    id="cancel_executions",
    role=Role.OPERATOR,
    action=Action.CANCEL,
    reach=Reach.NAMES,
    answers=wire.Counts,
    says="How many went which way.",
    examples={
        "by ids": {"ids": ["01934b2e-7c00-7000-8000-000000000000"]},
        "by filter": {"filter": {"job_id": "resize", "status": "pending"}},
        "by content": {"filter": {"job": "resize", "args": {"order_id": 42}}},
    },
    errors=(404,),
)
async def cancel_executions(body: Selection, caller: Caller) -> Response:
    """Cancel executions, by ids or by a filter. Those that run are asked to stop."""
    check_selection(body)
    said = msgspec.to_builtins(body)
    sweep = make_sweep(body)
    if body.dry_run:
        return await _count(body, sweep, caller.client.count_cancellable)
    if body.filter is None:
        client = caller.audited("execution.cancel", "many", after=said)
        outcomes = await client.cancel_picked(body.ids or ())
    else:
        filters = read_selection(said["filter"])
        client = caller.audited("execution.cancel", "many", after=said)
        outcomes = await client.cancel_many(sweep=sweep, **filters)
    return answer_json(answers.counts(outcomes, next_cursor=sweep.cursor))


@router.post(
    "/retry",
    id="retry_executions",
    role=Role.OPERATOR,
    action=Action.RETRY,
    reach=Reach.NAMES,
    answers=wire.Counts,
    says="How many went which way.",
    examples={
        "by ids": {"ids": ["01934b2e-7c00-7000-8000-000000000000"]},
        "by filter": {"filter": {"job_id": "resize", "since": "2026-11-15"}},
        "by content": {"filter": {"error": "TimeoutError", "ended_since": "1h"}},
    },
    errors=(404,),
    headers=REPLAYED,
)
async def retry_executions(
    request: Request, body: Retrial, raw: bytes, caller: Caller, key: str | None
) -> Response:
    """Run executions again, by ids or by a filter: dead ones, unless `status` says otherwise."""
    check_selection(body)
    if body.dry_run:
        count = partial(caller.client.count_retryable, force=body.force)
        return await _count(body, make_sweep(body), count)

    async def perform(this: IdempotentRequest) -> Response:
        return await _retry(caller, body, this)

    return await perform_once(request, caller, key, raw, perform)


async def _retry(caller: Caller, wanted: Retrial, this: IdempotentRequest) -> Response:
    said = msgspec.to_builtins(wanted)
    filters = None if wanted.filter is None else read_selection(said["filter"])
    sweep = make_sweep(wanted)
    client = caller.audited("execution.retry", "many", after=said, id=this.made("entry"))
    if filters is None:
        outcomes = await client.retry_picked(
            wanted.ids or (), force=bool(wanted.force), request=this.id, repeat=this.is_repeated
        )
    else:
        outcomes = await client.retry_many(
            force=bool(wanted.force),
            request=this.id,
            repeat=this.is_repeated,
            sweep=sweep,
            **filters,
        )
    return answer_json(answers.counts(outcomes, next_cursor=sweep.cursor))


async def _count(
    wanted: Selection | LetterSelection, sweep: Sweep, count: Callable[..., Awaitable[Total]]
) -> Response:
    """Return the number of executions that a request is about, and change nothing."""
    if wanted.filter is None:
        return answer_json(wire.Counts(matched=len(set(wanted.ids or ()))))
    filters = read_selection(msgspec.to_builtins(wanted.filter))
    total = await count(sweep=sweep, **filters)
    is_bound = not total.is_exact or sweep.cursor is not None
    return answer_json(wire.Counts(matched=int(total), at_least=is_bound, next_cursor=sweep.cursor))


def make_sweep(wanted: Selection | LetterSelection) -> Sweep:
    """How far a request goes: of what is searched by content, a bounded number is read; of all
    filters, with a limit. A worker is content if several have its name.
    """
    content = CONTENT | {"worker_id"}
    is_search = wanted.filter is not None and bool(
        content & msgspec.to_builtins(wanted.filter).keys()
    )
    limit = wanted.limit
    if wanted.cursor is not None and not is_search and limit is None:
        raise UsageError(
            "cursor is for filters by content and for requests with a limit, whose answer has a"
            " next_cursor; leave it out",
            field="cursor",
        )
    pages = SWEEP_PAGES if limit is None else min(SWEEP_PAGES, limit // PAGE_ITEMS_MAX)
    return Sweep(cursor=wanted.cursor, pages=pages, is_bounded=limit is not None)


def check_selection(wanted: Any) -> None:
    """Refuse to guess which ones are meant."""
    if (wanted.ids is None) == (wanted.filter is None):
        raise UsageError(
            'say which: {"ids": […]} or {"filter": {…}}; {"filter": {}} means all that there are',
            field="filter",
        )


# `/dead-letters`: executions without attempts left; a person decides on them.

dead_letters_router = Routes("/dead-letters", tag="dead-letters")

_EXAMPLES: Final[dict[str, Any]] = {
    "by ids": {"ids": ["01934b2e-7c00-7000-8000-000000000000"]},
    "all of a job": {"filter": {"job_id": "resize"}},
    "by content": {"filter": {"error": "TimeoutError", "args": {"order_id": 42}}},
    "all": {"filter": {}},
}


@dead_letters_router.get(
    "",
    id="list_dead_letters",
    live="execution_id",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.Execution],
    says="A page of dead letters, newest first.",
    errors=(404,),
    parameters=[ARGS_PARAMETER],
)
async def list_dead_letters(
    request: Request,
    caller: Caller,
    query: Search,
) -> Response:
    """List dead executions that no person has decided on. Filters are those of `/executions`."""
    page = await caller.client.dead_letters(
        limit=query.limit, cursor=query.cursor, **query.read_filters(request)
    )
    return answer_executions(page)


@dead_letters_router.get(
    "/groups",
    id="group_dead_letters",
    live="q",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.DeadLetterGroup],
    says="Groups of dead letters, the largest first.",
    errors=(404,),
    parameters=[ARGS_PARAMETER],
)
async def group_dead_letters(request: Request, caller: Caller, query: Search) -> Response:
    """Group dead letters by job and error, with count, first and last time.

    One request reads the 1,000 newest letters, and ignores `limit`. If there are more, the
    groups of the answer to `next_cursor` add to these. `q` of a group selects its letters.
    """
    page = await caller.client.dead_letter_groups(
        cursor=query.cursor, **query.read_filters(request)
    )
    return answer_json(page)


@dead_letters_router.post(
    "/retry",
    id="retry_dead_letters",
    role=Role.OPERATOR,
    action=Action.RETRY,
    reach=Reach.NAMES,
    answers=wire.Counts,
    says="How many went which way.",
    examples=_EXAMPLES,
    errors=(404,),
)
async def retry_dead_letters(body: LetterSelection, caller: Caller) -> Response:
    """Run dead letters again, their tries counted anew: by ids or by a filter."""
    chosen, sweep = _read_letters(body), make_sweep(body)
    if body.dry_run:
        return await _count(body, sweep, caller.client.count_dead_letters)
    said = msgspec.to_builtins(body)
    client = caller.audited("dead_letter.retry", "many", after=said)
    outcomes = await client.retry_dead_letters(sweep=sweep, **chosen)
    return answer_json(answers.counts(outcomes, next_cursor=sweep.cursor))


@dead_letters_router.post(
    "/discard",
    id="discard_dead_letters",
    role=Role.OPERATOR,
    action=Action.DISCARD,
    reach=Reach.NAMES,
    answers=wire.Counts,
    says="How many were on the list, and how many not.",
    examples=_EXAMPLES,
    errors=(404,),
)
async def discard_dead_letters(body: LetterSelection, caller: Caller) -> Response:
    """Take dead letters off the list: by ids or by a filter. They stay in history."""
    chosen, sweep = _read_letters(body), make_sweep(body)
    if body.dry_run:
        return await _count(body, sweep, caller.client.count_dead_letters)
    said = msgspec.to_builtins(body)
    client = caller.audited("dead_letter.discard", "many", after=said)
    listed, others = await client.discard_dead_letters(sweep=sweep, **chosen)
    return answer_json(
        answers.counts({"discarded": listed, "not_listed": others}, next_cursor=sweep.cursor)
    )


def _read_letters(wanted: LetterSelection) -> dict[str, Any]:
    check_selection(wanted)
    if wanted.filter is None:
        return {"ids": wanted.ids}
    return {**read_selection(msgspec.to_builtins(wanted.filter))}
