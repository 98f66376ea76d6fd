"""Many nodes that start and end together are kept as one that does so alone."""

import pytest

from daybell.core.execution import State
from daybell.core.workflow.rules import ParentCounts
from tests.builders import TENANT
from tests.store.runs import a_plan, begun, detail, end, nodes, state, take

NAMES = [f"n{number:02}" for number in range(24)]
LEAVES = NAMES[:12]
FAN = {"first": NAMES} | {name: ["last"] for name in NAMES[12:]}


@pytest.mark.parametrize("failing", [[], LEAVES], ids=["all succeed", "half of them fail"])
async def test_nodes_that_end_together_are_kept_whole(store, failing):
    run = await begun(store, a_plan(FAN))
    await end(store, await take(store))
    hands = await take(store)
    executions = {one.node: one.id for one in hands.executions}

    await end(store, hands, failing=failing)

    found = {one.node.label: one for one in (await detail(store, run)).nodes}
    assert set(NAMES) < found.keys()
    for name in NAMES:
        node = found[name].node
        assert (node.parents, node.told) == (ParentCounts(1, 1), int(name not in LEAVES))
        assert found[name].state is (State.DEAD if name in failing else State.SUCCEEDED)
        assert node.execution == executions[name]
        assert node.started_at is not None and node.finished_at is not None
        assert node.started_at <= node.finished_at
    for name in LEAVES:
        assert found[name].result == (None if failing else f'"{name}"')


async def test_nodes_that_have_no_room_are_stopped_with_their_run(store):
    run = await begun(store, a_plan({"first": NAMES}, max_running=1))
    await end(store, await take(store))

    await store.cancel(TENANT, [run])

    assert set((await nodes(store, run)).values()) == {State.SUCCEEDED, State.CANCELLED}
    assert await state(store, run) is State.CANCELLED
