"""An executor, and how what it runs ends."""

from daybell.core.ids import mint
from daybell.core.retry import Retry
from daybell.engine.attempt import AttemptHost
from daybell.engine.execute import Executor
from tests.builders import no_transaction
from tests.engine.tasks import Task, Tasks
from tests.engine.virtual import VirtualClock

NO_JITTER = Retry(jitter=0.0)


class Ends(list):
    """What the executor reported, and how often it said that a slot is free."""

    freed = 0

    def add(self, claimed, move, _):
        self.append((claimed, move))

    def free(self):
        self.freed += 1

    def lose(self):
        raise AssertionError("the lease holds for ever")


async def written(_):
    """Take reports, and keep nothing."""


async def announced(*_):
    """Take note of a suspect, which has no probation."""
    return 0.0


async def routed_nowhere(*_):
    """Know of no other worker."""
    return None


def an_executor(*, clock=None, **tasks):
    ends = Ends()
    clock, known = clock or VirtualClock(), Tasks(**tasks)
    host = AttemptHost(
        clock,
        mask=known.mask,
        begin=no_transaction,
    )
    executor = Executor(
        known,
        worker=mint(),
        host=host,
        clock=clock,
        finish=ends.add,
        freed=ends.free,
        write=written,
        announce=announced,
        route=routed_nowhere,
        lose=ends.lose,
    )
    return executor, ends


def fence(claimed):
    return claimed.id, claimed.attempt


async def the_end_of(claimed, function, *, clock=None, **options):
    """What one run of this function as a task leads to."""
    task = Task(function, **{"retry": NO_JITTER, **options})
    executor, ends = an_executor(clock=clock, **{claimed.job: task})
    executor.start(claimed)
    await executor.wait()
    [(ended, move)] = ends
    assert ended is claimed
    assert (move.id, move.attempt, move.lease) == (claimed.id, claimed.attempt, claimed.lease)
    assert ends.freed == 1 and len(executor) == 0
    return move


def raising(error):
    async def task(_):
        raise error

    return task
