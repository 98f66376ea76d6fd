"""Changes made at a terminal go on record, too."""

from __future__ import annotations

import getpass
import json
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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
    entry = NewEntry(
        id=mint(),
        actor=whoever_types(),
        action=action,
        target=target,
        before=None if before is None else json.dumps(before),
        after=None if after is None else json.dumps(after),
        source=socket.gethostname(),
    )
    return client.auditing(entry)
