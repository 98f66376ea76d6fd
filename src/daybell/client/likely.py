"""Jobs that are not there: which one may be meant."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import JobFilter
from daybell.errors import JobNotFound, shown, suggested
from daybell.store.protocol import Store

_NAME_BEGIN: Final = re.compile(r"[A-Za-z0-9]")


@asynccontextmanager
async def hinting(store: Store, tenant: str, name: str) -> AsyncGenerator[None]:
    """Say of a job that is not there which one may be meant: of those that begin like it."""
    try:
        yield
    except JobNotFound:
        if not _NAME_BEGIN.match(name):
            raise
        page = await store.list_jobs(tenant, JobFilter(prefix=name[0]), limit=PAGE_ITEMS_MAX)
        hint = suggested(name, [job.name for job in page.items], otherwise="")
        if not hint:
            raise
        raise JobNotFound(f"no job named {shown(name)}; {hint}") from None
