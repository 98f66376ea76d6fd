"""Jobs by their names or ids; and of those that are not there, which one may be meant."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from daybell.client.requests import Id, id_in
from daybell.core.job import Job
from daybell.core.view import JobFilter
from daybell.errors import COMPARED_MAX, JobNotFound, shown, suggested
from daybell.store.protocol import Store

_NAME_BEGIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


async def job_named(store: Store, tenant: str, id_or_name: Id) -> Job:
    """A job by its id, or by its name. Text that is both is taken as an id first."""
    id = id_in(id_or_name)
    if id is not None:
        with suppress(JobNotFound):
            return await store.find_job(tenant, id)
    try:
        return await store.get_job(tenant, str(id_or_name))
    except JobNotFound:
        if id is None:
            raise
        raise JobNotFound(f"no job with the id {id}") from None


@asynccontextmanager
async def hinting(store: Store, tenant: str, name: str) -> AsyncGenerator[None]:
    """Say of a job that is not there which one may be meant. That is the dearest part of such an
    answer: what is not there at first sight, and may be found elsewhere, is looked up without it.
    """
    try:
        yield
    except JobNotFound:
        if id_in(name) is not None:
            raise JobNotFound(f"no job with the id {name}") from None
        hint = await _hint(store, tenant, name)
        if not hint:
            raise
        raise JobNotFound(f"no job named {shown(name)}; {hint}") from None


async def _hint(store: Store, tenant: str, name: str) -> str:
    """Of jobs that begin like it: the first of those that share half of it, or only a letter."""
    begin = _NAME_BEGIN.match(name)
    if begin is None:
        return ""
    for prefix in dict.fromkeys((begin[0][: max(1, len(name) // 2)], name[0])):
        page = await store.list_jobs(tenant, JobFilter(prefix=prefix), limit=COMPARED_MAX)
        hint = suggested(name, [job.name for job in page.items], otherwise="")
        if hint:
            return hint
    return ""
