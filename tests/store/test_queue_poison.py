"""Rows that cannot be kept: they are refused, and their neighbours are not hurt."""

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.lifecycle import Ruling, after_release
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.views import ExecutionFilter
from daybell.errors import UsageError
from tests.builders import (
    TENANT,
    a_move,
    a_report,
    an_execution,
    apply,
    claimed,
    death,
    defined,
    look,
    retry,
    states,
    success,
)
from tests.sweeps import set_gates

SURROGATE = '"\ud800"'
NUL = '"\0"'

BAD_MOVES = {
    "result with half a pair": lambda one: success(one, result=SURROGATE),
    "result with NUL": lambda one: success(one, result=NUL),
    "result too large": lambda one: success(one, result='"' + "x" * RESULT_BYTES_MAX + '"'),
    "error with half a pair": lambda one: death(one, error=SURROGATE),
    "error with NUL": lambda one: retry(one, error=NUL),
    "reason with half a pair": lambda one: death(one, reason=SURROGATE),
    "checkpoint with half a pair": lambda one: retry(one, checkpoint=SURROGATE),
    "checkpoint with NUL": lambda one: retry(one, checkpoint=NUL),
    "delay that is no number": lambda one: retry(one, delay=float("nan")),
    "delay without end": lambda one: retry(one, delay=float("inf")),
    "moment that is no number": lambda one: retry(one, at=float("nan")),
    "failures beyond counting": lambda one: retry(one, failures=2**40),
    "move to where it is": lambda one: a_move(one, State.RUNNING, Outcome.RELEASED),
}


@pytest.mark.parametrize("bad", BAD_MOVES.values(), ids=BAD_MOVES)
async def test_one_bad_move_does_not_hurt_its_neighbours(store, bad):
    hands = await claimed(store, 5)
    moves = [success(one) for one in hands.executions]
    poisoned = hands.executions[2]
    moves[2] = bad(poisoned)

    (verdict,) = await apply(store, hands, *moves)

    assert (verdict.id, verdict.attempt) == (poisoned.id, 1)
    assert verdict.ruling is Ruling.REFUSED
    assert verdict.detail
    assert await states(store, [one.id for one in hands.executions]) == [
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.RUNNING,
        State.SUCCEEDED,
        State.SUCCEEDED,
    ]


async def test_several_bad_moves_are_all_named(store):
    hands = await claimed(store, 6)
    moves = [success(one) for one in hands.executions]
    for n in (0, 3, 5):
        moves[n] = success(hands.executions[n], result=SURROGATE)

    verdicts = await apply(store, hands, *moves)

    bad = {hands.executions[n].id for n in (0, 3, 5)}
    assert {verdict.id for verdict in verdicts} == bad
    assert {verdict.ruling for verdict in verdicts} == {Ruling.REFUSED}


async def test_a_refused_execution_can_be_ended_in_another_way(store):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one, result=SURROGATE))
    before = await look(store, hands.one.id)
    assert before.state is State.RUNNING

    assert await apply(store, hands, death(hands.one, error='"cannot be kept"')) == []

    detail = await store.catalog.get_execution(TENANT, hands.one.id)
    assert (detail.execution.state, detail.execution.attempt) == (State.DEAD, 1)
    assert len(detail.attempts) == 1


async def test_bad_and_stale_moves_are_told_apart(store):
    hands = await claimed(store, 3)
    stale, bad, good = hands.executions
    await apply(store, hands, after_release(stale))

    verdicts = await apply(
        store, hands, success(stale), success(bad, result=SURROGATE), success(good)
    )

    assert {verdict.id: verdict.ruling for verdict in verdicts} == {
        stale.id: Ruling.STALE,
        bad.id: Ruling.REFUSED,
    }
    assert await states(store, [good.id]) == [State.SUCCEEDED]


async def test_a_bad_move_in_a_batch_with_gates_keys_and_cancelling(store):
    await set_gates(store, TENANT, {"g": 3})
    hands = await claimed(store, 3, gate="g")
    cancelled, bad, good = hands.executions
    await store.queue.cancel(TENANT, [cancelled.id])

    verdicts = await apply(
        store, hands, success(cancelled), success(bad, result=SURROGATE), success(good)
    )

    assert {verdict.id: verdict.ruling for verdict in verdicts} == {
        cancelled.id: Ruling.CANCELLED,
        bad.id: Ruling.REFUSED,
    }
    assert await states(store, [good.id, bad.id]) == [State.SUCCEEDED, State.RUNNING]


async def test_a_bad_row_keeps_its_whole_enqueue_out_and_the_rest_can_be_sent(store):
    await defined(store)
    good = [an_execution() for _ in range(3)]
    bad = an_execution(args=SURROGATE)

    with pytest.raises(UsageError, match=r"executions\[3\]"):
        await store.queue.enqueue(TENANT, [*good, bad])
    assert await store.catalog.count_executions(TENANT, ExecutionFilter()) == {}

    answers = await store.queue.enqueue(TENANT, good)
    assert [answer.created for answer in answers] == [True] * 3


async def test_escaped_surrogates_and_nul_in_json_text_are_kept(store):
    text = '{"a": "\\ud800 \\u0000"}'
    hands = await claimed(store, args=text)
    assert hands.one.args == text

    await apply(store, hands, success(hands.one, result=text))

    assert (await look(store, hands.one.id)).result == text


async def test_a_report_that_cannot_be_kept_is_refused(store):
    hands = await claimed(store)

    with pytest.raises(UsageError):
        await store.queue.report(
            TENANT, worker=hands.worker, reports=[a_report(hands.one, note=SURROGATE)]
        )

    assert (await look(store, hands.one.id)).note is None


@pytest.mark.parametrize("text", ["\ud800", "\0", "'", '"; DROP TABLE live; --', "%", "\\"])
async def test_odd_texts_in_filters_and_names_find_nothing_and_break_nothing(store, text):
    await claimed(store)
    where = ExecutionFilter(job=text, queue=text)

    try:
        page = await store.catalog.list_executions(TENANT, where)
    except UsageError:
        pass
    else:
        assert page.items == ()
    assert len((await store.catalog.list_executions(TENANT, ExecutionFilter())).items) == 1
