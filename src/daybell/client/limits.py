"""Limits of a tenant: their numbers, changes at run time, pauses."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec

from daybell.client.context import ClientContext
from daybell.core.flow import (
    CAPACITY_MAX,
    LimitChange,
    LimitState,
    parse_rate,
    read_rates,
)
from daybell.core.limits import text_fault
from daybell.core.options import read_whole
from daybell.core.units import Duration, parse_limit
from daybell.errors import LimitNotFound, UsageError, shown


async def limits(client: ClientContext) -> list[LimitState]:
    """Limits with their numbers, by name."""
    return await client.store.catalog.list_limits(client.tenant)


async def limit(client: ClientContext, name: str) -> LimitState:
    """A limit, with the values of its key that most executions wait for."""
    found = await client.store.catalog.list_limits(client.tenant, _name(name))
    if not found:
        raise _unknown(name)
    return found[0]


async def set_limit(client: ClientContext, name: str, changes: Mapping[str, Any]) -> LimitState:
    """Change the numbers of a limit: `limit` and `rate`. None stands for the declared number. A
    lower limit ends nothing that runs.
    """
    for field in changes:
        if field not in ("limit", "rate"):
            raise UsageError(
                f"a limit has no {shown(field)} to set; it has limit and rate", field=field
            )
    if not changes:
        raise UsageError("nothing to set; name a limit or a rate", field="limit")
    change = LimitChange(
        limit=_limit(changes["limit"]) if "limit" in changes else msgspec.UNSET,
        rates=_rates(changes["rate"]) if "rate" in changes else msgspec.UNSET,
    )
    return await _change(client, name, change)


def _limit(value: Any) -> int | None:
    return None if value is None else read_whole(value, "limit", least=1, most=CAPACITY_MAX)


def _rates(value: Any) -> tuple[tuple[int, float, int | None], ...] | None:
    if value is None:
        return None
    options = read_rates(value, "rate")
    for one in options:
        if one.key is not None or one.name is not None or one.cost != 1:
            raise UsageError("rate: the job has its key, name and cost", field="rate")
    return tuple((*parse_rate(one.rate), one.burst) for one in options)


async def pause_limit(
    client: ClientContext, name: str, *, duration: Duration | None = None, key: str | None = None
) -> LimitState:
    """Let no execution start that needs this limit, for so long or until it is resumed; with a
    key, only those with this value of its key. Running executions go on.
    """
    seconds = inf if duration is None else parse_limit(duration, what="duration")
    return await _change(client, name, LimitChange(pause=seconds, item=_item(key)))


async def resume_limit(client: ClientContext, name: str, *, key: str | None = None) -> LimitState:
    """Resume a limit: all of it, or one value of its key."""
    return await _change(client, name, LimitChange(pause=None, item=_item(key)))


async def _change(client: ClientContext, name: str, change: LimitChange) -> LimitState:
    if not await client.store.catalog.change_limit(client.tenant, _name(name), change):
        raise _unknown(name)
    return await limit(client, name)


def _name(name: object) -> str:
    if not isinstance(name, str) or text_fault(name):
        raise UsageError(f"name={shown(name)} must be the name of a limit", field="name")
    return name


def _item(key: object) -> str | None:
    if key is not None and (not isinstance(key, str) or text_fault(key)):
        raise UsageError(f"key={shown(key)} must be text", field="key")
    return key


def _unknown(name: str) -> LimitNotFound:
    return LimitNotFound(f"no limit named {shown(name)}; a job that uses it makes it")
