"""Runs that are stopped with the one around them: not all in one transaction."""

from daybell.core.execution import State
from daybell.core.run import Spec
from daybell.store.outcomes import Cancellation
from tests.builders import TENANT, claim, defined
from tests.store.runs import SETTINGS, a_plan, begun, state


async def test_what_one_transaction_leaves_is_stopped_by_the_next(store, monkeypatch):
    monkeypatch.setattr("daybell.store.sqlite.progress.STOPS_MAX", 3)
    await defined(store, "inner", kind="workflow", settings=SETTINGS)
    mapped = Spec(job="inner", map=str([*range(8)]))
    outer = await begun(store, a_plan({"each": []}, specs={"each": mapped}))
    hands = await claim(store, 8, kinds=("workflow",))
    for one in hands.executions:
        plan = a_plan({"work": []})
        assert await store.expand(TENANT, worker=hands.worker, claimed=one, plan=plan)

    assert await store.cancel(TENANT, [outer]) == [Cancellation.REQUESTED]

    runs = [outer, *(one.id for one in hands.executions)]
    assert len(runs) == 9
    assert {await state(store, run) for run in runs} == {State.CANCELLED}
