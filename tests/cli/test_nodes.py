"""The nodes of a run, as a person sees them."""

from daybell.cli.nodes import echo_nodes
from daybell.client.workflows import RunNode, WorkflowRun
from daybell.core.execution import AttemptSpan, Outcome, State


def tried(*outcomes: Outcome | None) -> tuple[AttemptSpan, ...]:
    return tuple(AttemptSpan(n, one, None, 0.0, 1.0) for n, one in enumerate(outcomes, 1))


def test_what_was_tried_again_says_how_often(capsys):
    failed, done = Outcome.FAILED, Outcome.SUCCEEDED
    over = {"status": State.SUCCEEDED, "started_at": 0.0, "finished_at": 4.0}
    nodes = (
        RunNode(name="once", attempts=tried(done), **over),
        RunNode(name="again", attempts=tried(failed, failed, done), **over),
        RunNode(name="now", status=State.RUNNING, started_at=0.0, attempts=tried(failed, None)),
    )

    run = WorkflowRun(nodes=nodes, edges=(), ended=2, total=3)
    echo_nodes(run, now=9.0, state=State.RUNNING)

    lines = capsys.readouterr().out.splitlines()
    once, again, now = (next(one for one in lines if one.startswith(node.name)) for node in nodes)
    assert "4.0 s" in once and "attempt" not in once
    assert "4.0 s in 3 attempts" in again
    assert "9.0 s so far, attempt 2" in now
