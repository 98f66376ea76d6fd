"""How jobs stand: paused, triggered, at work or over, and found by it, on every store."""

import pytest

from daybell.client import Client, schedules
from daybell.client import schedules as room
from daybell.client.executions import read_execution
from daybell.client.requests import read_definition
from daybell.core.execution import State
from daybell.core.schedule import Decision
from daybell.core.when import every
from daybell.core.when.cursor import ticks_between
from daybell.errors import COMPARED_MAX, ExecutionInTheWay, InvalidName, JobNotFound, UsageError
from tests.builders import a_job, apply, claim, success
from tests.refusals import refuses
from tests.stores import KINDS, open_place


@pytest.fixture(params=KINDS)
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def client(store):
    return Client(store)


async def only_schedule(client, job="report"):
    (schedule,) = await room.schedules(client, job)
    return schedule


async def states(client, job="report"):
    return sorted(one.status for one in (await client.executions(job=job)).items)


async def test_a_paused_job_does_not_fire_and_goes_on_from_now(client, place, fire):
    await client.define("report", schedule=every("1m"), overlap="allow")
    await client.pause("report", note="holidays")
    began = place.clock.now()
    await place.clock.advance(200)
    passed = ticks_between(every("1m"), began + 1, place.clock.now() + 1)
    await fire()
    assert await states(client) == []
    assert (await client.job("report")).pause_note == "holidays"

    await client.resume("report")
    await fire()

    schedule = await only_schedule(client)
    assert await states(client) == []
    assert schedule.next_at > place.clock.now()
    assert (schedule.missed, schedule.is_paused) == (len(passed), False)
    (tick,) = await client.store.schedules.list_ticks("default", schedule.id)
    assert (tick.decision, tick.reason) == (Decision.MISSED, "paused")
    await place.clock.advance(60)
    await fire()
    assert len(await states(client)) == 1


async def test_pausing_what_is_not_there_is_refused(client):
    with pytest.raises(JobNotFound):
        await client.pause("sned")
    with pytest.raises(JobNotFound):
        await client.resume("sned")


async def test_a_note_has_a_limit(client):
    await client.define("report")

    with refuses(UsageError, field="note"):
        await client.pause("report", "x" * 501)


async def test_a_trigger_is_called_as_the_schedules_would(client):
    await client.define("report", args={"day": 1})

    plain = await client.trigger("report")
    other = await client.trigger("report", {"day": 2})

    assert (await client.execution(plain.id)).args == {"day": 1}
    assert (await client.execution(other.id)).args == {"day": 2}


async def test_a_trigger_obeys_overlap_unless_it_is_forced(client):
    await client.define("report", schedule="@hourly")
    first = await client.trigger("report")

    with pytest.raises(ExecutionInTheWay) as caught:
        await client.trigger("report")
    forced = await client.trigger("report", force=True)

    assert caught.value.execution == first.id
    assert (await client.execution(forced.id)).status is State.QUEUED


async def test_a_job_stands_as_it_does(client, store, place, fire):
    await client.define("report", schedule=every("1m"))
    idle = await room.standing(client, "report")
    await place.clock.advance(60)
    await fire()
    due = await room.standing(client, "report")
    hands = await claim(store)
    running = await room.standing(client, "report")
    await apply(store, hands, success(hands.one))
    ended = await room.standing(client, "report")
    await client.pause("report")
    paused = await room.standing(client, "report")
    await client.delete_job("report")
    gone = await room.standing(client, "report")

    found = [idle, due, running, ended, paused, gone]
    assert [one.status for one in found] == [
        "scheduled",
        "queued",
        "running",
        "scheduled",
        "paused",
        "deleted",
    ]
    assert idle.next_run_at is not None
    assert paused.next_run_at is gone.next_run_at is None
    assert ended.last_execution and ended.last_execution.state is State.SUCCEEDED


async def test_a_job_without_schedules_is_manual_until_it_ran(client, store):
    await client.define("report")
    await client.define("other")
    before = await room.standings(client, [await client.job("report"), await client.job("other")])
    await client.trigger("report")
    hands = await claim(store)
    await apply(store, hands, success(hands.one))

    after = await room.standing(client, "report")

    assert [one.status for one in before] == ["manual", "manual"]
    assert after.status == "succeeded"
    with pytest.raises(JobNotFound):
        await room.standing(client, "sned")


async def test_jobs_that_left_the_code_are_found_while_they_have_schedules(client):
    old = read_definition("old", schedule="@daily")
    await client.define_jobs([old, read_definition("idle")], author="code:shop:app")
    await client.define_jobs([read_definition("new", schedule="@daily")], author="code:shop:app")
    await client.define_jobs([read_definition("theirs", schedule="@daily")], author="code:x:app")

    assert await client.abandoned("code:shop:app", ["new"]) == ["old"]


async def test_a_job_that_was_rolled_back_by_hand_is_still_the_codes(client):
    for schedule in ("@daily", "@hourly"):
        mine = [read_definition(name, schedule=schedule) for name in ("back", "changed", "moved")]
        await client.define_jobs(mine, author="code:shop:app")
    await client.rollback("back", 1, author="ada")
    await client.update("changed", schedule="@weekly", author="ada")
    await client.rollback("moved", 1, author="code:x:app")

    assert await client.abandoned("code:shop:app", []) == ["back"]


async def test_who_has_left_the_code_is_found_without_a_look_at_every_job(client, monkeypatch):
    names = ["by-hand-1", "by-hand-2", "by-hand-3", "idle"]
    for text in ("one", "two"):
        when = {name: None if name == "idle" else "@daily" for name in names}
        jobs = [read_definition(name, schedule=when[name], description=text) for name in names]
        await client.define_jobs(jobs, author="ada")
    await client.define_jobs([read_definition("old", schedule="@daily")], author="code:shop:app")
    looked = []
    list_versions = client.store.catalog.list_versions

    async def versions(tenant, name, **options):
        looked.append(name)
        return await list_versions(tenant, name, **options)

    monkeypatch.setattr(client.store.catalog, "list_versions", versions)
    monkeypatch.setattr(schedules, "ROLLBACKS_MAX", 2)

    assert await client.abandoned("code:shop:app", []) == ["old"]
    assert looked == ["by-hand-1", "by-hand-2"]
    looked.clear()
    assert await client.abandoned("code:shop:app", names) == ["old"]
    assert looked == []


async def test_a_job_is_found_by_its_id_or_its_name(client):
    job = await client.define("report")
    named = a_job(str(job.job_id))  # as names could be once, and may be on record
    [other] = await client.store.catalog.define_jobs(client.tenant, [named])

    id = job.job_id

    assert await client.job_named("report") == job
    assert await client.job_named(id) == await client.job_named(str(id).upper()) == job
    assert (await client.job_named(other.id)).job_id == other.id
    await client.delete_job("report")
    assert (await client.job_named(str(id))).job_id == other.id
    assert (await room.standing(client, job.job_id)).job.name == other.name
    await client.delete_job(other.name)
    assert (await room.standing(client, other.id)).status == "deleted"
    with refuses(InvalidName, field="name"):
        await client.define(str(job.job_id))
    with refuses(JobNotFound):
        await client.job_named("sned")


async def test_who_enqueues_a_job_that_is_not_there_is_told_which_may_be_meant(client):
    await client.define("report")
    hint = "no job named 'reprot'; did you mean 'report'"

    with pytest.raises(JobNotFound, match=hint):
        await client.enqueue("reprot")
    with pytest.raises(JobNotFound, match=hint):
        await client.enqueue_many("reprot", [{}, {}])
    with pytest.raises(JobNotFound, match=hint):
        await client.submit_many([read_execution("reprot"), read_execution("reprot")])
    with refuses(JobNotFound) as several:
        await client.submit_many([read_execution("report"), read_execution("reprot")])
    assert "did you mean" not in str(several.value)


async def test_of_a_job_that_is_not_there_is_told_once_which_may_be_meant(client, monkeypatch):
    many = [read_definition(f"a{number:03}") for number in range(COMPARED_MAX)]
    await client.define_jobs([*many, read_definition("archive")])
    looks = []
    list_jobs = client.store.catalog.list_jobs

    async def listed(*args, limit, **options):
        looks.append(limit)
        return await list_jobs(*args, limit=limit, **options)

    monkeypatch.setattr(client.store.catalog, "list_jobs", listed)

    with pytest.raises(JobNotFound, match="no job named 'archvie'; did you mean 'archive'"):
        await client.job_named("archvie")  # behind more jobs with an a than are compared
    assert looks == [COMPARED_MAX]
    looks.clear()
    with refuses(JobNotFound):
        await room.standing(client, "azure-report")
    assert looks == [COMPARED_MAX] * 2
    looks.clear()
    await client.delete_job("archive")
    assert (await room.standing(client, "archive")).status == "deleted"
    assert looks == []


async def test_jobs_are_listed_by_what_they_do(client, store):
    await client.define("a", user_id="ada")
    await client.define("b", schedule="@hourly")
    await client.define("c", schedule="@hourly", user_id="ada")
    await client.define("d")
    await client.pause("c")
    await client.trigger("a")

    async def named(**where):
        page = await room.standings_page(client, **where)
        return [one.job.name for one in page.items]

    assert await named() == ["a", "b", "c", "d"]
    assert await named(status="pending") == ["a", "b"]
    assert await named(status="queued") == ["a"]
    assert await named(status=["paused", "manual"]) == ["c", "d"]
    assert await named(status="pending", user_id="ada") == ["a"]
    assert await named(user_id="ada", text="C") == ["c"]
    with refuses(UsageError, field="status"):
        await named(status="deleted")
    with pytest.raises(UsageError, match="'runing' is not a job's status; there are pending"):
        await named(status="runing")
    with pytest.raises(UsageError):
        await named(status="queued", limit=0)


async def test_a_list_by_status_goes_on_where_it_ended(client, monkeypatch):
    monkeypatch.setattr(schedules, "SCAN_PAGE", 2)
    monkeypatch.setattr(schedules, "SCAN_MAX", 4)
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        await client.define(name, schedule="@hourly" if name in "abg" else None)

    first = await room.standings_page(client, status="scheduled", limit=1)
    second = await room.standings_page(client, status="scheduled", cursor=first.next_cursor)
    third = await room.standings_page(client, status="scheduled", cursor=second.next_cursor)

    pages = [[one.job.name for one in page.items] for page in (first, second, third)]
    assert pages == [["a"], ["b"], ["g"]]
    assert second.next_cursor == "e"  # as far as one call looks
    assert third.next_cursor is None


async def test_a_page_of_standings_costs_as_much_as_that_of_one_job(client, store):
    for number in range(5):
        await client.define(f"job-{number}", schedule="@hourly")
    asked = []
    look = store.catalog.job_activity

    async def counted(tenant, names):
        asked.append(list(names))
        return await look(tenant, names)

    store.catalog.job_activity = counted
    page = await room.standings_page(client)

    assert asked == [[one.job.name for one in page.items]]
    assert len(page.items) == 5
