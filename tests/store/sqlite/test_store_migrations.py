"""Files of earlier versions: what is in them is still there, and goes on."""

import sqlite3
from contextlib import closing

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.views import JobFilter
from daybell.errors import SchemaError
from daybell.store import migrate
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite import upkeep as module
from tests.builders import TENANT, a_firing, a_job, claim, defined, enqueued, fired, states

BEFORE_SCHEDULES = 4


@pytest.fixture
async def old(tmp_path, monkeypatch, clock):
    """A file as version 0004 left it, with a job, an execution, a schedule and a leader."""
    path = str(tmp_path / "old.db")
    known = migrate.known_migrations(module.PACKAGE)
    earlier = [step for step in known if step.version <= BEFORE_SCHEDULES]
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "known_migrations", lambda package: earlier)
        await SqliteStore(path, clock=clock.now).migrate()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        text = a_job(user_id="ada", description="Make it SMALL: GRÖSSE").definition.to_json()
        raw.execute("INSERT INTO job VALUES (1, ?, 1, 'resize', 1, 0)", (mint().bytes,))
        raw.execute("INSERT INTO job_version VALUES (1, 1, 1, ?, '', 0.0)", (text,))
        schedule = mint().bytes, clock.now()
        raw.execute("INSERT INTO schedule VALUES (1, ?, 1, '\"rule\"', ?, 5.0, 3, 0)", schedule)
        raw.execute("INSERT INTO tick VALUES (1, ?, ?, 1, NULL, NULL, NULL)", (schedule[0], 5.0))
        raw.execute("INSERT INTO leader VALUES ('upkeep', ?, 7, 10.0)", (mint().bytes,))
    return path


@pytest.fixture
async def upgraded(old, clock):
    store = SqliteStore(old, clock=clock.now)
    await store.migrate()
    await store.open()
    yield store
    await store.close()


async def test_a_schedule_from_before_goes_on_where_it_was(upgraded, clock):
    (schedule,) = (await upgraded.due_schedules()).schedules
    assert (schedule.rule, schedule.fired, schedule.last_at) == ('"rule"', 3, 5.0)
    assert (schedule.args, schedule.delay, schedule.skipped) == ("{}", None, 0)
    assert schedule.overlap_by == "schedule"
    (tick,) = await upgraded.list_ticks(TENANT, schedule.id)
    assert (tick.at, tick.count) == (5.0, 1)

    assert await upgraded.fire([a_firing(schedule)]) == [True]

    hands = await claim(upgraded)
    assert hands.one.schedule == schedule.id
    (after,) = await upgraded.list_schedules(TENANT)
    # Its job minds by now, though nobody has defined it again.
    (skipped,) = await fired(upgraded, after)
    assert await states(upgraded, [skipped]) == [State.SKIPPED]


async def test_a_job_from_before_is_the_same_version(upgraded):
    (job,) = await defined(upgraded, user_id="ada", description="Make it SMALL: GRÖSSE")

    assert (job.version, job.paused_at, job.pause_note) == (1, None, "")
    assert await states(upgraded, await enqueued(upgraded, 2)) == [State.QUEUED] * 2
    # The upgrade itself knows no capitals beyond ASCII; defining it again does.
    assert (await upgraded.list_jobs(TENANT, JobFilter(text="größe"))).items == (job,)


async def test_the_epoch_of_a_leader_from_before_goes_on_rising(upgraded):
    leadership = await upgraded.lead("upkeep", holder=mint(), lease=30.0)

    assert leadership is not None
    assert leadership.epoch == 8


async def test_a_job_from_before_is_found_by_words_user_and_id(upgraded):
    for where in (JobFilter(user_id="ada"), JobFilter(text="it small"), JobFilter(text="RESIZE")):
        (job,) = (await upgraded.list_jobs(TENANT, where)).items
        assert await upgraded.find_job(TENANT, job.id) == job
    assert (await upgraded.list_jobs(TENANT, JobFilter(text="large"))).items == ()


async def test_a_program_that_cannot_chain_the_audit_log_is_refused(upgraded, old, monkeypatch):
    known = [step for step in migrate.known_migrations(module.PACKAGE) if step.version < 13]
    monkeypatch.setattr(migrate, "known_migrations", lambda package: known)

    with pytest.raises(SchemaError, match=r"0013 \(audit_chain\) is unknown here"):
        await SqliteStore(old).open()
