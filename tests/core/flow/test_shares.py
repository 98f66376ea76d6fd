"""Fair shares: whose turn is next, by weights and in trees."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.flow.shares import ShareNode, ShareOption, Turns, read_share, spread, write_share
from daybell.errors import UsageError
from tests.refusals import refuses

ROOT = 1


def a_node(key, *, parent=ROOT, used=0.0, weight=1.0, lane=None):
    return ShareNode(key, parent, used, 0.0, weight, lane)


class Tree:
    """Nodes in memory, and the backlogs of the leaves."""

    def __init__(self, nodes, work):
        self.nodes = {node.key: node for node in (ShareNode(ROOT, 0, 0.0, 0.0, 1.0, None), *nodes)}
        self.work = work

    def take(self, wanted):
        """The lanes of the next turns."""
        turns = Turns(self.nodes[ROOT], wanted)
        while turns.frontier:
            turns.descend([
                child for node in turns.frontier
                for child in sorted(
                    (one for one in self.nodes.values() if one.parent == node.key),
                    key=lambda one: (one.used, one.key),
                )[: node.turns]
            ])  # fmt: skip
        found = {}
        for leaf in turns.leaves:
            count = min(leaf.turns, self.work[leaf.lane])
            self.work[leaf.lane] -= count
            found[leaf.lane] = [leaf.lane] * count
        order = turns.sequence(found)
        _, empty = turns.finish({lane: len(some) for lane, some in found.items()})
        for node in empty:
            node.used = max(node.used, self.nodes[node.parent].clock)
        for node in self.nodes.values():
            node.turns = node.taken = 0
        return order


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (True, ShareOption(key=("user_id",))),
        ("customer", ShareOption(key=("customer",))),
        (["org", "user"], ShareOption(key=("org", "user"))),
        ({"key": "a.b", "weights": {"x": 3}}, ShareOption(key=("a.b",), weights={"x": 3.0})),
        ({"weights": {"x": 0.5}}, ShareOption(key=("user_id",), weights={"x": 0.5})),
    ],
)
def test_a_share_is_read_and_written(value, meant):
    assert read_share(value, "share") == meant
    assert read_share(write_share(meant), "share") == meant


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (7, "share"), ([], "share"), ([""], "share"), ("a b", "share"), (list("abcde"), "share"),
        ({"keys": "a"}, "share"), ({"key": "a", "weights": {"x": 0}}, "share.weights"),
        ({"key": "a", "weights": {"x": True}}, "share.weights"),
        ({"key": "a", "weights": ["x"]}, "share.weights"),
    ],
)  # fmt: skip
def test_a_share_that_says_nothing_is_refused(value, field):
    with refuses(UsageError, field=field):
        read_share(value, "share")


def test_the_user_of_the_job_is_the_key_unless_an_argument_is():
    share = read_share(True, "share")

    assert share.path({}, user_id="ann").items[0] == "ann"
    assert share.path({"user_id": "bob"}, user_id="ann").items[0] == "bob"


def test_the_nodes_of_a_path_lead_from_the_root_to_its_leaf():
    share = read_share({"key": ["org", "user"], "weights": {"acme": 3, "acme/ann": 2}}, "share")
    path = share.path({"org": "acme", "user": "ann"}, "stripe")

    names = [name for name, _, _ in path.nodes]
    assert [above for _, above, _ in path.nodes] == ["*", *names[:-1]]
    assert names[-1] == path.leaf
    assert [weight for _, _, weight in path.nodes] == [3.0, 2.0, 1.0]


def test_a_leaf_is_no_node_above_others():
    one = read_share("org", "share").path({"org": "acme"})
    two = read_share(["org", "user"], "share").path({"org": "acme", "user": ""})

    assert one.leaf not in {name for name, *_ in two.nodes}


def test_a_node_that_has_used_less_is_next():
    assert spread([a_node(2, used=5.0), a_node(3, used=3.0)], 3) == [3, 3, 2]


def test_turns_follow_the_weights():
    assert Counter(spread([a_node(2, weight=3.0), a_node(3)], 40)) == {2: 30, 3: 10}


def test_turns_of_a_tree_alternate_on_each_level():
    users = [a_node(4, parent=2, lane=4), a_node(5, parent=2, lane=5), a_node(6, parent=3, lane=6)]
    tree = Tree([a_node(2), a_node(3), *users], {4: 9, 5: 9, 6: 9})

    assert tree.take(8) == [4, 6, 5, 6, 4, 6, 5, 6]


def test_a_node_without_work_keeps_no_turns_for_later():
    tree = Tree([a_node(2, lane=2), a_node(3, lane=3)], {2: 100, 3: 0})
    for _ in range(20):
        tree.take(4)
    tree.work[3] = 100

    assert Counter(tree.take(10)) == {2: 5, 3: 5}


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(1, 9), min_size=5, max_size=20),
)
def test_of_keys_with_work_none_is_ahead_by_more_than_a_turn(weights, sizes):
    nodes = [a_node(n, weight=float(weight), lane=n) for n, weight in enumerate(weights, 2)]
    tree = Tree(nodes, {node.key: 10_000 for node in nodes})

    served = Counter[int]()
    for size in sizes:
        served.update(tree.take(size))
        times = [served[node.key] / node.weight for node in nodes]
        assert max(times) - min(times) <= max(1 / node.weight for node in nodes) + 1e-9
