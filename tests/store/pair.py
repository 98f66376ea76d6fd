"""PostgreSQL and SQLite in memory, side by side: whatever they are asked, they answer the same.

Both get the same ids and the same clock. What they may choose is levelled out first.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine

from daybell.core.execution import Claimed, NewExecution, State
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from daybell.errors import DaybellError
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT
from tests.ports import operation_of
from tests.store.levels import as_detailed
from tests.stores import open_place

JOBS = ("alpha", "beta", "gamma")
QUEUES = ("default", "other")
SINGLE = ("solo", "queued", "replaced")  # jobs that run one at a time
KEYS = (None, None, "k1", "k2")
KINDS = ("task", "http")
LEASE = 60.0
STRANGER = mint()


class Pair(RuleBasedStateMachine):
    """A store and its model."""

    chance: Random  # what decides, from the beginning on

    def __init__(self, runner: asyncio.Runner, kind: str, folder: Any, servers: Any) -> None:
        super().__init__()
        self.runner = runner
        self.stack = AsyncExitStack()
        place = open_place(kind, folder, servers)
        self.place = self.run(self.stack.enter_async_context(place))
        self.model = SqliteStore.in_memory(clock=self.place.clock.now)
        self.store = self.place.connect()
        self.run(self.open())
        self.sent: list[NewExecution] = []
        self.held: list[tuple[UUID, Claimed]] = []  # all that was ever claimed, with its worker
        self.workers: list[UUID] = []
        self.schedules: list[UUID] = []
        self.holders = (mint(), mint())

    async def open(self) -> None:
        for store in (self.model, self.store):
            await store.open()
            self.stack.push_async_callback(store.close)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else the step that failed says more
                self.all_details_agree()
        finally:
            self.run(self.stack.aclose())

    def run(self, operation: Any) -> Any:
        return self.runner.run(operation)

    def both(self, name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        """What the model and the store answer; an error is an answer too."""
        return self.run(self.ask(name, *args, **options))

    async def ask(self, name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        answers: list[Any] = []
        for store in (self.model, self.store):
            try:
                answers.append(await operation_of(store, name)(*args, **options))
            except DaybellError as error:
                answers.append(type(error))
        return answers[0], answers[1]

    def same(self, name: str, *args: Any, level: Any = None, **options: Any) -> Any:
        """Ask both, and insist on one answer; `level` takes away what may differ."""
        expected, found = self.both(name, *args, **options)
        if not name.startswith(("list", "get", "count")):
            note(f"{name} {args} {options}\n  {expected}")
        if level is None or isinstance(expected, type) or isinstance(found, type):
            assert found == expected, name
        else:
            assert level(found) == level(expected), name
        return found

    def draw(self, *of: Any) -> Any:
        return self.chance.choice(of)

    def wait(self, draw: Any) -> None:
        self.run(self.place.clock.advance(draw(1.0, 5.0, 30.0, 61.0)))

    def all_details_agree(self) -> None:
        self.details_agree([one.id for one in self.sent])
        for id in {one.id for _, one in self.held}:
            self.same("steps", TENANT, id)
        for name in JOBS:
            self.same("list_versions", TENANT, name)
        for schedule in self.schedules:
            self.same("list_ticks", TENANT, schedule)

    def details_agree(self, ids: list[UUID]) -> None:
        for id in dict.fromkeys(ids):
            self.same("get_execution", TENANT, id, level=as_detailed)

    def running(self) -> list[tuple[UUID, Claimed]]:
        """What is in a worker's hands now, by the model."""
        where = ExecutionFilter(states=frozenset({State.RUNNING}))
        page = self.run(self.model.catalog.list_executions(TENANT, where, limit=1000))
        now = {(one.id, one.attempt) for one in page.items}
        return [(worker, one) for worker, one in self.held if (one.id, one.attempt) in now]
