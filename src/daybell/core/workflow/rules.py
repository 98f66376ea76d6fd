"""Trigger rules of nodes: run, wait, skip or fail, given the ends of the parents."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Rule(StrEnum):
    """The condition of a node on the ends of its parents."""

    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ALL_FAILED = "all_failed"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"
    NONE_FAILED = "none_failed"
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    NONE_SKIPPED = "none_skipped"
    ALWAYS = "always"


class ParentOutcome(StrEnum):
    """The end of a parent, from the view of its child."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # or cancelled, or not run because of a failure above
    SKIPPED = "skipped"  # or the condition of the edge is not met


class ParentCounts(msgspec.Struct, frozen=True, gc=False):
    """The number of parents of a node, and of those that ended, by outcome."""

    total: int
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def is_done(self) -> bool:
        return self.succeeded + self.failed + self.skipped >= self.total

    def plus(self, *, succeeded: int = 0, failed: int = 0, skipped: int = 0) -> ParentCounts:
        """Return the counts after further ends."""
        return ParentCounts(
            self.total, self.succeeded + succeeded, self.failed + failed, self.skipped + skipped
        )


class NodeDecision(StrEnum):
    """The decision about a node."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"  # because parents were skipped, or its rule cannot be met
    FAIL = "fail"  # because parents failed: not run, and its children see a failure


def decide(rule: Rule, counts: ParentCounts) -> NodeDecision:
    """Decide by a rule. A decision other than WAIT is final."""
    failed, skipped, succeeded = counts.failed > 0, counts.skipped > 0, counts.succeeded > 0
    if rule is Rule.ALL_SUCCESS and not failed and not skipped:  # the common case
        return _when(counts.succeeded >= counts.total)
    match rule:
        case Rule.ALWAYS:
            return NodeDecision.RUN
        case Rule.ALL_DONE:
            return _when(counts.is_done)
        case Rule.ONE_SUCCESS:
            return NodeDecision.RUN if succeeded else _unless(counts, failed=failed)
        case Rule.ONE_FAILED:
            return NodeDecision.RUN if failed else _unless(counts, failed=False)
        case Rule.ALL_SUCCESS if failed:
            return NodeDecision.FAIL
        case Rule.ALL_SUCCESS if skipped:
            # A parent that fails later would make a difference to its children: wait for all, so
            # that the decision does not depend on the order of ends.
            return NodeDecision.SKIP if counts.is_done else NodeDecision.WAIT
        case Rule.ALL_FAILED if succeeded or skipped:
            return NodeDecision.SKIP
        case Rule.NONE_FAILED | Rule.NONE_FAILED_MIN_ONE_SUCCESS if failed:
            return NodeDecision.FAIL
        case Rule.NONE_SKIPPED if skipped:
            return NodeDecision.SKIP
        case Rule.NONE_FAILED_MIN_ONE_SUCCESS if counts.is_done and not succeeded:
            return NodeDecision.SKIP
        case _:
            return _when(counts.is_done)


def _when(is_met: bool) -> NodeDecision:
    return NodeDecision.RUN if is_met else NodeDecision.WAIT


def _unless(counts: ParentCounts, *, failed: bool) -> NodeDecision:
    """Decide for a rule that waits for one parent."""
    if not counts.is_done:
        return NodeDecision.WAIT
    return NodeDecision.FAIL if failed else NodeDecision.SKIP
