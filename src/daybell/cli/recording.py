"""Changes made at a terminal go on record, too."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Final

from daybell.client import Client
from daybell.client.remote.client import AnyClient
from daybell.core.audit import NewEntry
from daybell.store.ids import mint


def whoever_types() -> str:
    """How the audit log calls who uses this terminal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        user = "unknown"
    return f"cli {user}@{socket.gethostname()}"


def on_record(
    client: AnyClient, action: str, target: str, *, before: Any = None, after: Any = None
) -> AbstractContextManager[None]:
    """Have the change made in the block bring its entry. A server keeps its own record."""
    if not isinstance(client, Client):
        return nullcontext()
    return client.auditing(_entry(action, target, before=before, after=after))


class RecordingClient(Client):
    """A client of a store that puts on record what is done with it, as a server does."""


# What is a transaction of its own, and has its entry in that.
CHANGES: Final = {
    "create": "job.create",
    "update": "job.update",
    "rollback": "job.rollback",
    "delete_job": "job.delete",
    "pause": "job.pause",
    "resume": "job.resume",
    "cancel": "execution.cancel",
    "cancel_many": "execution.cancel",
    "discard": "dead_letter.discard",
    "discard_dead_letters": "dead_letter.discard",
    "retry_dead_letters": "dead_letter.retry",
    "drain_worker": "worker.drain",
    "pause_queue": "queue.pause",
    "resume_queue": "queue.resume",
    "purge_queue": "queue.purge",
}
# What may travel with the enqueues of others, and is on record right after it.
ENQUEUES: Final = {
    "trigger": "job.trigger",
    "backfill": "job.backfill",
    "retry": "execution.retry",
    "retry_many": "execution.retry",
}
MANY: Final = "many"  # the target of what is done to several
IDS_MAX: Final = 100  # of them that are told
UNTOLD: Final = frozenset({"args", "on_step", "author"})  # of what a verb was called with

Verb = Callable[..., Awaitable[Any]]


def _recorded(verb: Verb, action: str, *, is_own: bool) -> Verb:
    @wraps(verb)
    async def recorded(self: RecordingClient, *targets: Any, **options: Any) -> Any:
        if options.get("dry_run"):
            return await verb(self, *targets, **options)
        after = {key: value for key, value in options.items() if key not in UNTOLD}
        target = _target(targets)
        if target == MANY and targets and targets[0] is not None:
            after["ids"] = targets[0][:IDS_MAX]
        entry = _entry(action, target, after=after or None)
        if is_own:
            with self.auditing(entry):
                return await verb(self, *targets, **options)
        answer = await verb(self, *targets, **options)
        await self.record([entry])
        return answer

    return recorded


for name, action in (CHANGES | ENQUEUES).items():
    verb = getattr(Client, name)
    setattr(RecordingClient, name, _recorded(verb, action, is_own=name in CHANGES))


def _target(targets: tuple[Any, ...]) -> str:
    """The first that a verb was given: a name, an id, or many ids."""
    first = targets[0] if targets else None
    if first is None or (isinstance(first, Iterable) and not isinstance(first, str)):
        return MANY
    return str(first)


def _entry(action: str, target: str, *, before: Any = None, after: Any = None) -> NewEntry:
    return NewEntry(
        id=mint(),
        actor=whoever_types(),
        action=action,
        target=target,
        before=None if before is None else json.dumps(before, default=str),
        after=None if after is None else json.dumps(after, default=str),
        source=socket.gethostname(),
    )
