"""The executions of all benchmarks: small, plain ones of one job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from daybell.core.execution import NewExecution
from daybell.core.ids import mint
from daybell.core.job import DEFAULT_TENANT, NewJob
from daybell.core.options import DEFAULT_QUEUE, JobDefinition

TENANT: Final = DEFAULT_TENANT
QUEUE: Final = DEFAULT_QUEUE
JOB: Final = "send_mail"
RESULT: Final = '{"sent":true,"tries":1}'
RAN: Final = 0.004  # reported duration of a task


def new_job() -> NewJob:
    return NewJob(id=mint(), definition=JobDefinition(name=JOB))


def stream(count: int, *, args: str | None = None, **options: Any) -> Iterator[NewExecution]:
    """Yield so many executions, made one at a time: with these arguments, or with others for each,
    of about 90 bytes.
    """
    for number in range(count):
        given = args or (
            f'{{"to":"user-{number:07}@example.org","template":"welcome","locale":"en",'
            f'"order":"{number * 7919 % 1000003:07}"}}'
        )
        yield NewExecution(id=mint(), job=JOB, args=given, **options)


def prepared(count: int, **options: Any) -> list[NewExecution]:
    """Return the same, all made before the measurement."""
    return list(stream(count, **options))


def sliced(executions: list[NewExecution], size: int) -> list[list[NewExecution]]:
    """Executions in batches of one size."""
    return [executions[start : start + size] for start in range(0, len(executions), size)]
