"""Workflows that run each other."""

import pytest

from daybell.core.job import JobDefinition
from daybell.core.workflow.graph import find_cycle, inner_jobs

GRAPH = (
    '{"nodes": [{"name": "a", "job": "x"}, {"name": "b", "task": "t"}, {"name": "c", "job": "x"},'
    ' {"name": "d", "job": "y", "args": {"job": "z"}}]}'
)


def test_a_workflow_runs_the_jobs_of_its_nodes_each_once():
    workflow = JobDefinition(name="w", kind="workflow", settings=GRAPH)
    command = JobDefinition(name="w", kind="command", settings='{"run": "ls", "job": "x"}')

    assert inner_jobs(workflow) == ("x", "y")
    assert inner_jobs(command) == ()


@pytest.mark.parametrize(
    ("jobs", "circle"),
    [
        ({}, ""),
        ({"a": "b", "b": "", "c": "ab"}, ""),
        ({"a": "bc", "b": "d", "c": "d"}, ""),
        ({"a": "a"}, "aa"),
        ({"a": "b", "b": "a"}, "aba"),
        ({"b": "a", "a": "b"}, "bab"),
        ({"x": "a", "c": "a", "a": "b", "b": "c"}, "cabc"),
        ({"w": "x", "x": "y", "y": "xw"}, None),
    ],
)
def test_a_circle_is_found_and_begins_with_the_first_that_was_named(jobs, circle):
    found = "".join(find_cycle(jobs))

    assert found in ("wxyw", "xyx") if circle is None else found == circle


def test_long_ways_take_no_longer_than_they_are():
    many = 50_000
    chain = {str(n): [str(n + 1)] for n in range(many)}

    assert find_cycle(chain) == []
    assert len(find_cycle(chain | {str(many): ["0"]})) == many + 2
