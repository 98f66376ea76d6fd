"""What people are told of nodes that failed."""

from __future__ import annotations

from typing import Final

from daybell.core.failure import Failure
from daybell.core.run import Node, NodeState

FAILED_MAX: Final = 1000  # nodes that are counted
SHORT_CHARS_MAX: Final = 200


def in_short(error: str) -> str:
    """A kept error in a line, such as "ValueError: broken for good"."""
    failure = Failure.of_kept(error)
    message = " ".join(failure.message.split())
    text = f"{failure.type}: {message}" if message else failure.type
    return text if len(text) <= SHORT_CHARS_MAX else f"{text[: SHORT_CHARS_MAX - 1]}…"


def why_failed(label: str, node: Node | None) -> str:
    """Why a node of this label is what its run has failed of."""
    if node is None:
        return f"{label} failed"
    is_cancelled = node.state is NodeState.CANCELLED
    why = f"{label} was cancelled" if is_cancelled else f"{label} failed"
    if node.reason is not None and not is_cancelled:
        why = f"{why}: {node.reason}"
    return why if node.execution is None else f"{why} (execution {node.execution})"


def others_failed(of: Node | None, nodes: int) -> str:
    """How much more there is than what a run has failed of: of the same mapped node, `of`, and how
    many other nodes.
    """
    said = ""
    if of is not None and of.is_map and (items := of.items_lost + of.items - of.spawned - 1) > 0:
        said = f"; {items:,} more {'item' if items == 1 else 'items'} of it did not succeed"
    if nodes:
        said += f"; {nodes:,} more {'node' if nodes == 1 else 'nodes'} failed"
    return said
