"""The checker reports errors of workflows and durable functions."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from daybell.chaos.checker import History, check_history
from daybell.chaos.load import Cancel
from daybell.chaos.recovery import Trouble
from daybell.chaos.tasks import END, STEP, STEPS
from daybell.chaos.workflow_checker import FLOW_RULES, count_workflows, find_late_nodes
from daybell.chaos.workflows import NAMES, OUTER, Flow, FlowRun, draw_workflows
from daybell.core.event import Step, StepKind
from daybell.core.execution import Execution, State
from daybell.core.ids import mint
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.run import Node, NodeState, NodeView, Run, RunDetail
from tests.chaos.histories import ADA, BOB, ID, a_call, a_history, an_execution, line

PART = {"task": "part", "args": {"ups": []}}
FLOW = Flow(
    name=OUTER[0],
    graph=Graph.parse(
        {
            "nodes": [{"name": name, **PART} for name in ("a", "b", "never")],
            "edges": [["a", "b"], {"from": "a", "to": "never", "when": "result < 0"}],
        }
    ),
    fates={
        "a": NodeState.SUCCEEDED,
        "b": NodeState.SUCCEEDED,
        "never": NodeState.SKIPPED,
    },
    weights={"a": 1, "b": 1},
    items={},
    inner={},
    end=State.SUCCEEDED,
)
A, B, OTHER = mint(), mint(), mint()
RUN = an_execution(job=FLOW.name, args="{}", finished_at=4.0)
MARKS = [
    line("start", 1.0, id=A, number=0),
    line(END, 2.0, id=A, number=0),
    line("start", 3.0, id=B, number=0),
    line(END, 4.0, id=B, number=0),
]


def a_node(id: UUID, label: str, **fields) -> Execution:
    at = {"a": 0.0, "b": 2.0}.get(label, 2.0)
    known = {"job": FLOW.name, "parent": ID, "node": label, "result": "1", "created_at": at}
    return an_execution(id, **(known | fields))


def a_view(label: str, state: NodeState, finished_at: float) -> NodeView:
    node = Node(label=label, order=0, state=state, finished_at=finished_at)
    return NodeView(node, State.SUCCEEDED)


NODES = (a_node(A, "a"), a_node(B, "b"))
ROW = Run(id=ID, total=3, left=0)
VIEWS = (
    a_view("a", NodeState.SUCCEEDED, 2.0),
    a_view("never", NodeState.SKIPPED, 2.0),
    a_view("b", NodeState.SUCCEEDED, 4.0),
)


def a_story(
    *nodes: Execution,
    run: Execution = RUN,
    row: Run = ROW,
    views: tuple[NodeView, ...] = VIEWS,
    **parts,
) -> History:
    """Return a run of that workflow, in which all went well unless specified otherwise."""
    found: dict[str, list[Execution]] = {}
    for one in nodes or NODES:
        found.setdefault(str(one.node), []).append(one)
    detail = RunDetail(row, views) if views else None
    kept = FlowRun(flow=FLOW, execution=run, detail=detail, root=ID, nodes=found)
    known = {
        "calls": [replace(a_call(number=0), job=FLOW.name)],
        "effects": MARKS,
        "executions": {one.id: one for one in (run, *(nodes or NODES))},
        "runs": {ID: kept},
    }
    return a_history(**(known | parts))


def a_step(place: int, attempt: int) -> Step:
    return Step(n=place, name=STEPS[place], kind=StepKind.STEP, result=str(attempt), started_at=0.0)


def of_steps(*marks: tuple[int, int], recorded: tuple[int, ...] = (1, 1, 2), told=None) -> History:
    """Return a durable function: its effects, as (number, attempt), and its record."""
    attempt = max(recorded, default=1)
    result = f'{{"weight":1,"attempts":{list(told or recorded)}}}'
    done = [
        line(STEP, 1.0 + n / 10, attempt=attempt, number=place, pid=ADA if attempt == 1 else BOB)
        for n, (place, attempt) in enumerate(marks)
    ]
    return a_history(
        executions={ID: an_execution(job="durable", attempt=attempt, result=result)},
        effects=[
            line("start", 0.5, attempt=attempt),
            *done,
            line(END, 5.0, attempt=attempt),
        ],
        steps={ID: [a_step(place, one) for place, one in enumerate(recorded)]},
    )


IN_ORDER = ((0, 1), (1, 1), (2, 2))
KILLED = of_steps((0, 1), (1, 1), (1, 2), (2, 2), recorded=(1, 2, 2))
GOOD = {
    "a run": a_story(),
    "a run that was cancelled": a_story(
        a_node(A, "a", state=State.CANCELLED),
        run=replace(RUN, state=State.CANCELLED),
        views=(),
        cancels=[Cancel(id=ID, answer="requested", answered_at=1.5)],
        effects=MARKS[:1],
    ),
    "a durable function": of_steps(*IN_ORDER),
    "one that was killed before a record": KILLED,
}
BAD = {
    "run ended otherwise": [
        a_story(run=replace(RUN, state=State.DEAD)),
        a_story(views=(*VIEWS[:2], a_view("b", NodeState.UPSTREAM_FAILED, 4.0))),
        a_story(views=VIEWS[:2]),
        a_story(views=()),
    ],
    "run left behind": [
        a_story(run=replace(RUN, state=State.RUNNING)),
        a_story(row=replace(ROW, is_todo=True)),
        a_story(row=replace(ROW, left=1)),
        a_story(row=replace(ROW, running=1)),
        a_story(row=replace(ROW, ready=1)),
    ],
    "run never asked for": [a_story(calls=[])],
    "node doubled": [a_story(*NODES, a_node(OTHER, "b"))],
    "node did not run": [
        a_story(NODES[0]),
        a_story(NODES[0], a_node(B, "b", state=State.DEAD)),
        a_story(NODES[0], a_node(B, "b", result="7")),
    ],
    "node ran unasked": [
        a_story(*NODES, a_node(OTHER, "never")),
        a_story(*NODES, a_node(OTHER, "a[0]")),
    ],
    "node before its parents": [
        a_story(effects=[*MARKS[:1], line("start", 1.5, id=B, number=0), MARKS[1], MARKS[3]]),
        a_story(effects=[MARKS[0], *MARKS[2:]]),
    ],
    "begun after a cancel": [
        a_story(
            run=replace(RUN, state=State.CANCELLED),
            cancels=[Cancel(id=ID, answer="requested", answered_at=1.5)],
        )
    ],
    "step repeated": [
        of_steps(*IN_ORDER, (1, 2)),  # although it is on record
        of_steps((0, 1), *IN_ORDER),  # twice in an attempt
        of_steps((0, 1), (1, 1), (0, 2), (1, 2), (2, 2), recorded=(2, 2, 2)),  # it had gone on
        of_steps((0, 1), (1, 1), (2, 1), recorded=(1,)),  # the same, without a record
    ],
    "step not on record": [
        of_steps(*IN_ORDER, recorded=(1, 1)),
        of_steps(*IN_ORDER, told=(1, 1, 1)),
        of_steps((0, 1), (1, 1), recorded=(1, 1, 2)),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_what_went_as_promised_is_no_violation(history):
    assert check_history(history) == []
    assert check_history(history, FLOW_RULES) == []


@pytest.mark.parametrize(
    ("rule", "history"), [(rule, history) for rule, many in BAD.items() for history in many]
)
def test_the_checker_notices_of_workflows(rule, history):
    assert rule in {violation.rule for violation in check_history(history, FLOW_RULES)}


def test_every_rule_about_workflows_is_shown_something_bad():
    assert {rule.__name__.strip("_").replace("_", " ") for rule in FLOW_RULES} == set(BAD)


def test_a_node_or_an_end_that_comes_too_long_after_what_it_waited_for_is_noticed():
    late = a_story(NODES[0], a_node(B, "b", created_at=9.0), run=replace(RUN, finished_at=12.0))

    found = [one.what for one in find_late_nodes(late, troubles=[], within=6.0)]

    assert [what.split(" of ")[0] for what in found] == ["b", "the end"]
    assert not list(find_late_nodes(late, troubles=[], within=8.0))
    assert not list(find_late_nodes(late, troubles=[Trouble(2.5, 6.5)], within=6.0))
    assert not list(find_late_nodes(a_story(), troubles=[], within=0.5))


def test_runs_nodes_and_steps_are_counted():
    runs, steps = (
        count_workflows(a_story()),
        count_workflows(KILLED),
    )

    assert (runs.asked, runs.acknowledged, runs.states, runs.nodes) == (1, 1, {"succeeded": 1}, 2)
    assert (steps.steps, steps.steps_again) == (3, 1)


def test_a_seed_draws_the_same_workflows_again_and_each_kind_of_part():
    flows = draw_workflows(7)

    assert flows == draw_workflows(7) != draw_workflows(8)
    assert set(flows) == set(NAMES)
    outer = [flows[name] for name in OUTER]
    assert any(flow.items for flow in outer) and any(flow.inner for flow in outer)
    assert any(len(flow.fates) > 20 for flow in outer)
    fates = {fate for flow in outer for fate in flow.fates.values()}
    assert fates >= {NodeState.SUCCEEDED, NodeState.SKIPPED, NodeState.FAILED}
    runs = {node.runs for flow in outer for node in flow.graph.nodes}
    assert runs >= {"part", "choose", "spread", "durable"}
