"""Cancelling executions and running them again: by id, or all that filters let through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import typer

from daybell.cli import show
from daybell.cli.asking import confirm
from daybell.cli.choosing import check_action, check_job, described, find, unless_denied
from daybell.cli.connecting import client_for
from daybell.cli.edge import DONE, FAILED, complain
from daybell.client.bulk import Retrial
from daybell.client.filters import fix_bounds
from daybell.client.remote.client import AnyClient
from daybell.client.requests import Filters
from daybell.errors import AccessDenied, Conflict, NotFound
from daybell.settings import Settings
from daybell.store.outcomes import Cancellation

CANCELLED: Final[Mapping[str, str]] = {
    Cancellation.CANCELLED: "cancelled",
    Cancellation.REQUESTED: "asked to stop",
    Cancellation.FINISHED: "had ended meanwhile",
}
RETRIED: Final[Mapping[str, str]] = {
    Retrial.REVIVED: "run again",
    Retrial.RENEWED: "run again as new executions",
}
# What was not done, and why.
FAULTS: Final[Mapping[str, str]] = {
    Cancellation.UNKNOWN: "are gone",
    Retrial.KEY_HELD: "were kept back: another execution has their unique key",
    Retrial.OVER_QUOTA: "were kept back: the tenant's quota has no room for them",
    Retrial.CHANGED: "were decided on by somebody else meanwhile",
    Retrial.REFUSED: "were refused: their job is gone, or takes them no more",
    Retrial.NEEDS_FORCE: "have succeeded or were discarded; --force runs them again, as new ones",
    Retrial.NOT_RETRYABLE: "have not ended, were skipped, or are nodes, which run with their run",
}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `cancel` or `retry`."""

    verb: str
    ids: list[str] | None
    filters: Filters
    everything: bool = False
    force: bool = False  # retry what succeeded, too
    from_node: str | None = None  # of a run: where it begins again
    yes: bool = False
    as_json: bool = False

    def check(self) -> None:
        """Raise BadParameter unless it says in one way which executions are meant."""
        is_filtered = any(value is not None for value in self.filters.values())
        if bool(self.ids) + is_filtered + self.everything != 1:
            raise typer.BadParameter(
                f"say what to {self.verb}: ids, or filters such as --job, --status, --since, --arg"
                " and --error, or --all"
            )
        if self.from_node is not None and len(self.ids or ()) != 1:
            raise typer.BadParameter("--from is for one run; give its id")


class Done(NamedTuple):
    """What became of one: a word to count, and a line to print."""

    word: str
    line: str


async def decide(settings: Settings, *, decision: Decision, tenant: str | None) -> int:
    """Do what was decided; answers the exit code."""
    async with client_for(settings, tenant=tenant) as client:
        if decision.ids:
            return await _each(client, decision, decision.ids)
        return await _all(client, decision)


async def _each(client: AnyClient, decision: Decision, ids: Sequence[str]) -> int:
    """Do the same to each; one that cannot be done stops no other."""
    act = _cancel if decision.verb == "cancel" else _retry
    # A typing mistake is found before anything is done.
    wanted = [await find(client, id) for id in ids]
    answers, refusals = Counter[str](), list[str]()
    for id in dict.fromkeys(wanted):
        try:
            done = await act(client, str(id), decision)
        except (Conflict, NotFound) as error:
            refusals.append(str(error))
            complain(f"error: {error}")
            continue
        answers[done.word] += 1
        if not decision.as_json:
            typer.echo(done.line)
    if decision.as_json:
        show.echo_json({"matched": len(wanted), **answers, "errors": refusals})
    return FAILED if refusals else DONE


async def _cancel(client: AnyClient, id: str, _: Decision) -> Done:
    answer = await client.cancel(id)
    if answer is Cancellation.FINISHED:
        ended = await unless_denied(client.execution(id))
        how = "" if ended is None else f", as {ended.execution.state}"
        raise Conflict(f"execution {id} has ended already{how}")
    asked = "is cancelled" if answer is Cancellation.CANCELLED else "runs, and was asked to stop"
    return Done(str(answer), f"{id} {asked}")


async def _retry(client: AnyClient, id: str, decision: Decision) -> Done:
    answer = await client.retry(id, force=decision.force, from_=decision.from_node)
    if str(answer.id) == id:
        return Done(str(Retrial.REVIVED), f"{id} runs again{await _as_version(client, id)}")
    version = await _as_version(client, str(answer.id))
    return Done(str(Retrial.RENEWED), f"{id} runs again as {answer.id}{version}")


async def _as_version(client: AnyClient, id: str) -> str:
    """Which version of its job runs, where that is not the one that people see."""
    try:
        execution = (await client.execution(id)).execution
        current = (await client.job(execution.job)).version
    except (AccessDenied, NotFound):  # of a key that may not look, or deleted meanwhile
        return ""
    if execution.version == current:
        return ""
    return (
        f", as version {execution.version}; the job is at version {current} now:"
        f" `daybell jobs trigger {execution.job}` runs that"
    )


async def _all(client: AnyClient, decision: Decision) -> int:
    """Say how many there are, ask, and do it in batches."""
    verb, force = decision.verb, decision.force
    await check_job(client, decision.filters.get("job"))
    filters = await fix_bounds(client, decision.filters)
    total = await (
        client.count_cancellable(**filters)
        if verb == "cancel"
        else client.count_retryable(force=force, **filters)
    )
    which = described(decision.filters)
    if total:
        _ask(decision, total, which)
    else:
        await check_action(client, client.cancel if verb == "cancel" else client.retry)
    answers = Counter[str]()
    with show.progress(verb, total=total if total.is_exact else None) as advance:
        if verb == "cancel" and total:
            answers.update(await client.cancel_many(on_step=advance, **filters))
        elif total:
            answers.update(await client.retry_many(force=force, on_step=advance, **filters))
    if decision.as_json:
        matched = int(total) if total.is_exact else sum(answers.values())
        show.echo_json({"matched": matched, **answers})
        return FAILED if any(word in FAULTS for word in answers) else DONE
    return _tell(decision, total, which, answers)


def _ask(decision: Decision, total: int, which: str) -> None:
    dead = decision.verb == "retry" and decision.filters.get("status") is None
    noun = "dead execution" if dead else "execution"
    confirm(f"{decision.verb} {show.count(total, noun)}{which}?", yes=decision.yes)


def _tell(decision: Decision, total: int, which: str, answers: Counter[str]) -> int:
    """Say how many went well, and why others did not."""
    done = CANCELLED if decision.verb == "cancel" else RETRIED
    if not total:
        typer.echo(f"nothing to {decision.verb}: no such executions{which}")
        return DONE
    made = [word for word in done if answers[word]] or [next(iter(done))]
    for word in made:
        typer.echo(f"{answers[word]:,} {done[word]}")
    faults = {word: number for word, number in answers.items() if word in FAULTS}
    for word, number in faults.items():
        complain(f"error: {number:,} {FAULTS[word]}")
    return FAILED if faults else DONE
