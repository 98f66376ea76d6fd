"""What commands answer to somebody who has mistyped, or meant something else."""

import pytest

from daybell import Client
from tests.builders import dead, finished

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize("verb", ["retry", "discard"])
@pytest.mark.parametrize("words", [["--all", "--job", "x"], [NOBODY, "--queue", "x"]])
def test_ways_to_choose_exclude_each_other(verb, words, command):
    ended = command("dead-letters", verb, *words)

    assert ended.code == 2
    assert ended.err.startswith(
        "error: ids, filters such as --job and --error, and --all exclude each other; give one; see"
    )


async def test_what_cannot_be_discarded_is_told_one_by_one(store, command):
    (letter,) = await dead(store)
    (done,) = await finished(store, job="other")

    ended = command("dead-letters", "discard", NOBODY, str(letter), str(done))
    retried = command("dead-letters", "retry", NOBODY)

    assert (ended.code, ended.out) == (1, "1 discarded\n")
    unknown, succeeded = ended.err.splitlines()
    assert unknown == f"error: no execution {NOBODY}"
    assert succeeded == f"error: execution {done} is not on the dead-letter list; it is succeeded"
    assert retried.err == "error: 1 not: no such execution\n"


async def test_a_prefix_that_no_job_has_is_named(store, command):
    await finished(store)

    assert command("jobs", "list", "--prefix", "zzz").out.startswith(
        "no job's name begins with 'zzz'"
    )
    assert "resize" in command("jobs", "list", "--prefix", "res").out


async def test_lists_take_dates_and_say_what_else_they_take(store, command):
    await finished(store)

    since = command("executions", "list", "--since", "2020-01-31")
    until = command("executions", "list", "--until", "2020-01-31")
    wrong = command("executions", "list", "--since", "yesterday")

    assert "succeeded" in since.out
    assert until.out == "no executions\n"
    assert wrong.code == 2
    assert all(form in wrong.err for form in ("1h", "2026-11-15,", "ISO 8601"))


async def test_force_is_named_as_it_is_typed(store, command):
    (done,) = await finished(store)

    assert "--force" in command("executions", "retry", str(done)).err


async def test_a_queue_that_no_job_uses_can_be_paused_and_is_told(store, command):
    async with Client(store) as client:
        await client.define("mail", queue="mail")
        await client.define("other")
        await client.enqueue("other", queue="elsewhere")

    def said(verb, queue):
        ended = command("queues", verb, queue)
        assert ended.code == 0
        return ended.out

    assert said("pause", "mail") == "queue mail is paused\n"
    assert said("pause", "elsewhere") == "queue elsewhere is paused\n"
    assert said("pause", "nosuch") == "queue nosuch is paused; no job uses that queue yet\n"
    assert said("resume", "nosuch") == "queue nosuch is open; no job uses that queue yet\n"
