"""Jobs that an earlier program has made are found like others, after a while."""

import sqlite3

import asyncpg

from daybell.core.views import JobFilter, Retention
from tests.builders import TENANT, a_job


async def forget(place, names):
    """Leave jobs as a program does that does not know what a search looks in."""
    if place.kind == "sqlite":
        marks = ", ".join("?" * len(names))
        with sqlite3.connect(place.url) as connection:
            statement = f"UPDATE job SET words = '', user_id = NULL WHERE name IN ({marks})"
            connection.execute(statement, names)
        return
    connection = await asyncpg.connect(place.url)
    try:
        statement = "UPDATE daybell.job SET words = '', user_id = NULL WHERE name = ANY($1)"
        await connection.execute(statement, names)
    finally:
        await connection.close()


async def found(store, **where):
    return [job.name for job in (await store.list_jobs(TENANT, JobFilter(**where))).items]


async def test_what_an_earlier_program_left_empty_is_filled(shared, shared_store):
    about = {"description": "Thumbnails of ÄPFEL", "user_id": "ana"}
    await shared_store.define_jobs(TENANT, [a_job("old", **about), a_job("new", **about)])
    await shared_store.define_jobs(TENANT, [a_job("old", **about, timeout=5.0)])
    await forget(shared, ["old"])
    assert await found(shared_store, text="äpfel") == await found(shared_store, user_id="ana")
    assert await found(shared_store, text="äpfel") == ["new"]

    assert (await shared_store.retain(Retention())).is_complete

    assert await found(shared_store, text="äpfel") == ["new", "old"]
    assert await found(shared_store, user_id="ana") == ["new", "old"]


async def test_many_are_filled_in_rounds(shared, shared_store, monkeypatch):
    for module in ("upkeep",):
        monkeypatch.setattr(f"daybell.store.{shared.kind}.{module}.FILLED_MAX", 2)
    names = [f"job {n}" for n in range(5)]
    await shared_store.define_jobs(TENANT, [a_job(name) for name in names])
    await forget(shared, names)

    rounds = 1
    while not (await shared_store.retain(Retention())).is_complete:
        rounds += 1

    assert await found(shared_store, text="job") == names
    assert rounds == {"sqlite": 1, "postgres": 3}[shared.kind]  # of which one call may do several
