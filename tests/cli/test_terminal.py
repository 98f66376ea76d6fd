"""What a person is asked, and what becomes of the answer."""

import pytest

from daybell import Client
from tests.builders import TENANT, dead, enqueued, states
from tests.cli.terminal import Typing

DISCARD = ["dead-letters", "discard", "--all"]
PURGE = ["queues", "purge", "default"]


@pytest.mark.parametrize(
    ("key", "code"), [("\x03", 130), ("\x04", 1), ("n\n", 1)], ids=["ctrl-c", "ctrl-d", "no"]
)
@pytest.mark.parametrize("words", [DISCARD, PURGE], ids=["discard", "purge"])
async def test_anything_but_yes_does_nothing(words, key, code, store, tmp_path):
    await dead(store, 2)
    waiting = await enqueued(store, 2)

    command = Typing(*words, folder=tmp_path)
    command.insist(key, after="[y/N]:")

    assert command.end() == code
    assert "nothing was done" in command.shown
    assert "Traceback" not in command.shown
    assert set(await states(store, waiting)) == {"queued"}
    assert await letters(store) == 2


async def test_yes_does_it(store, tmp_path):
    await dead(store, 2)

    command = Typing(*DISCARD, folder=tmp_path)
    command.type("y\n", after="Discard 2 dead letters? [y/N]:")

    assert command.end() == 0
    assert await letters(store) == 0


async def letters(store):
    async with Client(store, tenant=TENANT) as client:
        return await client.count_dead_letters()
