"""Words that options take, for the completion of a shell."""

from __future__ import annotations

from daybell.core.access import Action, Role
from daybell.core.execution import Priority, State
from daybell.core.job import MANUAL, PAUSED


def statuses(incomplete: str) -> list[str]:
    """Complete the state of an execution."""
    return [word for word in ("pending", *State) if word.startswith(incomplete)]


def job_statuses(incomplete: str) -> list[str]:
    """Complete the status of a job."""
    words = [*statuses(""), PAUSED, MANUAL]
    return [word for word in words if word.startswith(incomplete)]


def priorities(incomplete: str) -> list[str]:
    """Complete a priority."""
    return [one.label for one in Priority if one.label.startswith(incomplete)]


def roles(incomplete: str) -> list[str]:
    """Complete the role of a key."""
    return [role for role in Role if role.startswith(incomplete)]


def actions(incomplete: str) -> list[str]:
    """Complete an action of a key's scope."""
    return [action for action in Action if action.startswith(incomplete)]
