"""The operations that a key with a scope may use.

Each operation belongs to one action. Operations that are not in these tables are closed to every
key with a scope: those on keys and tenants, and new ones until they are added here.
"""

from __future__ import annotations

from typing import Final

from daybell.core.access import Action, Scope
from daybell.errors import AccessDenied

# The store of the caller (`store.scoped`) limits these to the jobs and queues of the scope.
LIMITED: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset(
        {
            "count_executions",
            "explain_execution",
            "get_execution",
            "get_execution_logs",
            "get_job",
            "get_job_version",
            "list_dead_letters",
            "list_executions",
            "list_job_executions",
            "list_job_versions",
            "list_job_warnings",
            "list_jobs",
        }
    ),
    Action.TRIGGER: frozenset({"enqueue_executions", "trigger_job"}),
    Action.CANCEL: frozenset({"cancel_execution", "cancel_executions", "purge_queue"}),
    Action.RETRY: frozenset({"retry_dead_letters", "retry_execution", "retry_executions"}),
    Action.DISCARD: frozenset({"discard_dead_letters"}),
    Action.PAUSE: frozenset({"pause_job", "pause_queue", "resume_job", "resume_queue"}),
    Action.SIGNAL: frozenset({"approve_execution", "signal_execution"}),
    Action.DEFINE: frozenset(
        {"apply_job", "create_job", "delete_job", "rollback_job", "update_job"}
    ),
    Action.BACKFILL: frozenset({"backfill_job"}),
}
# The same, and closed to a key that is limited to jobs without naming queues.
OF_QUEUES: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset({"get_queue_scaling", "list_queues"}),
}
# These have nothing of a job or a queue.
NEUTRAL: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset({"docs", "get_status", "openapi", "preview_schedule"}),
}
# These show or change something of the whole tenant: closed to a key that is limited to jobs or
# queues, open to one that is limited to actions only.
OF_TENANT: Final[dict[Action, frozenset[str]]] = {
    Action.READ: frozenset(
        {
            "get_stats",
            "get_template",
            "list_audit",
            "list_events",
            "list_keys",
            "list_secrets",
            "list_templates",
            "list_workers",
            "stream",
            "verify_audit",
        }
    ),
    Action.SIGNAL: frozenset({"publish_event"}),
    Action.DRAIN: frozenset({"drain_worker"}),
    Action.DEFINE: frozenset({"create_template", "delete_template", "set_template"}),
    Action.SECRETS: frozenset({"delete_secret", "set_secret"}),
}


def _inverted(*tables: dict[Action, frozenset[str]]) -> dict[str, Action]:
    return {id: action for table in tables for action, ids in table.items() for id in ids}


ACTIONS: Final = _inverted(LIMITED, OF_QUEUES, NEUTRAL, OF_TENANT)
_OF_QUEUES: Final = _inverted(OF_QUEUES)
_OF_TENANT: Final = _inverted(OF_TENANT)


def check_operation(scope: Scope, operation: str) -> None:
    """Raise AccessDenied unless a key with this scope may use an operation."""
    limits = f"this key is limited to {scope.describe()}"
    action = ACTIONS.get(operation)
    if action is None:
        raise AccessDenied(f"{limits}; this takes a key without such limits")
    if not scope.allows(action):
        raise AccessDenied(f"{limits}; this takes the action {action}")
    if scope.limits_names and operation in _OF_TENANT:
        raise AccessDenied(f"{limits}; this is about the tenant as a whole")
    if scope.jobs and not scope.queues and operation in _OF_QUEUES:
        raise AccessDenied(f"{limits}; this takes a key that is limited to queues as well")
