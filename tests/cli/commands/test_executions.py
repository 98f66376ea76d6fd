"""Listing, showing and changing what is in a store: jobs, executions, dead letters and the rest."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from daybell import Client
from daybell.core.execution import Revival, State
from daybell.core.ids import mint
from daybell.core.limits import COUNT_ITEMS_MAX, SCAN_ITEMS_MAX
from tests.builders import TENANT, a_worker, dead, enqueued, finished, registered
from tests.cli.terminal import as_json, daybell, on_terminal

NASTY = "\x1b[2J\u202egnp.exe\x9b31m\x7f"


LISTS = [
    ("jobs", "no jobs"),
    ("executions", "no executions"),
    ("dead-letters", "no dead letters"),
    ("workers", "no workers"),
    ("queues", "no queues"),
]


@pytest.mark.parametrize(("group", "empty"), LISTS)
def test_an_empty_list_says_so(group, empty, command):
    plain, listed = command(group, "list"), command(group, "list", "--json")

    assert plain.code == 0
    assert plain.out.startswith(empty)
    assert as_json(listed) == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("group", [group for group, _ in LISTS])
def test_a_store_that_is_not_there_is_one_line(group, tmp_path):
    ended = daybell(group, "list", folder=tmp_path)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


async def test_every_list_is_plain_json(store, command):
    (done,) = await finished(store)
    (letter,) = await dead(store)
    worker = await registered(store)

    jobs = as_json(command("jobs", "list", "--json"))["items"]
    executions = as_json(command("executions", "list", "--json"))["items"]
    letters = as_json(command("dead-letters", "list", "--json"))["items"]
    workers = as_json(command("workers", "list", "--json"))["items"]
    queues = as_json(command("queues", "list", "--json"))["items"]

    assert [(job["name"], job["version"], job["priority"]) for job in jobs] == [
        ("resize", 1, "normal")
    ]
    assert {one["execution_id"]: one["status"] for one in executions} == {
        str(done): "succeeded",
        str(letter): "dead",
    }
    moment = datetime.fromisoformat(executions[0]["finished_at"])
    assert moment.utcoffset() == timedelta(0)
    assert [one["execution_id"] for one in letters] == [str(letter)]
    assert letters[0]["error"] == {"type": "ValueError"}
    assert str(worker) in [one["worker_id"] for one in workers]
    assert all(type(one["running"]) is int for one in workers)
    assert [(queue["name"], queue["is_paused"]) for queue in queues] == [("default", False)]


async def test_executions_are_filtered_and_paged(store, command):
    await enqueued(store, 3)
    (done,) = await finished(store, job="other", queue="mail")

    def ids(*words):
        page = as_json(command("executions", "list", "--json", *words))
        return [one["execution_id"] for one in page["items"]], page["next_cursor"]

    first, cursor = ids("--limit", "2")
    second, end = ids("--limit", "2", "--cursor", cursor)

    assert len({*first, *second}) == 4
    assert end is None
    assert ids("--status", "succeeded") == ([str(done)], None)
    assert ids("--job", "other") == ids("--queue", "mail") == ([str(done)], None)
    assert len(ids("--status", "pending", "--status", "succeeded")[0]) == 4
    assert len(ids("--since", "1h")[0]) == 4
    assert len(ids("--until", "1h")[0]) == 0
    assert len(ids("--since", "2020-01-01T00:00:00+00:00")[0]) == 4
    assert f"--cursor {first[-1]}" in command("executions", "list", "--limit", "2").out


async def test_why_an_execution_has_not_run_is_said(store, command):
    (id,) = await enqueued(store)

    plain = command("executions", "why", str(id))
    told = as_json(command("executions", "why", str(id)[-8:], "--json"))

    assert "no live worker takes queue" in plain.out
    assert "to start a worker with their app: daybell worker APP" in plain.out
    assert (told["code"], told["status"]) == ("no_worker", "queued")
    assert command("executions", "why", str(mint())).code == 1


async def test_an_execution_is_shown_with_its_attempts(store, command):
    (letter,) = await dead(store)

    plain = command("executions", "show", str(letter))
    shown = as_json(command("executions", "show", str(letter), "--json"))

    assert plain.code == 0
    assert "retries_used_up" in plain.out
    assert "ValueError" in plain.out
    assert [(one["attempt"], one["outcome"]) for one in shown["attempts"]] == [(1, "failed")]


async def test_nothing_in_the_data_reaches_the_terminal_as_it_is(store, command):
    async with Client(store) as client:
        await client.define("mail", description=NASTY)
        answer = await client.enqueue("mail", {"subject": NASTY}, unique_key=NASTY)

    outputs = [
        command("jobs", "list").out,
        command("jobs", "show", "mail").out,
        command("executions", "show", str(answer.id)).out,
        command("executions", "show", str(answer.id), "--json").out,
        command("jobs", "list", "--json").out,
    ]

    for out in outputs:
        assert all(one.isprintable() or one == "\n" for one in out)
    assert json.loads(outputs[3])["args"] == {"subject": NASTY}
    assert json.loads(outputs[4])["items"][0]["description"] == NASTY


async def test_a_job_is_triggered_with_options(store, command):
    async with Client(store) as client:
        await client.define("mail")

    words = ["--args", '{"to": "ada"}', "--delay", "1h", "--priority", "high", "--queue", "slow",
             "--unique-key", "ada"]  # fmt: skip
    first = as_json(command("jobs", "trigger", "mail", *words, "--json"))
    again = command("jobs", "trigger", "mail", *words)
    shown = as_json(command("executions", "show", first["execution_id"], "--json"))

    assert (first["status"], first["created"]) == ("scheduled", True)
    assert "nothing was added" in again.out
    assert (shown["args"], shown["priority"], shown["queue"]) == ({"to": "ada"}, "high", "slow")


async def test_executions_are_cancelled_and_retried(store, command):
    one, two = map(str, await enqueued(store, 2))
    (done,) = map(str, await finished(store, job="other", queue="q"))

    cancelled = command("executions", "cancel", one, two)
    again = command("executions", "cancel", one, done)
    retried = command("executions", "retry", one, done)
    forced = command("executions", "retry", done, "--force")

    assert cancelled == (0, f"{one} is cancelled\n{two} is cancelled\n", "")
    assert (again.code, again.out) == (1, "")
    assert again.err.count("has ended already") == 2
    assert retried.code == 1
    assert f"{one} runs again as" in retried.out
    assert "force" in retried.err
    assert forced.code == 0


async def test_waiting_tells_how_it_ended(store, command):
    (done,) = await finished(store)
    (letter,) = await dead(store)
    (pending,) = await enqueued(store)

    assert command("executions", "wait", str(done)).code == 0
    assert command("executions", "wait", str(letter)).code == 1
    late = command("executions", "wait", str(pending), "--timeout", "50ms")
    assert late.code == 1
    assert "is still queued after 0.05 s" in late.err


async def test_a_queue_that_nobody_takes_is_told_at_once(store, command):
    async with Client(store) as client:
        await client.define("mail", queue="mail")
    taken, others = a_worker(queues=("mail", "default")), a_worker(queues=("default",))
    await store.queue.register(TENANT, others, lease=30)
    words = ["jobs", "trigger", "mail", "--wait", "--timeout", "50ms"]

    nobody = command(*words)
    await store.queue.register(TENANT, taken, lease=30)
    somebody = command(*words)
    await store.queue.drain(TENANT, taken.id)
    draining = command(*words)

    assert "no live worker takes queue 'mail'" in nobody.err
    assert "no live worker" not in somebody.err
    assert "all workers of queue 'mail' are draining; start another" in draining.err
    assert all("is queued; waiting" in one.err for one in (nobody, somebody, draining))


async def test_a_killed_worker_takes_nothing(store, command):
    await enqueued(store)
    gone = a_worker(queues=("default",))
    await store.queue.register(TENANT, gone, lease=0.001)  # and nobody looks after it

    ended = command("jobs", "trigger", "resize", "--wait", "--timeout", "50ms")

    assert "no live worker takes queue 'default'" in ended.err


async def test_dead_letters_are_retried_and_discarded_in_bulk(store, command):
    await dead(store, 3, job="one")
    await dead(store, 2, job="two")
    (letter,) = await dead(store, 1, job="three")

    unasked = command("dead-letters", "retry", "--all")
    by_job = command("dead-letters", "retry", "--job", "one", "--yes")
    by_id = command("dead-letters", "discard", str(letter))
    again = command("dead-letters", "discard", str(letter))
    rest = command("dead-letters", "discard", "--all", "--yes")
    nothing = command("dead-letters", "retry", "--all")

    assert (unasked.code, unasked.out) == (2, "")
    assert "retry 6 dead letters?" in unasked.err
    assert (by_job.code, by_job.out) == (0, "3 run again\n")
    assert (by_id.code, by_id.out) == (0, "1 discarded\n")
    assert (again.code, again.out) == (1, "0 discarded\n")
    assert (rest.code, rest.out) == (0, "2 discarded\n")
    assert (nothing.code, nothing.out) == (0, "no dead letters\n")


async def test_dead_letters_of_a_queue_are_retried_and_discarded(store, command):
    await dead(store, 3, job="one", queue="mail")
    await dead(store, 2, job="two", queue="mail")
    await dead(store, 1, job="three", queue="slow")

    unasked = command("dead-letters", "discard", "--queue", "mail")
    both = command("dead-letters", "retry", "--queue", "mail", "--job", "two", "--yes")
    rest = command("dead-letters", "discard", "--queue", "mail", "--yes")
    none = command("dead-letters", "retry", "--queue", "mail", "--yes")

    assert "discard 5 dead letters in queue mail?" in unasked.err
    assert (both.code, both.out) == (0, "2 run again\n")
    assert (rest.code, rest.out) == (0, "3 discarded\n")
    assert (none.code, none.out) == (0, "no dead letters in queue mail\n")
    assert len(as_json(command("dead-letters", "list", "--json"))["items"]) == 1


async def test_a_client_decides_on_dead_letters_in_bulk(store):
    one, two = await dead(store, 2)
    steps = []

    async with Client(store) as client:
        nothing = await client.retry_dead_letters([])
        revived = await client.retry_dead_letters([one, str(one), mint()])
        answer = await client.discard_dead_letters(on_step=steps.append)
        again = await client.discard_dead_letters([two])
        left = await client.count_dead_letters()

    assert nothing == {}
    assert revived == {Revival.REVIVED: 1, Revival.NOT_LISTED: 1, Revival.UNKNOWN: 1}
    assert (answer, steps) == ((1, 0), [1])
    assert (again, left) == ((0, 1), 0)


async def test_a_job_is_triggered_for_a_time(store, command):
    async with Client(store) as client:
        await client.define("mail")

    words = ["jobs", "trigger", "mail", "--at", "2999-12-31T23:00:00+01:00"]
    first = as_json(command(*words, "--json"))
    shown = as_json(command("executions", "show", first["execution_id"], "--json"))

    assert first["status"] == "scheduled"
    assert datetime.fromisoformat(shown["run_at"]) == datetime(2999, 12, 31, 22, tzinfo=UTC)
    assert command(*words, "--delay", "1h").code == 2


async def test_a_terminal_shows_that_something_goes_on(store, command, tmp_path):
    (pending,) = map(str, await enqueued(store))
    waiting = ["executions", "wait", pending, "--timeout", "300ms"]

    seen = on_terminal(*waiting, folder=tmp_path)
    as_json = on_terminal(*waiting, "--json", folder=tmp_path)
    piped = command(*waiting)
    purged = on_terminal("queues", "purge", "default", "--yes", folder=tmp_path)

    assert f"{pending} is queued" in seen.err
    assert "\r" in seen.err
    late = f"error: execution {pending} is still queued after 0.3 s; it goes on"
    nobody = (
        "no live worker takes queue 'default'; start one with their app: `daybell worker APP`"
        f", in sqlite:///daybell.db in {tmp_path}"
    )
    hint, problem = as_json.err.splitlines()
    assert (hint, f"error: {json.loads(problem)['detail']}") == (nobody, late)
    assert piped.err.splitlines() == [f"{pending} is queued; waiting", nobody, late]
    assert "1/1" in purged.err
    assert purged.out == "1 execution cancelled\n"


async def test_queues_are_paused_resumed_and_purged(store, command):
    await enqueued(store, 2)

    paused = command("queues", "pause", "default")
    is_paused = as_json(command("queues", "list", "--json"))["items"][0]["is_paused"]
    resumed = command("queues", "resume", "default")
    unasked = command("queues", "purge", "default")
    purged = command("queues", "purge", "default", "--yes")
    empty = command("queues", "purge", "default")

    assert (paused.out, resumed.out) == ("queue default is paused\n", "queue default is open\n")
    assert is_paused
    assert unasked.code == 2
    assert purged.out == "2 executions cancelled\n"
    assert empty.out == "nothing waits in queue default\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["jobs", "show", "nothing"], 1),
        (["jobs", "trigger", "nothing"], 1),
        (["jobs", "trigger", "nothing", "--args", "{"], 2),
        (["jobs", "trigger", "nothing", "--args", "[1]"], 2),
        (["jobs", "trigger", "nothing", "--delay", "soon"], 2),
        (["jobs", "trigger", "nothing", "--at", "noon"], 2),
        (["jobs", "trigger", "nothing", "--at", "2030-01-01T00:00:00"], 2),
        (["jobs", "trigger", "nothing", "--timeout", "5s"], 2),
        (["jobs", "trigger", "nothing", "--priority", "urgent"], 2),
        (["jobs", "list", "--limit", "0"], 2),
        (["jobs", "list", "--tenant", "nobody"], 1),
        (["executions", "list", "--status", "lost"], 2),
        (["executions", "list", "--since", "yesterday"], 2),
        (["executions", "list", "--cursor", "x"], 2),
        (["executions", "show", "x"], 2),
        (["executions", "show", "01890a5d-ac96-774b-bcce-b302099a8057"], 1),
        (["executions", "cancel"], 2),
        (["executions", "cancel", "x"], 2),
        (["executions", "wait", "x"], 2),
        (["dead-letters", "retry"], 2),
        (["dead-letters", "discard", "--all", "--job", "x"], 2),
        (["dead-letters", "retry", "--all", "--queue", "x"], 2),
        (["dead-letters", "retry", "01890a5d-ac96-774b-bcce-b302099a8057", "--queue", "x"], 2),
        (["workers", "drain", "01890a5d-ac96-774b-bcce-b302099a8057"], 1),
        (["queues", "pause", "a/b"], 2),
    ],
)
def test_what_is_wrong_is_told_by_the_exit_code(words, code, command):
    ended = command(*words)

    assert ended.code == code, ended
    assert ended.err
    assert "Traceback" not in ended.err
    assert "unexpected" not in ended.err


def test_bench_measures_and_leaves_no_job_behind(command):
    plain = command("bench", "--jobs", "500")
    measured = as_json(command("bench", "--jobs", "500", "--json"))
    left = as_json(command("jobs", "list", "--tenant", "daybell-bench", "--json"))["items"]
    kept = command("bench", "--jobs", "10", "--keep")
    jobs = as_json(command("jobs", "list", "--tenant", "daybell-bench", "--json"))["items"]

    assert (plain.code, kept.code) == (0, 0)
    assert "500 of 500" in plain.out
    assert measured["finished"] == 500
    assert measured["run_per_second"] > 0
    assert left == []
    assert [job["name"] for job in jobs] == ["daybell-bench"]
    assert as_json(command("executions", "list", "--json"))["items"] == []


async def test_a_long_queue_is_shown_with_a_plus(command, store):
    await enqueued(store, COUNT_ITEMS_MAX)
    await enqueued(store, 5)

    queues, top, job = (
        command("queues", "list"),
        command("top", "--once"),
        command("jobs", "show", "resize"),
    )
    said = as_json(command("jobs", "show", "resize", "--json"))

    assert "10,000+" in queues.out
    assert "10,000+ queued" in top.out
    assert "finished …/s" in top.out
    assert "10,000+ queued" in job.out
    assert (said["executions"], said["at_least"]) == ({"queued": COUNT_ITEMS_MAX}, sorted(State))


async def test_a_rare_execution_is_listed_behind_many_others(command, store):
    (rare,) = await enqueued(store, queue="rare")
    await enqueued(store, SCAN_ITEMS_MAX + 5)

    listed = as_json(command("executions", "list", "--queue", "rare", "--json"))

    assert [one["execution_id"] for one in listed["items"]] == [str(rare)]
