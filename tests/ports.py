"""Operations of stores by name, whichever port they belong to, and wrappers of whole stores."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from daybell.store import protocol
from tests import sweeps

PORTS: Final = {
    "queue": protocol.QueuePort,
    "schedules": protocol.SchedulesPort,
    "runs": protocol.RunsPort,
    "catalog": protocol.CatalogPort,
    "admin": protocol.AdminPort,
}


def operations_of(declared: type) -> Iterator[str]:
    """The names of the operations that a protocol declares."""
    for name, _ in inspect.getmembers(declared, callable):
        if not name.startswith("_"):
            yield name


PORT_OF: Final = {name: port for port, one in PORTS.items() for name in operations_of(one)}
OPERATIONS: Final = frozenset({*PORT_OF, *operations_of(protocol.Store)})


def port_of(store: Any, operation: str) -> Any:
    """The port that has an operation, or the store itself."""
    return getattr(store, PORT_OF[operation]) if operation in PORT_OF else store


def operation_of(store: Any, name: str) -> Any:
    """The operation of this name; also a sweep of upkeep."""
    if name in sweeps.BY_NAME:
        return partial(sweeps.BY_NAME[name], store)
    return getattr(port_of(store, name), name)


class WrappedStore:
    """Passes everything on to another store; `wrap` decides how."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.store, name)
        if name not in PORTS:
            return self.wrap(name, inner)
        port = WrappedPort(self, inner)
        setattr(self, name, port)
        return port

    def wrap(self, name: str, operation: Any) -> Any:
        """The operation as callers see it, or an attribute of the store."""
        return operation


class WrappedPort:
    """A port of a wrapped store."""

    def __init__(self, store: WrappedStore, port: Any) -> None:
        self._store = store
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return self._store.wrap(name, getattr(self._port, name))
