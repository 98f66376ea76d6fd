"""Executions and jobs whose ids the caller chose: sending them twice creates them once."""

import json
import subprocess
import sys

import pytest

from daybell.client import Client, mint
from daybell.client.executions import derive_id, read_execution, read_executions
from daybell.core.execution import State
from daybell.core.ids import mint_many
from daybell.core.limits import ARGS_BYTES_MAX, PAYLOAD_DEPTH_MAX
from daybell.errors import DuplicateKey, VersionConflict


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        await opened.define("resize")
        yield opened


def test_a_derived_id_keeps_the_time_and_follows_from_what_it_is_for():
    id = mint()

    one, other = derive_id(id, "execution", 1), derive_id(id, "execution", 2)

    assert one == derive_id(id, "execution", 1) != other
    assert {one.version, other.version} == {7}
    assert one.int >> 80 == id.int >> 80


def test_derived_ids_rise_with_their_rank():
    id = mint()

    made = [derive_id(id, rank, rank=rank, rank_bits=14) for rank in range(10_000)]

    assert made == sorted(set(made))
    assert {one.version for one in made} == {7}
    assert {one.variant for one in made} == {id.variant}


def test_ids_that_are_made_together_rise_between_those_before_and_after():
    before, many, after = mint(), mint_many(5_000), mint()

    assert [before, *many, after] == sorted({before, *many, after})
    assert {one.version for one in many} == {7}
    assert {one.variant for one in many} == {before.variant}
    assert mint_many(0) == []


FORK = """
import os
from daybell.core.ids import mint

mint()  # what is random is drawn for many at a time
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, mint().bytes)
    os._exit(0)
here, there = mint().bytes, os.read(reader, 16)
assert here[8:] != there[8:], (here, there)
"""


def test_a_fork_draws_for_itself():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=300)


def test_many_are_read_as_each_would_be():
    jobs = ["resize", "größer", "resize"]
    args = [{"a": "\n\u2028ü", "b": [None, 1.5, 2**63]}, {}, {"c": "x" * 500 + "{[" * 20}]

    found = read_executions(jobs, args)

    alone = [read_execution(job, one) for job, one in zip(jobs, args, strict=True)]
    assert found is not None
    assert [(one.job, one.args) for one in found] == [(one.job, one.args) for one in alone]
    assert all(one.is_plain for one in found)


@pytest.mark.parametrize(
    ("job", "args"),
    [
        ("-", {}),
        ("", {}),
        ("resize", {"a": "\ud800"}),
        ("resize", {"a": "x" * ARGS_BYTES_MAX}),
        ("resize", {"a": json.loads("[" * PAYLOAD_DEPTH_MAX + "]" * PAYLOAD_DEPTH_MAX)}),
    ],
    ids=["no name", "an empty name", "half a pair", "too long", "too deep"],
)
def test_many_with_one_that_may_be_wrong_are_left_to_a_closer_look(job, args):
    assert read_executions(["resize", job], [{}, args]) is None


async def test_an_execution_that_is_submitted_again_is_there_once(client):
    new = read_execution("resize", {"width": 3}, id=mint())

    first = await client.submit(new)
    again = await client.submit(new, repeat=True)

    assert first.id == again.id == new.id
    assert (await client.count()).executions == {State.QUEUED: 1}


async def test_many_that_are_submitted_again_are_there_once(client):
    id = mint()
    news = [read_execution("resize", id=derive_id(id, position)) for position in range(3)]

    first = await client.submit_many(news)
    again = await client.submit_many(news, repeat=True)

    assert first == again
    assert (await client.count()).executions == {State.QUEUED: 3}


async def test_a_job_that_is_created_again_under_its_id_is_answered_as_it_is(client):
    id = mint()

    first = await client.create("thumbs", task="resize", id=id)
    again = await client.create("thumbs", task="resize", id=id)

    assert (again.job_id, again.version) == (first.job_id, 1) == (id, 1)
    with pytest.raises(DuplicateKey):
        await client.create("thumbs", task="resize", id=mint())


async def test_a_change_that_expects_another_version_is_refused(client):
    await client.update("resize", queue="images", expect=1)

    with pytest.raises(VersionConflict, match="is at version 2, not 1"):
        await client.update("resize", queue="others", expect=1)

    assert (await client.job("resize")).definition.queue == "images"


async def test_a_deleted_job_can_be_created_again(client):
    first = await client.create("thumbs", task="resize", queue="a")
    await client.delete_job("thumbs")

    again = await client.create("thumbs", task="resize", queue="b", id=mint())

    assert (again.job_id, again.version, again.definition.queue) == (first.job_id, 2, "b")
    with pytest.raises(DuplicateKey):
        await client.create("thumbs", task="resize")
