"""What decisions about runs come to, as rows that are added and changed.

A run may have tens of thousands of nodes, and each is written three times: when it is made, started
and ended. The start is written with its execution, see `starting.py`; the usual end has a statement
of its own, which sends what it changes and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.core.run import UNSTARTED, Advance, Edges, NewNode, Node, NodeState
from daybell.errors import Unavailable
from daybell.store.codes import NODE_CODES, RULE_CODES
from daybell.store.driving import stamped
from daybell.store.postgres.connection import Link
from daybell.store.postgres.run_rows import Held, Moved, Place, Seen, columns, once

SUCCEEDED: Final = NODE_CODES[NodeState.SUCCEEDED]
ALIKE_MIN: Final = 10  # ends that are worth a statement of their own

Changed = tuple[UUID, Node, str | None]  # run, node, result
New = tuple[UUID, NewNode, Mapping[str, str]]  # run, node, results by label


def numbered(first: int, count: int) -> list[str]:
    """So many parameters of a statement."""
    return [f"${number}" for number in range(first, first + count)]


class NodeWrites:
    """Writing, within a transaction that has the locks of the runs."""

    # Each row is found by itself, then changed where it lies: see `Moving.BACK`. What is not sent
    # is zero, false or NULL.
    FOUND_NODES = """
    WITH u AS MATERIALIZED (
      SELECT u.*, x.place
        FROM unnest($2::uuid[], $3::text[], $4::smallint[], $5::int[], $6::int[], $7::int[],
                    $8::int[], $9::int[], $10::int[], $11::int[], $12::int[], $13::boolean[],
                    $14::boolean[], $15::float8[], $16::float8[], $17::uuid[], $18::text[],
                    $19::text[])
             u(run, label, state, succeeded, failed, skipped, told, items, spawned, items_ended,
               items_lost, is_todo, is_ready, started_at, finished_at, execution, reason, result),
             LATERAL (SELECT n.ctid AS place FROM daybell.node n
                       WHERE n.run = coalesce(u.run, ($2::uuid[])[1]) AND n.label = u.label
                         AND n.tenant = $1 LIMIT 1) x)"""
    SET_NODES = """
    UPDATE daybell.node n
       SET state = u.state, succeeded = coalesce(u.succeeded, 0), failed = coalesce(u.failed, 0),
           skipped = coalesce(u.skipped, 0), told = coalesce(u.told, 0),
           items = coalesce(u.items, 0), spawned = coalesce(u.spawned, 0),
           items_ended = coalesce(u.items_ended, 0), items_lost = coalesce(u.items_lost, 0),
           is_todo = coalesce(u.is_todo, false), is_ready = coalesce(u.is_ready, false),
           started_at = u.started_at, finished_at = u.finished_at, execution = u.execution,
           reason = u.reason, result = coalesce(u.result, n.result)
      FROM u WHERE n.ctid = u.place"""
    CHANGE_NODES = f"{FOUND_NODES} {SET_NODES}"
    # Nodes of one run whose executions have ended alike.
    END_NODES = """
    UPDATE daybell.node n
       SET state = $5, told = $6, finished_at = $7, reason = $8, started_at = u.started_at,
           is_todo = false, result = coalesce(u.result, n.result)
      FROM unnest($2::tid[], $3::float8[], $4::text[]) u(place, started_at, result)
     WHERE n.ctid = u.place AND (n.run = $1) IS TRUE
    """
    SET_RUNS = """
    UPDATE daybell.run r
       SET unended = u.unended, running = u.running, ready = u.ready, lost_leaves = u.lost_leaves,
           is_todo = u.is_todo, stopping = u.stopping, failed = u.failed,
           finished_at = u.finished_at, is_blocked = u.is_blocked
      FROM (SELECT u.*, x.place
              FROM unnest({}::uuid[], {}::int[], {}::int[], {}::int[], {}::int[], {}::boolean[],
                          {}::text[], {}::text[], {}::float8[], {}::boolean[])
                   u(id, unended, running, ready, lost_leaves, is_todo, stopping, failed,
                     finished_at, is_blocked),
                   LATERAL (SELECT r.ctid AS place FROM daybell.run r
                             WHERE r.id = u.id AND r.tenant = $1 LIMIT 1) x
            OFFSET 0) u
     WHERE r.ctid = u.place
    """
    CHANGE_RUNS = SET_RUNS.format(*numbered(2, 10))
    # Both at once: most often a few nodes and one run.
    CHANGE_ALL = f"{FOUND_NODES}, n AS ({SET_NODES}) {SET_RUNS.format(*numbered(20, 10))}"

    async def write(
        self,
        link: Link,
        tenant: int,
        held: Mapping[UUID, Held],
        steps: Mapping[UUID, Advance],
        marked: Mapping[UUID, Mapping[str, Node]],
        seen: Seen,
    ) -> None:
        """Keep what has been decided about runs and their nodes. Those that are marked are written
        with their executions.
        """
        changed = [
            (run, stamped(node, held[run].now), step.results.get(node.label))
            for run, step in steps.items()
            for node in step.changed
            if node.label not in marked[run]
        ]
        if len(changed) >= ALIKE_MIN:
            changed = await self._end_nodes(link, changed, seen)
        for run in steps:
            await self._end_moved(link, run, seen.moved.get(run, ()))
        rows = columns([_run_row(step, held[run].now) for run, step in steps.items()])
        if changed:
            await link.execute(self.CHANGE_ALL, tenant, *_trimmed(changed), *rows)
        else:
            await link.execute(self.CHANGE_RUNS, tenant, *rows)
        new = [
            (run, _stamped(one, held[run].now), step.results)
            for run, step in steps.items()
            for one in step.new
        ]
        if new:
            await self.add_nodes(link, tenant, new)

    async def _end_nodes(self, link: Link, changed: Sequence[Changed], seen: Seen) -> list[Changed]:
        """Write usual ends, if there are many; answers the rest."""
        alike: dict[tuple[Any, ...], list[Changed]] = {}
        rest: list[Changed] = []
        for one in changed:
            run, node, _ = one
            if _is_usual_end(node) and node.label in seen.places[run]:
                key = run, node.state, node.told, node.finished_at, node.reason
                alike.setdefault(key, []).append(one)
            else:
                rest.append(one)
        for (run, state, told, finished_at, reason), some in alike.items():
            if len(some) < ALIKE_MIN:
                rest += some
                continue
            results = [result for _, _, result in some]
            places = seen.places[run]
            await self._end_alike(
                link,
                run,
                [places[node.label] for _, node, _ in some],
                [node.started_at for _, node, _ in some],
                results if any(results) else [],
                NODE_CODES[state],
                told,
                finished_at,
                reason,
            )
        return rest

    async def _end_moved(self, link: Link, run: UUID, moved: Iterable[Moved]) -> None:
        alike: dict[tuple[int, Instant], list[Moved]] = {}
        for one in moved:
            told = len(one.same.edges) if one.same.group is None else 1
            alike.setdefault((told, one.finished_at), []).append(one)
        for (told, finished_at), some in alike.items():
            places = [place for one in some for place in one.places]
            starts = [start for one in some for start in one.starts]
            await self._end_alike(link, run, places, starts, [], SUCCEEDED, told, finished_at, None)

    async def _end_alike(self, link: Link, run: UUID, places: list[Place], *values: object) -> None:
        answer = await link.execute(self.END_NODES, run, places, *values)
        if answer != f"UPDATE {len(places)}":
            raise Unavailable("nodes of this run were moved by others; try again")

    async def add_nodes(self, link: Link, tenant: int, new: Iterable[New]) -> None:
        """Keep new nodes: of a run that begins, or items of a mapped one."""
        # What is zero, false or NULL in all of them is so by itself.
        named = _inserted(tenant, list(new))
        used = {name: column for name, column in named.items() if any(column)}
        await link.copy_records_to_table(
            "node",
            schema_name="daybell",
            columns=tuple(used),
            records=zip(*used.values(), strict=True),
        )


def _stamped(new: NewNode, now: Instant) -> NewNode:
    node = stamped(new.node, now)
    return new if node is new.node else msgspec.structs.replace(new, node=node)


def changed_rows(run: UUID, nodes: Iterable[Node]) -> list[list[Any]]:
    """Nodes as CHANGE_NODES takes them, whose results stay."""
    return _trimmed([(run, node, None) for node in nodes])


def _is_usual_end(node: Node) -> bool:
    """Whether it was started, and has ended with nothing left to do: all else is as it was."""
    is_ended = node.execution is not None and node.is_ended
    return is_ended and not node.is_map and not node.is_todo


def _trimmed(changed: Sequence[Changed]) -> list[list[Any]]:
    """Columns for CHANGE_NODES, without what is zero, false or NULL at their ends."""
    rich = [one for one in changed if not _is_plain(one[1])]
    plain = [one for one in changed if _is_plain(one[1])] if len(rich) < len(changed) else []
    run, label, state, *others = columns([_changed(*one) for one in (*rich, *plain)])
    cut = [column if any(column[len(rich) :]) else column[: len(rich)] for column in others]
    return [once(run), label, state, *cut]


def _is_plain(node: Node) -> bool:
    """Whether most of its numbers are zero: those that are not come first."""
    return not node.is_map and not node.parents.total


def _changed(run: UUID, node: Node, result: str | None) -> tuple[Any, ...]:
    """A node as CHANGE_NODES takes it."""
    counts = node.parents
    return (
        run,
        node.label,
        NODE_CODES[node.state],
        counts.succeeded,
        counts.failed,
        counts.skipped,
        node.told,
        node.items,
        node.spawned,
        node.items_ended,
        node.items_lost,
        node.is_todo,
        node.state is NodeState.READY,
        node.started_at,
        node.finished_at,
        node.execution,
        node.reason,
        result,
    )


def _inserted(tenant: int, new: Sequence[New]) -> dict[str, list[Any]]:
    """New nodes by column. Those of a run that begins have not come to anything yet."""
    nodes = [one.node for _, one, _ in new]
    columns = {
        "run": [run for run, _, _ in new],
        "tenant": [tenant] * len(nodes),
        "place": [node.order for node in nodes],
        "state": [NODE_CODES[node.state] for node in nodes],
        "rule": [RULE_CODES[node.rule] for node in nodes],
        "total": [node.parents.total for node in nodes],
        "is_wanted": [node.is_wanted for node in nodes],
        "is_map": [node.is_map for node in nodes],
        "is_ready": [node.state is NodeState.READY for node in nodes],
        "label": [node.label for node in nodes],
        "edges": [_written(node.edges) if node.edges else "[]" for node in nodes],
        "spec": [one.spec for _, one, _ in new],
    }
    if all(node.state in UNSTARTED and node.group is None for node in nodes):
        return columns
    return columns | {
        "succeeded": [node.parents.succeeded for node in nodes],
        "failed": [node.parents.failed for node in nodes],
        "skipped": [node.parents.skipped for node in nodes],
        "told": [node.told for node in nodes],
        "items": [node.items for node in nodes],
        "spawned": [node.spawned for node in nodes],
        "items_ended": [node.items_ended for node in nodes],
        "items_lost": [node.items_lost for node in nodes],
        "is_todo": [node.is_todo for node in nodes],
        "started_at": [node.started_at for node in nodes],
        "finished_at": [node.finished_at for node in nodes],
        "execution": [node.execution for node in nodes],
        "of": [node.group for node in nodes],
        "reason": [node.reason for node in nodes],
        "input": [one.input for _, one, _ in new],
        "result": [results.get(one.node.label) for _, one, results in new],
    }


@lru_cache(maxsize=64)  # many nodes have the same children
def _written(edges: Edges) -> str:
    return msgspec.json.encode(edges).decode()


def _run_row(step: Advance, now: Instant) -> tuple[Any, ...]:
    """A run as CHANGE_RUNS takes it."""
    run = step.run
    return (
        run.id,
        run.left,
        run.running,
        run.ready,
        run.lost_leaves,
        run.is_todo,
        None if run.stopping is None else run.stopping.value,
        run.failed,
        None if step.end is None else now,
        run.is_blocked,
    )
