"""`/dead-letters`: executions out of tries, for a person to decide on."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from daybell.api import shapes
from daybell.api.answers import answer, answer_page
from daybell.api.body import read_body
from daybell.api.bulk import check_selection, counted, sweep_of
from daybell.api.caller import Operator, Viewer, api_of
from daybell.api.contract import operation
from daybell.api.executions import read_selection
from daybell.api.lists import ARGS_PARAMETER, Cursor, Limit, Selected
from daybell.api.naming import told
from daybell.api.schema import LetterSelection
from daybell.core.limits import PAGE_ITEMS_DEFAULT

router = APIRouter(prefix="/dead-letters", tags=["dead-letters"])

_EXAMPLES: Final[dict[str, Any]] = {
    "by ids": {"ids": ["01934b2e-7c00-7000-8000-000000000000"]},
    "all of a job": {"filter": {"job_id": "resize"}},
    "by content": {"filter": {"error": "TimeoutError", "args": {"order_id": 42}}},
    "all": {"filter": {}},
}


@router.get(
    "",
    **operation(
        "list_dead_letters",
        answers=shapes.ExecutionPage,
        says="A page of dead letters, newest first.",
        errors=(404,),
        parameters=[ARGS_PARAMETER],
    ),
)
async def list_dead_letters(
    request: Request,
    caller: Viewer,
    selected: Selected,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """List dead executions that no person has decided on. Filters are those of `/executions`."""
    page = await caller.client.dead_letters(limit=limit, cursor=cursor, **selected)
    items = await told(api_of(request).job_ids, caller, page.items)
    return answer_page(page, items, cursor=lambda one: str(one.id))


@router.post(
    "/retry",
    **operation(
        "retry_dead_letters",
        answers=shapes.Counts,
        says="How many went which way.",
        body=LetterSelection,
        examples=_EXAMPLES,
        errors=(404,),
    ),
)
async def retry_dead_letters(request: Request, caller: Operator) -> Response:
    """Run dead letters again, their tries counted anew: by ids or by a filter."""
    wanted = await read_body(request, LetterSelection)
    chosen, sweep = _chosen(wanted), sweep_of(wanted)
    said = wanted.model_dump(exclude_unset=True)
    with caller.auditing("dead_letter.retry", "many", after=said):
        answers = await caller.client.retry_dead_letters(sweep=sweep, **chosen)
    return answer(counted(answers, sweep))


@router.post(
    "/discard",
    **operation(
        "discard_dead_letters",
        answers=shapes.Counts,
        says="How many were on the list, and how many not.",
        body=LetterSelection,
        examples=_EXAMPLES,
        errors=(404,),
    ),
)
async def discard_dead_letters(request: Request, caller: Operator) -> Response:
    """Take dead letters off the list: by ids or by a filter. They stay in history."""
    wanted = await read_body(request, LetterSelection)
    chosen, sweep = _chosen(wanted), sweep_of(wanted)
    said = wanted.model_dump(exclude_unset=True)
    with caller.auditing("dead_letter.discard", "many", after=said):
        listed, others = await caller.client.discard_dead_letters(sweep=sweep, **chosen)
    return answer(counted({"discarded": listed, "not_listed": others}, sweep))


def _chosen(wanted: LetterSelection) -> dict[str, Any]:
    check_selection(wanted)
    if wanted.filter is None:
        return {"ids": wanted.ids}
    return {**read_selection(wanted.filter.model_dump(exclude_unset=True))}
