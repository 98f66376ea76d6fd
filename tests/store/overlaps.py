"""Executions that may be in the way of others, and what they are told."""

import pytest

from daybell.core.ids import mint
from daybell.core.schedule import Overlap
from daybell.errors import ExecutionInTheWay
from tests.builders import TENANT, an_execution, apply, success

RULES = [Overlap.SKIP, Overlap.QUEUE, Overlap.QUEUE_ALL, Overlap.REPLACE]


async def ticked(store, *, schedule=None, job="resize", **options):
    """An execution as a tick enqueues it; the answer, and its id."""
    new = an_execution(job, schedule=schedule or mint(), **options)
    (answer,) = await store.queue.enqueue(TENANT, [new])
    assert (answer.id, answer.created) == (new.id, True)
    return answer


async def refused(store, *executions):
    with pytest.raises(ExecutionInTheWay) as caught:
        await store.queue.enqueue(TENANT, executions or [an_execution()])
    return caught.value


async def ended(store, hands):
    assert await apply(store, hands, success(hands.one)) == []
