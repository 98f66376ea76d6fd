"""Ceilings and exceptions of `tests/test_tidy.py`, each with its reason. They may only shrink."""

from typing import Final

LONG_FILES: dict[str, str] = {
    "api/responses.py": "the shapes of all answers, until client/wire.py has them",
    "api/schema.py": "the shapes of all requests, until core/options.py has them",
    "core/workflow/progress.py": "one decision: the progress of a run",
    "store/memory/queue.py": "the queue room of the memory store",
    "store/postgres/connection.py": "pools, lent connections, kept statements",
    "store/postgres/enqueue.py": "one transaction: the way in, with its SQL",
    "store/postgres/progress.py": "one transaction: the progress of runs under their locks",
    "store/postgres/queue.py": "claim and apply, with the SQL of the hot path",
    "store/postgres/schedules.py": "the schedules room, with the SQL of firing",
    "store/postgres/upkeep.py": "the sweeps, with their SQL",
    "store/postgres/views.py": "the reading views, with their SQL",
    "store/protocol.py": "the contract of all operations, most of it docstrings",
    "store/sqlite/progress.py": "one transaction: the progress of runs",
}

# The deepest inheritance of layers that are over DEPTH. The target is DEPTH for all but `errors`.
DEEPEST: dict[str, int] = {
    "api": 4,  # request and response models
    "errors": 4,  # the error tree: users catch its branches
    "store": 4,  # SqliteStore
}

# Modules that import each other, also by imports in functions and for types, and the largest number
# of them in one group. The target is none.
CYCLES: dict[tuple[str, ...], int] = {}

# Ceilings; the target of each is behind it.
SINGLE_IMPORTERS: Final = 65  # under 60: a module with one importer is a part of that module
IMPORTS_IN_FUNCTIONS: Final = 41  # under 40
WORD_RATES: Final = {"what": 19.3, "who": 4.5, "nobody": 2.7}  # per 1,000 words; 3.0, 0.5, 0.3

# The API describes each noun as JSON, under its own name.
SHAPES: Final = {
    f"daybell.api.{name}" for name in ("responses", "schema", "kind_schema", "routes.admin")
}
# Other class names that two modules use, and why, or the names that they should get.
NAMED_TWICE: dict[str, str] = {
    "Attempt": "in a worker, and the record of an ended one: to be AttemptRecord",
    "Call": "to be EnqueueCall in chaos, ThreadCall in runners, SqlCall in postgres",
    "Clock": "the engine's port to time, and the part of it that a client has",
    "Connection": "of a caller to the API, and of the store to PostgreSQL",
    "Context": "of a task, a public name; to be StoreContext in postgres",
    "Counts": "by state, and of a node's parents: to be ParentCounts",
    "Database": "of SQL jobs, and of the store",
    "Decision": "to be Selection in cli, TickDecision in schedule, NodeDecision in rules",
    "Driver": "of a database connection, and of a bench: to be BenchDriver",
    "Ended": "of a dependency, and a fact of the engine: to be AttemptEnded",
    "Event": "that is published, and in the lifecycle: to be Occasion",
    "ExecutionFilter": "the public logging filter has it, too",
    "Fault": "in chaos, and in a file of jobs: to be FileError",
    "Groups": "to be DeadLetterGroups in cli",
    "Line": "of a log, and to a child process: to be ChildLine",
    "Link": "a connection in chaos, and in postgres",
    "Links": "of a workflow's nodes, and of an execution: to be ExecutionLinks",
    "Listener": "to a command's output, and to notifications",
    "LockedRun": "the same thing in both stores",
    "LogCapture": "in a worker, and in a test's context",
    "Meter": "of a connection's bytes, and of a quota",
    "Names": "the same thing in both stores",
    "Node": "of a run, and the draft of one in the SDK, a public name",
    "Notifier": "of people, and of queues",
    "Options": "of schedule rules, and of a chaos run: to be ChaosOptions",
    "Output": "a reference to a result, and its public form in the SDK",
    "Pace": "of streams, and of timeouts",
    "Param": "of a graph, and its public form in the SDK",
    "Part": "four private meanings: to be MaskPart, PathPart, and a base of each store",
    "Plan": "of a run; to be TickPlan in misfire, ApplyPlan in cli",
    "ProcessInfo": "of the system, and of this process: to be WorkerProcess",
    "Request": "an idempotent one, and to a thread of sqlite: to be ThreadRequest",
    "Run": "of a workflow; to be ChaosRun in chaos; public in daybell.testing",
    "RunningAttempt": "runners may not import engine; its protocol is repeated there",
    "Schedule": "as stored, and the rule as people write it, a public name",
    "Search": "to be ExecutionSearch in cli, EventSearch in postgres",
    "Spec": "of a node, and of a job and queue in postgres: to be JobKey",
    "Step": "of a durable function; to be Change in cli.apply",
    "StepLedger": "runners may not import engine; its protocol is repeated there",
    "Stream": "of server-sent events, and of a command",
    "Streams": "of server-sent events, and of a child",
    "TaskTransaction": "the protocol, and its implementation in postgres",
    "Transaction": "of a task, a public name, and of sqlite",
    "Upkeep": "the engine's loop, and the operations of the store that it calls",
    "Wait": "the same thing in two stores",
    "Worker": "that runs, and its record in the store",
}

# Files that documents and docstrings mention and that belong to a user.
USER_FILES: Final = set(
    """
    app.py email.py generate_report.py jobs.py mail.py manage.py report.py tasks.py x.py
    0001_initial.sql path/to/file.py shop/jobs.py shop/mail.py
    """.split()  # noqa: SIM905
)
