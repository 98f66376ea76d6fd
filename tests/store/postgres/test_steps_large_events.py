"""Many waits for the same large events."""

from typing import Any, cast

import msgspec

from daybell.store.postgres import steps
from tests.builders import TENANT, a_step, an_event, claimed


class Reader:
    """A connection that counts the rows which it reads."""

    def __init__(self, link, seen):
        self.link = link
        self.seen = seen

    async def fetch(self, query, *args):
        rows = await self.link.fetch(query, *args)
        self.seen += rows
        return rows


async def test_each_event_is_read_once_for_all_who_want_it(store, clock, monkeypatch):
    hands = await claimed(store, 30)
    for size in range(3):
        await store.publish(TENANT, an_event(data=f'{{"size": {size}}}'))
    choose, seen = steps._choose, []
    written, put = [], steps._put_steps

    async def counted(tx, choices, found):
        return await choose(cast("Any", Reader(tx, seen)), choices, found)

    async def noted(tx, owner, some, events):
        written.append(len(some))
        await put(tx, owner, some, events)

    monkeypatch.setattr(steps, "_choose", counted)
    monkeypatch.setattr(steps, "_put_steps", noted)
    monkeypatch.setattr(steps, "PART_CHARS_MAX", 2_000)
    waits = [a_step(one, event="paid", match='{"size": 1}') for one in hands.executions[:15]]
    waits += [a_step(one, event="paid") for one in hands.executions[15:]]

    made = await store.record(TENANT, worker=hands.worker, steps=waits)

    sizes = [msgspec.json.decode(step.result)["data"]["size"] for step in made]
    assert sizes == [1] * 15 + [0] * 15
    assert len(seen) == 2  # and not one for each wait
    assert sum(written) == 30 and max(written) < 20
