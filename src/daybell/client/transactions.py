"""Enqueueing inside a transaction of the caller.

It imports the PostgreSQL store and its driver, so import it only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Unpack
from uuid import UUID

import msgspec

from daybell.client.client import Client
from daybell.client.requests import EnqueueOptions, copies, read_pattern
from daybell.client.when import Arguments
from daybell.core.execution import NewExecution
from daybell.core.limits import ENQUEUE_BATCH_MAX, check_key
from daybell.errors import UsageError
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.transactions import Call, check_connection, send, send_sync

__all__ = ["Call", "check_connection", "prepare", "send", "send_sync"]


async def prepare(
    client: Client,
    job: str,
    args: Iterable[Arguments],
    *,
    unique_key: str | None = None,
    parent: UUID | None = None,
    **options: Unpack[EnqueueOptions],
) -> Call:
    """Check one execution per item as any enqueue does, and make its queue known to the store.

    That is done over the client's own connection and committed. In the caller's transaction a new
    queue would keep others waiting until it ends.
    """
    store = client.store
    if not isinstance(store, PostgresStore):
        raise UsageError(
            "connection= needs the PostgreSQL store, in the database that the connection is to;"
            f" this app keeps its executions in a {type(store).__name__}",
            field="connection",
        )
    pattern = read_pattern(job, **options)
    if pattern.force:
        raise UsageError(
            "force is not available with connection=; enqueue it outside of the transaction",
            field="force",
        )
    executions = list(islice(copies(pattern, args), ENQUEUE_BATCH_MAX + 1))
    if len(executions) > ENQUEUE_BATCH_MAX:
        raise UsageError(
            f"more than {ENQUEUE_BATCH_MAX:,} executions at once; with a connection, call it"
            " several times in the same transaction",
            field="items",
        )
    await store.resolve(client.tenant, [pattern])
    return Call(
        job=job,
        args=[execution.args for execution in executions],
        options=_options(pattern, unique_key, client.tenant),
        parent=None if parent is None else str(parent),
    )


def _options(pattern: NewExecution, unique_key: str | None, tenant: str) -> str:
    """The options as `daybell.enqueue` takes them; what was not asked for is left out."""
    options = {
        "tenant": tenant,
        "delay": pattern.delay,
        "at": pattern.at,
        "expires": pattern.expires_in,
        "priority": pattern.priority,
        "queue": pattern.queue,
        "unique_key": None if unique_key is None else check_key(unique_key),
        "retries": pattern.retries,
        "timeout": pattern.timeout,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return msgspec.json.encode(given).decode()
