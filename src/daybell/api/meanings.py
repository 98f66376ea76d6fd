"""What the fields of a job mean, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

JOB: Final[Mapping[str, str]] = {
    "task": "Runs a task of an app, by its name there.",
    "command": "Runs a program: a line, which is split as a shell would and run without one, the"
    " words, or an object with `run` and more. Only on workers that allow commands.",
    "shell": "Of a command: run its line by `sh -c`.",
    "env": "Of a command: variables of its environment. A value may stand for a secret.",
    "http": "Sends a request: an address, or an object with `url` and more.",
    "sql": "Runs a statement in a database that workers know by name.",
    "notify": "Tells people: by mail, chat or webhook.",
    "workflow": "Runs a graph: `nodes`, each of which is one of the above or another job, and"
    " `edges` between them. Its `params` are what `args` may give a run.",
    "template": "Makes the job from a template, by its name; what is said beside it wins.",
    "parameters": "What the template is given, by name.",
    "made_from": "The template that the rest came from: a note for people, in what `PUT` answers"
    " as `after`.",
    "source": "What the job belongs to, for whoever tidies up: `apply` for jobs of files.",
    "schedule": 'When it runs: a cron expression, {"cron", "tz", "jitter"}, {"every", "mode"},'
    ' {"at"}, {"delay"}, {"rrule"}, {"after_any": [jobs]}, a list of these, or "manual". Left out'
    " of a new job: once, now. In a change, what it does not name (tz, calendar, jitter, start_at"
    " and others) stays; null resets it.",
    "args": "What it is called with, by name; whether the task takes them shows when it runs. A"
    " value in them may stand for a secret.",
    "queue": "The queue that its executions wait in; by default `default`, or that of the task.",
    "priority": "critical, high, normal (or medium), or low: which goes first in its queue.",
    "retries": "How often it is tried again after a failure.",
    "backoff": 'How long to wait before each of these tries: "exponential", "fixed", or an object'
    " with base, factor, cap, delay, delays, jitter.",
    "timeout": "How long one try may take, as seconds or text such as `5m`; then it"
    " is stopped, and counts as failed.",
    "expires": "Not started this long after its time, it is skipped.",
    "max_crashes": "How many workers may die of it before it is dead.",
    "on_lost": "When its worker died: `retry` runs it again, `dead` leaves that to a person.",
    "store_result": "Whether what it returns is kept.",
    "description": "For people.",
    "user_id": "Whose it is, by your own account; to list jobs by.",
    "overlap": "When it is time and the one before has not ended: `skip` the new one, `queue` it"
    " (and skip a second), `queue_all`, `replace` the one before, or `allow` both.",
    "misfire": "Of ticks that nobody was there for: `fire_once` runs the latest, `skip` none,"
    " `fire_all` each.",
    "misfire_limit": "With `fire_all`: how many at most, the latest of them.",
    "misfire_within": "With `fire_all`: none that is older.",
    "misfire_grace": "How late a tick may be before it counts as missed.",
    "pause_after_failures": "So many dead executions in a row pause the job.",
    "calendar": 'Days on which it does not fire: {"country": "DE"}, and more in the guide.',
    "dst": "When clocks change: what becomes of a time that does not exist (`gap`), or that comes"
    " twice (`fold`).",
    "start_at": "It does not fire before; a time, or a date in its zone.",
    "end_at": "It does not fire after.",
    "max_executions": "After firing so often, it fires no more.",
    "jitter": "Each tick is up to so much later, to spread the load.",
    "dependencies": "Jobs that must have succeeded before it runs: with a schedule, their latest"
    " executions that were due at its time; without one, since it ran last, which fires it.",
    "on_dependency_failure": "What becomes of it when a dependency has failed for good: it waits"
    " on, this time is skipped, or it runs all the same.",
}


def describe_job(schema: dict[str, Any]) -> None:
    """Add to a model's schema what its fields mean."""
    for name, meaning in JOB.items():
        schema["properties"][name]["description"] = meaning
