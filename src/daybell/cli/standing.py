"""Jobs as people see them: what they do now, when they run next, and what their schedules mean."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.cli.doing import in_full, in_short
from daybell.cli.in_workflows import Users, in_words
from daybell.core.dependencies import any_jobs
from daybell.core.instant import Instant
from daybell.core.job import Job, JobDefinition
from daybell.core.schedule import Schedule
from daybell.core.standing import Standing
from daybell.core.view import Counts
from daybell.core.when import Schedule as Rule
from daybell.core.when.zone import local
from daybell.errors import InvalidSchedule

OVERDUE_SECONDS: Final = 30.0  # a scheduler that is there is never so late
SHOWN_MAX: Final = 2  # schedules of a job in one line; run time may add hundreds


def echo_jobs(
    standings: Sequence[Standing], *, now: Instant, empty: str, users: Users | None = None
) -> None:
    """Print jobs as a table, their times seen from the store's `now`. `users` are workflows that
    they are nodes of.
    """
    users = users or {}
    rows = [
        (
            one.job.name,
            one.status,
            next_run(one, now=now),
            _last(one, now),
            _in_brief([words(schedule) for schedule in one.schedules[:SHOWN_MAX]], one.schedules)
            or in_words(users.get(one.job.name, ())),
            in_short(one.job.definition),
            one.job.definition.queue,
            one.job.definition.priority.label,
            one.job.version,
            one.job.definition.description,
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
    show.echo_table(columns, rows, empty=empty)


def echo_job(one: Standing, counts: Counts, *, now: Instant) -> None:
    """Print all that is known of a job."""
    job, definition = one.job, one.job.definition
    counted = ", ".join(f"{counts.of(state):,} {state}" for state in counts)
    is_scheduled = bool(one.schedules)
    overlap = definition.overlap_rule(is_scheduled=is_scheduled)
    show.echo_fields(
        {
            "name": job.name,
            "description": definition.description,
            "status": one.status,
            "paused": _paused(one),
            "next run": next_run(one, now=now),
            "last run": _last(one, now),
            "version": f"{job.version}, since {show.moment(job.created_at)}"
            + ("" if job.is_current else " (not the current one)"),
            **in_full(definition),
            "arguments": "" if definition.args == "{}" else definition.args,
            "queue": definition.queue,
            "priority": definition.priority.label,
            "retries": definition.retry.retries,
            "timeout": None if definition.timeout is None else show.length(definition.timeout),
            "expires": None if definition.expires is None else show.length(definition.expires),
            "overlap": overlap if is_scheduled or definition.overlap is not None else None,
            "misfire": definition.misfire,
            "user": definition.user_id,
            "depends on": _dependencies(one),
            "if one fails": definition.on_dependency_failure if definition.upstream else None,
            "source": definition.source,
            "executions": counted or "none yet",
            "id": job.id,
        }
    )
    if not job.is_current:
        # What it would be if it were current; nothing of it stands anywhere.
        show.echo_fields({f"schedule {n}": describe(text) for n, text in numbered(definition)})
        return
    for schedule in one.schedules:
        said = {f"schedule {schedule.name}".rstrip(): words(schedule)}
        show.echo_fields(said | _tally(schedule, now, is_paused=job.paused_at is not None))


def _in_brief(first: Sequence[str], every: Sized) -> str:
    """The first ones of all schedules in one line, and how many more there are."""
    more = len(every) - len(first)
    return "; ".join(first) + (f"; and {more:,} more" if more else "")


def _dependencies(one: Standing) -> str:
    """What it depends on; of the current version each with how it stands, if that is known."""
    if not one.waits_for or not one.job.is_current:
        return ", ".join(one.job.definition.dependencies)
    return ", ".join(f"{each.job} ({each.detail})" for each in one.waits_for)


def echo_versions(versions: Sequence[Job]) -> None:
    """Print the versions of a job as a table."""
    rows = [
        (
            f"{job.version} (current)" if job.is_current else job.version,
            show.moment(job.created_at),
            job.author,
            _in_brief(
                [describe(text) for text in job.definition.schedules[:SHOWN_MAX]],
                job.definition.schedules,
            ),
            in_short(job.definition),
            job.definition.queue,
            job.definition.description,
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
    show.echo_table(columns, rows, empty="no versions")


def numbered(definition: JobDefinition) -> list[tuple[str, str]]:
    """The schedules that a definition declares, by the names that they have."""
    is_single = len(definition.schedules) == 1
    return [("" if is_single else str(n), text) for n, text in enumerate(definition.schedules)]


def words(schedule: Schedule) -> str:
    """What a schedule means, in words."""
    return describe(schedule.rule)


def describe(rule: str) -> str:
    """What a rule means, in words."""
    try:
        return Rule.from_json(rule).describe()
    except InvalidSchedule as error:
        return f"cannot be read: {error}"


def next_run(one: Standing, *, now: Instant | None = None) -> str:
    """When a job runs next, by the clock of that schedule, with its offset; marked if that should
    have been before `now`.
    """
    for schedule in one.schedules:
        if schedule.next_at is not None and schedule.next_at == one.next_run_at:
            return _next_time(schedule.next_at, schedule, now)
    return ""


def _next_time(at: Instant, schedule: Schedule, now: Instant | None) -> str:
    is_overdue = now is not None and at < now - OVERDUE_SECONDS
    return f"{on_clock(at, schedule)}{' (overdue)' if is_overdue else ''}"


def on_clock(at: Instant, schedule: Schedule) -> str:
    """A time as the clocks of a schedule's zone show it."""
    try:
        zone = Rule.from_json(schedule.rule).tz
    except InvalidSchedule:
        zone = "UTC"
    text = local(at, zone).isoformat(sep=" ", timespec="seconds")
    return f"{text} {zone}" if zone != "UTC" else f"{text[:19]}Z"


def _tally(schedule: Schedule, now: Instant, *, is_paused: bool) -> dict[str, object]:
    """Where a schedule stands, and what became of its ticks."""
    at = schedule.next_at
    numbers = {"fired": schedule.fired, "skipped": schedule.skipped, "missed": schedule.missed}
    waits = "when the execution before it has ended" if schedule.delay is not None else "never"
    if schedule.since is not None:
        is_any = bool(any_jobs((schedule.rule,)))
        waits = "when any of these has succeeded" if is_any else "when these have succeeded"
    if schedule.is_reboot:
        waits = "when schedulers start after none was there"
    due = _next_time(at, schedule, now) if at is not None else waits
    return {
        "  next": "paused" if is_paused else due,
        "  last": None if schedule.last_at is None else on_clock(schedule.last_at, schedule),
        "  ticks": ", ".join(f"{count:,} {word}" for word, count in numbers.items() if count)
        or "none yet",
        "  dead": f"{schedule.failures:,} in a row" if schedule.failures else None,
        "  arguments": "" if schedule.args == "{}" else schedule.args,
        "  overlap by": None if schedule.is_declared else schedule.overlap_by,
    }


def _paused(one: Standing) -> str | None:
    if one.job.paused_at is None:
        return None
    note = f": {one.job.pause_note}" if one.job.pause_note else ""
    return f"since {show.moment(one.job.paused_at)}{note}"


def _last(one: Standing, now: Instant) -> str:
    last = one.last_execution
    if last is None:
        return ""
    at = last.finished_at or last.started_at or last.run_at
    return f"{last.state}, {show.relative(at, now=now)}"
