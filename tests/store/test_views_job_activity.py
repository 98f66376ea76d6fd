"""How jobs stand, seen together."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.job import LOOKED_AT_MAX, JobActivity
from daybell.core.limits import NEXT_SCHEDULES_MAX, PAGE_BYTES_MAX
from daybell.core.schedule import Schedule
from daybell.core.views import ExecutionFilter, Page
from daybell.errors import JobNotFound, UsageError
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    apply,
    claim,
    claimed,
    dead,
    defined,
    enqueued,
    finished,
    look,
    put,
    retry,
)
from tests.store.runs import a_mapped_plan, begun, end, take
from tests.sweeps import advance_runs, set_gates


async def test_a_job_that_has_nothing_is_seen_so_and_one_that_never_was_is_not(store):
    await defined(store, "idle")

    assert await store.catalog.job_activity(TENANT, ["idle", "nothing"]) == {"idle": JobActivity()}
    assert await store.catalog.job_activity(TENANT, []) == {}


async def test_each_state_of_what_is_unfinished_is_seen(store, clock):
    await set_gates(store, TENANT, {"shut": 0})
    await enqueued(store, job="due")
    await enqueued(store, job="later", delay=60.0)
    await enqueued(store, job="gated", gate="shut")
    await enqueued(store, job="mixed", delay=60.0)
    await enqueued(store, job="mixed", gate="shut")
    await finished(store, job="ended", queue="other")
    hands = await claimed(store, job="runs", queue="other")
    failing = await claimed(store, job="fails", queue="other")
    await apply(store, failing, retry(failing.one, delay=60.0))

    names = ["due", "later", "gated", "mixed", "ended", "runs", "fails"]
    looks = await store.catalog.job_activity(TENANT, names)
    await clock.advance(60)
    then = await store.catalog.job_activity(TENANT, ["fails", "later"])

    assert {name: one.unfinished for name, one in looks.items()} == {
        "due": {State.QUEUED},
        "later": {State.SCHEDULED},
        "gated": {State.WAITING},
        "mixed": {State.SCHEDULED, State.WAITING},
        "ended": set(),
        "runs": {State.RUNNING},
        "fails": {State.RETRYING},
    }
    assert {name: one.unfinished for name, one in then.items()} == {
        "fails": {State.QUEUED},
        "later": {State.QUEUED},
    }
    assert looks["runs"].last == await look(store, hands.one.id)


async def test_the_newest_execution_is_seen_wherever_it_is_kept(store):
    await finished(store, job="a")
    (letter,) = await dead(store, job="a")
    (queued,) = await enqueued(store, job="b")
    await finished(store, 2, job="b", queue="other")
    newest = (await finished(store, job="b", queue="other"))[0]

    looks = await store.catalog.job_activity(TENANT, ["a", "b"])

    assert looks["a"].last == await look(store, letter)
    assert looks["b"].last == await look(store, newest)
    assert looks["b"].unfinished == {State.QUEUED}
    assert queued != newest


async def test_each_job_is_seen_with_its_own_schedules(store):
    schedules = [a_schedule("a"), a_schedule("a"), a_schedule("b")]
    await put(store, *schedules)
    await defined(store, "c")

    looks = await store.catalog.job_activity(TENANT, ["a", "b", "c"])

    for name, one in looks.items():
        assert set(one.schedules) == {
            *(await store.schedules.list_job_schedules(TENANT, name)).items
        }
    assert [len(one.schedules) for one in looks.values()] == [2, 1, 0]
    assert not any(one.has_more_schedules for one in looks.values())


async def test_of_schedules_made_at_run_time_the_next_ones_are_seen(store):
    count = NEXT_SCHEDULES_MAX + 1
    made = [a_schedule("a", name=f"s{n}", next_at=1e9 - n) for n in range(count)]
    idle = a_schedule("a", name="idle", next_at=None)
    own = [a_schedule("a", name=f"{n}", next_at=2e9, is_declared=True) for n in range(count)]
    other = a_schedule("b", name="s", next_at=1e9 - count)
    await put(store, *made, idle, *own, other)

    looks = await store.catalog.job_activity(TENANT, ["a", "b"])
    await store.schedules.delete_schedules(TENANT, [made[0].id, idle.id])
    then = await store.catalog.job_activity(TENANT, ["a"])

    names = [one.name for one in looks["a"].schedules if not one.is_declared]
    assert names == [f"s{n}" for n in reversed(range(1, count))]
    assert {one.id for one in looks["a"].schedules if one.is_declared} == {one.id for one in own}
    assert looks["a"].has_more_schedules
    assert not looks["b"].has_more_schedules
    assert not then["a"].has_more_schedules
    assert len(then["a"].schedules) == 2 * count - 1


async def test_schedules_are_listed_page_by_page_declared_ones_first_and_then_the_next(store):
    made = [a_schedule("a", name=name, next_at=-n / 3) for n, name in enumerate("dca")]
    idle = [a_schedule("a", name="z") for _ in range(3)]
    own = [a_schedule("a", name=f"{n}", next_at=n, is_declared=True) for n in (1, None)]
    await put(store, *made, *idle, *own, a_schedule("b", name="a"))
    await store.catalog.define_jobs(TENANT, [a_job("c")])

    pages: list[Page[Schedule]] = []
    cursor = None
    while not pages or cursor is not None:
        pages.append(await store.schedules.list_job_schedules(TENANT, "a", limit=3, cursor=cursor))
        cursor = pages[-1].next_cursor

    found = [one for page in pages for one in page.items]
    assert [len(page.items) for page in pages] == [3, 3, 2]
    assert [one.name for one in found] == ["1", "None", "a", "c", "d", "z", "z", "z"]
    assert [one.id for one in found[5:]] == sorted(one.id for one in idle)
    assert len({*found}) == len(found)
    assert (await store.schedules.list_job_schedules(TENANT, "c")).items == ()


async def test_a_page_of_schedules_ends_at_its_bytes(store):
    large = '{"text": "%s"}' % ("x" * 200_000)
    await put(store, *(a_schedule("a", name=f"s{n:02}", args=large) for n in range(60)))

    first = await store.schedules.list_job_schedules(TENANT, "a")
    rest = await store.schedules.list_job_schedules(TENANT, "a", cursor=first.next_cursor)

    assert 30 <= len(first.items) <= PAGE_BYTES_MAX // len(large)
    assert len(first.items) + len(rest.items) == 60
    assert {one.args for one in (*first.items, *rest.items)} == {large}


async def test_schedules_of_jobs_that_are_not_there_and_bad_cursors_are_refused(store):
    await put(store, a_schedule("a"))
    await store.catalog.delete_job(TENANT, "a")

    for name in ("a", "nothing"):
        with pytest.raises(JobNotFound):
            await store.schedules.list_job_schedules(TENANT, name)
    id = mint().hex
    cursors = ("s1", id, f"{id}00", f"{id}01{'f' * 16}", f"{id}0g", f"{id}00{'0' * 18}")
    for options in ({"limit": 0}, *({"cursor": cursor} for cursor in cursors)):
        with pytest.raises(UsageError) as caught:
            await store.schedules.list_job_schedules(TENANT, "a", **options)
        assert caught.value.field in options


async def test_nodes_of_a_run_do_not_hide_the_executions_of_its_job(store):
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": list(range(LOOKED_AT_MAX + 1))})
    await advance_runs(store)

    (look,) = (await store.catalog.job_activity(TENANT, ["etl"])).values()
    shown = (await store.catalog.list_executions(TENANT, ExecutionFilter(job="etl"))).items
    both = ExecutionFilter(job="etl", with_nodes=True, states=frozenset({State.QUEUED}))
    nodes = (await store.catalog.list_executions(TENANT, both, limit=1_000)).items

    assert look.unfinished == {State.RUNNING}
    assert look.last is not None
    assert look.last.id == run
    assert [one.id for one in shown] == [run]
    assert len(nodes) == 1_000
    assert {one.parent for one in nodes} == {run}


async def test_a_deleted_job_is_seen_too(store):
    (id,) = await enqueued(store)
    await store.catalog.delete_job(TENANT, "resize")

    looks = await store.catalog.job_activity(TENANT, ["resize"])

    assert looks["resize"].last == await look(store, id)


async def test_not_more_jobs_than_a_page_has_are_looked_at(store):
    with pytest.raises(UsageError, match="1,001 names"):
        await store.catalog.job_activity(TENANT, [f"job-{n}" for n in range(1001)])
    with pytest.raises(UsageError, match="NUL"):
        await store.catalog.job_activity(TENANT, ["a\0"])


async def test_a_claim_takes_a_job_from_queued_to_running(store):
    await enqueued(store, 3)
    await claim(store, 2)

    looks = await store.catalog.job_activity(TENANT, ["resize"])

    assert looks["resize"].unfinished == {State.QUEUED, State.RUNNING}


async def test_current_versions_of_jobs_are_found_by_their_names(store):
    await store.catalog.define_jobs(TENANT, [a_job("a"), a_job("b"), a_job("c")])
    await store.catalog.define_jobs(TENANT, [a_job("a", timeout=5.0)])
    await store.catalog.delete_job(TENANT, "b")

    found = await store.catalog.get_jobs(TENANT, ["a", "b", "nothing", "a"])

    assert found == {"a": await store.catalog.get_job(TENANT, "a")}
    assert await store.catalog.get_jobs(TENANT, []) == {}
    with pytest.raises(UsageError):
        await store.catalog.get_jobs(TENANT, [f"job-{n}" for n in range(1001)])


async def test_ids_of_jobs_are_found_by_their_names(store):
    made = await store.catalog.define_jobs(TENANT, [a_job("a"), a_job("b"), a_job("c")])
    await store.catalog.define_jobs(TENANT, [a_job("a", timeout=5.0)])
    await store.catalog.delete_job(TENANT, "b")

    assert await store.catalog.job_ids(TENANT, ["a", "b", "nothing"]) == {
        "a": made[0].id,
        "b": made[1].id,
    }
    assert await store.catalog.job_ids(TENANT, []) == {}
    with pytest.raises(UsageError):
        await store.catalog.job_ids(TENANT, [f"job-{n}" for n in range(1001)])
