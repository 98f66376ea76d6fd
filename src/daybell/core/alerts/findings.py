"""Findings: which subjects meet the condition of a rule, decided from the facts of one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from daybell.core.alerts.rules import AlertRule
from daybell.core.execution import Execution, Failure, State
from daybell.core.job import Job, JobDefinition
from daybell.core.monitoring.stats import Tally
from daybell.core.options import task_of
from daybell.core.placement import words_of_needs
from daybell.core.schedule import Decision, Schedule, TickRecord
from daybell.core.units import Instant, Seconds, format_duration, to_iso
from daybell.core.views import Check, Queue
from daybell.core.worker import TASK, Offer

LEARNT_RUNS_MIN: Final = 20
LEARNT_SECONDS: Final[Seconds] = 30 * 86400.0
LEARNT_LEAST_SECONDS: Final[Seconds] = 60.0  # runs of milliseconds vary by more than a factor
RATE_COUNTS: Final = ("succeeded", "dead")
EVENT_SECONDS: Final[Seconds] = 86400.0  # an older success is no news, whatever is known of it
CHARS_MAX: Final = 500


class Finding(NamedTuple):
    """A subject that meets the condition. A greater `mark` is news about the same subject."""

    subject: str
    detail: str
    mark: str = ""
    is_event: bool = False


def dead_letters(rule: AlertRule, letters: Iterable[Execution]) -> list[Finding]:
    """Find jobs with dead letters. A newer one is news."""
    found: list[Finding] = []
    for job, own in _by_job(rule, letters).items():
        last = max(own, key=_ended_at)
        count = "1 dead letter" if len(own) == 1 else f"{len(own):,} dead letters"
        detail = f"Job {job} has {count}, the last since {_at(last.finished_at)}"
        found.append(Finding(job, _cut(f"{detail}: {_error(last)}"), _mark(last)))
    return found


def failures(rule: AlertRule, job: str, ended: Sequence[Execution]) -> list[Finding]:
    """Find a job of which the last executions are dead. `ended` are the newest, by creation."""
    last = sorted(ended, key=_ended_at, reverse=True)[: rule.count]
    if len(last) < rule.count or any(one.state is not State.DEAD for one in last):
        return []
    many = f"The last {rule.count} executions of job {job} are"
    dead = f"The last execution of job {job} is" if rule.count == 1 else many
    return [Finding(job, _cut(f"{dead} dead: {_error(last[0])}"))]


def successes(rule: AlertRule, ended: Iterable[Execution], *, now: Instant) -> list[Finding]:
    """Find the last success of each job, if it is later than the rule and recent."""
    since = max(rule.since, now - EVENT_SECONDS)
    found: list[Finding] = []
    for job, own in _by_job(rule, ended).items():
        last = max(own, key=_ended_at)
        if _ended_at(last) >= since:
            detail = f"Execution {last.id} of job {job} succeeded at {_at(last.finished_at)}."
            found.append(Finding(job, detail, _mark(last), is_event=True))
    return found


def failure_rate(rule: AlertRule, subject: str, tally: Tally) -> list[Finding]:
    """Find a subject of which too large a part is dead."""
    succeeded, dead = (int(tally.value(name) or 0) for name in RATE_COUNTS)
    ended = succeeded + dead
    if ended < max(1, rule.count) or dead / ended < rule.rate:
        return []
    span = format_duration(rule.within)
    detail = f"{dead:,} of {ended:,} executions ({dead / ended:.0%}) of {subject} are dead"
    return [Finding(subject, f"{detail}, within {span}.")]


def lost_workers(rule: AlertRule, subject: str, tally: Tally) -> list[Finding]:
    """Find a subject that lost workers during its executions."""
    lost = int(tally.value("lost") or 0)
    if lost < rule.count:
        return []
    span = format_duration(rule.within)
    return [Finding(subject, f"{lost:,} executions of {subject} lost their worker within {span}.")]


def learnt_grace(rule: AlertRule, tally: Tally) -> Seconds | None:
    """Return the grace that follows from the runs of a job; None: there are too few of them."""
    runs = sum(tally.run.values())
    p99 = tally.value("run_p99")
    if runs < LEARNT_RUNS_MIN or p99 is None:
        return None
    return max(LEARNT_LEAST_SECONDS, p99 * rule.factor)


# Schedules. One that is paused or has ended raises nothing; a closed day has no ticks.


def is_watched(rule: AlertRule, schedule: Schedule) -> bool:
    """Return True if the ticks of a schedule are expected."""
    return rule.watches(job=schedule.job) and schedule.is_to_fire and not schedule.is_paused


def overdue_tick(schedule: Schedule, due_by: Instant) -> Instant | None:
    """Return the next tick of a schedule if it was due by then, and no scheduler has fired it."""
    at = schedule.next_at
    return at if at is not None and at <= due_by else None


def needs_ticks(schedule: Schedule, due_by: Instant) -> bool:
    """Return True if the recorded ticks decide: it has fired, and not succeeded for `due_by`."""
    done = schedule.succeeded_for
    return (schedule.fired + schedule.missed > 0) and (done is None or done < due_by)


def missed_tick(
    schedule: Schedule, ticks: Iterable[TickRecord], due_by: Instant
) -> TickRecord | None:
    """Return the latest tick that was due by then, if no execution for it or a later one has
    succeeded. A tick that a rule skipped was not expected to run.
    """
    for tick in sorted(ticks, key=lambda one: one.at, reverse=True):
        if tick.at <= due_by and tick.decision is not Decision.SKIPPED:
            done = schedule.succeeded_for
            return tick if done is None or done < (tick.until or tick.at) else None
    return None


def missed_run(schedule: Schedule, at: Instant, why: str) -> Finding:
    """Describe a missed run."""
    which = f"Schedule {schedule.name} of job" if schedule.name else "Job"
    succeeded = schedule.succeeded_for
    last = "never succeeded" if succeeded is None else f"last succeeded for {to_iso(succeeded)}"
    detail = f"{which} {schedule.job} has no success for {to_iso(at)}: {why}. It {last}."
    return Finding(subject_of(schedule), detail)


def subject_of(schedule: Schedule) -> str:
    """Return the subject of a schedule: its job, and the schedule's name if it is not declared."""
    return schedule.job if schedule.is_declared else f"{schedule.job}/{schedule.name}"


def paused(rule: AlertRule, jobs: Iterable[tuple[Job, Schedule]]) -> list[Finding]:
    """Find jobs that their failures have paused."""
    found: dict[str, Finding] = {}
    for job, schedule in jobs:
        limit = job.definition.pause_after_failures
        is_by_failures = limit is not None and schedule.failures >= limit
        if job.paused_at is not None and is_by_failures and rule.watches(job=job.name):
            detail = f"Job {job.name} is {job.pause_note}, since {to_iso(job.paused_at)}."
            found[job.name] = Finding(job.name, detail)
    return list(found.values())


# Executions on their way.


def late_starts(rule: AlertRule, queued: Iterable[Execution], *, now: Instant) -> list[Finding]:
    """Find jobs with executions that are due and have not started in time."""
    grace = rule.grace or 0.0
    late = [one for one in queued if one.attempt == 1 and now - _due_at(one) > grace]
    found: list[Finding] = []
    for job, own in _by_job(rule, late).items():
        first = min(map(_due_at, own))
        waits = format_duration(round(now - first))
        executions = "1 execution" if len(own) == 1 else f"{len(own):,} executions"
        detail = f"{executions} of job {job} not started, due since {to_iso(first)} ({waits} ago)."
        found.append(Finding(job, detail))
    return found


def long_runs(
    rule: AlertRule,
    running: Iterable[Execution],
    graces: Mapping[str, Seconds | None],
    *,
    now: Instant,
) -> list[Finding]:
    """Find jobs with executions that run for longer than the grace of the job; None: not known."""
    found: list[Finding] = []
    for job, own in _by_job(rule, running).items():
        grace = graces.get(job)
        starts = [one.started_at for one in own if one.started_at is not None]
        if grace is None or not starts or now - min(starts) <= grace:
            continue
        runs, usual = format_duration(round(now - min(starts))), format_duration(round(grace))
        detail = f"An execution of job {job} runs for {runs}; the limit is {usual}."
        found.append(Finding(job, detail))
    return found


def queue_ages(rule: AlertRule, queues: Iterable[Queue], *, now: Instant) -> list[Finding]:
    """Find queues whose oldest due execution waits for too long. A paused one raises nothing."""
    found: list[Finding] = []
    for queue in queues:
        oldest = queue.oldest_run_at
        if queue.is_paused or oldest is None or not rule.watches(queue=queue.name):
            continue
        if now - oldest > (rule.grace or 0.0):
            waits = format_duration(round(now - oldest))
            detail = f"{queue.number('queued')} executions wait in queue {queue.name}"
            found.append(Finding(queue.name, f"{detail}, the oldest for {waits}."))
    return found


def without_worker(
    rule: AlertRule,
    queued: Iterable[Execution],
    definitions: Mapping[str, JobDefinition],
    offers: Collection[Offer],
    *,
    paused_queues: Collection[str],
    now: Instant,
) -> list[Finding]:
    """Find queues, kinds and tasks that executions need and no live worker offers."""
    found: dict[str, Finding] = {}
    for one in queued:
        is_due = now - one.run_at > (rule.grace or 0.0)
        if (
            not is_due
            or one.queue in paused_queues
            or not rule.watches(job=one.job, queue=one.queue)
        ):
            continue
        lack = _lack(one, definitions.get(one.job), offers)
        if lack is not None:
            detail = f"Executions of job {one.job} are due in queue {one.queue}; no live worker"
            found[lack[0]] = Finding(lack[0], f"{detail} {lack[1]}.")
    return list(found.values())


def _lack(
    one: Execution, definition: JobDefinition | None, offers: Collection[Offer]
) -> tuple[str, str] | None:
    """Return what an execution needs and no worker offers, as a subject and in words."""
    here = [offer for offer in offers if one.queue in offer.queues]
    if not here:
        return f"queue {one.queue}", "takes that queue"
    if definition is None:
        return None
    needs = definition.needs
    if not any(offer.meets(needs) for offer in here):
        words = words_of_needs(needs)
        return f"queue {one.queue}, kind {words}", f"of it runs the kind {words}"
    task = task_of(definition) or definition.name
    able = (offer for offer in here if offer.meets(needs))
    knows = any(o.tasks is None or o.has(TASK + task, queue=one.queue) for o in able)
    if definition.kind == "task" and not knows:
        return f"queue {one.queue}, task {task}", f"of it has the task {task}"
    return None


def store_health(checks: Iterable[Check]) -> list[Finding]:
    """Find failed checks of the store."""
    return [
        Finding(f"store: {one.name}", _cut(f"{one.found}. {one.advice}"))
        for one in checks
        if not one.is_ok
    ]


def _by_job(rule: AlertRule, executions: Iterable[Execution]) -> dict[str, list[Execution]]:
    """Group the executions that a rule watches by their job."""
    jobs: defaultdict[str, list[Execution]] = defaultdict(list)
    for one in executions:
        if rule.watches(job=one.job, queue=one.queue):
            jobs[one.job].append(one)
    return jobs


def _ended_at(of: Execution) -> Instant:
    return of.created_at if of.finished_at is None else of.finished_at


def _due_at(of: Execution) -> Instant:
    return of.run_at if of.scheduled_for is None else of.scheduled_for


def _mark(of: Execution) -> str:
    """Return the mark of an end; a later end has a greater one."""
    return f"{_ended_at(of):017.6f}:{of.id}"


def _at(instant: Instant | None) -> str:
    return "?" if instant is None else to_iso(instant)


def _error(of: Execution) -> str:
    if of.error is None:
        return of.reason or "no error was recorded"
    failure = Failure.of_kept(of.error)
    return f"{failure.type}: {failure.message}"


def _cut(text: str) -> str:
    return text if len(text) <= CHARS_MAX else f"{text[: CHARS_MAX - 1]}…"
