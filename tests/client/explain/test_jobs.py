"""Each cause for which a job does not run, and its remedies."""

import pytest

from daybell.core.access import Scope
from daybell.core.units import to_datetime, to_iso
from daybell.errors import AccessDenied, ExecutionNotFound, JobNotFound
from tests.builders import TENANT, a_worker, apply, death
from tests.client.explain.situations import ONE_WAY_PER_STORE
from tests.refusals import refuses

DAY = 86400.0


async def manual(world):
    return "extract"


async def paused(world):
    await world.client.define("daily", schedule="0 2 * * *")
    await world.client.pause("daily", "until the disk is replaced")
    return "daily"


async def scheduled(world):
    await world.client.define("daily", schedule="0 2 * * *")
    return "daily"


async def calendar(world):
    closed = to_datetime(world.clock.now() + DAY).date().isoformat()
    days = {"dates": [to_datetime(world.clock.now()).date().isoformat(), closed]}
    when = {"cron": "0 * * * *", "calendar": days}
    await world.client.define("hourly", schedule=when)
    return "hourly"


async def not_started(world):
    when = {"cron": "0 2 * * *", "start_at": to_iso(world.clock.now() + 9 * DAY)}
    await world.client.define("later", schedule=when)
    return "later"


async def ended(world):
    await world.client.define("once", schedule={"every": "1m", "max_executions": 1})
    await world.clock.advance(61)
    await world.fire()
    await world.work_off()
    return "once"


async def dependencies(world):
    await world.client.define("load", dependencies=["extract"])
    await world.clock.advance(1)
    return "load"


async def no_scheduler(world):
    await world.client.define("hourly", schedule={"every": "1h"})
    await world.clock.advance(3601)
    return "hourly"


async def reboot(world):
    await world.client.define("boot", schedule="@reboot")
    await world.fire()
    await world.work_off()
    return "boot"


async def no_worker(world):
    await world.client.enqueue("resize")
    return "resize"


async def limit(world):
    await world.client.define("limited", concurrency=1)
    await world.client.pause_limit("limited")
    await world.client.enqueue("limited")
    await world.take()
    return "limited"


async def dead(world):
    _, hands = await world.start("extract")
    error = """{"type": "ValueError", "message": "no such mailbox"}"""
    await apply(world.store, hands, death(hands.one, error=error))
    return "extract"


async def deleted(world):
    await world.client.delete_job("extract")
    return "extract"


# The situation, its code, the number of its remedies.
CAUSES = {
    "manual": (manual, "manual", 1),
    "paused": (paused, "paused", 2),
    "scheduled": (scheduled, "scheduled", 1),
    "calendar": (calendar, "calendar", 1),
    "not_started": (not_started, "not_started", 1),
    "ended": (ended, "ended", 1),
    "dependencies": (dependencies, "dependencies", 2),
    "no_scheduler": (no_scheduler, "no_scheduler", 1),
    "reboot": (reboot, "reboot", 1),
    "no_worker": (no_worker, "no_worker", 1),
    "limit": (limit, "limit", 1),
    "dead": (dead, "dead", 3),
    "deleted": (deleted, "deleted", 0),
}
REMEDIES = [
    pytest.param(cause, number, id=f"{cause}-{number}")
    for cause, (_, _, count) in CAUSES.items()
    for number in range(count)
]


@pytest.mark.parametrize("cause", CAUSES)
async def test_each_cause_has_its_code_and_its_remedies(cause, world):
    situation, code, count = CAUSES[cause]

    found = await world.client.why_job(await situation(world))

    assert (found.code, len(found.actions)) == (code, count)
    assert found.detail


@ONE_WAY_PER_STORE
@pytest.mark.parametrize(("cause", "number"), REMEDIES)
async def test_a_remedy_removes_its_cause(cause, number, by, world):
    situation, code, _ = CAUSES[cause]
    job = await situation(world)
    remedy = (await world.client.why_job(job)).actions[number]
    before = len(await world.states(job))

    await world.perform(remedy, by=by)

    if cause == "dependencies" and number == 0:
        await world.work_off()
    if cause == "limit":
        await world.clock.advance(30)  # all waits are checked every few seconds
        await world.take()
    after = await world.client.why_job(job)
    is_run = remedy.label == f"run job {job} now" or cause in ("dependencies", "no_scheduler")
    assert after.code != code or (is_run and len(await world.states(job)) > before)


async def test_a_dead_letter_comes_before_the_next_time_with_the_reason_of_its_death(world):
    await dead(world)
    (letter,) = (await world.client.executions(job="extract")).items
    await world.client.update("extract", schedule="0 2 * * *")

    found = await world.client.why_job("extract")

    assert found.code == "scheduled"
    assert f"execution {letter.execution_id} is dead" in found.detail
    assert "is dead (retries_used_up): ValueError: no such mailbox" in found.detail
    assert [one.label for one in found.actions] == [
        "run it again",
        "discard it",
        "run job extract now",
    ]
    await world.perform(found.actions[1], by="request")
    assert len((await world.client.why_job("extract")).actions) == 1


async def test_a_closed_day_that_puts_the_next_time_off_is_named(world):
    job = await calendar(world)

    found = await world.client.why_job(job)

    hour = world.clock.now() // 3600 * 3600 + 3600
    assert f"Its calendar closes {to_iso(hour)}" in found.detail
    assert found.next_at == found.next_run_at > to_datetime(hour)


@pytest.mark.parametrize("by", ["command", "request"])
async def test_the_one_who_paused_a_job_is_named(by, world):
    await world.client.define("daily", schedule="0 2 * * *")
    pause = "daybell jobs pause daily --note 'the shop moves'"
    await world.perform_text(
        pause, ("POST", "/jobs/daily/pause", {"note": "the shop moves"}), by=by
    )

    found = await world.client.why_job("daily")

    assert found.detail.endswith(": the shop moves")
    (entry,) = (await world.client.audit(action="job.pause")).items
    assert f"paused by {entry.actor} since" in found.detail


async def test_the_last_ticks_are_told_with_their_decisions(world):
    await world.client.define("often", schedule={"every": "1m"})
    await world.clock.advance(60)
    await world.fire()
    await world.clock.advance(60)
    await world.fire()
    pause = ("POST", "/jobs/often/pause", {})
    await world.perform_text("daybell jobs pause often", pause, by="request")
    await world.clock.advance(180)
    await world.client.resume("often")
    await world.clock.advance(60)
    await world.work_off()

    ticks = (await world.client.why_job("often")).ticks

    assert [one.decision for one in ticks] == ["fired", "missed", "skipped", "fired"]
    (entry,) = (await world.client.audit(action="job.pause")).items
    assert ticks[1].detail.endswith(f"missed, as the job was paused by {entry.actor}")
    assert (ticks[1].count, ticks[1].reason) == (3, "paused")
    assert "overlap rule" in ticks[2].detail
    assert str(ticks[3].execution_id) in ticks[3].detail


async def test_only_the_last_ten_ticks_are_told(world):
    await world.client.define("often", schedule={"every": "1m"}, overlap="allow")
    for _ in range(12):
        await world.clock.advance(60)
        await world.fire()

    assert len((await world.client.why_job("often")).ticks) == 10


async def test_of_unfinished_executions_those_that_wait_for_the_same_are_told_once(world):
    for _ in range(3):
        await world.client.enqueue("resize")
    later = await world.client.enqueue("resize", delay="1h")

    found = await world.client.why_job("resize")

    assert [one.code for one in found.executions] == ["no_worker", "not_due"]
    assert found.executions[1].execution_id == later.id


async def test_an_unknown_job_is_refused(world):
    with refuses(JobNotFound):
        await world.client.why_job("nope")


async def test_the_cost_does_not_grow_with_schedules_made_at_run_time(world):
    await world.client.schedule_many(
        [{"job": "resize", "when": {"every": f"{n + 1}h"}, "name": f"s{n}"} for n in range(60)]
    )
    await world.store.queue.register(TENANT, a_worker(), lease=60.0)

    found = await world.client.why_job("resize")

    assert len(found.schedules) == 20
    assert found.code == "scheduled"


async def test_a_key_that_is_limited_to_a_job_is_told_about_that_alone(world):
    await world.client.define("often", schedule={"every": "1m"}, overlap="allow")
    await world.clock.advance(60)
    await world.fire()
    (one,) = (await world.client.executions(job="often")).items
    other = await world.client.enqueue("resize")
    limited = world.client.within(Scope(jobs=("often",)))

    found = await limited.why_job("often")

    assert (found.code, len(found.ticks)) == ("no_worker", 1)
    assert (await limited.why(one.execution_id)).code == "no_worker"
    with refuses(JobNotFound):
        await limited.why_job("resize")
    with refuses(ExecutionNotFound):
        await limited.why(other.id)
    with refuses(AccessDenied):
        await world.client.within(Scope(queues=("mail",))).why_queue("default")
