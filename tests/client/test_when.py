"""What people say of jobs that depend on jobs, and what they are told."""

import pytest

from daybell import App
from daybell.client import Client
from daybell.client import schedules as room
from daybell.client.backfill import backfill
from daybell.core.ids import mint
from daybell.core.units import from_iso
from daybell.core.when import after, after_any, cron
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from daybell.errors import InvalidSchedule, UsageError
from daybell.store.sqlite import SqliteStore
from tests.builders import apply, claim, death
from tests.refusals import refuses

TWO = from_iso("2026-06-01T02:00:00+00:00")
DAILY = cron("0 2 * * *")


@pytest.fixture
def clock():
    return ManualClock(TWO - 60)


@pytest.fixture
async def client(clock):
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()
    async with Client(store) as opened:
        await opened.define("extract")
        await opened.define("clean")
        yield opened


async def test_after_is_another_word_for_dependencies(client):
    one = await client.define("load", schedule=after("extract", "clean"))
    other = await client.define("report", dependencies=["extract", "clean", "extract"])

    assert one.definition.dependencies == other.definition.dependencies == ("extract", "clean")
    assert one.definition.schedules == ()
    [schedule] = await room.schedules(client, "load")
    assert (schedule.rule, schedule.is_declared) == ('{"after":["extract","clean"]}', True)


async def test_a_schedule_takes_the_place_of_what_it_ran_after(client):
    await client.define("load", dependencies=["extract"])

    await client.define("load", dependencies=["extract"], schedule=DAILY)

    [schedule] = await room.schedules(client, "load")
    assert (schedule.since, schedule.next_at) == (None, TWO)


async def test_an_update_keeps_what_it_does_not_name(client):
    await client.create("load", command="true", dependencies=["extract"])
    await client.update("load", on_dependency_failure="run", description="nightly")
    job = await client.update("load", schedule="0 2 * * *")

    assert job.definition.dependencies == ("extract",)
    assert job.definition.on_dependency_failure == "run"

    job = await client.update("load", schedule={"after": ["clean"]})
    assert (job.definition.dependencies, job.definition.schedules) == (("clean",), ())
    assert job.definition.on_dependency_failure == "run"

    job = await client.update("load", dependencies=[], schedule="0 2 * * *")
    assert (job.definition.dependencies, job.definition.on_dependency_failure) == ((), "wait")


async def test_what_is_to_happen_if_a_dependency_fails_needs_one(client):
    told = "this one has no dependencies; add them"
    app = App("memory://")

    with pytest.raises(UsageError, match=told) as refused:
        await client.create("load", command="true", on_dependency_failure="skip")
    with pytest.raises(UsageError, match=told):
        app.task(on_dependency_failure="run")(print)
    await client.create("load", command="true", on_dependency_failure="wait")
    with pytest.raises(UsageError, match=told):
        await client.update("load", on_dependency_failure="skip")

    assert refused.value.field == "on_dependency_failure"
    job = await client.update("load", on_dependency_failure="skip", schedule=after("extract"))
    assert job.definition.on_dependency_failure == "skip"


async def test_what_cannot_be_is_refused(client):
    with pytest.raises(UsageError, match="no job named 'nobody' to depend on"):
        await client.define("load", dependencies=["nobody"])
    with pytest.raises(UsageError, match="cannot depend on itself"):
        await client.define("load", schedule=after("load"))
    with refuses(UsageError, field="on_dependency_failure"):
        await client.define("load", on_dependency_failure="panic")  # pyright: ignore[reportArgumentType]
    with refuses(InvalidSchedule, field="schedule"):
        await client.define("load", schedule=[DAILY, after("extract")])
    with refuses(InvalidSchedule, field="when"):
        await room.schedule(client, "extract", after("clean"))
    with refuses(UsageError, field="jitter"):
        await client.define("load", schedule=after("extract"), jitter="5s")
    await client.define("load", dependencies=["extract"])
    with pytest.raises(UsageError, match="'extract' -> 'load' -> 'extract'"):
        await client.define("extract", dependencies=["load"])
    with refuses(UsageError, field="job"):
        await backfill(client, "load", TWO - 600, TWO)


async def test_a_list_of_afters_is_refused_since_lists_mean_any(client):
    with pytest.raises(InvalidSchedule, match=r"after_any\('extract', 'clean'\)") as refused:
        await client.define("load", schedule=[after("extract"), after("clean")])
    assert "say after('extract', 'clean') to wait for all" in str(refused.value)
    with pytest.raises(InvalidSchedule, match="two ways"):
        await client.define("load", schedule=[after("extract"), after_any("clean")])

    job = await client.define("load", schedule=[after_any("extract"), after_any("clean"), DAILY])

    assert job.definition.dependencies == ()
    assert job.definition.upstream == ("extract", "clean")
    assert job.definition.overlap == "queue"
    found = {one.name: (one.since, one.next_at) for one in await room.schedules(client, "load")}
    assert found == {"0": (TWO - 60, None), "1": (TWO - 60, None), "2": (None, TWO)}


async def test_after_any_is_checked_as_dependencies_are(client):
    any_of_both = after_any("extract", "clean")
    with pytest.raises(UsageError, match="no job named 'nobody' to depend on") as refused:
        await client.define("load", schedule=after_any("nobody"))
    assert refused.value.field == "schedule"
    with pytest.raises(UsageError, match="'load' cannot be fired by itself"):
        await client.define("load", schedule=[DAILY, after_any("load")])
    with refuses(InvalidSchedule, field="when"):
        await room.schedule(client, "extract", after_any("clean"))
    with refuses(UsageError, field="jitter"):
        await client.define("load", schedule=any_of_both, jitter="5s")
    with refuses(UsageError, field="on_dependency_failure"):
        await client.define("load", schedule=any_of_both, on_dependency_failure="skip")
    await client.define("load", schedule=any_of_both, on_dependency_failure="run")
    with pytest.raises(UsageError, match="'extract' -> 'load' -> 'extract'"):
        await client.define("extract", dependencies=["load"])
    with pytest.raises(UsageError, match="'clean' -> 'load' -> 'clean'"):
        await client.define("clean", schedule=after_any("load"))
    assert await client.warnings("clean", deleting=True) == [
        "job load depends on clean, and waits in vain while it is not there"
    ]


async def test_a_change_of_the_schedule_takes_the_rule_for_failures_along(client):
    await client.create(
        "load", command="true", schedule=after_any("extract"), on_dependency_failure="run"
    )

    kept = await client.update("load", schedule=after_any("clean"))
    gone = await client.update("load", schedule="@daily")

    assert kept.definition.on_dependency_failure == "run"
    assert (gone.definition.on_dependency_failure, gone.definition.upstream) == ("wait", ())


async def test_what_a_job_waits_for_leaves_out_what_fires_it(client):
    await client.define("load", schedule=after_any("extract"), dependencies=["clean"])

    standing = await room.standing(client, "load")

    assert [(one.job, one.detail) for one in standing.waits_for] == [
        ("clean", "it has not run yet")
    ]


async def test_why_names_what_is_waited_for(client, clock):
    await client.define("load", schedule=DAILY, dependencies=["extract", "clean"])
    scheduler = Scheduler(client.store, clock=clock, mint=mint, events=Events())
    await client.enqueue("extract")
    clock.advance(60)
    await scheduler.tick()
    [one] = (await client.executions(job="load")).items

    told = await client.why(one.execution_id)
    assert told.code == "dependencies"
    assert told.detail.endswith("depends on: extract (queued), clean (it has not run yet)")

    hands = await claim(client.store)
    await apply(client.store, hands, *map(death, hands.executions))
    told = await client.why(one.execution_id)
    assert "extract (dead; retry it, or let it run again)" in told.detail


async def test_why_says_that_a_dependency_was_deleted_or_has_failed_since(client, clock):
    await client.define("load", schedule=DAILY, dependencies=["extract", "clean"])
    scheduler = Scheduler(client.store, clock=clock, mint=mint, events=Events())
    clock.advance(60)
    await scheduler.tick()
    [one] = (await client.executions(job="load")).items
    await client.delete_job("extract")
    clock.advance(60)
    await client.cancel((await client.enqueue("clean")).id)

    told = await client.why(one.execution_id)

    assert "extract (there is no such job any more" in told.detail
    assert "clean (what it did since has failed; retry it" in told.detail


async def test_tasks_depend_on_tasks(clock):
    app = App("memory://")

    @app.task
    async def extract() -> None: ...

    @app.task(schedule=after(extract))
    async def clean() -> None: ...

    @app.task(dependencies=[extract, "clean"], schedule=DAILY, on_dependency_failure="skip")
    async def load() -> None: ...

    async with app:
        found = (await app.client().job("load")).definition
        assert (found.dependencies, found.on_dependency_failure) == (("extract", "clean"), "skip")
        [schedule] = await room.schedules(app.client(), "clean")
        assert schedule.since is not None
    assert app.tasks.keys() == {"extract", "clean", "load"} == {extract.name, clean.name, load.name}


async def test_a_circle_of_tasks_is_told_when_the_app_is_opened():
    app = App("memory://")

    @app.task(dependencies=["second"])
    async def first() -> None: ...

    @app.task(dependencies=[first])
    async def second() -> None: ...

    with refuses(UsageError, field="dependencies"):
        await app.open()


async def test_a_task_that_needs_arguments_cannot_run_after_others():
    app = App("memory://")

    @app.task
    async def extract() -> None: ...

    @app.task(dependencies=[extract])
    async def load(day: str) -> None: ...

    with pytest.raises(UsageError, match="day"):
        await app.open()


@pytest.mark.parametrize("manual", ["manual", " Manual", {"manual": True}, ["manual"]])
async def test_what_runs_by_hand_alone_runs_after_nobody(client, manual):
    with refuses(InvalidSchedule, field="schedule"):
        await client.create("load", command="true", dependencies=["extract"], schedule=manual)


async def test_times_that_are_taken_away_are_not_replaced_by_dependencies(client):
    await client.create("load", command="true", dependencies=["extract"], schedule="0 2 * * *")

    with refuses(InvalidSchedule, field="schedule"):
        await client.update("load", schedule=None)
    job = await client.update("load", schedule=None, dependencies=[])
    assert job.definition.runs_by_itself is False


async def test_a_job_that_runs_after_others_has_no_times_that_could_be_taken_away(client):
    await client.create("load", command="true", dependencies=["extract"])
    await client.create("sums", command="true", schedule="0 2 * * *")

    for said in ({}, {"dependencies": ["clean"]}):
        job = await client.update("load", schedule=None, retries=2, **said)
        assert job.definition.fires_after
    assert (job.definition.dependencies, job.definition.schedules) == (("clean",), ())
    sums = await client.update("sums", schedule=None, dependencies=["extract"])
    assert sums.definition.fires_after


async def test_a_job_that_runs_after_others_says_how_it_ended(client):
    await client.create("load", command="true", dependencies=["extract"])
    before = (await room.standing(client, "load")).status
    await client.enqueue("load")
    hands = await claim(client.store, kinds=["command"])
    during = (await room.standing(client, "load")).status
    await apply(client.store, hands, death(hands.one))

    assert (before, during) == ("manual", "running")
    assert (await room.standing(client, "load")).status == "dead"
    assert (await room.standings_page(client, status="pending")).items == ()
