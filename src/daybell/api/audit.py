"""`/audit`: who changed what, from where."""

from __future__ import annotations

from fastapi import APIRouter, Response

from daybell.api import sights
from daybell.api.answers import answer_page
from daybell.api.caller import Admin
from daybell.api.contract import operation
from daybell.api.lists import BoundFilter, Cursor, Limit, TextFilter
from daybell.client import wire
from daybell.core.limits import PAGE_ITEMS_DEFAULT

router = APIRouter(prefix="/audit", tags=["access"])


@router.get(
    "", **operation("list_audit", answers=sights.Entries, says="A page of the log, newest first.")
)
async def list_audit(
    caller: Admin,
    actor: TextFilter = None,
    action: TextFilter = None,
    target: TextFilter = None,
    since: BoundFilter = None,
    until: BoundFilter = None,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Show who changed what. `action` is all of it, such as `job.update`, or only its noun."""
    page = await caller.client.audit(
        actor=actor,
        action=action,
        target=target,
        since=since,
        until=until,
        limit=limit,
        cursor=cursor,
    )
    return answer_page(page, map(wire.entry, page.items), cursor=lambda one: str(one.id))
