"""The nodes of a run, as a person sees them."""

from uuid import UUID

from daybell.cli.views.executions import echo_nodes
from daybell.client import answers
from daybell.client.events import approval_event
from daybell.client.runs import ItemCounts, RunNode, WorkflowRun, describe_resume
from daybell.core.event import NodeWait
from daybell.core.execution import AttemptSpan, Execution, Outcome, Priority, State
from daybell.core.ids import mint


def tried(*outcomes: Outcome | None) -> tuple[AttemptSpan, ...]:
    return tuple(AttemptSpan(n, one, None, 0.0, 1.0) for n, one in enumerate(outcomes, 1))


def show(run: WorkflowRun, id: UUID | None = None) -> None:
    """Print the nodes of a run that is still running."""
    one = a_run_record(id or mint())
    echo_nodes(answers.workflow(run), now=9.0, of=answers.execution(one, mint()))


def a_run_record(id: UUID) -> Execution:
    return Execution(
        id=id,
        tenant="default",
        job="etl",
        version=1,
        state=State.RUNNING,
        queue="default",
        priority=Priority.NORMAL,
        args="{}",
        attempt=1,
        failures=0,
        crashes=0,
        created_at=0.0,
        run_at=0.0,
        progress=50.0,
    )


def test_what_was_tried_again_says_how_often(capsys):
    failed, done = Outcome.FAILED, Outcome.SUCCEEDED
    over = {"status": State.SUCCEEDED, "started_at": 0.0, "finished_at": 4.0}
    nodes = (
        RunNode(name="once", attempts=tried(done), **over),
        RunNode(name="again", attempts=tried(failed, failed, done), **over),
        RunNode(name="now", status=State.RUNNING, started_at=0.0, attempts=tried(failed, None)),
    )

    run = WorkflowRun(nodes=nodes, edges=(), ended=2, total=3)
    show(run)

    lines = capsys.readouterr().out.splitlines()
    once, again, now = (next(one for one in lines if one.startswith(node.name)) for node in nodes)
    assert "4.0 s" in once and "attempt" not in once
    assert "4.0 s in 3 attempts" in again
    assert "9.0 s so far, attempt 2" in now


def test_nodes_that_wait_say_what_for_and_which_executions_they_are(capsys):
    id, item = mint(), mint()
    approval = NodeWait(execution=id, label="ask", node="ask", name=approval_event("first"))
    event = NodeWait(execution=item, label="each[1]", node="each", name="paid", match='{"n":1}')
    nodes = (
        RunNode(name="ask", status=State.WAITING, reason="event", execution=id, waits=(approval,)),
        RunNode(
            name="each",
            status=State.RUNNING,
            items=ItemCounts(total=2, ended=1, failed=0),
            waits=(event,),
        ),
        RunNode(name="nap", status=State.SCHEDULED, reason="sleep", execution=mint(), run_at=60.0),
        RunNode(name="last", status=State.WAITING),
    )

    run = WorkflowRun(nodes=nodes, edges=(), ended=0, total=4)
    show(run)

    said = capsys.readouterr().out
    assert "waits for approval 'first'\n" in said
    assert "waits for event 'paid' in each[1]\n" in said
    assert "sleeps until 1970-01-01T00:01:00Z\n" in said
    assert (
        f"\nask is execution {id}; decide with `daybell executions approve {id} --name first`\n"
        f"each waits; send it with `daybell executions signal {item} paid --data '{{\"n\":1}}'`\n"
        f"nap is execution {nodes[2].execution}\n"
    ) in said


def test_what_to_type_stays_short_where_a_wait_asks_for_much():
    id = mint()
    match = '{"n":"' + "x" * 4_000 + '"}'
    wait = NodeWait(execution=id, label="a", node="a", name="paid", match=match)

    assert (
        describe_resume(wait) == f"send it with `daybell executions signal {id} paid --data JSON`"
    )


def test_whose_nodes_are_too_many_is_told_with_the_id_of_the_run(capsys):
    id = mint()
    nodes = [RunNode(name=f"n{n}", status=State.RUNNING, execution=mint()) for n in range(22)]

    run = WorkflowRun(nodes=tuple(nodes), edges=(), ended=0, total=22)
    show(run, id)

    assert f"and 2 more; `daybell executions list --workflow {id}` has" in capsys.readouterr().out
