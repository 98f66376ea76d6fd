"""Runs that have ended, and begin again: themselves, or as a run of their own.

Until they are claimed and expanded, they look as if they were over, but for the nodes that have not
ended: nobody goes on with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from daybell.core.restart import Restart, restart
from daybell.core.run import Node, Run
from daybell.store.driving import is_over
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.progressing import Progressing
from daybell.store.postgres.run_rows import NODE_COLUMNS, Held, read_node
from daybell.store.postgres.run_writes import changed_rows

# Of nodes that a run takes over from another: all but the run.
COPIED: Final = (
    "tenant", "place", "state", "rule", "total", "succeeded", "failed", "skipped", "told",
    "items", "spawned", "items_ended", "items_lost", "is_wanted", "is_map", "is_todo",
    "is_ready", "started_at", "finished_at", "execution", "label", "of", "reason", "edges", "spec",
    "input", "result",
)  # fmt: skip


class Resetting(Progressing):
    """Rows of runs, put back."""

    ALL_NODES = f"""
    SELECT {NODE_COLUMNS} FROM daybell.node n WHERE n.run = $2 AND n.tenant = $1
    """

    async def all_nodes(self, link: Link, tenant: int, run: UUID) -> list[Node]:
        """All that a run consists of, items as well."""
        return [read_node(row) for row in await link.fetch(self.ALL_NODES, tenant, run)]

    async def reset_runs(
        self, link: Link, tenant: int, held: Mapping[UUID, Held], runs: Collection[UUID]
    ) -> None:
        """Have dead runs begin again with what did not succeed, once they are claimed."""
        for run in runs:
            one = held.get(run)
            if one is not None and is_over(one.run):
                again = restart(one.run, await self.all_nodes(link, tenant, run))
                await link.execute(self.DROP_ITEMS, tenant, run, list(again.dropped))
                await self._put_back(link, tenant, again)

    DROP_ITEMS = """
    DELETE FROM daybell.node WHERE run = $2 AND tenant = $1 AND of = ANY($3::text[])
    """
    FORGET_RESULTS = """
    UPDATE daybell.node SET result = NULL WHERE run = $2 AND tenant = $1 AND label = ANY($3::text[])
    """
    RESET_RUN = """
    UPDATE daybell.run
       SET unended = $3, running = 0, ready = $4, lost_leaves = $5, failed = $6, stopping = NULL,
           is_todo = false
     WHERE id = $2 AND tenant = $1
    """

    async def _put_back(self, link: Link, tenant: int, again: Restart) -> None:
        run = again.run
        if again.changed:
            rows = changed_rows(run.id, again.changed)
            await link.execute(self.CHANGE_NODES, tenant, *rows)
        await link.execute(self.FORGET_RESULTS, tenant, run.id, list(again.forgotten))
        await link.execute(
            self.RESET_RUN, tenant, run.id, run.left, run.ready, run.lost_leaves, run.failed
        )

    COPY_NODES = f"""
    INSERT INTO daybell.node (run, {", ".join(COPIED)})
    SELECT $3, {", ".join(f"n.{column}" for column in COPIED)}
      FROM daybell.node n
     WHERE n.run = $2 AND n.tenant = $1 AND (n.of IS NULL OR n.of <> ALL($4::text[]))
    """

    async def take_over(
        self, link: Link, tenant: int, old: UUID, again: Restart, execution: Row
    ) -> None:
        """Keep a new run, whose execution was enqueued, with the nodes of an old one."""
        run = again.run
        await self.keep_run(link, tenant, run, execution, depth=0, parent=None)
        await link.execute(self.COPY_NODES, tenant, old, run.id, list(again.dropped))
        await self._put_back(link, tenant, again)
        await link.execute(self.REST, tenant, run.id)

    # It is not to be taken for one that goes on: nobody has begun it.
    REST = "UPDATE daybell.run SET finished_at = daybell.now() WHERE id = $2 AND tenant = $1"

    BEGIN = """
    INSERT INTO daybell.run (id, tenant, total, unended, running, ready, max_running, fail_fast,
           is_todo, job, version, lane, priority, depth, gate, schedule, parent, node)
    VALUES ($2, $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
    """

    async def keep_run(
        self,
        link: Link,
        tenant: int,
        run: Run,
        execution: Row,
        *,
        depth: int,
        parent: UUID | None,
    ) -> None:
        """Keep a run that was not there before, beside its execution."""
        await link.execute(
            self.BEGIN,
            tenant,
            run.id,
            run.total,
            run.left,
            run.running,
            run.ready,
            run.max_running,
            run.fail_fast,
            run.is_todo,
            execution["job"],
            execution["version"],
            execution["lane"],
            execution["priority"],
            depth,
            execution["gate"],
            execution["schedule"],
            parent,
            None if parent is None else execution["node"],
        )
