"""Checks runs of workflows: no node starts before its rule allows, none twice, none after a stop;
the quota of their tenant holds; and a run ends as in a reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from daybell.core.execution import PENDING, TERMINAL, Revival, State
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.rules import NodeDecision, ParentCounts, decide
from daybell.core.workflow.run import NodeState, node_name
from tests.core.workflow.graph_strategies import Story
from tests.core.workflow.graphs import Reference
from tests.simulation.checker import Checker
from tests.simulation.places import TENANT, Seen
from tests.simulation.rules import holds

if TYPE_CHECKING:
    from tests.simulation.world import Call

# Operations that can end a node, and so advance its run.
ENDING: Final = {
    *("expand", "apply", "cancel", "expire", "renew", "release", "advance", "advance_runs")
}
RunId = UUID


class FlowChecker(Checker):
    """The observed runs, and the promises that follow."""

    piecemeal = frozenset({"advance_runs"})
    stories: dict[str, Story]  # by the name of a workflow

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stories = {}
        self.quota: int | None = None  # unfinished executions that the tenant may have
        self.cancelled: set[RunId] = set()  # by any process, in time or not
        self._nodes: dict[RunId, dict[str, UUID]] = {}  # executions by label
        self._expected: dict[str, Reference] = {}
        self._anew: dict[RunId, set[str]] = {}
        self._just: set[UUID] = set()  # cancelled by the present operation

    def is_run(self, row: Seen) -> bool:
        """Return True if it is the run of a workflow, begun or not: its nodes have other names."""
        return row.job in self.stories and (row.node is None or self._is_inner(row))

    def _is_inner(self, row: Seen) -> bool:
        around = None if row.parent is None else self.rows.get(row.parent)
        return around is not None and around.job != row.job

    def expected(self, job: str) -> Reference:
        """Return the expected end of a run that is not stopped."""
        if job not in self._expected:
            story = self.stories[job]
            reference = Reference(story.graph, story.outcomes, story.results)
            self._expected[job] = reference.evaluate()
        return self._expected[job]

    def judge(self, call: Call, workers: Any, answer: Any, error: BaseException | None) -> None:
        if call.operation == "cancel" and error is not None:
            self.cancelled -= self._just
        super().judge(call, workers, answer, error)
        if self.quota is not None:
            self._check_quota(self.quota)

    def _check_quota(self, quota: int) -> None:
        """Check that, apart from waiting runs, unfinished executions are within the quota."""
        unfinished = [row for row in self.rows.values() if row.state not in TERMINAL]
        count = sum(not self._is_begun(row) for row in unfinished)
        self.seen["quota used up"] += count == quota
        if count > quota:
            self.fail(f"{count} executions are unfinished, and the quota is {quota}")

    # Allowed effects of an operation.

    def _broken(self, call: Call, before: Seen | None, after: Seen) -> str | None:
        if before is None and after.node is not None:
            return self._started(call, after)
        if call.operation == "expand" and after.id == call.kwargs["claimed"].id:
            assert before is not None
            return self._expanded(call, before, after)
        if before is not None and self._is_begun(before):
            return self._gone_on(call, before, after)
        if before is not None and after.node is not None and self._is_cut(before, after):
            return None if call.operation in ENDING else "nobody has cancelled it"
        return super()._broken(call, before, after)

    def _is_begun(self, row: Seen) -> bool:
        return self.is_run(row) and row.state is State.RUNNING and row.worker is None

    def _is_cut(self, old: Seen, new: Seen) -> bool:
        """Return True if it was cancelled with its run."""
        assert old.parent is not None
        if not self._is_stopped(old.parent):
            return False
        if old.state is State.RUNNING:
            return new == old._replace(is_to_be_cancelled=True)
        return old.state in PENDING and new.state is State.CANCELLED

    def _is_stopped(self, run: RunId) -> bool:
        """Return True if the run, or one around it, was cancelled."""
        row = self.rows.get(run)
        while row is not None:
            if row.id in self.cancelled:
                return True
            row = None if row.parent is None else self.rows.get(row.parent)
        return False

    def _expanded(self, call: Call, old: Seen, new: Seen) -> str | None:
        claimed = call.kwargs["claimed"]
        if not holds(old, call.kwargs["worker"], claimed):
            return "what was in other hands has begun"
        if old.is_to_be_cancelled:
            return None if new.state is State.CANCELLED else "it was to be cancelled"
        # All of its nodes may be finished at once: skipped, or mapped over nothing.
        is_nobodys = (new.worker, new.lease, new.attempt) == (None, None, old.attempt)
        if new.state not in (State.RUNNING, State.SUCCEEDED, State.DEAD) or not is_nobodys:
            return "a run that begins is nobody's"
        self.seen["begun"] += 1
        return None

    def _gone_on(self, call: Call, old: Seen, new: Seen) -> str | None:
        if new.state is State.RUNNING:
            said = old._replace(is_to_be_cancelled=new.is_to_be_cancelled, note=new.note)
            return None if new == said else "a run is changed by its nodes alone"
        if call.operation not in ENDING | {"revive"}:
            return "this operation ends no run"
        left = [one for one in self._executions(old.id) if one.state not in TERMINAL]
        if left:
            return f"a run has ended, and a node of it has not: {left[0]}"
        return None

    def _executions(self, run: RunId) -> Iterator[Seen]:
        for id in self._nodes.get(run, {}).values():
            yield self.rows[id]

    def _started(self, call: Call, new: Seen) -> str | None:
        assert new.parent is not None and new.node is not None
        if call.operation not in ENDING:
            return "this operation starts no node"
        if new.attempt != 1 or new.failures or new.crashes or new.state not in PENDING:
            return "it does not begin at the beginning"
        label, known = new.node, self._nodes.setdefault(new.parent, {})
        if label in known:
            return f"{label} was started before, as {known[label]}"
        known[label] = new.id
        if self._is_stopped(new.parent):
            return f"{label} is started in a run that was cancelled"
        return self._too_early(call, new.parent, label)

    def _too_early(self, call: Call, run: RunId, label: str) -> str | None:
        row = self.rows[run]
        graph = self.stories[row.job].graph
        node = graph.node(label)
        states = States(self, run, graph)
        if graph.fail_fast and any(one.state is State.DEAD for one in self._executions(run)):
            return f"{label} is started in a run that fails fast, and another has failed"
        decision = decide(node.rule, states.counts(node.name))
        if states.counts(node.name).total and decision is not NodeDecision.RUN:
            return f"{label} is started, and its rule says {decision}"
        running = [one for one in self._executions(run) if one.state not in TERMINAL]
        if graph.max_running is not None and len(running) > graph.max_running:
            return f"{label} is started, and {len(running)} run, of at most {graph.max_running}"
        return None

    # The end.

    def _note_change(self, call: Call, old: Seen | None, new: Seen) -> None:
        if old is not None and old.state is not new.state and new.node is not None:
            self.seen["node retried"] += new.state is State.RETRYING
            self.seen["node lost"] += new.crashes > old.crashes
        if old is not None and self._is_begun(old) and new.state in TERMINAL:
            self.seen[f"run {new.state}"] += 1
            self.seen["inner run"] += new.node is not None

    def _check_enqueue(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        for one in answer:
            if one.id not in self.rows:
                self.fail(f"the answer names an execution that does not exist: {one}")

    def before(self, call: Call) -> Any:
        if call.operation == "cancel":  # before, because the check follows at once
            self._just = {id for id in call.args[1] if self._is_open(id)} - self.cancelled
            self.cancelled |= self._just
        if call.operation == "revive":
            self._anew = {id: self._begins_anew(id) for id in call.args[1] if id in self._nodes}
        return super().before(call)

    def _begins_anew(self, run: RunId) -> set[str]:
        """Return the labels that a revival starts again: those without a success, and all that
        depend on them.
        """
        graph = self.stories[self.rows[run].job].graph
        states = States(self, run, graph)
        seeds = {name for name in graph.by_name if states.end(name) in (None, "failed")}
        below: set[str] = set()
        for name in graph.order:  # parents come before their children
            parents = {edge.parent for edge in graph.edges if edge.child == name}
            if parents & (seeds | below):
                below.add(name)
        labels = self._nodes[run]
        lost = {one for one, id in labels.items() if self.rows[id].state is not State.SUCCEEDED}
        return {one for one in labels if one in lost or node_name(one) in below}

    def _check_revive(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        super()._check_revive(call, old, workers, answer)
        for id, said in zip(call.args[1], answer, strict=True):
            if said is Revival.REVIVED and id in self._anew:
                self.seen["run revived"] += 1
                for label in self._anew[id]:
                    del self._nodes[id][label]

    def _is_open(self, id: UUID) -> bool:
        row = self.rows.get(id)
        return row is not None and row.state not in TERMINAL

    def _check_expand(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        if not answer:
            self.seen["late beginning"] += 1
            if holds(old.get(call.kwargs["claimed"].id), call.kwargs["worker"],
                     call.kwargs["claimed"]):  # fmt: skip
                self.fail("a beginning that holds was refused")

    def _check_advance_runs(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        self.seen["swept"] += bool(answer.advanced)

    def check_runs(self, get_run: Any) -> None:
        """Check the ends of all runs."""
        for row in [row for row in self.rows.values() if self.is_run(row)]:
            if row.id in self._nodes or row.state is State.SUCCEEDED:
                self._check_run(row, get_run(TENANT, row.id))

    def _check_run(self, row: Seen, detail: Any) -> None:
        story = self.stories[row.job]
        touched = [one for one in self._executions(row.id) if one.state is State.CANCELLED]
        if self._is_stopped(row.id) or touched:
            self._check_stopped(row)
            return
        if story.graph.fail_fast:
            failed = any(view.node.state is NodeState.FAILED for view in detail.nodes)
            if failed and row.state is not State.DEAD:
                self.fail(f"a run that fails fast is {row.state}, and a node failed: {row}")
            if failed:
                self.seen["failed fast"] += 1
                return
        expected = self.expected(row.job)
        for view in detail.nodes:
            label, state = view.node.label, view.node.state
            if state is not expected.states[label]:
                self.fail(f"node {label} of {row.id} is {state}, not {expected.states[label]}")
            self.seen["node skipped"] += state is NodeState.SKIPPED
            self.seen["mapped"] += view.node.items > 1
        wanted = State.DEAD if expected.is_lost else State.SUCCEEDED
        if row.state is not wanted:
            self.fail(f"run {row.id} is {row.state}, not {wanted}: {row}")

    def _check_stopped(self, row: Seen) -> None:
        if row.state is State.CANCELLED:
            self.seen["cancelled"] += 1
        elif row.state is not State.SUCCEEDED and row.state is not State.DEAD:
            self.fail(f"a run was cancelled, and is {row.state}")


class States:
    """The ends of the nodes of a run, as far as their executions show them."""

    def __init__(self, checker: FlowChecker, run: RunId, graph: Graph) -> None:
        self._checker = checker
        self._run = run
        self._graph = graph
        self._values = checker.expected(checker.rows[run].job).values
        self._known: dict[str, str | None] = {}
        self._parents: dict[str, list[tuple[str, str | None]]] = {}
        for edge in graph.edges:
            self._parents.setdefault(edge.child, []).append((edge.parent, edge.when))
        self._rows: dict[str, list[Seen]] = {}
        for row in checker._executions(run):
            assert row.node is not None
            self._rows.setdefault(node_name(row.node), []).append(row)

    def counts(self, name: str) -> ParentCounts:
        """Count the ends of a node's parents."""
        parents = self._parents.get(name, [])
        fates = [self._fate(parent, when) for parent, when in parents]
        return ParentCounts(
            len(parents), *(fates.count(one) for one in ("succeeded", "failed", "skipped"))
        )

    def _fate(self, name: str, when: str | None) -> str | None:
        fate = self.end(name)
        if fate != "succeeded" or when is None:
            return fate
        return Reference(
            self._graph, {}, {}, {name: NodeState.SUCCEEDED}, {name: self._value(name)}
        ).fate(name, when)

    def end(self, name: str) -> str | None:
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> str | None:
        rows, node = self._rows.get(name, []), self._graph.by_name[name]
        counts = self.counts(name)
        if not rows:
            match decide(node.rule, counts) if counts.total else NodeDecision.RUN:
                case NodeDecision.SKIP:
                    return "skipped"
                case NodeDecision.FAIL:
                    return "failed"
                case NodeDecision.RUN if node.map is not None:
                    return self._without_items(node.map)
                case _:
                    return None
        if any(row.state not in TERMINAL for row in rows):
            return None
        if node.map is not None and len(rows) < len(self._items(node.map) or ()):
            return None
        if all(row.state is State.SUCCEEDED for row in rows):
            return "succeeded"
        is_skipped = node.map is None and rows[0].state is State.SKIPPED
        return "skipped" if is_skipped else "failed"

    def _without_items(self, over: Any) -> str | None:
        items = self._items(over)
        return "failed" if items is None else None if items else "succeeded"

    def _items(self, over: Any) -> list[Any] | None:
        value = over if isinstance(over, list) else self._value(over["output"])
        return value if isinstance(value, list) else None

    def _value(self, name: str) -> Any:
        """Return the result of a node in the reference."""
        return self._values.get(name)
