"""Which queue is asked first: a smooth weighted rotation."""

from __future__ import annotations

from collections.abc import Mapping

from daybell.core.job import DEFAULT_QUEUE
from daybell.core.limits import check_name
from daybell.errors import UsageError, shown


class Queues:
    """A worker's queues with their weights.

    Each claim goes through all queues, in an order in which a queue of weight 3 is first three
    times as often as one of weight 1. So a long backlog in one never starves another.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        for name, weight in weights.items():
            check_name(name, what="queue")
            if not 1 <= weight <= 1000:
                raise UsageError(f"queue {shown(name)}: weight {weight} must be from 1 to 1000")
        self._weights = dict(weights) or {DEFAULT_QUEUE: 1}
        self._credit = dict.fromkeys(self._weights, 0)

    @classmethod
    def parse(cls, text: str) -> Queues:
        """Read `mail=3,default`: names, each with a weight if it is not 1."""
        weights: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, weight = (piece.strip() for piece in part.partition("="))
            # Ten digits are too many already, and int() refuses very many with another error.
            if equals and not (weight.isdecimal() and len(weight) < 10):
                raise UsageError(f"{shown(part)}: write queues as name or name=weight")
            if name in weights:
                raise UsageError(f"queue {shown(name)} is named twice in {shown(text)}")
            weights[name] = int(weight) if equals else 1
        return cls(weights)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def order(self) -> list[str]:
        """The queues in the order in which the next claim should look at them."""
        if len(self._weights) == 1:
            return list(self._weights)
        for name, weight in self._weights.items():
            self._credit[name] += weight
        order = sorted(self._weights, key=lambda name: -self._credit[name])
        self._credit[order[0]] -= sum(self._weights.values())
        return order
