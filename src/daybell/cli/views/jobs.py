"""Text views of jobs: status, next run, schedules, and a summary of the work."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID

import msgspec
import typer

from daybell.cli import output
from daybell.cli.output import Column
from daybell.cli.references import format_references
from daybell.client import Client, wire
from daybell.client.remote.client import AnyClient
from daybell.core import payload
from daybell.core.job import JobDefinition
from daybell.core.kinds import (
    SETTINGS,
    CommandSettings,
    HttpSettings,
    NotifySettings,
    SqlSettings,
    read_settings,
)
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.options import task_of
from daybell.core.schedule import any_jobs
from daybell.core.units import Instant
from daybell.core.when import Schedule as Rule
from daybell.core.when.declared import is_fired_by_event
from daybell.core.when.zone import local
from daybell.core.workflow.graph import Graph, params_of
from daybell.core.workflow.node import JOB
from daybell.errors import ExecutionNotFound, InvalidSchedule, UsageError, listed

# The work of a job, in words.

NODES_MAX: Final = 8  # of a workflow, that are named


def summarize_job(definition: JobDefinition) -> str:
    """Describe the work of a job in a line."""
    match _settings(definition):
        case CommandSettings() as command:
            return _line(command)
        case HttpSettings() as request:
            return f"{request.method} {format_references(request.url)}"
        case SqlSettings() as sql:
            return f"{sql.connection}: {' '.join(sql.statement.split())}"
        case NotifySettings() as message:
            return f"tells {_places(message)}: {format_references(message.title or message.body)}"
        case Graph() as graph:
            return _nodes(graph)
        case _:
            return task_of(definition) or ("" if definition.kind == "task" else definition.kind)


def describe_job(definition: JobDefinition) -> dict[str, object]:
    """Describe the work of a job in full, by name of the part."""
    return {"kind": definition.kind, **_parts(definition), "template": _template(definition)}


def _parts(definition: JobDefinition) -> dict[str, object]:
    match _settings(definition):
        case CommandSettings() as command:
            is_usual = command.success_codes == (0,)
            return {
                "command": _line(command),
                "directory": command.directory,
                "environment": _mapping(command.env, "="),
                "stdin": None if command.stdin is None else format_references(command.stdin),
                "exit codes": None if is_usual else f"{_codes(command.success_codes)} are fine",
                "retried": None if command.retry_codes is None else _codes(command.retry_codes),
                "grace": None if command.grace == 5 else output.format_duration(command.grace),
                "output": None if command.output == "text" else f"read as {command.output}",
            }
        case HttpSettings() as request:
            is_usual = request.expect == ("2xx",)
            return {
                "request": f"{request.method} {format_references(request.url)}",
                "headers": _mapping(request.headers, ": "),
                "body": None if request.body is None else format_references(request.body),
                "expects": None if is_usual else _codes(request.expect),
                "redirects": request.redirects or None,
                "signed by": None if request.sign is None else format_references(request.sign),
            }
        case SqlSettings() as sql:
            return {
                "connection": sql.connection,
                "statement": sql.statement.strip(),
                "parameters": _mapping(sql.parameters, "="),
            }
        case NotifySettings() as message:
            return {
                "tells": _places(message),
                "title": format_references(message.title),
                "body": format_references(message.body),
            }
        case Graph() as graph:
            return {
                "nodes": _nodes(graph),
                "parameters": _params(graph),
                "at a time": graph.max_running,
                "fail fast": "yes" if graph.fail_fast else None,
            }
        case _:
            return {"task": task_of(definition)}


def _settings(definition: JobDefinition) -> Any:
    if definition.kind == "workflow":
        return Graph.from_settings(definition.settings)
    if definition.kind not in SETTINGS:
        return None
    try:
        return read_settings(definition.kind, payload.decode(definition.settings))
    except UsageError:  # of another version of the program, or unreadable
        return None


def _line(command: CommandSettings) -> str:
    if isinstance(command.run, str):
        return f"sh -c {shlex.quote(command.run)}" if command.shell else command.run
    return " ".join(shlex.quote(word) if isinstance(word, str) else format_references(word)
                    for word in command.run)  # fmt: skip


def _nodes(graph: Graph) -> str:
    return f"{output.format_count(len(graph.order), 'node')}: {listed(graph.order, most=NODES_MAX)}"


def _params(graph: Graph) -> str | None:
    """Return the parameters of a run, with defaults."""
    told = [
        f"{one.name} (must be given)"
        if one.is_required
        else f"{one.name}={format_references(one.default)}"
        for one in graph.params
    ]
    return ", ".join(told) or None


def required_args(definition: JobDefinition) -> str:
    """Return the arguments that a trigger must give besides the name: those that a workflow
    requires, and has no `args` of its own for.
    """
    if definition.kind != "workflow" or definition.args != "{}":
        return ""
    needed = [f'"{one.name}": …' for one in params_of(definition.settings) if one.is_required]
    return f" --args '{{{', '.join(needed)}}}'" if needed else ""


def _places(message: NotifySettings) -> str:
    """Return the recipients of a message: only schemes, since addresses often have a password."""
    ways = [
        f"{one.partition('://')[0]}://…"
        if isinstance(one, str) and "://" in one
        else format_references(one)
        for one in message.to
    ]
    return ", ".join(ways)


def _mapping(values: Mapping[str, Any], mark: str) -> str:
    return ", ".join(f"{name}{mark}{format_references(value)}" for name, value in values.items())


def _codes(codes: tuple[int | str, ...]) -> str:
    return ", ".join(map(str, codes))


def _template(definition: JobDefinition) -> str | None:
    if not definition.template:
        return None
    made_from = cast("dict[str, Any]", msgspec.json.decode(definition.template))
    given = _mapping(made_from.get("parameters", {}), "=")
    said = f"{made_from.get('name')}, version {made_from.get('version')}"
    return f"{said} ({given})" if given else said


# Jobs that are nodes of workflows: in a list they look as if they waited for a person.

RUNS_MAX: Final = 20  # runs that are read one by one
RUNS_OVER_HTTP_MAX: Final = 3  # a server answers with all of a run's nodes, which may be thousands

Users = Mapping[str, Sequence[str]]  # the workflows, by the jobs and tasks that they run


async def find_workflow_users(
    client: AnyClient, shown: Sequence[wire.Job], *, is_all: bool
) -> Users:
    """Return the workflows that run these jobs. If these are not all jobs, read the first page of
    the others: users with more workflows know them.
    """
    if all(one.schedules for one in shown):
        return {}
    if is_all:
        return workflows_by_job(one.definition for one in shown)
    page = await client.jobs(limit=PAGE_ITEMS_MAX)
    return workflows_by_job(job.definition for job in page.items)


async def find_run_workflows(client: AnyClient, shown: Sequence[wire.Execution]) -> dict[UUID, str]:
    """Return the workflows of the runs that these are nodes of, by run. Workflows of runs that are
    not shown are read, up to a number that takes no long wait.
    """
    found = {one.execution_id: one.job for one in shown}
    asked = {one.workflow_id: None for one in shown if one.workflow_id is not None}
    most = RUNS_MAX if isinstance(client, Client) else RUNS_OVER_HTTP_MAX
    for run in [one for one in asked if one not in found][:most]:
        with suppress(ExecutionNotFound):  # it was cleaned up meanwhile
            found[run] = (await client.execution(run)).job
    return found


def workflows_by_job(definitions: Iterable[JobDefinition]) -> Users:
    """Return the names of workflows by those of the tasks and jobs that are nodes in them."""
    users: dict[str, list[str]] = defaultdict(list)
    for definition in definitions:
        if definition.kind == "workflow":
            nodes = Graph.from_settings(definition.settings).nodes
            for runs in {str(node.runs) for node in nodes if node.kind in (JOB, "task")}:
                users[runs].append(definition.name)
    return users


def describe_workflows(workflows: Sequence[str]) -> str:
    """Return the text that a job has in place of its schedules."""
    if not workflows:
        return ""
    first, *others = sorted(workflows)
    return f"node of {first}" + (f" and {len(others):,} more" if others else "")


OVERDUE_SECONDS: Final = 30.0  # a scheduler that is there is never so late
SHOWN_MAX: Final = 2  # schedules of a job in one line; run time may add hundreds


def echo_jobs(
    standings: Sequence[wire.Job], *, now: Instant, empty: str, users: Users | None = None
) -> None:
    """Print jobs as a table, their times seen from the store's `now`. `users` are workflows that
    they are nodes of.
    """
    users = users or {}
    rows = [
        (
            one.name,
            one.status,
            next_run(one, now=now),
            _last(one, now),
            _in_brief(
                [describe_schedule(schedule) for schedule in one.schedules[:SHOWN_MAX]],
                one.schedules,
                has_more=one.has_more_schedules,
            )
            or describe_workflows(users.get(one.name, ())),
            summarize_job(one.definition),
            one.queue,
            one.priority,
            one.version,
            one.description,
        )
        for one in standings
    ]
    columns = (
        Column("name", least=20, rank=0),
        Column("status"),
        Column("next run", rank=2),
        Column("last run", rank=3),
        Column("schedule", least=16, rank=4),
        Column("runs", least=16, rank=6),
        Column("queue", least=8, rank=5),
        Column("priority", rank=8),
        Column("version", rank=9),
        Column("description", least=16, rank=7),
    )
    output.echo_table(columns, rows, empty=empty)


def echo_job(one: wire.Job, counts: wire.StateCounts, *, now: Instant) -> None:
    """Print all that is known of a job."""
    job, definition = one, one.definition
    counted = ", ".join(f"{counts.of(state):,} {state}" for state in counts.executions)
    is_scheduled = bool(one.schedules)
    overlap = definition.overlap_rule(is_scheduled=is_scheduled)
    output.echo_fields(
        {
            "name": job.name,
            "description": definition.description,
            "status": one.status,
            "paused": _paused(one),
            "next run": next_run(one, now=now),
            "last run": _last(one, now),
            "version": f"{job.version}, since {output.format_moment(job.created_at)}"
            + ("" if job.is_current else " (not the current one)"),
            **describe_job(definition),
            "arguments": format_args(job.args),
            "queue": definition.queue,
            "priority": definition.priority.label,
            "retries": definition.retry.retries,
            "timeout": None
            if definition.timeout is None
            else output.format_duration(definition.timeout),
            "expires": None
            if definition.expires is None
            else output.format_duration(definition.expires),
            "overlap": overlap if is_scheduled or definition.overlap is not None else None,
            "misfire": definition.misfire,
            "user": definition.user_id,
            "depends on": _dependencies(one),
            "if one fails": definition.on_dependency_failure if definition.upstream else None,
            "keep": ", ".join(f"{name} {time}" for name, time in definition.keep.write().items()),
            "source": definition.source,
            "executions": counted or "none yet",
            "id": job.job_id,
        }
    )
    if not job.is_current:
        # Show the schedules as they would be if the version were current; they have no state.
        output.echo_fields(
            {f"schedule {n}": describe_rule(rule) for n, rule in name_schedules(one.schedules)}
        )
        return
    for schedule in one.schedules:
        said = {f"schedule {schedule.name}".rstrip(): describe_schedule(schedule)}
        output.echo_fields(said | _tally(schedule, now, is_paused=job.paused_at is not None))
    if one.has_more_schedules:
        typer.echo(f"and more schedules; daybell jobs schedules {shlex.quote(job.name)} lists all")


def _in_brief(first: Sequence[str], every: Sized, *, has_more: bool = False) -> str:
    """Return the first ones of all schedules in one line, and the number of others; with
    `has_more`, there are others beside `every`.
    """
    more = len(every) - len(first) + has_more
    least = "at least " if has_more else ""
    return "; ".join(first) + (f"; and {least}{more:,} more" if more else "")


def _dependencies(one: wire.Job) -> str:
    """Return its dependencies; for the current version each with its state, if that is known."""
    if not one.waits_for or not one.is_current:
        return ", ".join(one.definition.dependencies)
    return ", ".join(f"{each.job} ({each.detail})" for each in one.waits_for)


def echo_versions(versions: Sequence[wire.JobVersion]) -> None:
    """Print the versions of a job as a table."""
    rows = [
        (
            f"{job.version} (current)" if job.is_current else job.version,
            output.format_moment(job.created_at),
            job.author,
            _in_brief(
                [describe_rule(rule) for rule in job.schedules[:SHOWN_MAX]],
                job.schedules,
            ),
            summarize_job(job.definition),
            job.queue,
            job.description,
        )
        for job in versions
    ]
    columns = (
        Column("version"),
        Column("since"),
        Column("author", least=8, rank=2),
        Column("schedule", least=16, rank=1),
        Column("runs", least=16, rank=2),
        Column("queue", least=8, rank=3),
        Column("description", least=16, rank=4),
    )
    output.echo_table(columns, rows, empty="no versions")


def echo_schedules(schedules: Sequence[wire.Schedule], *, now: Instant) -> None:
    """Print the schedules of a job as a table."""
    rows = [
        (
            one.name,
            describe_schedule(one),
            "paused" if one.is_paused else _due(one, now),
            "" if one.last_run_at is None else format_local_time(one.last_run_at, one),
            one.fired,
            one.skipped,
            one.missed,
            format_args(one.args),
        )
        for one in schedules
    ]
    columns = (
        Column("name", least=8),
        Column("schedule", least=16),
        Column("next run"),
        Column("last run", rank=1),
        Column("fired", rank=2),
        Column("skipped", rank=3),
        Column("missed", rank=3),
        Column("arguments", least=8, rank=4),
    )
    output.echo_table(columns, rows, empty="no schedules")


def name_schedules(rules: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the schedules that a definition declares, by name."""
    is_single = len(rules) == 1
    return [("" if is_single else str(n), rule) for n, rule in enumerate(rules)]


def describe_schedule(schedule: wire.Schedule) -> str:
    """Describe a schedule in words."""
    return describe_rule(schedule.rule)


def format_args(args: Mapping[str, Any] | None) -> str:
    """Return the arguments of a job or a schedule; nothing if there are none."""
    return wire.encode(args).decode() if args else ""


def _read_rule(rule: Any) -> Rule:
    return Rule.from_json(wire.encode(rule).decode())


def describe_rule(rule: Any) -> str:
    """Describe a rule in words."""
    try:
        return _read_rule(rule).describe()
    except InvalidSchedule as error:
        return f"cannot be read: {error}"


def next_run(one: wire.Job, *, now: Instant | None = None) -> str:
    """Return the time when a job runs next, by the clock of that schedule, with its offset; marked
    if that should have been before `now`.
    """
    for schedule in one.schedules if one.is_current else ():
        if schedule.next_run_at is not None and schedule.next_run_at == one.next_run_at:
            return _next_time(schedule.next_run_at, schedule, now)
    return ""


def _next_time(at: datetime, schedule: wire.Schedule, now: Instant | None) -> str:
    is_overdue = now is not None and at.timestamp() < now - OVERDUE_SECONDS
    return f"{format_local_time(at, schedule)}{' (overdue)' if is_overdue else ''}"


def format_local_time(at: datetime, schedule: wire.Schedule) -> str:
    """Return a time as the clocks of a schedule's zone show it."""
    try:
        zone = _read_rule(schedule.rule).tz
    except InvalidSchedule:
        zone = "UTC"
    text = local(at.timestamp(), zone).isoformat(sep=" ", timespec="seconds")
    return f"{text} {zone}" if zone != "UTC" else f"{text[:19]}Z"


def _tally(schedule: wire.Schedule, now: Instant, *, is_paused: bool) -> dict[str, object]:
    """Return the state of a schedule, and the counts of its ticks."""
    numbers = {"fired": schedule.fired, "skipped": schedule.skipped, "missed": schedule.missed}
    return {
        "  next": "paused" if is_paused else _due(schedule, now),
        "  last": None
        if schedule.last_run_at is None
        else format_local_time(schedule.last_run_at, schedule),
        "  ticks": ", ".join(f"{count:,} {word}" for word, count in numbers.items() if count)
        or "none yet",
        "  dead": f"{schedule.failures:,} in a row" if schedule.failures else None,
        "  arguments": format_args(schedule.args),
        "  overlap by": None if schedule.is_declared else schedule.overlap_by,
    }


def _due(schedule: wire.Schedule, now: Instant) -> str:
    """Return the time when a schedule fires next, or the event that it depends on."""
    if schedule.next_run_at is not None:
        return _next_time(schedule.next_run_at, schedule, now)
    waits = "when the execution before it has ended" if schedule.delay is not None else "never"
    if schedule.since is not None:
        is_any = bool(any_jobs((wire.encode(schedule.rule).decode(),)))
        waits = "when any of these has succeeded" if is_any else "when these have succeeded"
    if is_fired_by_event(schedule.rule):
        waits = "with its next event"
    if schedule.is_reboot:
        waits = "when schedulers start after none was there"
    return waits


def _paused(one: wire.Job) -> str | None:
    if one.paused_at is None:
        return None
    note = f": {one.pause_note}" if one.pause_note else ""
    return f"since {output.format_moment(one.paused_at)}{note}"


def _last(one: wire.Job, now: Instant) -> str:
    last = one.last_execution
    if last is None:
        return ""
    at = last.finished_at or last.started_at or last.run_at
    return f"{last.status}, {output.format_relative(at, now=now)}"
