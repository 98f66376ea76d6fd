"""Fair shares: the leaves at which executions wait for their turn, and the turns.

A leaf has a lane of its own, from which no worker claims. When it is the turn of its key, the first
execution goes on to the ordered lane, or is admitted if its job has no limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from daybell.core.flow import base_needs
from daybell.core.flow.shares import (
    LATE_SECONDS,
    PARKED_MAX,
    ROOT,
    TURN_SECONDS,
    ShareNode,
    SharePath,
    Turns,
    slot_needs,
)
from daybell.store.codec import PRIORITIES
from daybell.store.sqlite.transaction import Row, Transaction
from daybell.store.wakeups import Signal

_PATH: Final = """
SELECT path, weight, lane FROM share WHERE entry = ? AND path IN (SELECT value FROM json_each(?))
"""
_NODE: Final = "SELECT n, clock FROM share WHERE entry = ? AND path = ?"
_ADD: Final = """
INSERT INTO share (entry, parent, used, weight, lane, path) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET weight = excluded.weight
"""
_FREE_SLOT: Final = """
DELETE FROM share_slot WHERE lane = (SELECT lane FROM share_slot WHERE entry = ? LIMIT 1)
RETURNING lane
"""
_ENTRY: Final = "SELECT tenant, queue, kind, admitted FROM lane WHERE n = ?"
_ADD_SLOT: Final = """
INSERT INTO lane (tenant, queue, kind, entry, admitted) VALUES (?, ?, ?, ?, ?)
"""
_LAST_LANE: Final = "SELECT max(n) FROM lane"


def find_leaf(tx: Transaction, entry: int, path: SharePath) -> int:
    """Return the lane of a leaf; create it if it is new."""
    nodes, leaf = path.nodes, path.leaf
    rows = tx.execute(_PATH, (entry, _json([name for name, *_ in nodes]))).fetchall()
    known = {name: (weight, lane) for name, weight, lane in rows}
    lane = known[leaf][1] if leaf in known else _take_slot(tx, entry)
    if [(name, known[name][0]) for name, *_ in nodes if name in known] == [
        (name, weight) for name, _, weight in nodes
    ]:
        return lane
    if tx.execute(_NODE, (entry, ROOT)).fetchone() is None:
        tx.execute(_ADD, (entry, 0, 0.0, 1.0, None, ROOT))
    for name, above, weight in nodes:
        parent, clock = tx.execute(_NODE, (entry, above)).fetchone()
        tx.execute(_ADD, (entry, parent, clock, weight, lane if name == leaf else None, name))
    return lane


def _take_slot(tx: Transaction, entry: int) -> int:
    free = tx.execute(_FREE_SLOT, (entry,)).fetchall()
    if free:
        return free[0][0]
    tenant, queue, needs, admitted = tx.execute(_ENTRY, (entry,)).fetchone()
    (last,) = tx.execute(_LAST_LANE).fetchone()
    slot = slot_needs(last + 1, base_needs(needs))
    n = tx.execute(_ADD_SLOT, (tenant, queue, slot, entry, admitted)).lastrowid
    assert n is not None, "an INSERT has a row"
    return n


_MOVE: Final = "UPDATE execution SET lane = ? WHERE n = ?"


def sort_rows(tx: Transaction, entry: int, rows: Iterable[tuple[int, int, str]]) -> None:
    """Move executions of an entry lane to their leaves; each has number, version, arguments."""
    for n, version, args in rows:
        lane = find_leaf(tx, entry, tx.names.policy(tx, version).path(args))
        tx.execute(_MOVE, (lane, n))


_ROOT: Final = "SELECT n, parent, used, clock, weight, lane FROM share WHERE entry = ? AND path = ?"
_CHILDREN: Final = """
SELECT n, parent, used, clock, weight, lane FROM share
 WHERE parent = ?1 AND is_full = 0 AND n NOT IN (SELECT value FROM json_each(?2))
 ORDER BY used, n LIMIT ?3
"""
_HEADS: Final = """
SELECT n, version, lane FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ? ORDER BY run_at, id LIMIT ?
"""
_LANES: Final = "SELECT ordered, admitted FROM lane WHERE n = ?"
_LATE: Final = """
SELECT count(*) FROM (SELECT 1 FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at < ? LIMIT ?)
"""
_GO: Final = "UPDATE execution SET lane = ?, run_at = ? WHERE n = ?"
_KEEP: Final = "UPDATE share SET used = ?, clock = ? WHERE n = ?"
_RAISE: Final = """
UPDATE share SET used = max(used, (SELECT p.clock FROM share p WHERE p.n = share.parent))
 WHERE n = ?
"""
_REMOVE: Final = """
DELETE FROM share AS s WHERE s.n = ?
   AND NOT EXISTS (SELECT 1 FROM share c WHERE c.parent = s.n)
   AND NOT EXISTS (SELECT 1 FROM execution e WHERE e.state <= 3 AND e.lane = s.lane)
RETURNING lane
"""
_ADD_FREE: Final = "INSERT INTO share_slot (lane, entry) VALUES (?, ?)"


def take_turns(tx: Transaction, entry: int, wanted: int) -> None:
    """Let the next executions of an entry lane go on, as many as a worker wants to claim."""
    row = tx.execute(_ROOT, (entry, ROOT)).fetchone()
    if row is None:
        return
    ordered, admitted = tx.execute(_LANES, (entry,)).fetchone()
    wanted -= _count_late(tx, (ordered, admitted), wanted)
    idle: list[int] = []
    removable: list[ShareNode] = []
    while wanted > 0:
        turns = Turns(ShareNode(*tx.execute(_ROOT, (entry, ROOT)).fetchone()), wanted)
        while turns.frontier:
            turns.descend([
                ShareNode(*child) for node in turns.frontier
                for child in tx.execute(_CHILDREN, (node.key, _json(idle), node.turns)).fetchall()
            ])  # fmt: skip
        found = {leaf.lane or 0: _heads(tx, leaf.lane or 0, leaf.turns) for leaf in turns.leaves}
        going = turns.sequence(found)
        for place, (n, version, _) in enumerate(going, -len(going)):
            is_limited = bool(tx.names.policy(tx, version).rules)
            at = tx.now + place * TURN_SECONDS if is_limited else tx.now
            tx.execute(_GO, (ordered if is_limited else admitted, at, n))
        changed, empty = turns.finish({lane: len(rows) for lane, rows in found.items()})
        tx.executemany(_KEEP, [(node.used, node.clock, node.key) for node in changed])
        removable += [node for node in empty if not node.taken]
        idle += [node.key for node in empty]
        taken = sum(map(len, found.values()))
        if taken:
            tx.signals.add(Signal.CLAIM)
        wanted -= taken
        if not empty:
            break
    for node in removable:
        _remove(tx, entry, node)
    tx.executemany(_RAISE, [(key,) for key in idle])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _count_late(tx: Transaction, lanes: Sequence[int], most: int) -> int:
    """Count the executions whose turn was before, and which no worker has claimed."""
    since = tx.now - LATE_SECONDS
    counts = [
        tx.execute(_LATE, (lane, priority, since, most)).fetchone()[0]
        for lane in lanes for priority in PRIORITIES
    ]  # fmt: skip
    return min(most, sum(counts))


def _heads(tx: Transaction, lane: int, most: int) -> list[Row]:
    """Return the first executions of a leaf: best priority first, then the oldest. All have the
    same limits, or none. With limits they are few, because they may have to wait.
    """
    found: list[Row] = []
    for priority in PRIORITIES:
        found += tx.execute(_HEADS, (lane, priority, tx.now, most - len(found))).fetchall()
    return found[:PARKED_MAX] if found and tx.names.policy(tx, found[0][1]).rules else found


def _remove(tx: Transaction, entry: int, node: ShareNode) -> None:
    """Remove a node without work. Its lane is free for another leaf."""
    for (lane,) in tx.execute(_REMOVE, (node.key,)).fetchall():
        if lane is not None:
            tx.execute(_ADD_FREE, (lane, entry))


_MARK: Final = f"""
UPDATE share SET is_full = (SELECT count(*) FROM (SELECT 1 FROM waiter w WHERE w.share = share.n
                             LIMIT {PARKED_MAX})) >= {PARKED_MAX}
 WHERE n = ?
"""


def mark_full(tx: Transaction, leaves: Iterable[int]) -> None:
    """Note of leaves whether as many of their executions wait for limits as may."""
    tx.executemany(_MARK, [(leaf,) for leaf in leaves])


def leaf_number(tx: Transaction, entry: int | None, path: SharePath) -> int | None:
    """Return the number of a leaf, if it is there."""
    row = tx.execute(_NODE, (entry, path.leaf)).fetchone()
    return None if row is None else row[0]
