"""Ceilings and exceptions of `tests/test_tidy.py`, each with its reason. They may only shrink."""

from typing import Final

LONG_FILES: dict[str, str] = {
    "client/remote/client.py": "one class: a method per verb of the interface",
    "api/contract.py": "one example per answer, for the OpenAPI document",
    "client/answers.py": "one function per answer",
    "client/wire.py": "one struct per answer, with the texts of the OpenAPI document",
    "core/options.py": "one table of job options, and the types that follow from it",
    "sdk/app.py": "one class: the app that users write",
    "store/postgres/admin.py": "the admin room: keys, tenants, secrets, audit, with their SQL",
    "store/postgres/connection.py": "pools, lent connections, kept statements",
    "store/postgres/enqueue.py": "one transaction: the way in, with its SQL",
    "store/postgres/progress.py": "one transaction: the progress of runs under their locks",
    "store/postgres/queue.py": "claim and apply, with the SQL of the hot path",
    "store/postgres/schedules.py": "the schedules room, with the SQL of firing",
    "store/postgres/steps.py": "steps, and the events that they wait for, with their SQL",
    "store/postgres/views.py": "the reading views, with their SQL",
    "store/protocol.py": "the contract of all operations, most of it docstrings",
}

# The deepest inheritance of layers that are over DEPTH. The target is DEPTH for all but `errors`.
DEEPEST: dict[str, int] = {
    "errors": 4,  # the error tree: users catch its branches
}

# Modules that import each other, also by imports in functions and for types, and the largest number
# of them in one group. The target is none.
CYCLES: dict[tuple[str, ...], int] = {}

# Ceilings.
SINGLE_IMPORTERS: Final = 59  # a module with one importer is a part of that module
IMPORTS_IN_FUNCTIONS: Final = 39

# Answers and requests describe each noun as JSON, under its own name.
SHAPES: Final = {"daybell.api.bodies", "daybell.client.wire"}
# Other class names that two modules use, and why, or the names that they should get.
NAMED_TWICE: dict[str, str] = {
    "AdmissionRound": "the same thing in both stores",
    "AuditedDatabase": "the same thing in both stores",
    "Clock": "the engine's port to time, and the part of it that a client has",
    "Connection": "of a caller to the API, and of the store to PostgreSQL",
    "Database": "of SQL jobs, and of the store",
    "Driver": "of a database connection, and of a bench: to be BenchDriver",
    "Ended": "of a dependency, and a fact of the engine: to be AttemptEnded",
    "ExecutionFilter": "the public logging filter has it, too",
    "Link": "a connection in chaos, and in postgres",
    "Listener": "to a command's output, and to notifications",
    "LockedRun": "the same thing in both stores",
    "LogCapture": "in a worker, and in a test's context",
    "Meter": "of a connection's bytes, and of a quota",
    "Names": "the same thing in both stores",
    "Node": "of a run, and the draft of one in the SDK, a public name",
    "Notifier": "of people, and of queues",
    "Output": "a reference to a result, and its public form in the SDK",
    "Pace": "of streams, and of timeouts",
    "Param": "of a graph, and its public form in the SDK",
    "Run": "of a workflow; to be ChaosRun in chaos; public in daybell.testing",
    "Schedule": "as stored, and the rule as people write it, a public name",
    "Stream": "of server-sent events, and of a command",
    "Streams": "of server-sent events, and of a child",
    "TaskTransaction": "the protocol, and its implementation in postgres",
    "Transaction": "of a task, a public name, and of sqlite",
    "Worker": "that runs, and its record in the store",
}

# Files of tests that have the name of no module.
TESTS_OF_NO_MODULE: dict[str, str] = {
    "browser/*": "the dashboard in web/, which is TypeScript",
    "system/*": "several processes, or all floors at once",
    "test_docs.py": "pages and examples",
    "test_public_surface.py": "the names that users import",
    "test_reference.py": "pages that restate the code",
    "test_tidy*.py": "rules for all modules",
}
# Folders whose modules are also tested in another folder: once for all stores, and by the command.
TESTED_WITH: Final = {
    "cli/actions": "cli/commands",
    "store/postgres": "store",
    "store/postgres/flow": "store/flow",
    "store/sqlite": "store",
    "store/sqlite/flow": "store/flow",
}
# Modules without a file of tests of their own, and the file that has their tests.
TESTED_IN: dict[str, str] = {
    "__init__.py": "test_public_surface.py",
    "api/bodies.py": "api/test_validation.py",
    "api/contract.py": "api/test_openapi.py",
    "api/fields.py": "api/routes/test_executions_search.py",
    "api/router.py": "api/test_caller_scopes.py",
    "chaos/tasks.py": "chaos/test_run.py",
    "chaos/workflows.py": "chaos/test_workflow_checker.py",
    "api/routes/subscriptions.py": "client/remote/test_client_subscriptions.py",
    "client/hooks.py": "api/routes/test_hooks.py",
    "client/subscriptions.py": "client/remote/test_client_subscriptions.py",
    "core/subscription.py": "store/test_admin_outbox.py",
    "api/routes/limits.py": "client/remote/test_client_limits.py",
    "api/routes/alerts.py": "client/remote/test_client_alerts.py",
    "cli/actions/definitions.py": "cli/commands/test_jobs.py",
    "cli/actions/job_flags.py": "cli/commands/test_job_options.py",
    "cli/commands/workers.py": "cli/commands/test_executions.py",
    "cli/apply/command.py": "cli/apply/test_plan.py",
    "cli/commands/roles.py": "cli/roles/test_worker.py",
    "cli/options.py": "cli/test_cli.py",
    "cli/references.py": "cli/commands/test_job_options.py",
    "cli/runtime.py": "cli/test_cli.py",
    "client/alerts.py": "client/remote/test_client_alerts.py",
    "client/limits.py": "client/remote/test_client_limits.py",
    "client/events.py": "api/routes/test_events.py",
    "client/remote/requests.py": "client/remote/test_client.py",
    "client/requests.py": "client/test_client.py",
    "client/retries.py": "client/test_executions.py",
    "client/explain/remedies.py": "client/explain/test_executions_remedies.py",
    "client/workers.py": "client/explain/test_executions.py",
    "client/wire.py": "client/test_answers.py",
    "core/alerts/findings.py": "store/test_admin_alerts.py",
    "core/alerts/incidents.py": "store/test_admin_alerts.py",
    "core/checks.py": "store/test_queue_poison.py",
    "core/monitoring/observers.py": "test_otel.py",
    "core/kinds/schema.py": "core/test_options.py",
    "engine/alerts.py": "store/test_admin_alerts.py",
    "core/when/declared.py": "core/test_job_request.py",
    "core/when/repetition.py": "core/when/test_recurrence.py",
    "core/when/zone.py": "core/when/test_rule.py",
    "core/workflow/node.py": "core/workflow/test_graph.py",
    "core/workflow/run.py": "core/workflow/test_progress.py",
    "demo.py": "system/test_readme.py",
    "runners/helper_pool.py": "runners/test_notify.py",
    "sdk/child.py": "runners/test_processes.py",
    "sdk/nodes.py": "sdk/test_workflow.py",
    "sdk/worker.py": "sdk/test_isolation.py",
    "store/sqlite/ports.py": "store/test_queue_claim.py",
    "store/codec.py": "store/test_views.py",
    "store/open.py": "test_settings.py",
    "store/postgres/interventions.py": "store/test_queue_dead_letters.py",
    "store/postgres/flow/limit_views.py": "store/flow/test_limits.py",
    "store/postgres/names.py": "store/postgres/test_queue_idle_claims.py",
    "store/run_driver.py": "store/sqlite/test_progress.py",
    "store/sqlite/transaction.py": "store/test_store_model.py",
    "store/timeouts.py": "store/postgres/test_connection_timeouts.py",
    "testing/driver.py": "testing/test_bench_running.py",
}

# Files that documents and docstrings mention and that belong to a user.
USER_FILES: Final = set(
    """
    app.py billing.py email.py generate_report.py jobs.py mail.py manage.py report.py tasks.py
    web.py x.py
    0001_initial.sql path/to/file.py shop/jobs.py shop/mail.py shop/web.py test_mail.py
    """.split()  # noqa: SIM905
)
