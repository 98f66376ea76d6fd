"""Since when nodes could have been started, which follows from the ends of others."""

from uuid import UUID

import pytest

from daybell.client.ready import ready_times
from daybell.client.workflows import ItemCounts, RunNode
from daybell.core.execution import State
from daybell.core.graph import GraphEdge

BEGUN = 100.0
PARENTS = [("a", State.SUCCEEDED, 110.0), ("b", State.DEAD, 120.0), ("c", State.SUCCEEDED, 130.0)]


def a_node(name, status=State.SUCCEEDED, **fields):
    return RunNode(name=name, status=status, **{"execution": UUID(int=1), **fields})


def ready(child, *, parents=PARENTS, begun: float | None = BEGUN):
    """When a node was ready that comes after these."""
    nodes = [a_node(name, status, started_at=101.0, finished_at=at) for name, status, at in parents]
    edges = [GraphEdge(name, child.name) for name, _, _ in parents]
    return ready_times([*nodes, child], edges, begun=begun).get(child.name)


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


def test_nothing_is_said_of_what_was_not_begun_or_was_taken_over():
    assert ready(a_node("last", State.SKIPPED, execution=None)) is None
    assert ready(a_node("last", started_at=50.0, finished_at=60.0)) is None
    assert ready(a_node("last", started_at=140.0), begun=None) is None


def test_a_run_that_begins_again_waits_from_then_on():
    assert ready(a_node("last", rule="all_done", started_at=600.0), begun=500.0) == 500.0


def test_nothing_is_ready_after_it_has_started():
    assert ready(a_node("last", rule="all_done", started_at=125.0)) == 125.0
