"""Progress of workflow runs, and the rows of runs and nodes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.execution import State
from daybell.core.units import Instant
from daybell.core.workflow.progress import advance, record_ends
from daybell.core.workflow.rules import ParentCounts
from daybell.core.workflow.run import (
    PROGRESS_BATCH,
    Advance,
    Edges,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    Plan,
    Run,
    RunEnd,
    RunQuery,
    RunRead,
    Spec,
    Start,
    StopReason,
)
from daybell.errors import JobNotFound
from daybell.store import run_driver
from daybell.store.codec import (
    NODE_CODES,
    NODE_STATES,
    OUTCOME_CODES,
    RULE_CODES,
    RULES,
    STATE_CODES,
)
from daybell.store.run_driver import stamp_node
from daybell.store.sqlite.collapse import take_cached
from daybell.store.sqlite.gates import LINKS, ExecutionLinks, follow_up, queued_room
from daybell.store.sqlite.stats import note_ends
from daybell.store.sqlite.transaction import Bulk, Groups, Row, Rows, RunKey, Transaction, uuids
from daybell.store.wakeups import Signal

# Nodes of runs as rows.
#
# A run may have tens of thousands, and each is written three times: when it is made, started and
# ended. So a row is short, and is found by its number. The two common changes write only the
# columns that they change, many rows in one statement. Texts that many nodes share are stored
# once, in `node_text`.

# In the order of the fields of `Node`.
NODE_COLUMNS: Final = """
n, label, place, state, rule, total, succeeded, failed, skipped, edges, told, is_wanted, of, is_map,
items, spawned, items_ended, items_lost, execution, reason, started_at, finished_at, spec
"""
_EDGES: Final = 9
_EXECUTION: Final = 18
SPEC: Final = 22

_TEXTS: Final = "SELECT n, text FROM node_text WHERE n IN (SELECT value FROM json_each(?))"


def read_texts(tx: Transaction, numbers: Iterable[int]) -> dict[int, str]:
    """Return texts by their number."""
    wanted = msgspec.json.encode(list(numbers)).decode()
    return dict(tx.execute(_TEXTS, (wanted,)).fetchall())


_READ_EDGES: Final = msgspec.json.Decoder(Edges)


@lru_cache(maxsize=64)  # one that has thousands of children is read again for each part of them
def _edges(text: str) -> Edges:
    return _READ_EDGES.decode(text)


def read_nodes(tx: Transaction, rows: Sequence[Row]) -> list[Node]:
    """Read nodes from NODE_COLUMNS."""
    executions = iter(uuids([row[_EXECUTION] for row in rows if row[_EXECUTION] is not None]))
    edges: dict[int | None, Edges] = {None: ()}
    numbers = {row[_EDGES] for row in rows} - {None}
    if numbers:
        edges |= {n: _edges(text) for n, text in read_texts(tx, numbers).items()}
    nodes: list[Node] = []
    for row in rows:
        execution = None if row[_EXECUTION] is None else next(executions)
        _, label, place, state, rule, total, succeeded, failed, skipped, of_edges, *rest = row
        told, is_wanted, group, is_map, *items = rest[:8]
        parents = ParentCounts(total, succeeded, failed, skipped)
        # By position: by name, it takes longer.
        known = label, place, NODE_STATES[state], RULES[rule], parents, edges[of_edges]
        values: Row = told, is_wanted == 1, group, is_map == 1, *items, execution, *row[19:22]
        nodes.append(Node(*known, *values))
    return nodes


# --- new ones -------------------------------------------------------------------------------------

_TEXTS_SO_FAR: Final = "SELECT ifnull(max(n), 0) FROM node_text"
_INSERT_TEXTS: Final = Bulk("INSERT INTO node_text (n, run, text) VALUES", "(?, ?, ?)")


class _Texts:
    """Table that gives numbers to texts; equal texts get the same number."""

    def __init__(self, tx: Transaction) -> None:
        (self._last,) = tx.execute(_TEXTS_SO_FAR).fetchone()
        self._numbers: dict[Any, int] = {}
        self._texts: list[tuple[int, str]] = []

    def number(self, text: str) -> int:
        return self._numbers.get(text) or self._add(text, text)

    def number_of_edges(self, edges: Edges) -> int | None:
        if not edges:
            return None
        return self._numbers.get(edges) or self._add(edges, msgspec.json.encode(edges).decode())

    def _add(self, key: Any, text: str) -> int:
        self._last += 1
        self._numbers[key] = self._last
        self._texts.append((self._last, text))
        return self._last

    def insert(self, tx: Transaction, run: int) -> None:
        values = [value for n, text in self._texts for value in (n, run, text)]
        _INSERT_TEXTS.run(tx, values)


_INSERT: Final = Bulk(
    """
INSERT INTO node (run, state, rule, total, is_wanted, is_map, of, n, label, place, execution,
                  edges, spec, input)
VALUES""",
    "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?, ?, ?, ?, ?, ?, ?)",
    shared=7,
)
_LAST: Final = "SELECT ifnull(max(n), 0) FROM node"


def insert_nodes(tx: Transaction, run: int, new: Sequence[NewNode]) -> Rows:
    """Store new nodes, to which nothing has happened yet but a start."""
    rows: Rows = {}
    if not new:
        return rows
    (last,) = tx.execute(_LAST).fetchone()
    texts = _Texts(tx)
    groups = Groups()
    for n, one in enumerate(new, last + 1):
        node, label = one.node, one.node.label
        execution, spec = node.execution, texts.number(one.spec)
        rows[label] = n, spec, node
        shared = (
            run,
            NODE_CODES[node.state],
            RULE_CODES[node.rule],
            node.parents.total,
            1 if node.is_wanted else 0,
            1 if node.is_map else 0,
            node.group,
        )
        groups[shared] += (
            n,
            label,
            node.order,
            None if execution is None else execution.bytes,
            texts.number_of_edges(node.edges),
            spec,
            one.input,
        )
    texts.insert(tx, run)
    groups.run(tx, _INSERT)
    return rows


# --- changes --------------------------------------------------------------------------------------

_START_NODES: Final = Bulk(
    """
UPDATE node SET state = 3, succeeded = ?1, failed = ?2, skipped = ?3, execution = column2
  FROM (VALUES""",
    "(?, ?)",
    ") WHERE n = column1",
    shared=3,
)
_END_NODES: Final = Bulk(
    """
UPDATE node
   SET state = ?1, told = ?2, is_todo = ?3, finished_at = ?4, reason = ?5, started_at = column2,
       result = ifnull(column3, result)
  FROM (VALUES""",
    "(?, ?, ?)",
    ") WHERE n = column1",
    shared=5,
)
_UPDATE: Final = Bulk(
    """
UPDATE node
   SET state = column2, succeeded = column3, failed = column4, skipped = column5, told = column6,
       items = column7, spawned = column8, items_ended = column9, items_lost = column10,
       is_todo = column11, started_at = column12, finished_at = column13, execution = column14,
       reason = column15, result = ifnull(column16, result)
  FROM (VALUES""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ") WHERE run = ? AND label = column1",
)


def update_nodes(
    tx: Transaction,
    run: int,
    changed: Iterable[Node],
    results: dict[str, str],
    rows: Rows,
    known: Rows,
) -> None:
    """Store the changes of nodes, which were read from these rows, and remember them."""
    started, ended = Groups(), Groups()
    others: list[Node] = []
    for node in changed:
        execution, label = node.execution, node.label
        n, spec, _ = rows[label]
        if execution is not None and node.state is NodeState.STARTED:
            parents = node.parents
            counts = parents.succeeded, parents.failed, parents.skipped
            started[counts] += n, execution.bytes
            is_over = False
        elif execution is not None and node.finished_at is not None:
            # The counts of its parents were written when it was started.
            is_over = not node.has_to_tell
            is_todo = 0 if is_over else 1
            how = NODE_CODES[node.state], node.told, is_todo, node.finished_at, node.reason
            ended[how] += n, node.started_at, results.get(label)
        else:
            node = stamp_node(node, tx.now)
            others.append(node)
            is_over = node.is_ended and not node.has_to_tell
        if is_over:
            known.pop(label, None)
        else:
            known[label] = n, spec, node
    started.run(tx, _START_NODES)
    ended.run(tx, _END_NODES)
    update_all_of(tx, run, others, results)


def update_all_of(
    tx: Transaction, run: int, nodes: Iterable[Node], results: dict[str, str]
) -> None:
    """Store all columns of nodes that can change."""
    values: list[Any] = []
    for node in nodes:
        values += (node.label, *_changing_values(node, tx.now), results.get(node.label))
    _UPDATE.run(tx, values, last=(run,))


def _changing_values(node: Node, now: Instant) -> Row:
    node = stamp_node(node, now)
    parents = node.parents
    return (
        NODE_CODES[node.state],
        parents.succeeded,
        parents.failed,
        parents.skipped,
        node.told,
        node.items,
        node.spawned,
        node.items_ended,
        node.items_lost,
        1 if node.is_todo else 0,
        node.started_at,
        node.finished_at,
        None if node.execution is None else node.execution.bytes,
        node.reason,
    )


# Runs and their nodes as rows, and the queries about them while they go on.

_RUN_FIELDS: Final = tuple(name for name in Run.__struct_fields__ if name != "id")
RUN_COLUMNS: Final = ", ".join(f"r.{'unended' if n == 'left' else n}" for n in _RUN_FIELDS)


def read_run(id: UUID, row: Row) -> Run:
    values = dict(zip(_RUN_FIELDS, row, strict=True))
    return msgspec.convert({"id": id, **values}, Run, strict=False)  # 0 and 1 are flags


_INSERT_RUN: Final = """
INSERT INTO run (execution, total, unended, running, ready, lost_leaves, max_running, fail_fast,
                 is_todo, stopping, failed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_RUN: Final = """
UPDATE run
   SET unended = ?, running = ?, ready = ?, lost_leaves = ?, is_todo = ?, is_blocked = ?,
       stopping = ?, failed = ?
 WHERE execution = ?
"""


def insert_run(tx: Transaction, n: int, run: Run) -> None:
    values = (
        n,
        run.total,
        run.left,
        run.running,
        run.ready,
        run.lost_leaves,
        run.max_running,
        int(run.fail_fast),
        int(run.is_todo),
        run.stopping,
        run.failed,
    )
    tx.execute(_INSERT_RUN, values)


_BY_LABEL: Final = "run = ? AND label IN (SELECT value FROM json_each(?))"
_READ: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE {_BY_LABEL}"
_SOME: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE run = ? AND %s ORDER BY place LIMIT ?"
_LISTS: Final = {
    RunRead.MARKED: _SOME % "is_todo = 1",
    RunRead.READY: _SOME % "state = 2",
    RunRead.UNSTARTED: _SOME % "state IN (1, 2)",
    RunRead.LEAVES: _SOME % "of IS NULL AND edges IS NULL",
    RunRead.FAILED: _SOME % f"state = {NODE_CODES[NodeState.FAILED]} AND of IS NULL",
}
_ALL: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE run = ?"
_INPUTS: Final = f"SELECT label, input FROM node WHERE {_BY_LABEL}"
_RESULTS: Final = f"SELECT label, result FROM node WHERE {_BY_LABEL} AND result IS NOT NULL"
# The labels of items are their node's with a bracket behind it; "\\" comes next after "[".
_ITEM_RESULTS: Final = """
SELECT label, result FROM node
 WHERE run = ? AND label > ? || '[' AND label < ? || '\\' AND of = ? AND result IS NOT NULL
"""


class RunRows:
    """The rows of one run: they answer queries about its nodes, and write the changes."""

    def __init__(self, tx: Transaction, n: int) -> None:
        self._tx = tx
        self._n = n
        self._known = tx.names.nodes.of(tx, n)
        self._rows: Rows = {}  # that are in hand

    def answer(self, ask: RunQuery) -> Any:
        """Answer a query about a run's nodes from the file."""
        read, labels, limit = ask
        if (listed := _LISTS.get(read)) is not None:
            return self._nodes(listed, self._n, -1 if limit is None else limit)
        if read is RunRead.NODES:
            return self._by_label(labels)
        if read is RunRead.SPECS:
            return self._specs(labels)
        if read is RunRead.RESULTS:
            return dict(self._tx.execute(_RESULTS, (self._n, _json(labels))).fetchall())
        assert read is RunRead.ITEM_RESULTS, "run_driver answers the rest"
        return dict(self._tx.execute(_ITEM_RESULTS, (self._n, *labels * 3)).fetchall())

    def all(self) -> list[Node]:
        """Return all nodes and items."""
        return self._nodes(_ALL, self._n)

    def _by_label(self, labels: Sequence[str]) -> list[Node]:
        known = self._known
        found = {label: known[label] for label in labels if label in known}
        self._rows |= found
        nodes = [node for _, _, node in found.values()]
        if len(found) < len(labels):
            missing = [label for label in labels if label not in found]
            nodes += self._nodes(_READ, self._n, _json(missing))
        return nodes

    def _nodes(self, statement: str, *values: Any) -> list[Node]:
        rows = self._tx.execute(statement, values).fetchall()
        new = [row for row in rows if row[1] not in self._known]
        for row, node in zip(new, read_nodes(self._tx, new), strict=True):
            self._rows[node.label] = row[0], row[SPEC], node
        if len(new) < len(rows):
            self._rows |= {row[1]: self._known[row[1]] for row in rows if row[1] in self._known}
        return [self._rows[row[1]][2] for row in rows]

    def _specs(self, labels: tuple[str, ...]) -> dict[str, tuple[str, str | None]]:
        """Return the specs of nodes that were read before, as all are that can be started."""
        numbers = {label: self._rows[label][1] for label in labels}
        texts = read_texts(self._tx, set(numbers.values()))
        items = _json([label for label in labels if label[-1] == "]"])
        inputs = {} if items == "[]" else dict(self._tx.execute(_INPUTS, (self._n, items)))
        return {label: (texts[spec], inputs.get(label)) for label, spec in numbers.items()}

    def write(self, step: Advance, *, is_todo: bool) -> None:
        """Store the changes of a run and its nodes."""
        tx, n, run = self._tx, self._n, step.run
        if step.new:
            self._known |= insert_nodes(tx, n, step.new)
            ended = [new.node for new in step.new if new.node.is_ended]
            for node in ended:
                del self._known[node.label]
            update_all_of(tx, n, ended, step.results)
        update_nodes(tx, n, step.changed, step.results, self._rows, self._known)
        counts = run.left, run.running, run.ready, run.lost_leaves
        marks = int(is_todo), int(run.is_blocked)
        tx.execute(_UPDATE_RUN, (*counts, *marks, run.stopping, run.failed, n))


def _json(labels: Sequence[str]) -> str:
    return msgspec.json.encode(labels).decode()


# Progress of workflow runs, in the transaction that has ended some of their nodes.
#
# Ends are collected in the transaction and reported at the end of the operation, so that a batch
# of reports advances each run once. The same holds for runs inside others that are to be stopped:
# however deep they are, one loop stops them.


class LockedRun(NamedTuple):
    """A run in hand, with the values that its nodes inherit."""

    owner: int
    n: int
    job: int
    version: int
    lane: int
    priority: int
    scheduled_for: Instant | None
    run: Run


STOPS_MAX: Final = 100  # runs that one transaction stops, of those inside the one in question

_FIND: Final = f"""
SELECT e.n, e.job, e.version, e.lane, e.priority, e.scheduled_for, {RUN_COLUMNS}
  FROM execution e JOIN run r ON r.execution = e.n
 WHERE e.tenant = ? AND e.id = ? AND e.worker IS NULL
   AND (e.state = 5 OR e.state < 5 AND r.stopping = 'cancel')
"""


def find_open_run(tx: Transaction, key: RunKey) -> LockedRun | None:
    """Return a run that has begun and has not ended. Before a restart, it can only be stopped."""
    row = tx.execute(_FIND, key).fetchone()
    if row is None:
        return None
    return LockedRun(key[0], *row[:6], run=read_run(UUID(bytes=key[1]), row[6:]))


# How many runs are around an execution: it is a node of the first, that one of the next.
_AROUND: Final = """
WITH RECURSIVE around (parent) AS (
  SELECT parent FROM execution WHERE n = ?1 AND node IS NOT NULL
  UNION ALL
  SELECT e.parent FROM around a JOIN execution e ON e.tenant = ?2 AND e.id = a.parent
   WHERE e.node IS NOT NULL)
SELECT count(*) FROM around
"""


def start_run(tx: Transaction, key: RunKey, n: int, plan: Plan) -> None:
    """Store the nodes of a run that begins, and start the first."""
    if not has_run(tx, n):  # or it begins again
        (around,) = tx.execute(_AROUND, (n, key[0])).fetchone()
        run_driver.check_level(around + 1)
        insert_run(tx, n, plan.run(UUID(bytes=key[1])))
        tx.names.nodes.of(tx, n).update(insert_nodes(tx, n, plan.nodes))
    advance_run(tx, key)


_HAS_RUN: Final = "SELECT 1 FROM run WHERE execution = ?"


def has_run(tx: Transaction, n: int) -> bool:
    return tx.execute(_HAS_RUN, (n,)).fetchone() is not None


def settle_runs(tx: Transaction) -> None:
    """Stop a bounded number of runs that are to be stopped, and notify runs of the ends of their
    nodes. The rest is marked in their rows, and left to the next transaction.
    """
    room = STOPS_MAX
    while tx.stops or tx.ended:
        stops, tx.stops = list(tx.stops), {}
        tx.todo |= dict.fromkeys(stops[room:])
        for key in stops[:room]:
            advance_run(tx, key)
        room = max(0, room - len(stops))
        ended, tx.ended = tx.ended, {}
        for key, ends in ended.items():
            advance_run(tx, key, ends)


def take_pending_runs(tx: Transaction, owner: int | None = None) -> list[RunKey]:
    """Settle runs at the end of an operation; return the runs in which there is more to do. If the
    operation has ended executions of `owner`, runs of that tenant may have room to go on.
    """
    settle_runs(tx)
    todo, tx.todo = tx.todo, {}
    if owner is not None and tx.names.quotas(tx, owner).queued is not None:
        first = tx.execute(f"{_BLOCKED} AND e.tenant = ? LIMIT 1", (owner,)).fetchone()
        if first is not None and queued_room(tx, owner) > 0:
            todo[first] = None
    return list(todo)


_BLOCKED: Final = """
SELECT e.tenant, e.id FROM run r JOIN execution e ON e.n = r.execution WHERE r.is_blocked = 1
"""


def find_unblocked_runs(tx: Transaction) -> list[RunKey]:
    """Return runs that have waited for room in their tenant's quota and have room now."""
    keys: list[RunKey] = tx.execute(_BLOCKED).fetchall()
    room = {owner: queued_room(tx, owner) for owner in {owner for owner, _ in keys}}
    return [key for key in keys if room[key[0]] > 0]


def advance_run(
    tx: Transaction,
    key: RunKey,
    ended: Sequence[NodeEnd] = (),
    *,
    parts: int = 1,
    just_note: bool = False,
) -> None:
    """Do a bounded part of the work of a run, or `parts` of them at once."""
    tx.todo.pop(key, None)
    held = find_open_run(tx, key)
    if held is None:
        return
    is_cut = False
    if held.run.stopping is StopReason.CANCEL:
        cancelled = cancel_nodes(tx, key)
        is_cut = len(cancelled) == PROGRESS_BATCH
        ended = [*ended, *cancelled]
    going = _choose_step(held.run, ended, parts, just_note=just_note)
    rows = RunRows(tx, held.n)
    step = run_driver.drive(going, rows.answer, lambda: queued_room(tx, key[0]))
    is_todo = step.run.is_todo or is_cut
    if is_todo:
        tx.todo[key] = None
    rows.write(step, is_todo=is_todo)
    gone = start_nodes(tx, held, step.starts)
    if step.end is not None:
        tx.names.nodes.forget(held.n)
        end_run(tx, held.n, step.end)
    if gone:
        advance_run(tx, key, gone, just_note=True)


def _choose_step(
    run: Run, ended: Sequence[NodeEnd], parts: int, *, just_note: bool
) -> Generator[RunQuery, Any, Advance]:
    mint = run_driver.id_source()
    if just_note:
        return record_ends(run, ended, mint=mint)
    if parts == 1:
        return advance(run, ended, mint=mint)
    return advance(run, ended, mint=mint, limit=parts * PROGRESS_BATCH)


_START_EXECUTIONS: Final = Bulk(
    """
INSERT INTO execution
       (tenant, created_at, run_at, state, parent, scheduled_for, job, version, lane, priority,
        expires_at, retries, timeout, id, args, node)
VALUES""",
    "(?1, ?2, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?, ?, ?)",
    shared=11,
)


def start_nodes(tx: Transaction, run: LockedRun, starts: Sequence[Start]) -> list[NodeEnd]:
    """Create executions of nodes; return the ends of nodes that take a cached result, and of those
    without a job, because it is gone. They pass no gate: the run has passed its own.
    """
    groups = Groups()
    gone: list[NodeEnd] = []
    ways: dict[Spec, list[Any]] = {}  # rows so far, of those that go the same way
    for start in starts:
        if (cached := take_cached(tx, run.owner, start)) is not None:
            gone.append(cached)
            continue
        values = ways.get(start.spec)
        if values is None:
            try:
                values = ways[start.spec] = groups[_shared(tx, run, start.spec)]
            except JobNotFound:
                gone.append(run_driver.missing_job_end(start))
                continue
        values += (start.id.bytes, start.args, start.label)
    if groups:
        groups.run(tx, _START_EXECUTIONS)
        tx.signals.add(Signal.CLAIM)
    return gone


def _shared(tx: Transaction, run: LockedRun, spec: Spec) -> tuple[Any, ...]:
    """Return the values that executions of nodes of a kind share. Raises JobNotFound."""
    if spec.job is None:
        version = tx.names.version(tx, run.version)
        queue, priority, expires = tx.names.lane_row(tx, run.lane).queue, run.priority, None
    else:
        version = tx.names.current(tx, run.owner, spec.job)
        queue, priority, expires = version.queue, version.priority, version.expires
    return (
        run.owner,
        tx.now,
        run.run.id.bytes,
        run.scheduled_for,
        version.job,
        version.n,
        tx.names.lane(tx, run.owner, spec.queue or queue, spec.needs or version.needs),
        priority if spec.priority is None else int(spec.priority),
        None if expires is None else tx.now + expires,
        spec.retries,
        spec.timeout,
    )


_END_RUN: Final = """
UPDATE execution
   SET state = ?, outcome = ?, result = ?, error = ?, reason = ?, finished_at = ?,
       slot = iif(gate IS NULL, NULL, 0)
 WHERE n = ?
"""
_LINKS: Final = f"SELECT {LINKS} FROM execution WHERE n = ?"


def end_run(tx: Transaction, n: int, how: RunEnd) -> None:
    """End a run, because its last node has ended."""
    links = ExecutionLinks(*tx.execute(_LINKS, (n,)).fetchone())
    state, outcome = STATE_CODES[how.state], OUTCOME_CODES[run_driver.OUTCOMES[how.state]]
    tx.execute(_END_RUN, (state, outcome, how.result, how.error, how.reason, tx.now, n))
    note_ends(tx, [n])
    follow_up(tx, n, links, state)


_STOP: Final = "UPDATE run SET stopping = 'cancel', is_todo = 1 WHERE execution = ?"


def stop_run(tx: Transaction, key: RunKey, n: int) -> None:
    """Cancel the unfinished nodes of a run, as soon as runs are settled. The run ends with the
    last of them.
    """
    tx.execute(_STOP, (n,))
    tx.stops[key] = None


_OF_RUN: Final = "tenant = ? AND parent = ? AND node IS NOT NULL"
_REQUEST: Final = f"""
UPDATE execution SET cancel_requested_at = ?
 WHERE {_OF_RUN} AND state = 5 AND cancel_requested_at IS NULL
RETURNING n, id, worker IS NULL
"""
_CANCEL: Final = f"""
UPDATE execution SET state = 8, finished_at = ?, reason = NULL
 WHERE n IN (SELECT n FROM execution WHERE {_OF_RUN} AND state <= 4 LIMIT ?)
RETURNING n, id, node, started_at
"""


def cancel_nodes(tx: Transaction, key: RunKey) -> list[NodeEnd]:
    """End a bounded number of nodes that wait to be claimed; ask those that run to end."""
    requested = tx.execute(_REQUEST, (tx.now, *key)).fetchall()
    for n, id, is_run in requested:
        if is_run:
            stop_run(tx, (key[0], id), n)
    if requested:
        tx.signals.add(Signal.ASK)
    cancelled = tx.execute(_CANCEL, (tx.now, *key, PROGRESS_BATCH)).fetchall()
    note_ends(tx, [n for n, *_ in cancelled])
    return [
        NodeEnd(node, UUID(bytes=id), State.CANCELLED, None, None, started_at, tx.now)
        for _, id, node, started_at in cancelled
    ]


# Parts of a run that are done as one. A part takes less than ten milliseconds, and a commit may
# take as long; other writers wait for both.
TOGETHER: Final = 4


def continue_run(tx: Transaction, key: RunKey, parts: int = 1) -> list[RunKey]:
    """Do `parts` parts of a run in a transaction of its own; return the runs in which there is more
    to do: this one, those inside it, or those around it.
    """
    advance_run(tx, key, parts=parts)
    return take_pending_runs(tx, key[0])
