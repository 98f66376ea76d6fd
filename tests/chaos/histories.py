"""Histories of small runs, as input of the checker."""

from __future__ import annotations

from uuid import UUID

from daybell.chaos.checker import History
from daybell.chaos.load import EnqueueCall
from daybell.chaos.tasks import END, Effect
from daybell.core.execution import Execution, Priority, State
from daybell.core.ids import mint

ADA, BOB = 101, 102  # processes
ID = mint()


def an_execution(id: UUID = ID, **fields) -> Execution:
    known = {
        "id": id,
        "tenant": "t",
        "job": "quick",
        "version": 1,
        "state": State.SUCCEEDED,
        "queue": "q",
        "priority": Priority.NORMAL,
        "args": '{"number":1}',
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "created_at": 0.0,
        "run_at": 0.0,
    }
    return Execution(**(known | fields))


def a_call(
    id: UUID | None = ID, number: int = 1, *, asked_at: float = 0.0, answered_at: float = 0.1
) -> EnqueueCall:
    call = EnqueueCall(number=number, job="quick", asked_at=asked_at, id=id)
    if id is None:
        call.failed_at = answered_at
    else:
        call.answered_at = answered_at
    return call


def line(what: str, at: float, *, id: UUID = ID, attempt: int = 1, pid: int = ADA, number: int = 1):
    return Effect(what, id, attempt, pid, at, at, number)


RAN = [line("start", 1.0), line(END, 2.0)]


def a_history(**parts) -> History:
    known = {
        "calls": [a_call()],
        "cancels": [],
        "effects": RAN,
        "executions": {ID: an_execution()},
    }
    return History(**(known | parts))
