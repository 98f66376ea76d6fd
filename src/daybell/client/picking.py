"""Executions by their ids, one or many: cancelled, or run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from uuid import UUID

from daybell.client.answers import key_held
from daybell.client.bulk import RETRIALS, Retrial, again, complete, is_letter
from daybell.client.filters import sweep_pages
from daybell.client.requests import Id, read_id
from daybell.client.workflows import WorkflowRun
from daybell.core.audit import NewEntry
from daybell.core.execution import Enqueued, Execution, NewExecution, State
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import ExecutionFilter
from daybell.errors import Conflict, listed
from daybell.store.outcomes import Cancellation, Revival
from daybell.store.protocol import Store
from daybell.store.quotas import QUEUED_WAIT_SECONDS, exceeded

Told = Callable[[UUID], NewEntry]  # what the audit log is told of an execution that runs again

_HANDLED: Final = (Revival.REVIVED, Revival.KEY_HELD, Revival.OVER_QUOTA)


class Picks:
    """The verbs of `Client` for executions that are named one by one."""

    store: Store
    tenant: str

    async def submit_many(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Submissions`

    async def _renew(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> Counter[Retrial]:
        raise NotImplementedError  # see `Bulk`

    async def rerun_as(
        self,
        old: Execution,
        new: NewExecution,
        *,
        from_: str | Sequence[str] | None,
        repeat: bool = False,
    ) -> Enqueued:
        raise NotImplementedError  # see `Workflows`

    async def run_of(self, execution: Execution) -> WorkflowRun | None:
        raise NotImplementedError  # see `Workflows`

    async def rerun_cancelled(
        self, olds: Sequence[Execution], request: UUID | None, *, repeat: bool
    ) -> tuple[list[Execution], int]:
        raise NotImplementedError  # see `Workflows`

    async def retry(
        self,
        id: Id,
        *,
        force: bool = False,
        request: UUID | None = None,
        repeat: bool = False,
        told: Told | None = None,
        from_: str | None = None,
    ) -> Enqueued:
        """Run it again: a dead one itself, a cancelled one as a new execution with the same
        arguments. `force` does the latter for one that succeeded, or was discarded.

        Of a workflow's run, what has succeeded is kept, unless `force` is used. `from_` names a
        node of it to begin with, as a new execution; then it may have ended in any way.

        The id of a new one follows from that of a `request`; `repeat` says that it may have been
        asked for before. What is `told` goes to the audit log in the same transaction.
        """
        old = (await self.store.get_execution(self.tenant, read_id(id))).execution
        if old.node is not None:
            raise Conflict(
                f"execution {old.id} is node {old.node} of run {old.parent}; retry that, which goes"
                f" on with what failed (or from this node: --from {old.node})"
            )
        if from_ is not None:
            new = again(old, request)
            with self._telling(told, new.id):
                return await self.rerun_as(old, new, from_=from_, repeat=repeat)
        if is_letter(old):
            with self._telling(told, old.id):
                return await self._revive(old)
        is_over = old.state is State.SUCCEEDED or old.is_discarded
        if old.state is State.CANCELLED or (is_over and force):
            new = again(old, request)
            with self._telling(told, new.id):
                if not is_over and await self.store.get_run(self.tenant, old.id) is not None:
                    return await self.rerun_as(old, new, from_=None, repeat=repeat)
                return await self._run_again(old, new, repeat=repeat)
        if is_over:
            what = "was discarded" if old.is_discarded else "has succeeded"
            failed = await self._failed_in(old)
            raise Conflict(
                f"execution {old.id} {what}{failed}; force=True (or --force) runs it again, as a"
                " new one"
            )
        raise Conflict(
            f"execution {old.id} is {old.state}; only a dead, cancelled or succeeded one can be"
            " retried"
        )

    async def _failed_in(self, old: Execution) -> str:
        """What failed in a run that succeeded all the same, and how to begin with that."""
        run = await self.run_of(old) if old.state is State.SUCCEEDED else None
        if run is None or not run.failed:
            return ""
        first = run.failed[0]
        return (
            f", with failed nodes: {listed(run.failed)}; from_={first!r} (or --from"
            f" {first}) runs that and what depends on it again"
        )

    async def cancel_picked(self, ids: Iterable[Id]) -> Counter[Cancellation]:
        """Cancel these; answers how many went which way. One that cannot be stops no other."""
        answers: Counter[Cancellation] = Counter()
        for some in _batches(ids):
            answers.update(await self.store.cancel(self.tenant, some))
        return answers

    async def retry_picked(
        self,
        ids: Iterable[Id],
        *,
        force: bool = False,
        request: UUID | None = None,
        repeat: bool = False,
    ) -> Counter[Retrial]:
        """Run these again, each as `retry` would; answers how many went which way. One that cannot
        run stops no other. `request` and `repeat` as there.
        """
        answers: Counter[Retrial] = Counter()
        for some in _batches(ids):
            revivals = await self.store.revive(self.tenant, some)
            handled = [one for one in revivals if one in _HANDLED]
            answers.update(RETRIALS[one] for one in handled)
            others = [id for id, one in zip(some, revivals, strict=True) if one not in _HANDLED]
            olds, rest = await self._renewable(others, force=force)
            answers += rest
            olds, begun = await self.rerun_cancelled(olds, request, repeat=repeat)
            answers += Counter({Retrial.RENEWED: begun})
            answers += await self._renew([again(old, request) for old in olds], repeat=repeat)
        return answers

    async def _renewable(
        self, ids: Sequence[UUID], *, force: bool
    ) -> tuple[list[Execution], Counter[Retrial]]:
        """Those of a batch that can run again as new ones, and what is in the way of the rest."""
        rest: Counter[Retrial] = Counter()
        if not ids:
            return [], rest
        where = ExecutionFilter(ids=frozenset(ids))
        pages = sweep_pages(self.store, self.tenant, [where])
        found = [one async for page in pages for one in page]
        rest[Retrial.UNKNOWN] = len(ids) - len(found)
        olds: list[Execution] = []
        for old in found:
            obstacle = _obstacle(old, force=force)
            if obstacle is None:
                olds.append(old)
            else:
                rest[obstacle] += 1
        return await complete(self.store, self.tenant, olds), +rest

    def _telling(self, told: Told | None, id: UUID) -> AbstractContextManager[None]:
        return nullcontext() if told is None else self.store.auditing(self.tenant, told(id))

    async def _revive(self, old: Execution) -> Enqueued:
        (answer,) = await self.store.revive(self.tenant, [old.id])
        if answer is Revival.KEY_HELD:
            raise key_held(old)
        if answer is Revival.OVER_QUOTA:
            most = (await self.store.get_tenant(self.tenant)).quotas.queued or 0
            raise exceeded(self.tenant, "queued", most=most, wait=QUEUED_WAIT_SECONDS)
        if answer is not Revival.REVIVED:
            raise Conflict(f"execution {old.id} is not dead any more; look at it again")
        return Enqueued(old.id, created=False)

    async def _run_again(self, old: Execution, new: NewExecution, *, repeat: bool) -> Enqueued:
        (answer,) = await self.submit_many([new], repeat=repeat)
        if not answer.created:
            raise key_held(old)
        return answer


def _obstacle(old: Execution, *, force: bool) -> Retrial | None:
    """What keeps an execution that is no dead letter from running again as a new one."""
    if old.node is not None:
        return Retrial.NOT_RETRYABLE  # it runs with its run
    if old.state is State.CANCELLED:
        return None
    if old.state is State.SUCCEEDED or old.is_discarded:
        return None if force else Retrial.NEEDS_FORCE
    return Retrial.CHANGED if old.state is State.DEAD else Retrial.NOT_RETRYABLE


def _batches(ids: Iterable[Id]) -> Iterable[Sequence[UUID]]:
    wanted = list(dict.fromkeys(read_id(id) for id in ids))
    for start in range(0, len(wanted), PAGE_ITEMS_MAX):
        yield wanted[start : start + PAGE_ITEMS_MAX]
