"""Which workers could run a job, and what to do where none can."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from daybell.core.execution import Execution
from daybell.core.graph import Graph
from daybell.core.graph_node import JOB
from daybell.core.instant import Instant
from daybell.core.job import DEFAULT_QUEUE, JobDefinition
from daybell.core.kinds.http import PRIVATE
from daybell.core.run import node_name
from daybell.core.worker import Worker, WorkerState


class Lack(NamedTuple):
    """What no worker offers, and the way out."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}; {self.advice}"


_LACKS: Final = {
    "command": ("runs commands", "start one with `daybell worker --allow-command{queues}`"),
    "http": ("makes requests", "start one with `daybell worker{queues}`"),
    PRIVATE: (
        "sends requests to private addresses",
        "start one with `daybell worker --allow-private-http{queues}`",
    ),
    "notify": ("can notify", "install daybell[notify] there"),
    "workflow": ("begins workflows", "start one with `daybell worker{queues}`"),
    "task": ("runs tasks", "start one with their app: `daybell worker APP{queues}`"),
}
# The same where there is no worker at all, so that "there" is nowhere.
_STARTS: Final = {
    **{kind: advice for kind, (_, advice) in _LACKS.items()},
    "notify": "start one with `daybell worker{queues}`, where daybell[notify] is installed",
    "sql": "start one with `daybell worker{queues}`, with {variable} in its environment",
}


def definition_of(execution: Execution, job: JobDefinition) -> JobDefinition:
    """How an execution is run, by the version of its job that it was created under: a node of a
    workflow as that says.
    """
    if execution.node is None or job.kind != "workflow":
        return job
    graph = _graph_in(job.settings)
    node = graph.by_name.get(node_name(execution.node))
    # A node that is another workflow may have a name that this one has a node of, too.
    is_inline = node is not None and node.kind != JOB
    return graph.definition_of(node, job) if node and is_inline else job


@lru_cache(maxsize=16)  # who looks at one node of a run looks at others
def _graph_in(settings: str) -> Graph:
    return Graph.from_settings(settings)


def able(workers: Iterable[Worker], *, queue: str, needs: str, now: Instant) -> list[Worker]:
    """The live ones that take such jobs of a queue."""
    return [one for one in live(workers, queue=queue, now=now) if needs in one.kinds]


def live(workers: Iterable[Worker], *, queue: str, now: Instant) -> list[Worker]:
    """Those that take a queue. One that was killed is called live until somebody looks after its
    lease.
    """
    return [
        one
        for one in workers
        if one.state is WorkerState.LIVE and queue in one.queues and one.lease_until > now
    ]


def lack_of(needs: str, *, queue: str) -> Lack:
    """What to say where no live worker offers what jobs need."""
    kind, _, connection = needs.partition(":")
    if kind == "sql":
        does = f"knows the connection {connection!r}"
        advice = f"give a worker {_variable(connection)}"
    else:
        other = f"runs jobs of the kind {kind!r}", "start one that does"
        does, advice = _LACKS.get(needs) or _LACKS.get(kind, other)
    advice = advice.replace("{queues}", _queues(queue))
    return Lack(f"no live worker of queue {queue!r} {does}", advice)


def start_for(needs: str, *, queue: str) -> str:
    """How to start a worker of a queue, where it has none, that offers what jobs need."""
    kind, _, connection = needs.partition(":")
    advice = _STARTS.get(kind, "start one that does")
    return advice.replace("{queues}", _queues(queue)).replace("{variable}", _variable(connection))


def _queues(queue: str) -> str:
    return "" if queue == DEFAULT_QUEUE else f" --queues {shlex.quote(queue)}"


def _variable(connection: str) -> str:
    return f"DAYBELL_CONNECTION_{connection.upper()}"
