"""`/audit`: who changed what, from where."""

from __future__ import annotations

from fastapi import APIRouter, Response

from daybell.api import sights
from daybell.api.answers import answer, answer_page
from daybell.api.caller import Admin
from daybell.api.contract import operation
from daybell.api.lists import BoundFilter, Cursor, Limit, TextFilter
from daybell.client import wire
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX

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


@router.get(
    "/verify",
    **operation("verify_audit", answers=sights.AuditCheck, says="How far the chain holds."),
)
async def verify_audit(
    caller: Admin, limit: Limit = PAGE_ITEMS_MAX, cursor: Cursor = None
) -> Response:
    """Check the hashes of the audit log, oldest entries first.

    `cursor` is `next_cursor` of the answer before, or the `head` of an earlier check, from which
    the log must still continue.
    """
    return answer(wire.audit_check(await caller.client.verify_audit(limit=limit, cursor=cursor)))
