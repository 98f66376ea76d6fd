"""What looks wrong with a job, and is allowed all the same."""

from __future__ import annotations

from collections.abc import Sequence

from daybell.client.offers import able, lack_of
from daybell.client.uses import left_behind
from daybell.client.workflow_calls import vain_schedules
from daybell.core import payload
from daybell.core.addresses import why_private
from daybell.core.graph import Graph
from daybell.core.job import JobDefinition
from daybell.core.kinds import SETTINGS, read_settings, secrets_of
from daybell.core.kinds.http import PRIVATE
from daybell.core.kinds.warnings import warnings_of
from daybell.core.references import names_in_args
from daybell.core.when import Schedule
from daybell.store.protocol import Store


class Warnings:
    """The verb of `Client` for what looks wrong with a job."""

    store: Store
    tenant: str

    async def warnings(self, job: str, *, deleting: bool = False) -> list[str]:
        """What looks wrong with a job as things are now, in sentences for people; or, of one that
        is to be deleted or was, what goes wrong without it: who needs it, and whether code brings
        it back.
        """
        if deleting:
            known = (await self.store.list_versions(self.tenant, job, limit=1)).items[0]
            return await left_behind(self.store, self.tenant, known)
        definition = (await self.store.get_job(self.tenant, job)).definition
        return await warnings_about(self.store, self.tenant, definition)


async def warnings_about(store: Store, tenant: str, definition: JobDefinition) -> list[str]:
    """What looks wrong with a definition as things are now."""
    rules = [Schedule.from_json(text) for text in definition.schedules]
    found = [warning for rule in rules for warning in rule.warnings()]
    if definition.kind in SETTINGS:
        found += warnings_of(read_settings(definition.kind, payload.decode(definition.settings)))
    graph = None
    if definition.kind == "workflow":
        graph = Graph.from_settings(definition.settings)
        found += _about_nodes(graph)
        schedules = await store.list_schedules(tenant, job=definition.name)
        found += vain_schedules(definition, schedules)
    return [
        *found,
        *await _unset_secrets(store, tenant, definition),
        *await _unoffered(store, tenant, [definition, *_inner(definition, graph)]),
        *await _private(store, tenant, [definition, *_inner(definition, graph)]),
    ]


def _about_nodes(graph: Graph) -> list[str]:
    """What looks wrong with parameters, and with nodes without code, as far as that does not hang
    on results.
    """
    used = {name for node in graph.nodes for name in node.params}
    told = [
        f"parameter {param.name} is used by no node; a node refers to it as"
        f' {{"param": "{param.name}"}}'
        for param in graph.params
        if param.name not in used
    ]
    for node in graph.nodes:
        if node.kind in SETTINGS and not node.outputs and not node.has_item and not node.params:
            said = warnings_of(read_settings(node.kind, node.runs))
            told += [f"node {node.name}: {one}" for one in said]
    return told


def _inner(definition: JobDefinition, graph: Graph | None) -> list[JobDefinition]:
    """How the nodes of a workflow are run that have no code."""
    nodes = () if graph is None else graph.nodes
    return [
        graph.definition_of(node, definition) for node in nodes if graph and node.kind in SETTINGS
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


async def _unoffered(store: Store, tenant: str, definitions: Sequence[JobDefinition]) -> list[str]:
    """Of tasks nothing is said: their workers come with the code, often after the job."""
    lanes = dict.fromkeys((one.queue, one.needs) for one in definitions if one.kind != "task")
    if not lanes:
        return []
    workers, now = await store.list_workers(tenant), (await store.health()).now
    lacks = [
        lack_of(needs, queue=queue)
        for queue, needs in lanes
        if not able(workers, queue=queue, needs=needs, now=now)
    ]
    return [f"{lack.found}, so it waits; {lack.advice}" for lack in lacks]


async def _private(store: Store, tenant: str, definitions: Sequence[JobDefinition]) -> list[str]:
    """Of requests to addresses that workers refuse unless they are told otherwise."""
    places: dict[tuple[str, str], None] = {}
    for one in definitions:
        url = payload.decode(one.settings).get("url") if one.kind == "http" else None
        why = why_private(url) if isinstance(url, str) else None
        if why is not None:
            places[one.queue, why] = None
    if not places:
        return []
    workers, now = await store.list_workers(tenant), (await store.health()).now
    lacks = [
        (lack_of(PRIVATE, queue=queue), why)
        for queue, why in places
        if not able(workers, queue=queue, needs=PRIVATE, now=now)
    ]
    return [f"{lack.found}, and {why}, so it would fail; {lack.advice}" for lack, why in lacks]
