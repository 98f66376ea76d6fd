"""Everything that chance decides, from one seed, whatever Python's hashes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from unittest import mock

from daybell.core import ids
from tests.engine.virtual import EPOCH


def stream(seed: int, name: str) -> Random:
    """A stream of its own for each purpose: what one draws does not change the others."""
    return Random(f"{seed}/{name}")


@contextmanager
def seeded_ids(seed: int, time: Callable[[], float]) -> Iterator[None]:
    """Have ids made from the seed and the simulated time, wherever they are made."""
    world = SimpleNamespace(
        time_ns=lambda: int((EPOCH + time()) * 1e9), urandom=stream(seed, "ids").randbytes
    )
    with mock.patch.multiple(ids, time=world, os=world, _last=0, _randoms=[]):
        yield
