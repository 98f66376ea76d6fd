"""How SQLite finds rows: by the index that was made for it, also after somebody ran ANALYZE."""

import pytest

from daybell.core.execution import State
from daybell.core.views import ExecutionFilter
from daybell.store.sqlite import enqueue, gates, queue, schedules, views, workers
from tests.builders import TENANT, an_execution, claimed, dead, defined, finished

BY_ID = "SEARCH execution USING INDEX execution_id (tenant=? AND id=?)"
HELD = "SEARCH execution USING INDEX execution_running (worker=? AND lease=?)"
# What a node has of its run's schedule: looked up only where there is one.
OF_RUN = "SEARCH r USING INDEX execution_id (tenant=? AND id=?)"
PLANS = {
    "claim": (
        queue._DUE,
        "SEARCH execution USING INDEX execution_claimable (lane=? AND priority=? AND run_at<?)",
    ),
    "start": (queue._START._statements[8], "SEARCH execution USING INTEGER PRIMARY KEY (rowid=?)"),
    "claim again": (queue._HELD, HELD),
    "succeed": (queue._SUCCEED.plain._statements[8], BY_ID),
    "end": (queue._END.plain._statements[8], BY_ID),
    "send back": (queue._BACK, BY_ID),
    "log": (queue._LOG_ATTEMPT, BY_ID),
    "look": (views._GET, BY_ID),
    "hand back": (workers._BACK, HELD),
    "key": (
        enqueue._HOLDER,
        "SEARCH execution USING INDEX execution_key (job=? AND unique_key=?)",
    ),
    "lately enqueued": (
        views._ENQUEUED,
        "SEARCH execution USING COVERING INDEX execution_id (tenant=? AND id>?)",
    ),
    "lately dead": (
        views._DIED,
        "SEARCH execution USING INDEX execution_died (tenant=? AND finished_at>?)",
    ),
    "admit": (
        gates._DUE,
        "SEARCH execution USING INDEX execution_waiting"
        " (slot=? AND gate=? AND priority=? AND run_at<?)",
    ),
    "look into a gate": (
        enqueue._ROOM,
        "SEARCH execution USING INDEX execution_waiting"
        " (slot=? AND gate=? AND priority=? AND run_at<?)",
    ),
    "who is inside": (
        enqueue._INSIDE,
        "SEARCH execution USING INDEX execution_inside (gate=?)",
    ),
    "occurrences": (
        schedules._OCCURRENCES,
        "SEARCH execution USING INDEX execution_tick"
        " (schedule=? AND scheduled_for>? AND scheduled_for<?)",
    ),
    "rearm": (schedules._REARM, "SEARCH e USING INDEX execution_unfinished (schedule=?)"),
}


LOOKS = {
    "newest": (views._LAST_EXECUTIONS, "SEARCH e USING COVERING INDEX execution_job (job=?)"),
    "newest states": (views._NEWEST_STATES, "SEARCH execution USING INDEX execution_job (job=?)"),
    "running": (views._RUNNING_JOBS, "SCAN execution USING INDEX execution_running"),
    "next schedules": (
        views._SCHEDULES,
        "SEARCH s USING INDEX schedule_next (job=? AND is_declared=?)",
    ),
    "schedules as late": (
        schedules._AS_LATE,
        "SEARCH s USING INDEX schedule_next (job=? AND is_declared=? AND <expr>=? AND id>?)",
    ),
    "later schedules": (
        schedules._LATER,
        "SEARCH s USING INDEX schedule_next (job=? AND is_declared=? AND <expr>>?)",
    ),
    "unfinished": (
        views._ALL_STATES,
        "SCAN execution USING COVERING INDEX execution_claimable",
    ),
}


@pytest.fixture
async def analyzed(store, raw):
    """Statistics of a small history, in which one tenant, one job and one lane have everything."""
    await defined(store)
    await finished(store, 300)
    await dead(store, 20)
    await claimed(store, 20)
    await store.queue.enqueue(
        TENANT, [an_execution(delay=60.0, unique_key=f"{n}") for n in range(100)]
    )
    raw.execute("ANALYZE")
    return raw


def plan(connection, statement):
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))
    names = ("execution_", " execution ", "schedule_n")
    steps = [step for *_, step in rows if any(name in step for name in names)]
    steps = [step for step in steps if step != OF_RUN]
    return list(dict.fromkeys(steps))  # a condition on a pair is shown for each half


@pytest.mark.parametrize("name", PLANS)
async def test_the_hot_path_goes_by_its_index(raw, name):
    statement, expected = PLANS[name]

    assert plan(raw, statement) == [expected]


@pytest.mark.parametrize("name", PLANS)
async def test_statistics_do_not_lead_the_hot_path_astray(analyzed, name):
    statement, expected = PLANS[name]

    assert plan(analyzed, statement) == [expected]


@pytest.mark.parametrize("name", LOOKS)
async def test_a_look_at_jobs_goes_by_their_indexes(raw, analyzed, name):
    statement, expected = LOOKS[name]
    steps = plan(raw, statement)

    assert expected in steps
    assert not [step for step in steps if step in ("SCAN execution", "SCAN e")]


async def test_a_look_at_a_huge_backlog_sees_the_newest_and_all_that_run(store, monkeypatch):
    monkeypatch.setattr(views, "FEW", 0)
    await finished(store, job="ended")
    hands = await claimed(store, job="busy")
    await store.queue.enqueue(TENANT, [an_execution("busy", delay=60.0)])

    found = await store.catalog.job_activity(TENANT, ["busy", "ended"])

    assert found["busy"].unfinished == {State.RUNNING, State.SCHEDULED}
    assert found["ended"].unfinished == set()
    assert hands.one.job == "busy"


class Recorder:
    """A transaction whose statements are kept."""

    def __init__(self, tx):
        self._tx = tx
        self.sent = []

    def execute(self, statement, *values):
        self.sent.append(statement)
        return self._tx.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self._tx, name)


async def test_dead_letters_are_read_in_the_order_of_their_index(store, raw, monkeypatch):
    newest, recorders = views.newest, []

    def recorded(tx, *rest):
        recorders.append(Recorder(tx))
        return newest(recorders[0], *rest)

    monkeypatch.setattr(views, "newest", recorded)
    await store.catalog.list_executions(TENANT, ExecutionFilter(dead_letters=True), limit=10)

    walks = [one for one in recorders[0].sent if "FROM execution" in one]
    plans = [
        [step for *_, step in raw.execute(f"EXPLAIN QUERY PLAN {one}", [None] * one.count("?"))]
        for one in walks
    ]
    index = "INDEX execution_ended_otherwise (tenant=? AND state=? AND id"
    assert len(plans) == 2
    assert all(len(steps) == 1 and index in steps[0] for steps in plans), plans
