"""Many executions at once, by what they have in common: cancelled, or run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from daybell.client.dead_letters import Step, silently
from daybell.client.filters import Sweep, resolve_filter, sweep_pages
from daybell.client.requests import Filters
from daybell.client.submitting import derived
from daybell.core.execution import TERMINAL, Enqueued, Execution, NewExecution, State
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import ExecutionFilter, Page, Total, total_of
from daybell.errors import DaybellError, QuotaExceeded, Unavailable, UsageError
from daybell.store.ids import mint
from daybell.store.outcomes import Cancellation, Revival
from daybell.store.protocol import Store

UNFINISHED: Final = frozenset(State) - TERMINAL
RETRIED: Final = frozenset({State.DEAD, State.CANCELLED})


class Retrial(StrEnum):
    """What became of one that should run again."""

    REVIVED = "revived"  # the dead execution itself
    RENEWED = "renewed"  # a new execution with the same arguments
    KEY_HELD = "key_held"  # another unfinished execution of the job has its unique key
    OVER_QUOTA = "over_quota"  # the tenant's quota has no room for it now
    CHANGED = "changed"  # it was not what it had been any more
    NEEDS_FORCE = "needs_force"  # it has succeeded or was discarded: only `force` runs it again
    NOT_RETRYABLE = "not_retryable"  # it has not ended, was skipped, or is a node of a run
    REFUSED = "refused"  # its job is gone, or no longer takes it
    UNKNOWN = "unknown"


class Bulk:
    """The verbs of `Client` for all executions that filters let through.

    They go through what is there, newest first and in batches, and pass over what comes later.
    """

    store: Store
    tenant: str

    async def where(self, **filters: Unpack[Filters]) -> ExecutionFilter:
        """Return filters as the store takes them."""
        return await resolve_filter(self.store, self.tenant, filters)

    async def submit_many(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Submissions`

    async def rerun_cancelled(
        self, olds: Sequence[Execution], request: UUID | None, *, repeat: bool
    ) -> tuple[list[Execution], int]:
        raise NotImplementedError  # see `Workflows`

    async def count_cancellable(self, **filters: Unpack[Filters]) -> Total:
        """How many `cancel_many` would cancel."""
        return await self._count([unfinished(await self.where(**filters))])

    async def cancel_many(
        self,
        *,
        sweep: Sweep | None = None,
        on_step: Step = silently,
        **filters: Unpack[Filters],
    ) -> Counter[Cancellation]:
        """Cancel what has not ended; answers how many went which way."""
        where = unfinished(await self.where(**filters))
        return await self._cancel_where(where, on_step, sweep)

    async def count_retryable(self, *, force: bool = False, **filters: Unpack[Filters]) -> Total:
        """How many `retry_many` would run again."""
        return await self._count(retryable(await self.where(**filters), force=force))

    async def retry_many(
        self,
        *,
        force: bool = False,
        request: UUID | None = None,
        repeat: bool = False,
        sweep: Sweep | None = None,
        on_step: Step = silently,
        **filters: Unpack[Filters],
    ) -> Counter[Retrial]:
        """Run ended ones again, each as `retry` would; answers how many went which way.

        Without a status only dead ones are meant: others become new executions, again with every
        call. So cancelled ones have to be named, and succeeded ones need `force` as well.
        `request` and `repeat` are as `retry` has them.
        """
        answers: Counter[Retrial] = Counter()
        wheres = retryable(await self.where(**filters), force=force)
        async for some in sweep_pages(self.store, self.tenant, wheres, sweep):
            dead = [one.id for one in some if is_letter(one)]
            others = await complete(
                self.store, self.tenant, (one for one in some if not is_letter(one))
            )
            revivals = await self.store.revive(self.tenant, dead) if dead else []
            answers.update(RETRIALS[answer] for answer in revivals)
            others, begun = await self.rerun_cancelled(others, request, repeat=repeat)
            answers += Counter({Retrial.RENEWED: begun})
            news = [again(one, request) for one in others]
            answers += await self._renew(news, repeat=repeat)
            on_step(len(some))
        return answers

    async def _renew(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> Counter[Retrial]:
        if not executions:
            return Counter()
        try:
            made = await self.submit_many(executions, repeat=repeat)
        except Unavailable:
            raise
        except DaybellError as error:
            # One of them is at fault, and the batch was all or nothing: by halves, then.
            is_full = isinstance(error, QuotaExceeded)
            if len(executions) == 1:
                return Counter({Retrial.OVER_QUOTA if is_full else Retrial.REFUSED: 1})
            # As repeats: the refusal may be the answer to the second of two tries.
            middle = len(executions) // 2
            first = await self._renew(executions[:middle], repeat=True)
            if first[Retrial.OVER_QUOTA]:
                return first + Counter({Retrial.OVER_QUOTA: len(executions) - middle})
            return first + await self._renew(executions[middle:], repeat=True)
        return Counter(Retrial.RENEWED if one.created else Retrial.KEY_HELD for one in made)

    async def _cancel_where(
        self, where: ExecutionFilter, on_step: Step = silently, sweep: Sweep | None = None
    ) -> Counter[Cancellation]:
        answers: Counter[Cancellation] = Counter()
        async for some in sweep_pages(self.store, self.tenant, [where], sweep):
            answers.update(await self.store.cancel(self.tenant, [one.id for one in some]))
            on_step(len(some))
        return answers

    async def _count(self, wheres: Sequence[ExecutionFilter]) -> Total:
        if any(where.content is not None for where in wheres):
            found = sweep_pages(self.store, self.tenant, wheres)
            return Total(sum([len(some) async for some in found]))
        counts = [await self.store.count_executions(self.tenant, where) for where in wheres]
        return total_of(one.total for one in counts)


def newest_of(
    store: Store, tenant: str, where: ExecutionFilter
) -> Callable[[str | None], Awaitable[Page[Execution]]]:
    """Read one page of executions after another."""
    return lambda cursor: store.list_executions(tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor)


async def complete(store: Store, tenant: str, found: Iterable[Execution]) -> list[Execution]:
    """Executions of a list with the values that lists leave out."""
    return [
        (await store.get_execution(tenant, one.id)).execution if one.truncated else one
        for one in found
    ]


def is_letter(execution: Execution) -> bool:
    """Whether it is dead and no person has decided on it."""
    return execution.state is State.DEAD and not execution.is_discarded


def again(old: Execution, request: UUID | None = None) -> NewExecution:
    """A new execution like one that has ended. Its id may follow from that of a request."""
    return NewExecution(
        id=mint() if request is None else derived(request, "again", old.id),
        job=old.job,
        args=old.args,
        queue=old.queue,
        priority=old.priority,
        expires_in=None if old.expires_at is None else old.expires_at - old.run_at,
        unique_key=old.unique_key,
        retries=old.retries,
        timeout=old.timeout,
        gate=old.gate,
        scheduled_for=old.scheduled_for,
        schedule=old.schedule,
        parent=old.parent,
    )


def unfinished(where: ExecutionFilter) -> ExecutionFilter:
    """The same without what has ended: what can be cancelled."""
    states = UNFINISHED if where.states is None else where.states & UNFINISHED
    if not states:
        raise UsageError(
            f"what is {_listed(where.states or ())} has ended and cannot be cancelled",
            field="status",
        )
    return replace(where, states=states)


def retryable(where: ExecutionFilter, *, force: bool) -> list[ExecutionFilter]:
    """A filter for each state that can be retried: of the dead, only letters unless forced."""
    allowed = RETRIED | {State.SUCCEEDED} if force else RETRIED
    states = frozenset({State.DEAD}) if where.states is None else where.states
    if others := states - allowed:
        more = "" if force else ", and succeeded ones with force"
        raise UsageError(
            f"what is {_listed(others)} cannot be retried; dead and cancelled ones can{more}",
            field="status",
        )
    return [
        replace(where, states=frozenset({state}), dead_letters=state is State.DEAD and not force)
        for state in sorted(states)
    ]


def _listed(states: Iterable[State]) -> str:
    return " or ".join(sorted(states))


RETRIALS: Final = {
    Revival.REVIVED: Retrial.REVIVED,
    Revival.KEY_HELD: Retrial.KEY_HELD,
    Revival.OVER_QUOTA: Retrial.OVER_QUOTA,
    Revival.NOT_LISTED: Retrial.CHANGED,  # it was when it was looked up
    Revival.UNKNOWN: Retrial.CHANGED,
}
