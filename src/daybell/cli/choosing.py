"""From what was typed to the executions that are meant: ids, parts of ids, filters."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar
from uuid import UUID

from daybell.client import Client
from daybell.client.remote.client import AnyClient
from daybell.client.requests import BOUNDS, Filters, id_in, read_bound
from daybell.core.job import task_of
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.errors import (
    AccessDenied,
    Conflict,
    ExecutionNotFound,
    JobNotFound,
    NotFound,
    UsageError,
    listed,
    shown,
)
from daybell.store.ids import mint

T = TypeVar("T")
EXAMPLE: Final = "01a1e074-1e02-7b87-ae9e-6ec860fb4d7d"
PART_CHARS_MIN: Final = 6  # of an id; what is shorter fits many by chance
PART: Final = re.compile(rf"[0-9a-f-]{{{PART_CHARS_MIN},35}}", re.I)


async def find(client: AnyClient, text: str) -> UUID:
    """The execution that an id names, or the beginning or end of one.

    A part of an id is looked for among the newest executions, which a person may have before him.
    """
    try:
        return UUID(text)
    except ValueError:
        if not PART.fullmatch(text):
            raise UsageError(
                f"{shown(text)} is not an execution id (a UUID such as {EXAMPLE})", field="id"
            ) from None
    part = text.lower()
    fitting: list[str] = []
    for nodes in (False, True):  # a large workflow has more of those than a person looks at
        try:
            newest = (await client.executions(limit=PAGE_ITEMS_MAX, nodes=nodes)).items
        except AccessDenied as error:
            said = str(error).partition("; ")[0]
            raise AccessDenied(f"{said}; give the whole id of the execution") from None
        ids = [str(one.id) for one in newest]
        fitting = fitting or [id for id in ids if id.startswith(part) or id.endswith(part)]
    if not fitting:
        raise ExecutionNotFound(
            f"none of the {PAGE_ITEMS_MAX:,} newest executions has an id that begins or ends with"
            f" {shown(text)}; an id is a UUID such as {EXAMPLE}"
        )
    if len(fitting) > 1:
        raise UsageError(
            f"{shown(text)} fits several executions: {listed(fitting)}; give more of the id",
            field="id",
        )
    return UUID(fitting[0])


async def check_job(client: AnyClient, name: str | None) -> None:
    """Raise JobNotFound for a job that never was: a misspelt one would look as if all was done."""
    if name is not None and id_in(name) is None:  # an unknown id is refused anyway
        async with explained(client, name):
            await client.versions_page(name, limit=1)  # of a deleted one, too


async def check_action(client: AnyClient, act: Callable[[UUID], Awaitable[object]]) -> None:
    """Raise AccessDenied if the key may not do this to an execution. Where none matches, a server
    would not be asked, and a refusal would look as if all was done.
    """
    if not isinstance(client, Client):
        with suppress(NotFound, Conflict):
            await act(mint())  # an id that no execution has


async def unless_denied(look: Awaitable[T]) -> T | None:
    """What a look shows that a command can do without; None: the key may not look."""
    try:
        return await look
    except AccessDenied:
        return None


@asynccontextmanager
async def explained(client: AnyClient, name: str) -> AsyncGenerator[None]:
    """Say more of a job that is not there: that it was deleted, or which one may be meant."""
    try:
        yield
    except JobNotFound as error:
        try:
            deleted = (await client.standing(name)).job  # of a deleted one, too
        except JobNotFound as told:
            raise told from None
        except (AccessDenied, UsageError):
            raise error from None
        way_out = "it was deleted, and daybell jobs create makes it again"
        if deleted.definition.kind == "task" and task_of(deleted.definition) is None:
            # Only code has a task of that name.
            way_out = "it was deleted; a start of its app, or an enqueue in code, makes it again"
        raise JobNotFound(f"no job named {shown(name)}; {way_out}") from None


async def moment(client: AnyClient, text: str, what: str) -> float:
    """A time that was typed: a length means so long ago, by the store's clock."""
    return read_bound(text, what, now=(await client.health()).now)


def described(filters: Filters) -> str:
    """Filters in words, as they follow "3 executions"."""
    words: list[str] = []
    if filters.get("job") is not None:
        words.append(f" of {filters.get('job')}")
    if filters.get("queue") is not None:
        words.append(f" in queue {filters.get('queue')}")
    if status := filters.get("status"):
        words.append(f" that are {' or '.join([status] if isinstance(status, str) else status)}")
    if filters.get("worker") is not None:
        words.append(f" on worker {filters.get('worker')}")
    words += [f" with {name}={value}" for name, value in (filters.get("args") or {}).items()]
    if filters.get("unique_key") is not None:
        words.append(f" with unique key {filters.get('unique_key')}")
    if filters.get("error") is not None:
        words.append(f" with error {filters.get('error')}")
    words += [
        f" {name.replace('_', ' ')} {bound}"
        for name in BOUNDS
        if (bound := filters.get(name)) is not None
    ]
    return "".join(words)
