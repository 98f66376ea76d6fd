"""The work of `daybell apply`: create, change and delete jobs so that they match their files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import typer

from daybell.cli import output
from daybell.cli.apply.declarations import Declarations
from daybell.cli.apply.files import ENDINGS, Document, find_files, read_file
from daybell.cli.apply.plan import PRUNED, SOURCE, ApplyPlan, apply_step, echo_change, make_plan
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE, FAILED, MISUSED, describe_error, print_stderr
from daybell.cli.terminal import confirm
from daybell.client import answers
from daybell.client.remote.client import AnyClient
from daybell.core.limits import check_name
from daybell.errors import DaybellError, UsageError, listed
from daybell.settings import Settings

FAULTS_MAX: Final = 50  # faults printed at once
PRUNED_MAX: Final = 100  # deleted jobs to check for dependents: each check reads all jobs


async def apply(
    settings: Settings,
    *,
    named: Sequence[str],
    prune: bool,
    dry_run: bool,
    set_name: str | None,
    yes: bool,
    tenant: str | None,
    as_json: bool,
) -> int:
    source = SOURCE if set_name is None else f"{SOURCE}:{check_name(set_name, what='set')}"
    found = _read(named, prune=prune, is_empty_meant=prune and (yes or dry_run))
    async with client_for(settings, tenant=tenant) as client:
        plan = await make_plan(client, found, source=source, prune=prune)
        if plan.faults:
            return _refuse(plan.faults)
        _warn(plan)
        if not as_json:
            _show(plan, is_pruned=prune)
        if dry_run:
            done = DONE
        else:
            _ask(plan, yes=yes)
            done = await _carry_out(client, plan)
    if as_json:
        _show_json(plan, dry_run=dry_run, is_pruned=prune)
    else:
        _sum_up(plan, dry_run=dry_run)
    return done


def _read(named: Sequence[str], *, prune: bool, is_empty_meant: bool) -> Declarations:
    documents: list[Document] = []
    faults: list[str] = []
    for file in find_files(named):
        try:
            documents += read_file(file)
        except UsageError as error:
            faults.append(str(error))
    found = Declarations(documents)
    found.faults[:0] = faults
    found.is_whole = found.is_whole and not faults
    if not (found.jobs or found.templates or found.faults or is_empty_meant):
        way_out = f"of a folder, files that end with {', '.join(ENDINGS)} are read"
        if prune:
            way_out = "to delete all that were applied before, say --prune --yes"
        raise UsageError(f"there are no jobs in {', '.join(named)}; {way_out}")
    return found


def _refuse(faults: Sequence[str]) -> int:
    for fault in faults[:FAULTS_MAX]:
        print_stderr(f"error: {output.printable(fault)}")
    if len(faults) > FAULTS_MAX:
        print_stderr(f"and {len(faults) - FAULTS_MAX:,} more")
    print_stderr("nothing was changed")
    return MISUSED


def _warn(plan: ApplyPlan) -> None:
    """Print the warnings of the plan, each once, with the jobs that it concerns."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    for step in plan.steps:
        if step.action in ("created", "changed"):
            for warning in step.warnings:
                said[warning].append(step.name)
    for warning, names in said.items():
        print_stderr(f"warning: {output.printable(f'{listed(names)}: {warning}')}")


def _show(plan: ApplyPlan, *, is_pruned: bool) -> None:
    marks = {"created": "+", "changed": "~", PRUNED: "-"}
    for step in plan.steps:
        if step.action in marks:
            what = step.name if step.noun == "job" else f"template {step.name}"
            echo_change(marks[step.action], what, step.changes)
    if unchanged := plan.count("unchanged"):
        typer.echo(f"= {unchanged:,} unchanged")
    if plan.orphans and not is_pruned:
        one = len(plan.orphans) == 1
        typer.echo(
            output.printable(
                f"{output.format_count(len(plan.orphans), 'job')} of this set"
                f" {'is' if one else 'are'} in no"
                f" file; --prune deletes {'it' if one else 'them'}: {listed(plan.orphans)}"
            )
        )


def _ask(plan: ApplyPlan, *, yes: bool) -> None:
    names = [step.name for step in plan.steps if step.action == PRUNED]
    if names:
        confirm(
            f"delete {output.format_count(len(names), 'job')} that no file declares"
            f" ({listed(names)})?"
            " Schedules go, and what has not ended is cancelled.",
            yes=yes,
        )


async def _carry_out(client: AnyClient, plan: ApplyPlan) -> int:
    """Take the steps. If one fails, report the steps taken: repeating it is safe."""
    for step in plan.steps:
        try:
            await apply_step(client, step, source=plan.source)
        except DaybellError as error:
            where = "" if step.declared is None else f"{step.declared.place()}: "
            print_stderr(f"error: {where}{step.noun} {step.name}: {describe_error(error)}")
            return FAILED
    await _warn_of_pruned(client, plan)
    return DONE


async def _warn_of_pruned(client: AnyClient, plan: ApplyPlan) -> None:
    """Warn of jobs that need a deleted one. This comes last: a deleted job needs nothing."""
    pruned = [step for step in plan.steps if step.action == PRUNED]
    for step in pruned[:PRUNED_MAX]:
        try:
            step.warnings = await client.warnings(step.name, deleting=True)
        except DaybellError as error:  # the plan is applied, so this is only a warning
            print_stderr(
                f"warning: who needs what was deleted is not known: {describe_error(error)}"
            )
            return
        for warning in step.warnings:
            print_stderr(f"warning: {output.printable(warning)}")


def _sum_up(plan: ApplyPlan, *, dry_run: bool) -> None:
    words = {"created": "created", "changed": "changed", PRUNED: "deleted"}
    wanted = {word: plan.count(action) for action, word in words.items()}
    said = ", ".join(f"{number:,} {word}" for word, number in wanted.items() if number)
    if not said:
        typer.echo("nothing to do")
    elif dry_run:
        typer.echo(f"nothing was changed; without --dry-run: {said}")
    elif all(step.is_done for step in plan.steps):
        typer.echo(said)
    else:
        left = [one for one in plan.steps if not one.is_done and one.action in words]
        made = [one for one in plan.steps if one.is_done and one.action in words]
        typer.echo(f"done: {listed([one.name for one in made]) or 'nothing'}")
        typer.echo(f"not done: {listed([one.name for one in left])}; repeating it is safe")


def _show_json(plan: ApplyPlan, *, dry_run: bool, is_pruned: bool) -> None:
    items: list[dict[str, Any]] = [
        {
            "kind": step.noun,
            "name": step.name,
            "action": step.action,
            "file": None if step.declared is None else step.declared.place(),
            "changes": [answers.change(change) for change in step.changes],
            "warnings": step.warnings,
            "done": step.is_done,
        }
        for step in plan.steps
    ]
    counts = {word: plan.count(word) for word in ("created", "changed", "unchanged", PRUNED)}
    left = [] if is_pruned else plan.orphans
    said = {"source": plan.source, "dry_run": dry_run, **counts, "in_no_file": left, "items": items}
    output.echo_json(said)
