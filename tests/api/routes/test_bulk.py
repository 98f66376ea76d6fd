"""Bodies with many executions: read by the rules for one, and refused before they cost much."""

import asyncio
import time
from typing import Any

import pytest

from daybell.api.requests import yield_to_loop
from daybell.api.routes.bulk import read_items
from daybell.errors import PayloadError, PayloadTooLarge
from tests.api.test_requests_hostile import raw
from tests.api.worlds import world

CPU_SECONDS_MAX = 2.5  # a fifth of that would do, if nothing else went on here
MIB = 1024 * 1024


@pytest.fixture
async def here():
    async with world(open_tenant="default") as made:
        yield made


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ('"args": {"a": 1}', 202),
        ('"args": {}', 202),
        ('"args": {"a": ":"}', 202),
        (r'"args": {"a": "\u003a"}', 202),
        (r'"args": {"a": "\u003a", "a": 1}', 422),
        (r'"args": {"a": "::", "\u0061": 1}', 422),
        ('"args": {"a": 1, "a": 2}', 422),
        ('"args": {"b": {"a": 1, "a": 1}}', 422),
        ('"args": {"a": 1}, "args": {"a": 1}', 422),
        ('"priority": "high", "priority": "high"', 422),
        ('"delay": null, "delay": "1h"', 422),
        ('"delay": null, "force": false', 202),
        (r'"args": {"a": "\ud800"}', 202),
        (r'"args": {"\ud800": 1}', 202),
        (r'"args": {"\ud800": 1, "\ud800": 1}', 422),
        (r'"args": {"a": "\ud800"}, "nothing": 1', 422),
        (f'"args": {deep(64)}', 202),
        (f'"args": {deep(65)}', 422),
        ('"args": {"a": 1e999}', 422),
    ],
)
async def test_one_of_many_is_read_as_a_single_one(said, status, here):
    single = await here.ask("POST", "/api/v1/jobs/resize/trigger", **raw(f"{{{said}}}"))
    many = f'[{{"job": "resize"}}, {{"job": "resize", {said}}}]'
    bulk = await here.ask("POST", "/api/v1/executions", **raw(many))

    assert (single.status_code, bulk.status_code) == (status, status), (single.text, bulk.text)
    if status == 202:
        ids = [single.json()["execution_id"], bulk.json()["items"][1]["execution_id"]]
        args = [(await here.ask("GET", f"/api/v1/executions/{id}")).json()["args"] for id in ids]
        assert args[0] == args[1]


async def test_a_job_that_is_named_twice_is_refused(here):
    answer = await here.ask("POST", "/api/v1/executions", **raw('[{"job":"resize","job":"daily"}]'))

    assert answer.status_code == 422
    assert "'job' comes twice" in answer.text


KEYS = b",".join(b'"k%d":1' % number for number in range(1_000_000))
ITEM = b'{"job":"resize","args":{"note":"' + b"x" * 4000 + b'","a":1}}'
COSTLY: dict[str, tuple[bytes, Any]] = {
    "many items": (b"[" + b",".join([b'{"job":"resize"}'] * 900_000) + b"]", PayloadTooLarge),
    "many that are wrong": (b"[" + b",".join([b"{}"] * 900_000) + b"]", PayloadTooLarge),
    "many keys": (b'[{"job":"resize","args":{' + KEYS + b"}}]", PayloadTooLarge),
    "a key twice": (
        b"[" + b",".join([ITEM] * 3000) + b',{"job":"resize","args":{"a":1,"a":1}}]',
        PayloadError,
    ),
    "half a character": (
        b'[{"job":"resize","args":{"a":"' + b"\\ud800" * 2_000_000 + b'"}}]', PayloadError,
    ),
    "no end": (b"[" + b",".join([ITEM] * 3000), PayloadError),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
async def test_what_is_too_much_is_refused_soon(name):
    body, refusal = COSTLY[name]
    began = time.process_time()

    with pytest.raises(refusal):
        await read(body)

    assert time.process_time() - began < CPU_SECONDS_MAX


async def read(body: bytes) -> list[Any]:
    return [one async for part in read_items(body) for one in part]


async def test_much_that_is_right_is_read():
    body = b"[" + b",".join([ITEM.replace(b'"a"', rb'"\u003a"')] * 3000) + b"]"

    assert len(body) > 2 * MIB
    assert len(await read(body)) == 3000


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (b'{"job":"resize","colour":1}', "[2500].colour"),
        (b'{"job":"resize","retries":-1}', "[2500].retries"),
        (b"7", "[2500]"),
    ],
)
async def test_a_mistake_in_a_large_body_has_its_place(here, wrong, place):
    items = [ITEM] * 3000
    items[2500] = wrong

    answer = await here.ask("POST", "/api/v1/executions", **raw(f"[{b','.join(items).decode()}]"))

    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["errors"]] == [place]


async def test_a_large_body_of_both_forms_is_enqueued_in_its_order(here):
    items = [ITEM, b'{"job":"resize","priority":"high"}'] * 1500

    answer = await here.ask("POST", "/api/v1/executions", **raw(f"[{b','.join(items).decode()}]"))

    assert (answer.status_code, answer.json()["created"]) == (202, 3000)
    first, *_, last = (one["execution_id"] for one in answer.json()["items"])
    shown = [await here.ask("GET", f"/api/v1/executions/{id}") for id in (first, last)]
    assert [one.json()["priority"] for one in shown] == ["normal", "high"]


async def test_others_go_on_while_a_large_body_is_read():
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await yield_to_loop()

    beside = asyncio.create_task(other())
    await read(b"[" + b",".join([ITEM] * 1000) + b"]")
    beside.cancel()

    assert turns >= 1000 * len(ITEM) / 2**17
