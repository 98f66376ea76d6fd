"""What `daybell doctor` says about gates."""

import pytest

from daybell.cli.doctor.report import check_gates
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, enqueued
from tests.sweeps import set_gates


@pytest.fixture
async def store(tmp_path):
    store = SqliteStore(str(tmp_path / "jobs.db"))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


async def test_gates_that_count_right_are_fine(store):
    await set_gates(store, TENANT, {"narrow": 1})
    await enqueued(store, 2, gate="narrow")

    check = await check_gates(store)

    assert (check.is_ok, check.found) == (True, "all counts agree with the executions")


async def test_one_that_counts_wrongly_is_named_with_what_to_do(store):
    await set_gates(store, TENANT, {"narrow": 1, "wide": 5})
    await enqueued(store, gate="narrow")
    await store.db.write(lambda tx: tx.execute("UPDATE gate SET holders = 3"))

    check = await check_gates(store)

    assert not check.is_ok
    said = "narrow of tenant default counts 3 inside, and there are 1, and 1 more"
    assert check.found == said
    assert "counts anew every hour" in check.advice
