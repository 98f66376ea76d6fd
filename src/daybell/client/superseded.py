"""Definitions that were current once and were replaced since: an old process of a rolling deploy
has them still, and code that went back to what it was has them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from daybell.core.instant import to_iso
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition
from daybell.errors import NotFound
from daybell.store.protocol import Store

NAMED_MAX: Final = 3


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that somebody has, and the version of the job that counts instead."""

    definition: JobDefinition
    current: Job


def superseded(wanted: Iterable[JobDefinition], answered: Iterable[Job]) -> list[Superseded]:
    """Those of the definitions that `define_jobs` was told of and answered with another one."""
    pairs = zip(wanted, answered, strict=True)
    return [
        Superseded(definition=one, current=job)
        for one, job in pairs
        if not _is_same(one, job.definition)
    ]


async def find_superseded(
    store: Store, tenant: str, wanted: Iterable[JobDefinition]
) -> list[Superseded]:
    """Those of the definitions that the store would not make current, if it were told of them."""
    found: list[Superseded] = []
    for definition in wanted:
        try:
            current = await store.get_job(tenant, definition.name)
        except NotFound:
            continue
        one = Superseded(definition=definition, current=current)
        if superseded([definition], [current]) and await _version_of(store, one) is not None:
            found.append(one)
    return found


async def described(store: Store, found: Sequence[Superseded], *, verb: str = "is") -> str:
    """Which jobs these are, with their versions: the first of them, and how many more."""
    named = [await _described(store, one, verb) for one in found[:NAMED_MAX]]
    more = f" and {len(found) - NAMED_MAX:,} more" if len(found) > NAMED_MAX else ""
    return ", ".join(named) + more


async def way_back(store: Store, found: Sequence[Superseded]) -> str:
    """What makes the definitions current again."""
    first = found[0]
    tenant = first.current.tenant
    of = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    version = await _version_of(store, first)
    one = f"`daybell jobs rollback {first.current.name} {version}{of}`"
    every = f", or `daybell jobs declare APP{of}` for all jobs of the code"
    return one + (every if len(found) > 1 else "")


async def _described(store: Store, one: Superseded, verb: str) -> str:
    current = one.current
    by = f" by {current.author}" if current.author else ""
    since = f"current {verb} {current.version}, since {to_iso(int(current.created_at))[:19]}Z{by}"
    return f"{current.name} (version {await _version_of(store, one)}; {since})"


async def _version_of(store: Store, one: Superseded) -> int | None:
    """The newest version of the job that said the same."""
    versions = await store.list_versions(one.current.tenant, one.current.name)
    same = (job.version for job in versions if _is_same(one.definition, job.definition))
    return next(same, None)


def _is_same(one: JobDefinition, kept: JobDefinition) -> bool:
    # As it is when it is read back: a retry policy's own function is not kept.
    return JobDefinition.from_json(one.to_json()) == kept
