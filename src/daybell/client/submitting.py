"""Executions whose ids the caller chose, so that sending them twice creates them once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from daybell.client.coalescer import Coalescer
from daybell.client.likely import hinting
from daybell.client.requests import Arguments, EnqueueOptions, read_args, read_pattern
from daybell.core import payload
from daybell.core.audit import NewEntry
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.limits import check_key, check_name
from daybell.errors import InvalidName
from daybell.store.ids import mint_many
from daybell.store.protocol import Store

# Of a UUIDv7, without its time, version and variant: twelve bits, and after the variant the rest.
_REST_BITS: Final = 62
_FREE_BITS: Final = 12 + _REST_BITS


class Submissions:
    """The verbs of `Client` for executions that were read before, with ids of their own."""

    store: Store
    tenant: str
    _coalescer: Coalescer

    async def _enqueue(
        self, executions: Sequence[NewExecution], entries: Sequence[NewEntry] = ()
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Client`

    async def check_calls(self, executions: Sequence[NewExecution]) -> None:
        raise NotImplementedError  # see `WorkflowCalls`

    async def submit(
        self, new: NewExecution, *, repeat: bool = False, entry: NewEntry | None = None
    ) -> Enqueued:
        """Ask for one execution. `repeat` says that it may have been asked for before; `entry`
        tells the audit log of it, in the same transaction.
        """
        if not repeat:
            await self.check_calls([new])
            async with hinting(self.store, self.tenant, new.job):
                return await self._coalescer.enqueue(new, entry)
        (answer,) = await self.submit_many([new], repeat=True, entry=entry)
        return answer

    async def submit_many(
        self,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entry: NewEntry | None = None,
    ) -> list[Enqueued]:
        """Ask for executions, all or nothing. `repeat` and `entry` as above."""
        entries = () if entry is None else (entry,)
        if not repeat:
            await self.check_calls(executions)
            jobs = {new.job for new in executions}
            # Of several, it is not known here which one is not there.
            async with hinting(self.store, self.tenant, jobs.pop() if len(jobs) == 1 else ""):
                return await self._enqueue(executions, entries)
        return await self.store.enqueue(self.tenant, executions, repeat=True, entries=entries)


def read_new(
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    parent: UUID | None = None,
    id: UUID | None = None,
    **options: Unpack[EnqueueOptions],
) -> NewExecution:
    """What people write about one execution, as a store takes it."""
    pattern = read_pattern(job, **options)
    return replace(
        pattern,
        id=pattern.id if id is None else id,
        args=read_args(args),
        unique_key=None if unique_key is None else check_key(unique_key),
        parent=parent,
    )


def read_many(
    jobs: Sequence[str], args: Sequence[dict[str, Any]], ids: Sequence[UUID] | None = None
) -> list[NewExecution] | None:
    """The same for many that say nothing but what is to run, with arguments read from JSON. None:
    one of them may be wrong, and `read_new` will say how.
    """
    texts = payload.encode_read(args)
    if texts is None or not all(map(is_name, set(jobs))):
        return None
    found = mint_many(len(jobs)) if ids is None else ids
    return [
        NewExecution(id=id, job=job, args=text)
        for id, job, text in zip(found, jobs, texts, strict=True)
    ]


def is_name(text: str) -> bool:
    """Whether a job could have this name."""
    try:
        check_name(text, what="job")
    except InvalidName:
        return False
    return True


def derived(id: UUID, *what: object, rank: int = 0, rank_bits: int = 0) -> UUID:
    """An id that follows from another one, and from what it is for.

    It keeps the time of the first, which orders lists and keeps indexes together. Those that are to
    run one after the other have a rank, in so many bits. All the rest is a hash.
    """
    text = f"{id} {' '.join(map(str, what))}"
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    hashed_bits = _FREE_BITS - rank_bits
    free = rank << hashed_bits | digest & ((1 << hashed_bits) - 1)
    fraction, rest = divmod(free, 1 << _REST_BITS)
    return UUID(int=id.int >> 80 << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | rest)
