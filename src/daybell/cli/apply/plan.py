"""The plan of `daybell apply`: steps to the declared jobs, and their differences."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import msgspec
import typer
from msgspec import UNSET

from daybell.cli import output
from daybell.cli.apply.declarations import Declaration, Declarations
from daybell.cli.apply.files import write_yaml
from daybell.cli.terminal import current_actor
from daybell.client import wire
from daybell.client.declarations import (
    CHANGED,
    CREATED,
    UNCHANGED,
    Change,
    diff_requests,
    is_same_json,
    read_template,
)
from daybell.client.remote.client import AnyClient
from daybell.core.job import NewTemplate, Template, apply_template
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.options import CHOICES
from daybell.errors import (
    DuplicateKey,
    JobNotFound,
    TemplateNotFound,
    UnknownJob,
    UsageError,
    faults_of,
    shown,
)

PRUNED: Final = "pruned"
SOURCE: Final = "apply"  # of jobs from files; with `:NAME`, of the set of that name
ELSEWHERE: Final = ("dependencies", "template")  # fields that name things of other files


@dataclass
class PlannedChange:
    """The planned change of one job or template."""

    noun: Literal["job", "template"]
    name: str
    action: str  # created, changed, unchanged or pruned
    changes: list[Change] = field(default_factory=list[Change])
    warnings: list[str] = field(default_factory=list[str])
    declared: Declaration | None = None  # None: it is in no file
    version: int = 0  # that it is made from, or deleted at; 0: it must be new
    is_done: bool = False


@dataclass
class ApplyPlan:
    """All steps in the order in which they are taken, or all errors."""

    source: str
    steps: list[PlannedChange] = field(default_factory=list[PlannedChange])
    faults: list[str] = field(default_factory=list[str])
    orphans: list[str] = field(default_factory=list[str])  # jobs of this set that are in no file

    def count(self, action: str) -> int:
        """Return the number of steps of a kind."""
        return sum(one.action == action for one in self.steps)


async def make_plan(
    client: AnyClient, found: Declarations, *, source: str, prune: bool
) -> ApplyPlan:
    """Create the plan. Nothing is changed."""
    plan = ApplyPlan(source, faults=found.faults)
    made = await _plan_templates(client, found, plan)
    asked = dict(found.jobs)
    bad: set[str] = set()
    for name, job in asked.items():
        try:
            found.jobs[name] = _filled(job, made)
        except UsageError as error:
            plan.faults += job.told(error)
            bad.add(name)
    for job in found.in_order():
        if job.name in bad:
            continue
        try:
            step = await _job_step(client, job, others=found.jobs, source=source)
        except (UsageError, DuplicateKey) as error:
            faults = faults_of(error) if isinstance(error, UsageError) else (error,)
            # A missing job or template may be in the file that cannot be read.
            plan.faults += [
                line
                for one in faults
                if (found.is_whole or getattr(one, "field", None) not in ELSEWHERE)
                and (job.is_whole or getattr(one, "field", None) != CHOICES[0])
                for line in job.told(one)
            ]
        else:
            plan.steps.append(replace(step, declared=asked[job.name]))
    if not plan.faults:
        orphans = await _orphans(client, found, source)
        plan.orphans = [job.name for job in orphans]
        if prune:
            plan.steps += [
                PlannedChange("job", job.name, PRUNED, version=job.version) for job in orphans
            ]
    return plan


async def apply_step(client: AnyClient, step: PlannedChange, *, source: str) -> None:
    """Apply a step, unless another client has changed the job since the plan was made."""
    author = current_actor()
    if step.action == PRUNED:
        await client.delete_job(step.name, expect=step.version)
    elif step.action != UNCHANGED:
        assert step.declared is not None, "it is in a file"
        fields: dict[str, Any] = step.declared.fields
        if step.noun == "template":
            await client.set_template(fields, author=author, expect=step.version)
        else:
            said: dict[str, Any] = {**fields, "source": source}
            await client.apply_job(step.name, author=author, expect=step.version, **said)
    step.is_done = True


async def _plan_templates(
    client: AnyClient, found: Declarations, plan: ApplyPlan
) -> dict[str, Template]:
    """Add the steps for templates; return the templates as they will be."""
    made: dict[str, Template] = {}
    for declared in found.templates.values():
        try:
            step, template = await _template_step(client, declared)
        except UsageError as error:
            plan.faults += declared.told(error)
            found.is_whole = False
        else:
            plan.steps.append(step)
            made[declared.name] = template
    return made


async def _template_step(
    client: AnyClient, declared: Declaration
) -> tuple[PlannedChange, Template]:
    new = read_template(declared.fields)
    try:
        there = await client.template(declared.name)
    except TemplateNotFound:
        there = None
    before, after = {} if there is None else template_fields(there.template), template_fields(new)
    is_as_it_was = there is not None and is_same_json(before, after)
    version = 0 if there is None else there.version
    step = PlannedChange(
        "template",
        declared.name,
        UNCHANGED if is_as_it_was else CREATED if there is None else CHANGED,
        changes=diff_requests(before, after),
        declared=declared,
        version=version,
    )
    # As it will be, for the jobs that are made from it.
    will_be = version if is_as_it_was else version + 1
    template = Template(tenant="", template=new, version=will_be, created_at=0.0, updated_at=0.0)
    return step, template


def template_fields(template: NewTemplate) -> dict[str, Any]:
    """Return a template as a request would make it again, without its name."""
    said: dict[str, Any] = msgspec.json.decode(template.to_json())
    return {name: value for name, value in said.items() if value not in ("", {})}


def _filled(job: Declaration, made: Mapping[str, Template]) -> Declaration:
    """Return a job with the fields of a template of its files, which the store may not have."""
    named = job.fields.get("template")
    template = made.get(named) if isinstance(named, str) else None
    return job if template is None else replace(job, fields=apply_template(job.fields, template))


def _asked(job: Declaration, others: Mapping[str, Declaration]) -> dict[str, Any]:
    """Return the fields of a job without the jobs of the same files that it depends on: they may
    not exist yet. `in_order` checks all of the set together.
    """
    outer = [name for name in job.dependencies if name not in others]
    is_less = len(outer) < len(job.dependencies)
    return {**job.fields, "dependencies": outer} if is_less else job.fields


async def _check_inner(
    client: AnyClient, job: Declaration, others: Mapping[str, Declaration]
) -> None:
    """Check that jobs which a workflow runs, or which fire a job, exist or are in the files."""
    for name, place in [*job.inner_jobs, *((name, "schedule") for name in job.fired_by)]:
        if name not in others:
            try:
                await client.job(name)
            except JobNotFound:
                raise UnknownJob(
                    f"there is no job named {shown(name)}; create it first", field=place
                ) from None


async def _job_step(
    client: AnyClient, job: Declaration, *, others: Mapping[str, Declaration], source: str
) -> PlannedChange:
    fields: dict[str, Any] = {**_asked(job, others), "source": source}
    inner = [name for name in job.dependencies if name in others]
    await _check_inner(client, job, others)
    applied = await client.apply_job(job.name, dry_run=True, **fields)
    before, after = applied.before or {}, applied.after
    if inner:
        after = {**after, "dependencies": list(dict.fromkeys(job.dependencies))}
    is_new = applied.before is None
    untold = {"name", "source"} if is_new else {"name"}  # fields of a new job that are not shown
    return PlannedChange(
        "job",
        job.name,
        CREATED if is_new else UNCHANGED if is_same_json(before, after) else CHANGED,
        changes=[one for one in diff_requests(before, after) if one.field not in untold],
        warnings=[*applied.warnings, *([] if is_new else _taken_over(before, source))],
        version=0 if applied.job is None else applied.job.version,
    )


def _taken_over(before: Mapping[str, Any], source: str) -> list[str]:
    """Return a warning that the job becomes this set's: it goes when the set's files drop it."""
    owner = before.get("source", "")
    if owner == source:
        return []
    if not owner:
        return ["it belongs to no set; this takes it over"]
    kind, _, name = owner.partition(":")
    whose = owner if kind != SOURCE else f"the set {name}" if name else "the set without a name"
    return [f"it belongs to {whose}; this takes it over"]


async def _orphans(client: AnyClient, found: Declarations, source: str) -> list[wire.JobVersion]:
    """Return the jobs that files of this set declared once, and do no more."""
    orphans: list[wire.JobVersion] = []
    cursor: str | None = None
    while True:
        page = await client.jobs(limit=PAGE_ITEMS_MAX, cursor=cursor)
        orphans += [
            job for job in page.items if job.source == source and job.name not in found.jobs
        ]
        cursor = page.next_cursor
        if cursor is None:
            return orphans


# Differences between two definitions, as users read them.

LINE_CHARS_MAX: Final = 60  # of a value that is shown beside its field
CONTEXT_LINES: Final = 2  # of a long text, around each change
NOTHING: Final = "(not set)"

COLOURS: Final = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}


def echo_change(mark: str, what: str, changes: Sequence[Change]) -> None:
    """Print a thing that is new (+), changed (~) or removed (-), and its differences."""
    echo_marked(f"{mark} {what}")
    for line in lines_of(changes):
        echo_marked(line)


def echo_marked(line: str) -> None:
    """Print a line in the colour of its mark, where there are colours."""
    colour = COLOURS.get(line.lstrip()[:1])
    text = output.printable(line)
    is_plain = colour is None or bool(os.environ.get("NO_COLOR"))
    typer.echo(text if is_plain else typer.style(text, fg=colour))


def lines_of(changes: Iterable[Change]) -> Iterator[str]:
    """Yield lines for users: a field with its old and new value, or the changes of a long text."""
    for change in changes:
        if _is_long(change.before) or _is_long(change.after):
            yield f"    {change.field}:"
            yield from (f"      {line}" for line in _block(change))
        elif change.before is UNSET:
            yield f"    {change.field}: {_short(change.after)}"
        else:
            yield f"    {change.field}: {_short(change.before)} → {_short(change.after)}"


def _is_long(value: Any) -> bool:
    if value is UNSET:
        return False
    return (isinstance(value, str) and "\n" in value) or len(_short(value)) > LINE_CHARS_MAX


def _block(change: Change) -> Iterator[str]:
    before, after = _lines(change.before), _lines(change.after)
    if change.before is UNSET:
        yield from (f"+ {line}" for line in after)
    elif change.after is UNSET:
        yield from (f"- {line}" for line in before)
    else:
        compared = list(difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm=""))
        for line in compared[2:]:  # without the names of files
            yield line if line.startswith("@@") else f"{line[0]} {line[1:]}"
        if not compared:  # they end their lines in other ways
            yield from (f"- {_short(change.before)}", f"+ {_short(change.after)}")


def _lines(value: Any) -> list[str]:
    if value is UNSET:
        return []
    if isinstance(value, str):
        return value.splitlines()
    return write_yaml(value).splitlines()


def _short(value: Any) -> str:
    return NOTHING if value is UNSET else json.dumps(value, ensure_ascii=False)
