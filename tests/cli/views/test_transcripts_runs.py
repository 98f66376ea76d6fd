"""`daybell executions logs RUN -f`: what the nodes of a run say, together."""

import json
from uuid import UUID

import pytest

from daybell.cli.views import transcripts
from daybell.cli.views.transcripts import READS_MAX, RunTranscript, print_log
from daybell.client import Client
from daybell.core.execution import NewLogPart
from daybell.core.workflow.graph import Graph
from daybell.engine.loop import ManualClock
from daybell.errors import Unavailable, UsageError
from tests.builders import TENANT, Hands, apply, claim, registered, retry, success

KINDS = ("task", "workflow")
AT = 1_700_000_000.25


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        await opened.define("resize", queue="default", retries=7)
        yield opened


class Players:
    """Run nodes by hand, and let them speak."""

    def __init__(self, store):
        self.store = store
        self.nodes: dict[str, Hands] = {}
        self.parts: dict[UUID, int] = {}

    async def start(self):
        """Claim what there is: runs begin, and nodes are in our hands."""
        worker = await registered(self.store)
        hands = await claim(self.store, 500, kinds=KINDS, worker=worker)
        for one in hands.executions:
            if one.kind == "workflow":
                job = await self.store.catalog.get_job(TENANT, one.job, version=one.version)
                plan = Graph.from_settings(job.definition.settings).plan()
                assert await self.store.runs.expand(TENANT, worker=worker, claimed=one, plan=plan)
            else:
                self.nodes[str(one.node)] = Hands(worker, [one], hands.lease)

    async def say(self, node, message, *, at=AT):
        hands = self.nodes[node]
        number = self.parts[hands.one.id] = self.parts.get(hands.one.id, 0) + 1
        text = json.dumps([at, "info", "", message])
        part = NewLogPart(hands.one.id, hands.one.attempt, hands.one.lease, number, text)
        await self.store.queue.write_log(TENANT, worker=hands.worker, parts=[part])

    async def end(self, *nodes):
        for node in nodes:
            hands = self.nodes.pop(node)
            await apply(self.store, hands, success(hands.one))


def clock_of(*steps):
    """A clock on which these are done, one whenever somebody sleeps."""
    left = list(steps)

    class Clock(ManualClock):
        async def sleep(self, seconds):
            await super().sleep(seconds)
            for do in left.pop(0):
                await do()

    return Clock()


async def follow(client, id, clock, **options):
    options = {"follow": True, "attempt": None, "as_json": False, "clock": clock, **options}
    assert await print_log(client, id, **options) == 0


def said(capsys):
    """What was printed: labels with the last words of their lines."""
    out = capsys.readouterr().out.splitlines()
    return [(line.split(" | ")[0].strip(), line.rpartition(" ")[2]) for line in out]


async def a_run(client, *nodes, edges=()):
    await client.create("etl", workflow={"nodes": list(nodes), "edges": list(edges)})
    players = Players(client.store)
    id = (await client.enqueue("etl")).id
    await players.start()
    await players.start()
    return id, players


async def test_nodes_are_heard_together_as_they_speak(client, capsys):
    a, b, c = ({"name": name, "task": "resize"} for name in "abc")
    id, run = await a_run(client, a, b, c, edges=[["a", "c"]])
    await run.say("b", "second", at=AT + 2)
    await run.say("a", "first", at=AT + 1)
    heard = []

    async def hear():
        heard.append(said(capsys))

    clock = clock_of(
        [hear, lambda: run.say("a", "third"), lambda: run.end("a"), run.start],
        [
            hear,
            lambda: run.say("c", "two\nlines", at=AT + 9),
            lambda: run.say("b", "late", at=AT + 8),
        ],
        [hear, lambda: run.end("b", "c")],
    )
    await follow(client, id, clock)

    assert heard == [
        [("a", "first"), ("b", "second")],
        [("a", "third")],
        [("b", "late"), ("c", "two"), ("c", "lines")],
    ]
    assert said(capsys) == []


async def test_an_attempt_after_the_first_has_a_heading(client, capsys):
    id, run = await a_run(client, {"name": "a", "task": "resize"})

    async def again():
        hands = run.nodes["a"]
        await run.say("a", "one")
        await apply(client.store, hands, retry(hands.one, delay=0.0))
        await run.start()
        run.parts.clear()
        await run.say("a", "two")
        await run.end("a")

    await follow(client, id, clock_of([again]))

    assert said(capsys) == [("a", "one"), ("a", "---"), ("a", "two")]


async def test_programs_are_told_whose_line_it_is(client, capsys):
    id, run = await a_run(client, {"name": "a", "task": "resize"})
    node = str(run.nodes["a"].one.id)
    await run.say("a", "one")
    await run.end("a")

    await follow(client, id, ManualClock(), as_json=True)

    (line,) = (json.loads(one) for one in capsys.readouterr().out.splitlines())
    assert (line["node"], line["execution_id"], line["attempt"]) == ("a", node, 1)


async def test_runs_inside_of_runs_are_heard_too(client, capsys):
    await client.create("inner", workflow={"nodes": [{"name": "deep", "task": "resize"}]})
    id, run = await a_run(client, {"name": "in", "job": "inner"})
    await run.start()

    async def speak():
        await run.say("deep", "hello")

    await follow(client, id, clock_of([speak], [], [lambda: run.end("deep")]))

    assert said(capsys) == [("in/deep", "hello")]


async def test_a_look_reads_so_many_logs_and_none_is_forgotten(client, capsys, monkeypatch):
    monkeypatch.setattr(transcripts, "PAGE_ITEMS_MAX", 60)
    many = READS_MAX + 50
    node = {
        "name": "each",
        "task": "resize",
        "map": list(range(many)),
        "args": {"n": {"item": True}},
    }
    id, run = await a_run(client, node)
    while len(run.nodes) < many:
        await run.start()
    counts = []

    async def hear():
        counts.append(len(said(capsys)))

    for label in list(run.nodes):
        await run.say(label, "hello")
    await follow(client, id, clock_of([hear], [hear, lambda: run.end(*list(run.nodes))]))

    assert counts == [READS_MAX, many - READS_MAX]
    assert said(capsys) == []


async def test_every_run_inside_of_a_run_is_listed_in_its_turn(client, capsys, monkeypatch):
    monkeypatch.setattr(transcripts, "RUNS_MAX", 2)
    await client.create("inner", workflow={"nodes": [{"name": "deep", "task": "resize"}]})
    inner = ({"name": name, "job": "inner"} for name in "abc")
    id, _ = await a_run(client, *inner)
    execution = await client.execution(id)
    listed, ask = [], client.executions

    async def executions(*, parent, **asked):
        listed.append(parent)
        return await ask(parent=parent, **asked)

    monkeypatch.setattr(client, "executions", executions)
    told = RunTranscript(client, id, as_json=False)
    for _ in range(4):
        await told.look(execution)

    assert listed.count(id) == 4
    assert len(set(listed)) == 4 and len(listed) <= 8


async def test_what_has_ended_is_printed_bit_by_bit_without_what_never_began(
    client, capsys, monkeypatch
):
    monkeypatch.setattr(transcripts, "READS_MAX", 1)
    first, second = ({"name": name, "task": "resize"} for name in ("first", "second"))
    never = {"name": "never", "task": "resize"}
    id, run = await a_run(client, first, second, never, edges=[["first", "never"]])
    for node in ("first", "second"):
        await run.say(node, "hello")
    await run.end("first")
    await client.cancel(id)
    await run.end("second")
    asked, whole = [], client.store.catalog.read_log
    (never_id,) = (
        one.execution_id
        for one in (await client.executions(parent=id)).items
        if one.node == "never"
    )

    async def read_log(tenant, node, **how):
        asked.append((node, len(said(capsys))))
        return await whole(tenant, node, **how)

    monkeypatch.setattr(client.store.catalog, "read_log", read_log)
    await follow(client, id, ManualClock())

    assert never_id not in [node for node, _ in asked]
    assert sum(printed for _, printed in asked) == 1  # before the second was read
    assert len(said(capsys)) == 1


async def test_it_says_what_the_run_waits_for_and_if_nothing_was_said(client, capsys):
    await client.create("etl", workflow={"nodes": [{"name": "a", "task": "resize"}]})
    id, run = (await client.enqueue("etl")).id, Players(client.store)

    await follow(client, id, clock_of([run.start, run.start, lambda: run.end("a")]))

    err = capsys.readouterr().err.splitlines()
    assert err[0] == f"{id} is queued; waiting" and "no live worker" in err[1]
    assert err[-1] == f"no node of the run {id} said anything; it is succeeded"


async def test_following_a_run_outlasts_a_restart(client, capsys, monkeypatch):
    id, run = await a_run(client, {"name": "a", "task": "resize"}, {"name": "b", "task": "resize"})
    await run.say("a", "one")
    await run.say("b", "one")
    whole, failing = client.store.catalog.read_log, 1

    async def read_log(tenant, asked, **how):
        nonlocal failing
        if failing and asked != run_ids[0]:
            failing -= 1
            raise Unavailable("Connection refused")
        return await whole(tenant, asked, **how)

    run_ids = [hands.one.id for hands in run.nodes.values()]
    monkeypatch.setattr(client.store.catalog, "read_log", read_log)
    await follow(client, id, clock_of([], [lambda: run.end("a", "b")]))

    assert not failing
    assert sorted(said(capsys)) == [("a", "one"), ("b", "one")]


async def test_an_attempt_is_one_of_a_node(client):
    id, _ = await a_run(client, {"name": "a", "task": "resize"})

    with pytest.raises(UsageError, match="an attempt is one of a node"):
        await follow(client, id, ManualClock(), attempt=1)
