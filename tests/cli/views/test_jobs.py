"""What a job that depends on others still waits for, in the terminal and as JSON."""

import asyncio
import json

import pytest

from daybell import Client
from tests.builders import dead, finished
from tests.cli.in_process import Typed, typing


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path) -> Typed:
    """Commands on a store in which `load` comes after three: one has succeeded, one is dead."""
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def make() -> None:
        async with Client(url, migrate=True) as client:
            for name in ("extract", "clean", "fetch"):
                await client.define(name)
            names = ["extract", "clean", "fetch"]
            await client.create("load", task="extract", dependencies=names)
            await client.create("report", task="extract", dependencies=names, schedule="0 0 * * *")
            await finished(client.store, job="extract")
            await dead(client.store, job="clean")

    asyncio.run(make())
    return typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=url, COLUMNS="300")


def test_a_job_after_others_says_what_it_waits_for(typed):
    shown = typed("jobs", "show", "load").out
    said = json.loads(typed("jobs", "show", "load", "--json").out)["waits_for"]

    assert "extract (succeeded at " in shown
    assert "its last one is dead; retry it" in shown
    assert [(one["job"], one["is_met"]) for one in said] == [
        ("extract", True), ("clean", False), ("fetch", False)
    ]  # fmt: skip
    assert said[2]["detail"] == "has not succeeded yet"


def test_a_job_with_times_of_its_own_says_how_the_latest_of_each_stands(typed):
    said = json.loads(typed("jobs", "show", "report", "--json").out)["waits_for"]

    assert [(one["is_met"], one["detail"]) for one in said] == [
        (True, "succeeded"), (False, "dead"), (False, "it has not run yet")
    ]  # fmt: skip
