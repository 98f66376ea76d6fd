"""The client: one facade over a store for programs, the HTTP API and the command line."""

from __future__ import annotations

from daybell.client.client import Client
from daybell.client.executions import EnqueuedMany
from daybell.core.execution import Cancellation
from daybell.core.ids import mint
from daybell.store.shares import Holder, Shares, set_holder

__all__ = ["Cancellation", "Client", "EnqueuedMany", "Holder", "Shares", "mint", "set_holder"]
