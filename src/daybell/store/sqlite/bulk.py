"""Many rows in one statement.

`executemany` starts a statement anew for every row, and opens each index of the table for it. One
INSERT with many rows does that once: half the time per row at a thousand rows. Sizes are powers
of two, so that any number of rows is written by a few statements that are parsed already.

What is left is mostly the time that values take, each of them. Those that rows have in common are
given once: see `shared`, and `Groups`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from daybell.store.sqlite.names import Transaction

ROWS_MAX: Final = 256  # of one statement


_OWN: Final = re.compile(r"\?(?!\d)")


class Bulk:
    """A statement whose middle is repeated: `head row, row, row tail`. The first `shared`
    parameters are all rows' and go by their numbers, as ?1, anywhere in it.
    """

    def __init__(self, head: str, row: str, tail: str = "", *, shared: int = 0) -> None:
        self._width = len(_OWN.findall(row))
        sizes = [1 << power for power in range(ROWS_MAX.bit_length())]
        self._statements = {
            size: f"{head} {', '.join(_rows(row, size, shared))} {tail}" for size in sizes
        }

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


def _rows(row: str, size: int, shared: int) -> list[str]:
    if not shared:
        return [row] * size
    numbers = count(shared + 1)
    return [_OWN.sub(lambda _: f"?{next(numbers)}", row) for _ in range(size)]


class Groups(dict[tuple[Any, ...], list[Any]]):
    """Values of rows, by what these have in common."""

    def __missing__(self, key: tuple[Any, ...]) -> list[Any]:
        values = self[key] = []
        return values

    def run(self, tx: Transaction, bulk: Bulk) -> None:
        """Write all of them."""
        for shared, values in self.items():
            bulk.run(tx, values, first=shared)
