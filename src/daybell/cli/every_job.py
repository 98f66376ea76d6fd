"""All jobs of a tenant, in pages: for what `daybell doctor` looks at."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from daybell.core.job import Job
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.store.protocol import Store


async def every_job(store: Store, tenant: str) -> AsyncGenerator[Job]:
    """The jobs of a tenant, by name. Read it to its end."""
    cursor = None
    while True:
        page = await store.list_jobs(tenant, limit=PAGE_ITEMS_MAX, cursor=cursor)
        for job in page.items:
            yield job
        cursor = page.next_cursor
        if cursor is None:
            return
