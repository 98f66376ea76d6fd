"""What looks wrong with a job, and is allowed all the same."""

from __future__ import annotations

from typing import Final

import msgspec

from daybell.core.job import JobDefinition
from daybell.core.kinds import CommandSettings
from daybell.core.references import names_in, names_in_args
from daybell.core.worker import WorkerState
from daybell.store.protocol import Store

DEPENDENCIES_WARNING: Final = "dependencies are recorded, and are not waited for yet"

_WAYS_OUT: Final = {
    "command": "start one with --allow-command",
    "notify": "start one that has the extra `notify`",
}


class Warnings:
    """The verb of `Client` for what looks wrong with a job."""

    store: Store
    tenant: str

    async def warnings(self, job: str) -> list[str]:
        """What looks wrong with a job as things are now, in sentences for people."""
        definition = (await self.store.get_job(self.tenant, job)).definition
        return await warnings_about(self.store, self.tenant, definition)


async def warnings_about(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    """What looks wrong with a definition as things are now."""
    found: list[str] = []
    if definition.dependencies:
        found.append(DEPENDENCIES_WARNING)
    if definition.kind == "command":
        settings = CommandSettings.parse(msgspec.json.decode(definition.settings))
        found += settings.warnings
    return [
        *found,
        *await _unset_secrets(store, tenant, definition),
        *await _unoffered(store, tenant, definition),
    ]


async def _unset_secrets(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    used = names_in(msgspec.json.decode(definition.settings))
    used |= names_in_args(msgspec.json.decode(definition.args))
    if not used:
        return []
    known = {one.name for one in await store.list_secrets(tenant)}
    return [
        f"secret {name} is not set, so it fails until `daybell secrets set {name}` was run"
        for name in sorted(used - known)
    ]


async def _unoffered(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    """Of tasks nothing is said: their workers come with the code, often after the job."""
    if definition.kind == "task":
        return []
    now = (await store.health()).now
    for worker in await store.list_workers(tenant):
        is_live = worker.state is WorkerState.LIVE and worker.lease_until > now
        if is_live and definition.queue in worker.queues and definition.needs in worker.kinds:
            return []
    kind = definition.kind
    what = f"{kind} jobs" if definition.needs == kind else f"jobs that need {definition.needs}"
    way_out = _WAYS_OUT.get(kind, "start one that does")
    if kind == "sql":
        way_out = "start one that has this connection"
    return [f"no live worker of queue {definition.queue!r} runs {what}, so it waits; {way_out}"]
