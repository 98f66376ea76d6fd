"""Trigger rules of nodes: run, wait, skip or fail, given the ends of the parents."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Rule(StrEnum):
    """What a node wants of its parents."""

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
    """How a parent ended, as its child sees it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # or cancelled, or never run because of one that did
    SKIPPED = "skipped"  # or its condition was not met


class ParentCounts(msgspec.Struct, frozen=True, gc=False):
    """How many parents a node has, and how those that ended did."""

    total: int
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.skipped

    @property
    def is_done(self) -> bool:
        return self.done >= self.total


class NodeDecision(StrEnum):
    """What becomes of a node."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"  # because parents were skipped, or its rule cannot be met
    FAIL = "fail"  # because parents failed: skipped, too, but it counts as failed from here on


def decide(rule: Rule, counts: ParentCounts) -> NodeDecision:
    """What a rule says now. Once it is not WAIT, it stays what it is."""
    failed, skipped, succeeded = counts.failed > 0, counts.skipped > 0, counts.succeeded > 0
    if rule is Rule.ALL_SUCCESS and not failed and not skipped:  # as most often
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
            # One that fails later would make a difference further down: not before all have ended,
            # so that the answer does not depend on who is first.
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
    """One is still hoped for; if none is left, it is over."""
    if not counts.is_done:
        return NodeDecision.WAIT
    return NodeDecision.FAIL if failed else NodeDecision.SKIP
