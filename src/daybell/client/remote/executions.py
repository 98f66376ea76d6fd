"""Executions over HTTP: asking for them, looking at them, cancelling and repeating one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Unpack

from msgspec.structs import replace

from daybell.client.answers import EnqueuedMany
from daybell.client.moments import read_step
from daybell.client.remote import reading, run_reading, writing
from daybell.client.remote.transport import Transport, path_of
from daybell.client.requests import Arguments, EnqueueOptions, Filters, Id, read_id
from daybell.client.timeline import Story
from daybell.client.why import Reason
from daybell.client.workflows import WorkflowRun
from daybell.core.execution import Enqueued, Execution, ExecutionDetail, State
from daybell.core.instant import from_iso
from daybell.core.limits import ENQUEUE_BATCH_MAX, PAGE_ITEMS_DEFAULT, check_name
from daybell.core.view import Counts, Page
from daybell.errors import ExecutionNotFound, UsageError
from daybell.store.outcomes import Cancellation


class Executions:
    """The verbs of `Client` for executions, one at a time."""

    transport: Transport

    async def enqueue(
        self,
        job: str,
        args: Arguments | None = None,
        *,
        unique_key: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Ask for one execution of a job. Once this has answered, it is on disk.

        A `unique_key` that an unfinished execution of the job holds answers with that execution
        and `created=False`.
        """
        said = writing.execution(
            job, args or {}, unique_key=unique_key, what="enqueue()", **options
        )
        (answer,) = await self._enqueue([{"job": job, **said}])
        return answer

    async def enqueue_many(
        self, job: str, args: Iterable[Arguments], **options: Unpack[EnqueueOptions]
    ) -> EnqueuedMany:
        """Ask for one execution per item, all or nothing: up to 10,000, in one request."""
        check_name(job, what="job")
        given = list(islice(args, ENQUEUE_BATCH_MAX + 1))
        if len(given) > ENQUEUE_BATCH_MAX:
            raise UsageError(
                f"one request takes {ENQUEUE_BATCH_MAX:,} executions at most; send them in several,"
                " or enqueue on the database",
                field="args",
            )
        items = [
            {
                "job": job,
                **writing.execution(job, one, unique_key=None, what="enqueue_many()", **options),
            }
            for one in given
        ]
        answers = await self._enqueue(items) if items else []
        return EnqueuedMany(count=len(answers), executions=tuple(answers))

    async def _enqueue(self, items: list[dict[str, Any]]) -> list[Enqueued]:
        read = reading.items_of(reading.enqueued)
        return await self.transport.post("/executions", items, once=True, read=read)

    async def execution(self, id: Id) -> ExecutionDetail:
        """One execution, with its ended attempts."""
        path = path_of("executions", read_id(id))
        return await self.transport.get(path, read=reading.detail)

    async def why(self, id: Id) -> Reason:
        """Why it has not run, or has not ended. Only the server knows all that may be in its way:
        a tenant's quotas are not for every key to read.
        """
        execution = (await self.execution(id)).execution
        path = path_of("executions", read_id(id), "why")

        def read(of: reading.Wire) -> Reason:
            at = of["next_at"]
            return Reason(
                execution=replace(execution, state=State(of["status"])),
                word=str(of["reason"]),
                detail=str(of["detail"]),
                next_at=None if at is None else from_iso(at),
            )

        return await self.transport.get(path, read=read)

    async def executions(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[Execution]:
        """Executions, newest first. A status is a state, or "pending": not started, not ended."""
        asked = {**writing.parameters(filters), "limit": limit, "cursor": cursor}
        read = reading.page_of(reading.execution)
        return await self.transport.get("/executions", asked, read=read)

    async def count(self, **filters: Unpack[Filters]) -> Counts:
        """How many executions there are in each state."""
        return await self._counts(writing.parameters(filters))

    async def _counts(self, asked: dict[str, Any]) -> Counts:
        return await self.transport.get("/counts", asked, read=_counts)

    async def cancel(self, id: Id) -> Cancellation:
        """Cancel an execution: at once if it has not started, else by asking it to stop."""
        # Asked as one of many, since that tells one that had ended before from one that ends now.
        body = {"ids": [str(read_id(id))]}
        outcome = await self.transport.post("/executions/cancel", body, read=_only)
        if outcome is Cancellation.UNKNOWN:
            raise ExecutionNotFound(f"no execution {id}")
        return outcome

    async def run(self, id: Id) -> WorkflowRun | None:
        """The nodes of a workflow's run, as they stand; None: it is of another kind."""
        path = path_of("executions", read_id(id))
        return await self.transport.get(path, read=run_reading.run)

    async def story(self, id: Id) -> Story:
        """One execution, with its steps or nodes, and what happened to it, as the server says."""
        return await self.transport.get(path_of("executions", read_id(id)), read=_story)

    async def retry(self, id: Id, *, force: bool = False, from_: str | None = None) -> Enqueued:
        """Run it again: a dead one itself, a cancelled one as a new execution with the same
        arguments. `force` does the latter for one that succeeded, or was discarded.

        Of a workflow's run, what has succeeded is kept, unless `force` is used. `from_` names a
        node of it to begin with, as a new execution; then it may have ended in any way.
        """
        path = path_of("executions", read_id(id), "retry")
        body = {"force": force, **({} if from_ is None else {"from": from_})}
        return await self.transport.post(path, body, once=True, read=reading.enqueued)


def _counts(of: reading.Wire) -> Counts:
    counts = {State(word): int(number) for word, number in of["executions"].items()}
    return Counts(counts, at_least=map(State, of.get("at_least", ())))


def _story(of: reading.Wire) -> Story:
    return Story(
        detail=reading.detail(of),
        steps=[read_step(one) for one in of["steps"]],
        run=run_reading.run(of),
        told_steps=of["steps"],
        timeline=of["timeline"],
    )


def _only(of: reading.Wire) -> Cancellation:
    """What became of the only one."""
    (outcome,) = (one for one in Cancellation if of.get(one))
    return outcome
