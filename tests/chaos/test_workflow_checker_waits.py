"""The checker reports errors of durable functions that waited for events."""

from __future__ import annotations

import json

import pytest

from daybell.chaos.checker import RULES, History, check_history
from daybell.chaos.load import TURNS, SentEvent, send_event
from daybell.chaos.tasks import END, EVENT, STEPS, durable_waiting
from daybell.chaos.workflow_checker import FLOW_RULES, WAIT_RULES, count_events
from daybell.client import Client
from daybell.core.event import Step, StepKind
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.engine.loop import SystemClock
from daybell.errors import Unavailable
from tests.chaos.histories import ID, a_history, an_execution, line

TOKENS = ["1-0", "1-1", "1-2"]


def sends(*, answered: int = TURNS, **fields) -> list[SentEvent]:
    return [
        SentEvent(
            execution=ID, number=1, turn=n, answered_at=2.0 if n < answered else None, **fields
        )
        for n in range(TURNS)
    ]


def a_wait(n: int, token: str | None, **fields) -> Step:
    event = None if token is None else json.dumps({"data": {"note": token}})
    known = {"n": n, "name": EVENT, "kind": StepKind.WAIT, "result": event, "started_at": 1.0}
    return Step(**(known | fields))


def a_story(*taken: str | None, told: list[str] = TOKENS, **parts) -> History:
    """Return a function with three events: those that ended a wait, in order."""
    result = json.dumps({"weight": 1, "attempts": [1] * TURNS, "tokens": told})
    done = [
        Step(n=2 * n, name=name, kind=StepKind.STEP, result="1", started_at=0.0)
        for n, name in enumerate(STEPS)
    ]
    waits = [a_wait(2 * n + 1, token, started_at=n + 1.5) for n, token in enumerate(taken)]
    known = {
        "executions": {ID: an_execution(job=durable_waiting.name, result=result)},
        "effects": [
            line("start", 0.5),
            *(line("step", 0.6 + n / 10, number=n) for n in range(TURNS)),
            line(END, 5.0),
        ],
        "steps": {ID: [*done, *waits]},
        "sends": sends(),
    }
    return a_history(**(known | parts))


SWAPPED = ["1-1", "1-0", "1-2"]
WAITING = an_execution(job=durable_waiting.name, state=State.WAITING)
GOOD = {
    "all events": a_story(*TOKENS),
    "in another order": a_story(*SWAPPED, told=SWAPPED),
    "one whose answer was lost": a_story(*TOKENS, sends=sends(answered=2)),
}
BAD = {
    "event lost": [
        a_story(*TOKENS[:2]),
        a_story("1-0", "1-0", "1-2"),
        a_story(*TOKENS[:1], executions={ID: WAITING}),
        a_story(*TOKENS, sends=sends(is_refused=True)),
        a_story(*TOKENS, steps={}, executions={}),
    ],
    "event taken twice": [a_story("1-0", "1-0", "1-2")],
    "event of another": [a_story("1-0", "2-1", "1-2"), a_story("1-0", None, "1-2")],
    "event told otherwise": [
        a_story(*TOKENS, told=SWAPPED),
        a_story(*TOKENS[:2], told=TOKENS[:2]),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_what_went_as_promised_is_no_violation(history):
    assert check_history(history, (*RULES, *FLOW_RULES, *WAIT_RULES)) == []


@pytest.mark.parametrize(
    ("rule", "history"), [(rule, history) for rule, many in BAD.items() for history in many]
)
def test_the_checker_notices_of_events(rule, history):
    assert rule in {violation.rule for violation in check_history(history, WAIT_RULES)}


def test_every_rule_about_events_is_shown_something_bad():
    assert {rule.__name__.strip("_").replace("_", " ") for rule in WAIT_RULES} == set(BAD)


def test_what_waits_for_ever_is_noticed():
    found = check_history(a_story(*TOKENS[:1], executions={ID: WAITING}))

    assert [one.rule for one in found] == ["lost"]


def test_events_are_counted_and_those_that_came_before_their_wait():
    seen = count_events(a_story(*TOKENS, sends=sends(answered=2)))

    # Waits begin at 1.5, 2.5, …; both answers came at 2.0.
    assert (seen.asked, seen.acknowledged, seen.taken, seen.early) == (3, 2, 3, 1)


class Losing(Client):
    """Keeps the requests, and loses the answers to the first tries."""

    losses = 2

    async def send(self, event, *, is_own=False):
        answer = await super().send(event, is_own=is_own)
        self.losses -= 1
        if self.losses >= 0:
            raise Unavailable("the answer is lost")
        return answer


class Hasty(SystemClock):
    async def sleep(self, seconds):
        pass


async def test_an_event_is_sent_until_that_is_answered_and_is_the_same_each_time():
    async with Losing("memory://") as client:
        one = SentEvent(execution=mint(), number=1, turn=0)
        await send_event(client, one, after=0.0, clock=Hasty())
        (event,) = (await client.events()).items

        assert one.answered_at is not None
        assert event.data == {"number": 1, "note": "1-0"}
