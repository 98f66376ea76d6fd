"""Events, signals and decisions at the terminal, and the steps of executions."""

import json

import pytest

from daybell import Client
from daybell.cli.actions.executions import _report_published
from daybell.core.event import Published
from daybell.core.ids import mint
from daybell.core.lifecycle import after_wait
from tests.builders import a_step, apply, claim
from tests.cli.terminal import daybell


@pytest.fixture
async def waiting(tmp_path):
    """The id of an execution that waits for an event and for a decision."""
    async with Client(f"sqlite:///{tmp_path}/daybell.db", migrate=True) as client:
        await client.define("resize")
        made = await client.enqueue("resize")
        hands = await claim(client.store)
        (one,) = hands.executions
        event = "daybell.approval.approval"
        steps = [
            a_step(one, 1, result='{"cents":12}'),
            a_step(one, 2, name="go", event="go", match='{"n":1}', timeout=60.0),
            a_step(one, 3, name=event, event=event),
        ]
        await client.store.runs.record(client.tenant, worker=hands.worker, steps=steps)
        await apply(client.store, hands, after_wait(one, ran=0.0))
        return str(made.id)


def test_what_waits_is_shown_told_and_goes_on(waiting, tmp_path):
    def said(*words):
        ended = daybell(*words, folder=tmp_path)
        assert ended.code == 0, ended.err
        return ended.out

    why = said("executions", "why", waiting)
    first = said("events", "publish", "go", "--data", '{"n": 1}', "--source", "s", "--id", "1")
    signalled = said("executions", "signal", waiting[-8:], "later")
    decided = said("executions", "approve", waiting[-8:], "--reject", "--note", "no")
    events = json.loads(said("events", "list", "--json"))["items"]
    shown = said("executions", "show", waiting)

    assert "it waits for event 'go' (until " in why and "and approval 'approval'" in why
    assert f"approve {waiting}`" in why
    assert "  approval  " in shown and "daybell.approval" not in shown
    assert first == decided == "1 execution went on\n"
    assert signalled == "on record; nothing waits for it yet\n"
    assert [one["type"] for one in events] == ["daybell.approval.approval", "later", "go"]
    assert events[0]["data"]["approved"] is False and events[0]["data"]["by"].startswith("cli ")
    assert all(word in shown for word in ("charge", '{"cents":12}', "queued", '{"n":1}'))


def test_what_is_passed_on_to_a_node_is_told_with_its_id(capsys):
    id = mint()

    _report_published(Published(True, 1, execution=id, node="ask"), as_json=False)
    _report_published(Published(True, 1, execution=id, node="ask"), as_json=True)

    words, _, told = capsys.readouterr().out.partition("{")
    assert words == (
        f"passed on to its node ask ({id}), which waited for it\n1 execution went on\n"
    )
    assert json.loads("{" + told)["execution_id"] == str(id)


def test_who_decides_on_what_has_ended_is_told_so(waiting, tmp_path):
    assert daybell("executions", "cancel", waiting, folder=tmp_path).code == 0

    for words in (["signal", waiting, "go"], ["approve", waiting]):
        ended = daybell("executions", *words, folder=tmp_path)

        assert ended.code == 1
        assert "has ended (cancelled), and waits for nothing" in ended.err
    assert json.loads(daybell("events", "list", "--json", folder=tmp_path).out)["items"] == []


def test_what_is_no_json_is_refused(tmp_path):
    ended = daybell("events", "publish", "go", "--data", "{", folder=tmp_path)

    assert ended.code == 2 and "--data is not JSON" in ended.err
