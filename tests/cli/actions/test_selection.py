"""`daybell executions cancel` and `retry`, many at once; and ids that are typed in part."""

import json
import re
from collections import Counter
from datetime import datetime
from uuid import UUID

import pytest

from daybell import Client
from daybell.cli.connection import RecordingClient
from daybell.client.retries import RetryOutcome
from daybell.core.execution import Cancellation, State
from daybell.core.ids import mint
from daybell.core.views import Total
from daybell.errors import UsageError
from tests.builders import TENANT, claim, claimed, dead, defined, enqueued, finished, look, states
from tests.cli.in_process import typing
from tests.cli.terminal import Typing, daybell, on_terminal


@pytest.fixture
def command(tmp_path, store):
    """Types a command in that folder."""
    return lambda *words: daybell("executions", *words, folder=tmp_path)


async def test_what_filters_let_through_is_cancelled(store, command):
    mail = await enqueued(store, 3, job="mail", queue="a")
    later = await enqueued(store, 2, job="mail", queue="b", delay=3600.0)
    others = await enqueued(store, 2, job="other", queue="a")

    unasked = command("cancel", "--job", "mail", "--queue", "a")
    by_queue = command("cancel", "--job", "mail", "--queue", "a", "--yes")
    by_status = command("cancel", "--status", "scheduled", "--yes", "--json")
    none = command("cancel", "--job", "mail", "--yes")

    assert (unasked.code, unasked.out) == (2, "")
    assert "cancel 3 executions of mail in queue a?" in unasked.err
    assert (by_queue.code, by_queue.out) == (0, "3 cancelled\n")
    assert json.loads(by_status.out) == {"matched": 2, "cancelled": 2}
    assert (none.code, none.out) == (0, "nothing to cancel: no such executions of mail\n")
    assert set(await states(store, [*mail, *later])) == {State.CANCELLED}
    assert set(await states(store, others)) == {State.QUEUED}


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_a_job_that_never_was_is_not_found_and_a_deleted_one_is(store, command, verb):
    await defined(store, "mail")
    await store.catalog.delete_job(TENANT, "mail")

    misspelt = command(verb, "--job", "mial", "--yes")
    deleted = command(verb, "--job", "mail", "--yes")

    assert (misspelt.code, misspelt.out) == (1, "")
    assert "no job named 'mial'" in misspelt.err
    assert (deleted.code, deleted.out) == (0, f"nothing to {verb}: no such executions of mail\n")


async def test_all_that_has_not_ended_is_cancelled_and_nothing_else(store, command):
    (done,) = await finished(store)
    (letter,) = await dead(store)
    running = (await claimed(store)).one.id
    (waiting,) = await enqueued(store)

    ended = command("cancel", "--all", "--yes")

    assert (ended.code, ended.out) == (0, "1 cancelled\n1 asked to stop\n")
    assert await states(store, [done, letter, waiting, running]) == [
        State.SUCCEEDED,
        State.DEAD,
        State.CANCELLED,
        State.RUNNING,
    ]
    assert (await look(store, running)).cancel_requested_at is not None


async def test_only_what_was_created_in_time_is_meant(store, command):
    await enqueued(store, 2)

    before = command("cancel", "--until", "1h", "--yes")
    after = command("cancel", "--since", "1h", "--yes")

    assert before.out.startswith("nothing to cancel")
    assert after.out == "2 cancelled\n"


async def test_more_than_a_batch_is_cancelled_with_a_bar(store, tmp_path):
    await enqueued(store, 2500)

    ended = on_terminal("executions", "cancel", "--job", "resize", "--yes", folder=tmp_path)

    assert (ended.code, ended.out) == (0, "2,500 cancelled\n")
    assert "2500/2500" in ended.err


async def test_a_person_is_asked_and_may_refuse(store, tmp_path):
    ids = await enqueued(store, 2)

    refused = Typing("executions", "cancel", "--all", folder=tmp_path)
    refused.type("n\n", after="Cancel 2 executions? [y/N]")
    assert refused.end() == 1
    assert set(await states(store, ids)) == {State.QUEUED}

    meant = Typing("executions", "cancel", "--all", folder=tmp_path)
    meant.type("y\n", after="Cancel 2 executions? [y/N]")
    assert meant.end() == 0
    assert set(await states(store, ids)) == {State.CANCELLED}


async def test_dead_ones_are_retried_and_others_only_by_name(store, command):
    letters = await dead(store, 2)
    (discarded,) = await dead(store)
    await store.queue.discard(TENANT, [discarded])
    cancelled = await enqueued(store, 3)
    await store.queue.cancel(TENANT, cancelled)

    unasked = command("retry", "--job", "resize")
    retried = command("retry", "--job", "resize", "--yes")
    again = command("retry", "--status", "cancelled", "--yes", "--json")

    assert "retry 2 dead executions of resize?" in unasked.err
    assert (retried.code, retried.out) == (0, "2 run again\n")
    assert set(await states(store, letters)) == {State.QUEUED}
    assert json.loads(again.out) == {"matched": 3, "renewed": 3}
    assert set(await states(store, cancelled)) == {State.CANCELLED}
    assert len((await claim(store)).executions) == 5


async def test_succeeded_ones_are_retried_by_force(store, command):
    await finished(store, 2)
    words = ["retry", "--status", "succeeded", "--yes"]

    refused, forced = command(*words), command(*words, "--force")

    assert refused.code == 2
    assert "what is succeeded cannot be retried" in refused.err
    assert (forced.code, forced.out) == (0, "2 run again as new executions\n")
    assert len((await claim(store)).executions) == 2


async def test_what_cannot_run_again_is_counted_and_stops_no_other(store, command):
    await defined(store)
    letters = await dead(store, job="kept")
    async with Client(store) as client:
        held = await client.enqueue("resize", unique_key="j")
        await client.cancel(held.id)
        await client.enqueue("resize", unique_key="j")
        gone = await enqueued(store, 2, job="gone")
        await store.queue.cancel(TENANT, gone)
        await store.catalog.delete_job(TENANT, "gone")
        fine = await enqueued(store, 1, job="fine")
        await store.queue.cancel(TENANT, fine)
        steps = []

        answers = await client.retry_many(status=["cancelled", "dead"], on_step=steps.append)

    assert answers == {
        RetryOutcome.REVIVED: 1,
        RetryOutcome.RENEWED: 1,
        RetryOutcome.KEY_HELD: 1,
        RetryOutcome.REFUSED: 2,
    }
    assert sum(steps) == 5
    assert await states(store, letters) == [State.QUEUED]


async def test_a_client_refuses_what_makes_no_sense(store):
    await finished(store)
    async with Client(store) as client:
        with pytest.raises(UsageError, match="what is dead or succeeded has ended"):
            await client.cancel_many(status=["succeeded", "dead"])
        with pytest.raises(UsageError, match="what is running cannot be retried"):
            await client.count_retryable(status="running", force=True)
        assert await client.cancel_many() == {}
        assert await client.cancel_many(status="pending") == {}


async def test_a_client_answers_how_cancelling_went(store):
    await claimed(store)
    await enqueued(store, 2)

    async with Client(store) as client:
        assert await client.count_cancellable() == 3
        answers = await client.cancel_many()

    assert answers == {Cancellation.CANCELLED: 2, Cancellation.REQUESTED: 1}


async def test_ids_may_be_several_and_are_answered_in_numbers(store, command):
    one, two = await enqueued(store, 2)

    ended = command("cancel", str(one), str(two), str(mint()), "--json")

    assert ended.code == 1
    answer = json.loads(ended.out)
    assert (answer["matched"], answer["cancelled"], len(answer["errors"])) == (3, 2, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["cancel"],
        ["retry"],
        ["cancel", "--all", "--job", "x"],
        ["cancel", str(UUID(int=1)), "--queue", "x"],
        ["retry", str(UUID(int=1)), "--all"],
        ["cancel", "--status", "succeeded", "--yes"],
        ["retry", "--status", "lost", "--yes"],
        ["cancel", "--since", "yesterday", "--yes"],
    ],
)
def test_what_is_meant_is_said_in_one_way(words, command):
    ended = command(*words)

    assert ended.code == 2, ended
    assert "Traceback" not in ended.err


async def test_a_part_of_an_id_is_enough_if_only_one_fits(store, command):
    ids = [
        UUID("01a1e074-1e02-7b87-ae9e-6ec860fb4d7d"),
        UUID("01a1e074-1e02-7b87-ae9e-6ec861000000"),
        UUID("01a1e075-1e02-7b87-ae9e-6ec860abcdef"),
    ]
    for id in ids:
        await enqueued(store, id=id)

    def shown(text):
        ended = command("show", text, "--json")
        return json.loads(ended.out)["execution_id"] if ended.code == 0 else ended

    assert shown("fb4d7d") == shown("60FB4D7D") == str(ids[0])
    assert shown("01a1e075") == str(ids[2])
    assert shown(str(ids[1]).replace("-", "")) == str(ids[1])
    several = shown("01a1e0")
    assert several.code == 2
    assert all(str(id) in several.err for id in ids)
    unknown = shown("ffffff")
    assert (unknown.code, "newest executions has an id" in unknown.err) == (1, True)
    for wrong in ("abcde", "resize", "x" * 40):
        ended = shown(wrong)
        assert ended.code == 2
        assert f"'{wrong}' is not an execution id (a UUID such as 01a1e074-" in ended.err


async def test_parts_of_ids_work_wherever_an_execution_is_named(store, command):
    one, two, three = map(str, await enqueued(store, 3))

    assert command("cancel", one[-8:], two[-8:]).out == f"{one} is cancelled\n{two} is cancelled\n"
    assert command("retry", one[-8:]).out.startswith(f"{one} runs again as ")
    assert command("wait", two[-8:]).code == 1
    assert three in command("logs", three[-8:]).err


async def test_a_list_and_a_look_tell_how_long_it_took(store, command):
    (done,) = await finished(store)
    (waiting,) = await enqueued(store)

    listed = command("list").out.splitlines()
    looked = command("show", str(done)).out

    assert "took" in listed[0].split()
    (row,) = [line for line in listed if line.startswith(str(done))]
    assert "1.0 s" in row
    (row,) = [line for line in listed if line.startswith(str(waiting))]
    assert "1.0 s" not in row
    assert "took       1.0 s" in looked
    assert re.search(r"^finished   \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z$", looked, re.M)


@pytest.mark.parametrize(
    ("words", "count", "action"),
    [
        (("executions", "cancel"), "count_cancellable", "cancel_many"),
        (("executions", "retry"), "count_retryable", "retry_many"),
        (("dead-letters", "retry"), "count_dead_letters", "retry_dead_letters"),
        (("dead-letters", "discard"), "count_dead_letters", "discard_dead_letters"),
    ],
)
def test_lengths_of_time_are_read_once_for_the_count_and_the_action(
    monkeypatch, capsys, tmp_path, words, count, action
):
    asked = []

    async def counted(self, **filters):
        asked.append(filters)
        return Total(1)

    async def acted(self, *args, **filters):
        asked.append(filters)
        return (1, 0) if action == "discard_dead_letters" else Counter()

    monkeypatch.setattr(RecordingClient, count, counted)
    monkeypatch.setattr(RecordingClient, action, acted)
    typed = typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=f"sqlite:///{tmp_path}/daybell.db")
    assert typed("migrate").code == 0
    lengths = {"since": "4h", "until": "4s", "ended_since": "3h ago", "ended_until": "1h"}
    bounds = [word for n, text in lengths.items() for word in (f"--{n.replace('_', '-')}", text)]

    said = typed(*words, *bounds, "--yes")

    assert said.code == 0, said.err
    first, second = ({name: one[name] for name in lengths} for one in asked)
    assert first == second
    assert all(datetime.fromisoformat(at).tzinfo for at in first.values())
