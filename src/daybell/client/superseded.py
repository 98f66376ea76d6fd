"""Definitions that were current once and were replaced since: an old process of a rolling deploy
has them still, and code that went back to what it was has them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from daybell.client.uses import versions_of
from daybell.core.instant import to_iso
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition
from daybell.errors import NotFound, listed
from daybell.store.protocol import Store

NAMED_MAX: Final = 3


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that somebody has, and the version of the job that counts instead."""

    definition: JobDefinition
    current: Job
    version: int | None = None  # the newest that said the same, where it was looked up


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
        for one in superseded([definition], [current]):
            version = await _version_of(store, one)
            found += [] if version is None else [replace(one, version=version)]
    return found


async def traced(store: Store, found: Sequence[Superseded]) -> list[Superseded]:
    """The same, with the versions of those that are named."""
    named = [replace(one, version=await _version_of(store, one)) for one in found[:NAMED_MAX]]
    return [*named, *found[NAMED_MAX:]]


def described(found: Sequence[Superseded], *, verb: str = "is") -> str:
    """Which jobs these are, with their versions: the first of them, and how many more."""
    return listed((_described(one, verb) for one in found), most=NAMED_MAX)


def way_back(found: Sequence[Superseded]) -> str:
    """What makes the definitions current again."""
    first = found[0]
    tenant = first.current.tenant
    of = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    one = f"`daybell jobs rollback {first.current.name} {first.version}{of}`"
    every = f", or `daybell jobs declare APP{of}` for all jobs of the code"
    return one + (every if len(found) > 1 else "")


def _described(one: Superseded, verb: str) -> str:
    current = one.current
    by = f" by {current.author}" if current.author else ""
    since = f"current {verb} {current.version}, since {to_iso(int(current.created_at))[:19]}Z{by}"
    return f"{current.name} (version {one.version}; {since})"


async def _version_of(store: Store, one: Superseded) -> int | None:
    """The newest version of the job that said the same."""
    async for page in versions_of(store, one.current.tenant, one.current.name):
        for job in page:
            if _is_same(one.definition, job.definition):
                return job.version
    return None


def _is_same(one: JobDefinition, kept: JobDefinition) -> bool:
    # As it is when it is read back: a retry policy's own function is not kept.
    return JobDefinition.from_json(one.to_json()) == kept
