"""Many nodes that start and end together are kept as one that does so alone."""

import pytest

from daybell.core.execution import State
from daybell.core.rules import Counts
from tests.store.runs import a_plan, begun, detail, end, take

NAMES = [f"n{number:02}" for number in range(24)]
FAN = {"first": NAMES} | {name: ["last"] for name in NAMES[1:]}  # n00 is a leaf


@pytest.mark.parametrize("failing", [[], NAMES[:12]], ids=["all succeed", "half of them fail"])
async def test_nodes_that_end_together_are_kept_whole(store, failing):
    run = await begun(store, a_plan(FAN))
    await end(store, await take(store))
    hands = await take(store)
    executions = {one.node: one.id for one in hands.executions}

    await end(store, hands, failing=failing, results={"n00": "kept", "n20": "kept"})

    found = {one.node.label: one for one in (await detail(store, run)).nodes}
    assert set(NAMES) < found.keys()
    for name in NAMES:
        node = found[name].node
        assert (node.parents, node.told) == (Counts(1, 1), 0 if name == "n00" else 1)
        assert found[name].state is (State.DEAD if name in failing else State.SUCCEEDED)
        assert node.execution == executions[name]
        assert node.started_at is not None and node.finished_at is not None
        assert node.started_at <= node.finished_at
    assert found["n00"].result == (None if failing else '"kept"')
