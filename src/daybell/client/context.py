"""The context of a client: the store, the tenant, and the state that its operations share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from typing import Any, Final, Self
from uuid import UUID

from daybell.client.sealing import NEW_KEY, VARIABLE, KeyMissing, Sealer
from daybell.core import payload
from daybell.core.access import NewAuditEntry
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.units import Seconds
from daybell.core.views import Health
from daybell.core.workflow.graph import Params
from daybell.errors import DaybellError, Unavailable
from daybell.store.protocol import Store
from daybell.store.shares import set_holder

# Single enqueues that come at the same time go to the store together. The first is sent at once;
# all that come while it is on its way form the next group. So a lone enqueue waits for nothing, and
# fifty at once are one statement instead of fifty.

GROUP_MAX: Final = 1000


Waiting = tuple[NewExecution, NewAuditEntry | None, "asyncio.Future[Enqueued]"]


class Coalescer:
    """Groups the single enqueues of one event loop into statements."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._waiting: list[Waiting] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, new: NewExecution, entry: NewAuditEntry | None = None) -> Enqueued:
        """Enqueue one, perhaps together with others; their errors are not its. `entry` tells the
        audit log of it, in the same transaction.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Enqueued] = loop.create_future()
        self._waiting.append((new, entry, answer))
        if self._sender is None:
            self._sender = loop.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        set_holder(None)  # one statement at a time for all keys of a tenant needs no turn
        group: list[Waiting] = []
        try:
            while self._waiting:
                group = self._waiting[:GROUP_MAX]
                del self._waiting[:GROUP_MAX]
                await self._send_group(group)
        except BaseException as error:  # the loop ends
            left, self._waiting = [*group, *self._waiting], []
            _fail(left, error)
            raise
        finally:
            self._sender = None

    async def _send_group(self, group: list[Waiting], *, repeat: bool = False) -> None:
        try:
            entries = [entry for _, entry, _ in group if entry is not None]
            answers = await self._store.queue.enqueue(
                self._tenant, [new for new, _, _ in group], repeat=repeat, entries=entries
            )
        except Unavailable as error:
            if repeat or not error.was_sent:
                _fail(group, error)
            else:
                # Perhaps the store committed it and only the answer is lost: the ids show that.
                await self._send_group(group, repeat=True)
        except DaybellError as error:
            # One of them is at fault, and the group was all or nothing: by halves, then.
            if len(group) == 1:
                _fail(group, error)
                return
            middle = len(group) // 2
            await self._send_group(group[:middle], repeat=repeat)
            await self._send_group(group[middle:], repeat=repeat)
        except Exception as error:
            _fail(group, error)  # an internal error; the waiting callers get it
        else:
            for (_, _, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(group: list[Waiting], error: BaseException) -> None:
    for _, _, future in group:
        if not future.done():
            future.set_exception(error)


# The parameters of each workflow, or the signature of a task, with the time of the answer.
# None: the job takes any arguments, or its signature is not known.
Takes = Params | payload.Signature
ParamsCache = dict[str, tuple[Seconds, Takes | None]]


KNOWN_JOBS_MAX: Final = 10_000
KNOWN_JOBS_SECONDS: Final = 600.0


class JobIds:
    """Ids of jobs by tenant and name. A job keeps its id, also if it is deleted and created again;
    a name gets another id only long after its job was removed. So the ids are kept for a while.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], UUID] = OrderedDict()
        self._until = 0.0

    async def find(self, store: Store, tenant: str, names: Iterable[str]) -> dict[str, UUID]:
        """The ids of these jobs of a tenant."""
        wanted = set(names)
        now = asyncio.get_running_loop().time()
        if now > self._until:
            self._known.clear()
            self._until = now + KNOWN_JOBS_SECONDS
        found = {
            name: self._known[tenant, name] for name in wanted if (tenant, name) in self._known
        }
        missing = sorted(wanted - found.keys())
        for start in range(0, len(missing), PAGE_ITEMS_MAX):
            found |= await store.catalog.job_ids(tenant, missing[start : start + PAGE_ITEMS_MAX])
        self._known.update({(tenant, name): found[name] for name in missing if name in found})
        while len(self._known) > KNOWN_JOBS_MAX:
            self._known.popitem(last=False)
        return found


class ClientContext:
    """The first argument of the operations of a client: functions, grouped by room."""

    def __init__(self, store: Store, *, tenant: str, place: str, secrets_key: str | None) -> None:
        self.store = store
        self.tenant = tenant
        self.place = place  # the store, for messages
        self.secrets_key = secrets_key
        self.coalescer = Coalescer(store, tenant)
        self.known_job_ids = JobIds()  # shared by the clients of one store
        self.last_overviews: OrderedDict[str, Any] = OrderedDict()  # the same, by tenant
        self.known_params: ParamsCache = {}
        self.asked_params: dict[str, asyncio.Task[Takes | None]] = {}  # by job
        # Called before a caller waits for an execution: without a worker, it may run it.
        self.on_wait: Callable[[UUID], Awaitable[None]] | None = None
        self._sealer: Sealer | None = None

    def audited(self, entry: NewAuditEntry) -> Self:
        """Return this client with an audit entry: its first change stores the entry in the same
        transaction. Not for `enqueue` and `submit`, which travel with others: see `record`.
        """
        view = copy(self)
        view.store = self.store.audited(self.tenant, entry)
        return view

    async def health(self) -> Health:
        """Return the health that the store reports."""
        return await self.store.health()

    def sealer(self) -> Sealer:
        """Return the sealer of the key in the settings. Raises UsageError if there is none."""
        if self._sealer is None:
            if self.secrets_key is None:
                raise KeyMissing(
                    f"secrets are sealed with a key, and {VARIABLE} is not set here. Make one with"
                    f" `{NEW_KEY}`, keep it, and give the same one to servers and workers",
                    field="secrets_key",
                )
            self._sealer = Sealer(self.secrets_key)
        return self._sealer
