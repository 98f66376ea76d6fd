"""Since when nodes could have been started, which follows from the ends of others."""

from typing import Any
from uuid import UUID

import pytest

from daybell.client.runs import ItemCounts, RunNode, ready_times
from daybell.core.execution import State
from daybell.core.workflow.graph import GraphEdge

BEGUN = 100.0
PARENTS = [("a", State.SUCCEEDED, 110.0), ("b", State.DEAD, 120.0), ("c", State.SUCCEEDED, 130.0)]


def a_node(name, status=State.SUCCEEDED, **fields):
    return RunNode(name=name, status=status, **{"execution": UUID(int=1), **fields})


def ready(child, *, parents=PARENTS, begins=(BEGUN,)):
    """When a node was ready that comes after these."""
    nodes = [a_node(name, status, started_at=101.0, finished_at=at) for name, status, at in parents]
    edges = [GraphEdge(name, child.name) for name, _, _ in parents]
    return ready_times([*nodes, child], edges, begins=begins).get(child.name)


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        ("all_done", 130.0),
        ("none_skipped", 130.0),
        ("one_success", 110.0),
        ("one_failed", 120.0),
        ("always", BEGUN),
    ],
)
def test_a_node_is_ready_when_its_parents_have_decided(rule, at):
    assert ready(a_node("last", rule=rule, started_at=140.0)) == at
    assert ready(a_node("last", State.QUEUED, rule=rule)) == at


def test_the_first_nodes_are_ready_when_the_run_begins():
    assert ready(a_node("first", started_at=105.0), parents=[]) == BEGUN
    items = ItemCounts(total=2, ended=0, failed=0)
    assert ready(a_node("each", State.RUNNING, execution=None, items=items), parents=[]) == BEGUN


def test_nothing_is_said_of_what_was_not_begun():
    assert ready(a_node("last", State.SKIPPED, execution=None)) is None
    assert ready(a_node("first"), parents=[], begins=()) is None


def test_what_another_run_had_begun_was_ready_after_the_nodes_before_it():
    taken_over: dict[str, Any] = {"started_at": 140.0, "finished_at": 150.0}

    assert ready(a_node("last", **taken_over), begins=(500.0,)) == 130.0
    assert ready(a_node("first", **taken_over), parents=[], begins=(500.0,)) is None


def test_what_a_retry_has_kept_was_ready_when_it_was():
    kept: dict[str, Any] = {"started_at": 140.0, "finished_at": 150.0}

    assert ready(a_node("last", **kept), begins=(500.0, BEGUN)) == 130.0
    assert ready(a_node("first", **kept), parents=[], begins=(500.0, BEGUN)) == BEGUN
    items = ItemCounts(total=2, ended=2, failed=0)
    partly = a_node("each", execution=None, items=items, started_at=140.0, finished_at=510.0)
    assert ready(partly, parents=[], begins=(500.0, BEGUN)) == BEGUN


def test_a_run_that_begins_again_waits_from_then_on():
    assert ready(a_node("last", rule="all_done", started_at=600.0), begins=(500.0, BEGUN)) == 500.0


def test_nothing_is_ready_after_it_has_started():
    assert ready(a_node("last", rule="all_done", started_at=125.0)) == 125.0
