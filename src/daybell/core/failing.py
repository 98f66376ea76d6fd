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
