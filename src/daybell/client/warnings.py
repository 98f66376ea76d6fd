"""What looks wrong with a job, and is allowed all the same."""

from __future__ import annotations

from daybell.client.offers import able, lack_of
from daybell.core import payload
from daybell.core.job import JobDefinition
from daybell.core.kinds import SETTINGS, read_settings, secrets_of
from daybell.core.kinds.warnings import warnings_of
from daybell.core.references import names_in_args
from daybell.store.protocol import Store


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
    if definition.kind in SETTINGS:
        found += warnings_of(read_settings(definition.kind, payload.decode(definition.settings)))
    return [
        *found,
        *await _unset_secrets(store, tenant, definition),
        *await _unoffered(store, tenant, definition),
    ]


async def _unset_secrets(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    used = secrets_of(definition.kind, payload.decode(definition.settings))
    used |= names_in_args(payload.decode(definition.args))
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
    queue, needs = definition.queue, definition.needs
    workers, now = await store.list_workers(tenant), (await store.health()).now
    if able(workers, queue=queue, needs=needs, now=now):
        return []
    lack = lack_of(needs, queue=queue)
    return [f"{lack.found}, so it waits; {lack.advice}"]
