"""Find executions by id, part of an id or filter, and cancel or retry them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import typer

from daybell.cli import output
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE, FAILED, print_stderr
from daybell.cli.terminal import confirm
from daybell.client import Client
from daybell.client.executions import fix_bounds
from daybell.client.remote.client import AnyClient
from daybell.client.requests import BOUNDS, Filters, read_bound
from daybell.client.retries import RetryOutcome
from daybell.core.execution import Cancellation
from daybell.core.ids import id_in, mint
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.errors import (
    AccessDenied,
    Conflict,
    ExecutionNotFound,
    JobNotFound,
    NotFound,
    UsageError,
    listed,
    shown,
)
from daybell.settings import Settings

T = TypeVar("T")
EXAMPLE: Final = "01a1e074-1e02-7b87-ae9e-6ec860fb4d7d"
PART_CHARS_MIN: Final = 6  # of an id; a shorter part fits many by chance
PART: Final = re.compile(rf"[0-9a-f-]{{{PART_CHARS_MIN},35}}", re.I)


async def find_execution(client: AnyClient, text: str) -> UUID:
    """Return the execution that an id names, or the beginning or end of one.

    A part of an id is searched among the newest executions, which a person may see on the screen.
    """
    try:
        return UUID(text)
    except ValueError:
        if not PART.fullmatch(text):
            raise UsageError(
                f"{shown(text)} is not an execution id (a UUID such as {EXAMPLE})", field="id"
            ) from None
    part = text.lower()
    fitting: list[str] = []
    for nodes in (False, True):  # a large workflow has more of those than a person looks at
        try:
            newest = (await client.executions(limit=PAGE_ITEMS_MAX, nodes=nodes)).items
        except AccessDenied as error:
            said = str(error).partition("; ")[0]
            raise AccessDenied(f"{said}; give the whole id of the execution") from None
        ids = [str(one.execution_id) for one in newest]
        fitting = fitting or [id for id in ids if id.startswith(part) or id.endswith(part)]
    if not fitting:
        raise ExecutionNotFound(
            f"none of the {PAGE_ITEMS_MAX:,} newest executions has an id that begins or ends with"
            f" {shown(text)}; an id is a UUID such as {EXAMPLE}"
        )
    if len(fitting) > 1:
        raise UsageError(
            f"{shown(text)} fits several executions: {listed(fitting)}; give more of the id",
            field="id",
        )
    return UUID(fitting[0])


async def check_job(client: AnyClient, name: str | None) -> None:
    """Raise JobNotFound for a job that never existed: a misspelt name would look like success."""
    if name is not None and id_in(name) is None:  # an unknown id is refused anyway
        async with explain_missing_job(client, name):
            await client.versions_page(name, limit=1)  # of a deleted one, too


async def check_action(client: AnyClient, act: Callable[[UUID], Awaitable[object]]) -> None:
    """Raise AccessDenied if the key may not do this to an execution. Where none matches, a server
    would not be asked, and a refusal would look as if all was done.
    """
    if not isinstance(client, Client):
        with suppress(NotFound, Conflict):
            await act(mint())  # an id that no execution has


async def none_if_denied(look: Awaitable[T]) -> T | None:
    """Return the result of an optional read, or None if the key has no right to it."""
    try:
        return await look
    except AccessDenied:
        return None


@asynccontextmanager
async def explain_missing_job(client: AnyClient, name: str) -> AsyncGenerator[None]:
    """Add to the error about a missing job that it was deleted, or suggest a similar name."""
    try:
        yield
    except JobNotFound as error:
        try:
            deleted = await client.standing(name)  # of a deleted one, too
        except JobNotFound as told:
            raise told from None
        except (AccessDenied, UsageError):
            raise error from None
        way_out = "it was deleted, and daybell jobs create makes it again"
        if deleted.task == deleted.name:
            # Only code has a task of that name.
            way_out = "it was deleted; a start of its app, or an enqueue in code, makes it again"
        raise JobNotFound(f"no job named {shown(name)}; {way_out}") from None


async def read_moment(client: AnyClient, text: str, what: str) -> float:
    """Return the time of a typed text: a duration means so long ago, by the store's clock."""
    return read_bound(text, what, now=(await client.health()).now)


def describe_filters(filters: Filters) -> str:
    """Describe filters in words, as they follow "3 executions"."""
    words: list[str] = []
    if filters.get("job") is not None:
        words.append(f" of {filters.get('job')}")
    if filters.get("queue") is not None:
        words.append(f" in queue {filters.get('queue')}")
    if status := filters.get("status"):
        words.append(f" that are {' or '.join([status] if isinstance(status, str) else status)}")
    if filters.get("worker") is not None:
        words.append(f" on worker {filters.get('worker')}")
    words += [f" with {name}={value}" for name, value in (filters.get("args") or {}).items()]
    if filters.get("unique_key") is not None:
        words.append(f" with unique key {filters.get('unique_key')}")
    if filters.get("error") is not None:
        words.append(f" with error {filters.get('error')}")
    if filters.get("q") is not None:
        words.append(f" that match {filters.get('q')}")
    words += [
        f" {name.replace('_', ' ')} {bound}"
        for name in BOUNDS
        if (bound := filters.get(name)) is not None
    ]
    return "".join(words)


# Cancelling and retrying executions: by id, or all that match filters.

CANCELLED: Final[Mapping[str, str]] = {
    Cancellation.CANCELLED: "cancelled",
    Cancellation.REQUESTED: "asked to stop",
    Cancellation.FINISHED: "had ended meanwhile",
}
RETRIED: Final[Mapping[str, str]] = {
    RetryOutcome.REVIVED: "run again",
    RetryOutcome.RENEWED: "run again as new executions",
}
# Decisions that were not carried out, with the reason.
FAULTS: Final[Mapping[str, str]] = {
    Cancellation.UNKNOWN: "are gone",
    RetryOutcome.KEY_HELD: "were kept back: another execution has their unique key",
    RetryOutcome.OVER_QUOTA: "were kept back: the tenant's quota has no room for them",
    RetryOutcome.CHANGED: "were decided on by somebody else meanwhile",
    RetryOutcome.REFUSED: "were refused: their job is gone, or takes them no more",
    RetryOutcome.NEEDS_FORCE: (
        "have succeeded or were discarded; --force runs them again, as new ones"
    ),
    RetryOutcome.NOT_RETRYABLE: (
        "have not ended, were skipped, or are nodes, which run with their run"
    ),
}


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments and options of `cancel` or `retry`."""

    verb: str
    ids: list[str] | None
    filters: Filters
    everything: bool = False
    force: bool = False  # retry succeeded executions, too
    from_node: str | None = None  # of a run: where it begins again
    yes: bool = False

    def check(self) -> None:
        """Raise BadParameter unless it selects executions in exactly one way."""
        is_filtered = any(value is not None for value in self.filters.values())
        if bool(self.ids) + is_filtered + self.everything != 1:
            raise typer.BadParameter(
                f"say what to {self.verb}: ids, or filters such as --job, --status, --since, --arg"
                " and --error, or --all"
            )
        if self.from_node is not None and len(self.ids or ()) != 1:
            raise typer.BadParameter("--from is for one run; give its id")


class DecisionResult(NamedTuple):
    """The result for one execution: a word to count, and a line to print."""

    word: str
    line: str


async def apply_decision(
    settings: Settings, *, decision: Selection, tenant: str | None, as_json: bool
) -> int:
    """Cancel or retry the selected executions; return the exit code."""
    async with client_for(settings, tenant=tenant) as client:
        if decision.ids:
            return await _each(client, decision, decision.ids, as_json=as_json)
        return await _all(client, decision, as_json=as_json)


async def _each(
    client: AnyClient, decision: Selection, ids: Sequence[str], *, as_json: bool
) -> int:
    """Cancel or retry each; one failure does not stop the others."""
    act = _cancel if decision.verb == "cancel" else _retry
    # Check all ids first: a typing error is found before anything is done.
    wanted = [await find_execution(client, id) for id in ids]
    answers, refusals = Counter[str](), list[str]()
    for id in dict.fromkeys(wanted):
        try:
            done = await act(client, str(id), decision)
        except (Conflict, NotFound) as error:
            refusals.append(str(error))
            print_stderr(f"error: {error}")
            continue
        answers[done.word] += 1
        if not as_json:
            typer.echo(done.line)
    if as_json:
        output.echo_json({"matched": len(wanted), **answers, "errors": refusals})
    return FAILED if refusals else DONE


async def _cancel(client: AnyClient, id: str, _: Selection) -> DecisionResult:
    answer = await client.cancel(id)
    if answer is Cancellation.FINISHED:
        ended = await none_if_denied(client.execution(id))
        how = "" if ended is None else f", as {ended.status}"
        raise Conflict(f"execution {id} has ended already{how}")
    asked = "is cancelled" if answer is Cancellation.CANCELLED else "runs, and was asked to stop"
    return DecisionResult(str(answer), f"{id} {asked}")


async def _retry(client: AnyClient, id: str, decision: Selection) -> DecisionResult:
    answer = await client.retry(id, force=decision.force, from_=decision.from_node)
    if str(answer.id) == id:
        return DecisionResult(
            str(RetryOutcome.REVIVED), f"{id} runs again{await _as_version(client, id)}"
        )
    version = await _as_version(client, str(answer.id))
    return DecisionResult(str(RetryOutcome.RENEWED), f"{id} runs again as {answer.id}{version}")


async def _as_version(client: AnyClient, id: str) -> str:
    """Describe the version of its job that runs, if it is not the current one."""
    try:
        execution = await client.execution(id)
        current = (await client.job(execution.job)).version
    except (AccessDenied, NotFound):  # the key has no right to read it, or it was deleted meanwhile
        return ""
    if execution.version == current:
        return ""
    return (
        f", as version {execution.version}; the job is at version {current} now:"
        f" `daybell jobs trigger {execution.job}` runs that"
    )


async def _all(client: AnyClient, decision: Selection, *, as_json: bool) -> int:
    """Print the number of executions, ask, and process them in batches."""
    verb, force = decision.verb, decision.force
    await check_job(client, decision.filters.get("job"))
    filters = await fix_bounds(client, decision.filters)
    total = await (
        client.count_cancellable(**filters)
        if verb == "cancel"
        else client.count_retryable(force=force, **filters)
    )
    which = describe_filters(decision.filters)
    if total:
        _ask(decision, total, which)
    else:
        await check_action(client, client.cancel if verb == "cancel" else client.retry)
    answers = Counter[str]()
    with output.show_progress(verb, total=total if total.is_exact else None) as advance:
        if verb == "cancel" and total:
            answers.update(await client.cancel_many(on_step=advance, **filters))
        elif total:
            answers.update(await client.retry_many(force=force, on_step=advance, **filters))
    if as_json:
        matched = int(total) if total.is_exact else sum(answers.values())
        output.echo_json({"matched": matched, **answers})
        return FAILED if any(word in FAULTS for word in answers) else DONE
    return _tell(decision, total, which, answers)


def _ask(decision: Selection, total: int, which: str) -> None:
    dead = decision.verb == "retry" and decision.filters.get("status") is None
    noun = "dead execution" if dead else "execution"
    confirm(f"{decision.verb} {output.format_count(total, noun)}{which}?", yes=decision.yes)


def _tell(decision: Selection, total: int, which: str, answers: Counter[str]) -> int:
    """Report the number of successes, and the reasons of failures."""
    done = CANCELLED if decision.verb == "cancel" else RETRIED
    if not total:
        typer.echo(f"nothing to {decision.verb}: no such executions{which}")
        return DONE
    made = [word for word in done if answers[word]] or [next(iter(done))]
    for word in made:
        typer.echo(f"{answers[word]:,} {done[word]}")
    faults = {word: number for word, number in answers.items() if word in FAULTS}
    for word, number in faults.items():
        print_stderr(f"error: {number:,} {FAULTS[word]}")
    return FAILED if faults else DONE
