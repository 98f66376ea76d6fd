"""All random decisions, from one seed, independent of Python's hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from unittest import mock

from daybell.core import ids
from tests.engine.virtual import EPOCH


def stream(seed: int, name: str) -> Random:
    """Return a stream for each purpose: draws of one do not change the others."""
    return Random(f"{seed}/{name}")


@contextmanager
def seeded_ids(seed: int, time: Callable[[], float]) -> Iterator[None]:
    """Make ids from the seed and the simulated time, in all modules."""
    world = SimpleNamespace(
        time_ns=lambda: int((EPOCH + time()) * 1e9), urandom=stream(seed, "ids").randbytes
    )
    with mock.patch.multiple(ids, time=world, os=world, _last=0, _randoms=[]):
        yield
