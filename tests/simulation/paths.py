"""Rare paths that must have been taken: a simulation in which they never happen proves little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

PATHS: Final = {
    "stale end": "a report of an end came too late and was refused",
    "stale progress": "progress of an attempt that was over was refused",
    "enqueue repeated": "an enqueue whose answer was lost was asked again, and made nothing",
    "end repeated": "an end whose answer was lost was sent again, and answered as made",
    "claim repeated": "a claim whose answer was lost was asked again, and had what it took",
    "renewal first": "a renewal came after the lease had ended, but before the reaper",
    "reaper first": "a renewal found its worker declared dead",
    "released in drain": "a draining worker gave unfinished work back",
    "drained from afar": "a worker learned from its lease that it shall drain",
    "cancel won": "a success came after a cancel, and the execution ended as cancelled",
    "cancel heard": "a running task was told that it is cancelled, and stopped",
    "begun anew": "a worker lost its lease, and began anew under a new id",
    "crash before start": "a worker died between a claim and the start",
    "poison": "an execution that kills its workers died of it",
    "spared": "a suspect was not charged with the loss of its worker",
    "company": "a suspect began beside another one",
    "excused": "a worker stopped because the store was late, and nothing was charged for it",
    "at most once": "an execution that must not be started twice died with its worker",
    "leaders collided": "a node that had led found another leading",
    "reapers collided": "two nodes wanted to take the same execution from a dead worker",
    "key held": "a unique key was held by another execution",
    "slot handed on": "the end of one execution let another through its gate",
    "revived": "a dead letter was put back, and run",
    "expired": "an execution was not started in time, and skipped",
    "timed out": "a task took longer than it may",
    "frozen at work": "a worker was frozen at work for longer than its lease, and went on",
    "loop stood still": "a worker's loop stood still for longer than its lease, which was kept",
    "ended itself": "a process ended itself, because its work would not",
    "long outage": "the store was away for longer than a lease",
    "told": "a change became an outgoing event",
    "told in order": "an event was delivered after another one about the same execution",
    "resumed": "an attempt went on from the checkpoint of an earlier one",
    "child": "a task enqueued another",
    "schedulers collided": "two schedulers wanted to fire the same tick",
    "tick on record": "a schedule was set back to a tick that had fired, which did not fire again",
    "tick skipped": "the one before had not finished, and the tick was recorded as skipped",
    "skipped apart": "the same of a schedule that has a gate of its own",
    "side by side": "two schedules of one job, each with a gate of its own, ran at a time",
    "replaced": "an execution was cancelled for the next one, which began when it had ended",
    "range missed": "nobody was there in time, and what was missed was recorded",
    "schedule turned back": "the clock was set back, and a schedule that was ahead of it re-armed",
    "missed tick re-armed": "the clock was set back, and a tick that was missed could be fired",
    "rearmed": "the sweep found a fixed delay that waited for nothing",
    "paused by failures": "a job was paused because it failed too often",
    "job resumed": "a paused job was resumed",
    "reboot": "a scheduler came up when none was alive",
}
STORE_PATHS: Final = {"commit failed": "the disk was full at a commit"}


# The same of clusters that run workflows.
FLOW_PATHS: Final = {
    "begun": "a run was begun by a worker, and nobody's from then on",
    "late beginning": "a run was begun by who did not hold it any more, and nothing came of it",
    "run succeeded": "the last node ended, and the run with it",
    "run dead": "a run ended as failed",
    "run cancelled": "a run that had begun was cancelled, and its nodes with it",
    "run revived": "a dead run began again with what had failed",
    "inner run": "a node was a workflow itself",
    "failed fast": "a run was stopped by its first failure",
    "node retried": "a node failed, and was tried again",
    "node lost": "a node's worker was lost, and another ran it",
    "node skipped": "a rule or a condition left a node out",
    "mapped": "a node ran once for each of several items",
    "swept": "what was left to do in a run was done by upkeep",
    "quota used up": "nodes waited for room in the quota of their tenant",
    "stale end": "a report of an end came too late and was refused",
    "end repeated": "an end whose answer was lost was sent again, and answered as made",
    "claim repeated": "a claim whose answer was lost was asked again, and had what it took",
    "cancel won": "a success came after a cancel, and the execution ended as cancelled",
}


# And of clusters of jobs that depend on jobs.
DEPENDENT_PATHS: Final = {
    "only a later failure": "nothing was due in time, and a later failure decided about it",
    "round fired": "each dependency had ended, and the job was fired",
    "round passed": "each dependency had ended, one had failed, and the job was not fired",
    "schedulers collided": "two schedulers saw the same round, and one fired it",
    "released": "an execution waited for dependencies, and was let go",
    "released outside": "it was let go before it had a slot of its gate",
    "slot while it waits": "it got a slot of its gate, and waited on for dependencies",
    "upstream failed": "it was skipped because a dependency had failed",
}


# And of clusters whose jobs are held back, collapsed, placed, or fired by events.
CONTROL_PATHS: Final = {
    "parked": "an execution waited for room in a limit",
    "gave way": "an execution was not claimed in time, and waits again",
    "limit used up": "as many executions ran as a limit allows",
    "rate used up": "a window had as many starts as a rate allows",
    "no room": "a limit was full, and an execution was skipped",
    "moved": "a debounced execution got the arguments of a later request",
    "throttled": "a request was answered with an earlier execution of its period",
    "replaced": "an execution was cancelled for a new one",
    "cancelled for another": "a request was cancelled, because a singleton had not ended",
    "cached": "a request was answered with a result, or joined an execution",
    "placed": "an execution ran on a worker with its labels and resources",
    "fired": "an event fired a job",
    "missed": "an event came while a job was paused",
    "skipped": "an event came while the execution of another had not ended",
    "event again": "an event came again, and fired nothing",
    "stale end": "a report of an end came too late and was refused",
    "claim repeated": "a claim whose answer was lost was asked again, and had what it took",
}


def missing(seen: Counter[str], paths: Mapping[str, str] = PATHS) -> list[str]:
    """What has never happened and should have."""
    wanted = {**paths, **STORE_PATHS}
    return [f"{name}: {meaning}" for name, meaning in wanted.items() if not seen[name]]
