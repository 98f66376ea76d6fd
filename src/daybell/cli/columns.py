"""Which columns of a table a terminal has room for, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

GAP: Final = 2


class Column(NamedTuple):
    """A column. `least` is how far it may be shortened; without it, it is whole or not there.

    Of those that there is no room for, the one with the highest `rank` goes first; 0 stays.
    """

    name: str
    least: int | None = None
    rank: int = 1


def fit(columns: Sequence[Column], wanted: Sequence[int], *, room: int) -> list[int]:
    """How wide each column is, 0 for one that is left out. `wanted` is what would show all."""
    least = [
        want if column.least is None else min(want, column.least)
        for column, want in zip(columns, wanted, strict=True)
    ]
    # The last of equals goes first: what matters most is on the left.
    leaving = sorted(range(len(columns)), key=lambda place: (columns[place].rank, place))
    widths = list(least)
    while _taken(widths) > room and columns[leaving[-1]].rank > 0:
        widths[leaving.pop()] = 0
    for place in sorted(leaving):
        spare = max(0, room - _taken(widths))
        widths[place] += min(spare, wanted[place] - least[place])
    return widths


def _taken(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + GAP * (len(shown) - 1)
