"""Nodes of runs, as this connection has left them.

A node is read when it is started and when it ends, and most often the same connection has written
it a moment ago. So what was written is remembered, and need not be read and decoded once more. That
is true until somebody else has written to the file, which SQLite tells, or something is undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from daybell.core.run import Node

if TYPE_CHECKING:
    from daybell.store.sqlite.names import Transaction

# Then it starts over.
NODES_MAX: Final = 20_000
RUNS_MAX: Final = 1_000

Known: TypeAlias = tuple[int, int, Node]  # its row's number, and that of its spec's text
Rows: TypeAlias = dict[str, Known]  # by label

# Another number than before: another connection has committed something.
_WRITES: Final = "PRAGMA data_version"


class NodeMemory:
    """What one connection remembers of nodes that have not ended."""

    def __init__(self) -> None:
        self._runs: dict[int, Rows] = {}
        self._writes = -1
        self._is_checked = False  # in the transaction under way

    def begin(self) -> None:
        """A transaction begins: others may have written since the last."""
        self._is_checked = False

    def clear(self) -> None:
        """What is remembered may not be true."""
        self._runs.clear()

    def of(self, tx: Transaction, run: int) -> Rows:
        """What is remembered of a run, to be changed with its rows."""
        if not self._is_checked:
            self._check(tx)
        rows = self._runs.get(run)
        if rows is None:
            rows = self._runs[run] = {}
        return rows

    def forget(self, run: int) -> None:
        """A run has ended, or begins again."""
        self._runs.pop(run, None)

    def _check(self, tx: Transaction) -> None:
        (writes,) = tx.execute(_WRITES).fetchone()
        if writes != self._writes or self._is_full():
            self._runs.clear()
        self._writes = writes
        self._is_checked = True

    def _is_full(self) -> bool:
        if len(self._runs) > RUNS_MAX:
            return True
        return sum(map(len, self._runs.values())) > NODES_MAX
