"""Many rows in one statement.

`executemany` starts a statement anew for every row, and opens each index of the table for it. One
INSERT with many rows does that once: half the time per row at a thousand rows. Sizes are powers
of two, so that any number of rows is written by a few statements that are parsed already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from daybell.store.sqlite.names import Transaction

ROWS_MAX: Final = 256  # of one statement


class Bulk:
    """A statement whose middle is repeated: `head row, row, row tail`."""

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._width = row.count("?")
        sizes = [1 << power for power in range(ROWS_MAX.bit_length())]
        self._statements = {size: f"{head} {', '.join([row] * size)} {tail}" for size in sizes}

    def run(
        self,
        tx: Transaction,
        values: list[Any],
        *,
        first: Sequence[Any] = (),
        last: Sequence[Any] = (),
    ) -> int:
        """Run it for all values, which are the rows' one after another; answer how many rows it
        changed. `first` and `last` are parameters of the head and the tail.
        """
        changed = start = 0
        while rest := (len(values) - start) // self._width:
            size = min(ROWS_MAX, 1 << (rest.bit_length() - 1))  # the largest power of two in it
            end = start + size * self._width
            changed += tx.execute(
                self._statements[size], (*first, *values[start:end], *last)
            ).rowcount
            start = end
        return changed
