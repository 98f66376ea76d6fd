"""`daybell executions logs`: what executions said, read and followed."""

import json
import re
import signal

import pytest

from daybell.cli.views.transcripts import poll_until_end, print_log
from daybell.client import Client
from daybell.core.execution import NewLogPart, State
from daybell.core.ids import mint
from daybell.engine.loop import ManualClock
from daybell.errors import Unavailable
from tests.builders import TENANT, apply, claim, claimed, enqueued, retry, success
from tests.cli.terminal import Running, Typing, daybell

NASTY = "\x1b[2J\u202egnp.exe\x9b31m\x7f"
AT = 1_700_000_000.25
TIME = r"2023-11-1\d \d\d:\d\d:20\.250"  # in whatever zone this is run


async def say(store, hands, *lines, number=1):
    """Let the execution in somebody's hands say (level, source, message)s."""
    one = hands.one
    text = "\n".join(json.dumps([AT, *line]) for line in lines)
    part = NewLogPart(one.id, one.attempt, one.lease, number, text)
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[part])


async def two_attempts(store):
    """The id of an execution that said something, failed, and says something again."""
    hands = await claimed(store)
    await say(store, hands, ("info", "mail", "first"), ("stdout", "", "printed"))
    await apply(store, hands, retry(hands.one, delay=0.0))
    hands = await claim(store)
    await say(store, hands, ("error", "mail", "second\n  File x\nValueError: y\n"))
    return hands


async def test_a_log_shows_time_level_source_and_message(store, tmp_path):
    hands = await claimed(store)
    await say(store, hands, ("info", "mail.smtp", "sent"), ("stdout", "", "hi"))

    ended = daybell("executions", "logs", str(hands.one.id), folder=tmp_path)

    assert (ended.code, ended.err) == (0, "")
    first, second = ended.out.splitlines()
    assert re.fullmatch(rf"{TIME} info     mail\.smtp: sent", first)
    assert re.fullmatch(rf"{TIME} stdout   hi", second)


async def test_attempts_are_told_apart_and_lines_that_go_on_are_indented(store, tmp_path):
    hands = await two_attempts(store)

    def lines(*words):
        out = daybell("executions", "logs", str(hands.one.id), *words, folder=tmp_path).out
        return [re.sub(rf"^{TIME} ", "", line) for line in out.splitlines()]

    assert lines() == [
        "--- attempt 1 ---",
        "info     mail: first",
        "stdout   printed",
        "--- attempt 2 ---",
        "error    mail: second",
        "      File x",
        "    ValueError: y",
    ]
    assert lines("--attempt", "1") == ["info     mail: first", "stdout   printed"]
    assert lines("--attempt", "2")[0] == "error    mail: second"
    assert lines("--attempt", "3") == []


async def test_a_program_gets_an_object_per_line(store, tmp_path):
    hands = await two_attempts(store)

    out = daybell("executions", "logs", str(hands.one.id), "--json", folder=tmp_path).out

    said = [json.loads(line) for line in out.splitlines()]
    assert [(one["attempt"], one["level"], one["source"]) for one in said] == [
        (1, "info", "mail"),
        (1, "stdout", ""),
        (2, "error", "mail"),
    ]
    assert said[0] == {
        "attempt": 1,
        "at": "2023-11-14T22:13:20.250000Z",
        "level": "info",
        "source": "mail",
        "message": "first",
    }
    assert said[2]["message"] == "second\n  File x\nValueError: y\n"


async def test_what_was_said_does_nothing_to_a_terminal(store, tmp_path):
    hands = await claimed(store)
    await say(store, hands, (NASTY, NASTY, f"a{NASTY}\nb{NASTY}"))

    plain = daybell("executions", "logs", str(hands.one.id), folder=tmp_path).out
    as_json = daybell("executions", "logs", str(hands.one.id), "--json", folder=tmp_path).out

    for out in (plain, as_json):
        assert all(one.isprintable() or one == "\n" for one in out)
    assert json.loads(as_json)["message"] == f"a{NASTY}\nb{NASTY}"


async def test_more_parts_than_are_read_at_once_come_in_order(store, tmp_path):
    hands = await claimed(store)
    for number in range(1, 36):
        await say(store, hands, ("info", "", str(number)), number=number)

    out = daybell("executions", "logs", str(hands.one.id), folder=tmp_path).out

    assert [line.split()[-1] for line in out.splitlines()] == [str(n) for n in range(1, 36)]


async def test_silence_is_told_on_stderr(store, tmp_path):
    (id,) = await enqueued(store)

    silent = daybell("executions", "logs", str(id), folder=tmp_path)
    unknown = daybell("executions", "logs", str(mint()), folder=tmp_path)
    early = daybell("executions", "logs", str(id), "--attempt", "2", folder=tmp_path)

    assert (silent.code, silent.out) == (0, "")
    assert silent.err == f"execution {id} said nothing so far; it is queued\n"
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("error: no execution ")
    assert early.err == f"execution {id} has had no attempt 2 yet; it is at attempt 1\n"


async def test_who_follows_is_told_that_nobody_comes_to_run_it(store, tmp_path):
    (id,) = await enqueued(store)

    with Running("executions", "logs", str(id), "-f", folder=tmp_path) as running:
        running.wait_for(f"{id} is queued; waiting")
        running.wait_for("no live worker takes")


async def test_following_prints_what_comes_and_ends_by_itself(store, tmp_path):
    hands = await claimed(store)
    await say(store, hands, ("info", "", "one"))

    with Running("executions", "logs", str(hands.one.id), "-f", folder=tmp_path) as running:
        running.wait_for("one$")
        await say(store, hands, ("info", "", "two"), number=2)
        running.wait_for("two$")
        await apply(store, hands, retry(hands.one, delay=0.0))
        hands = await claim(store)
        await say(store, hands, ("info", "", "three"))
        running.wait_for("three$")
        await say(store, hands, ("info", "", "four"), number=2)
        await apply(store, hands, success(hands.one))

        assert running.end() == 0

    words = [line.split()[-1] for line in running.lines]
    assert words == ["one", "two", "---", "three", "four"]


async def test_following_one_attempt_ends_with_it(store, tmp_path):
    hands = await claimed(store)
    words = ["executions", "logs", str(hands.one.id), "--follow", "--attempt", "1"]

    with Running(*words, folder=tmp_path) as running:
        await say(store, hands, ("info", "", "one"))
        running.wait_for("one$")
        await apply(store, hands, retry(hands.one, delay=3600.0))

        assert running.end() == 0


async def test_ctrl_c_ends_following_at_once(store, tmp_path):
    hands = await claimed(store)
    await say(store, hands, ("warning", "mail", "careful"))

    command = Typing("executions", "logs", str(hands.one.id), "-f", folder=tmp_path)
    command.type("\x03", after="careful")

    assert command.end() == 130
    assert "Traceback" not in command.shown
    assert "\x1b[33mwarning" in command.shown


async def test_what_a_task_says_is_there_when_it_has_ended(folder):
    (folder / "app.py").write_text(
        "import logging\nfrom daybell import App\napp = App()\n"
        "@app.task(retries=0)\nasync def speak() -> None:\n"
        "    logging.getLogger('choir').warning('la %s', 'la')\n    raise ValueError('off key')\n"
    )
    with Running("dev", "app:app", "--port", "0", folder=folder) as running:
        running.wait_for("is up")
        made = daybell("jobs", "trigger", "speak", "--wait", "--json", folder=folder)
        id = json.loads(made.out)["execution_id"]

        followed = daybell("executions", "logs", id[-8:], "-f", folder=folder)
        running.signal(signal.SIGTERM)
        running.end()

    assert followed.code == 0
    assert re.search(r" warning  choir: la la$", followed.out, re.M)


class Restarting(Client):
    """A client of a store that is away for a while, again and again."""

    away = 0  # calls that get no answer
    lasting = False

    async def execution(self, id):
        if self.away:
            self.away -= 1
            error = Unavailable("Connection refused")
            error.is_lasting = self.lasting
            raise error
        return await super().execution(id)


@pytest.fixture
async def restarting(store, tmp_path):
    async with Restarting(f"sqlite:///{tmp_path}/daybell.db", tenant=TENANT) as client:
        yield client


async def test_following_outlasts_a_restart_and_prints_each_line_once(store, restarting, capsys):
    hands = await claimed(store)
    await say(store, hands, ("info", "mail", "first"))
    looks = 0

    class Clock(ManualClock):
        async def sleep(self, seconds):
            nonlocal looks
            await super().sleep(seconds)
            looks += 1
            if looks == 1:
                restarting.away = 4
            if looks == 3:
                await say(store, hands, ("info", "mail", "second"), number=2)
                await apply(store, hands, success(hands.one))

    options = {"follow": True, "attempt": None, "as_json": False, "clock": Clock()}
    assert await print_log(restarting, hands.one.id, **options) == 0

    out, err = capsys.readouterr()
    assert [line.rpartition(" ")[2] for line in out.splitlines()] == ["first", "second"]
    assert err == "connection lost, trying again for 60 s: Connection refused\n"


async def test_waiting_outlasts_a_restart_but_not_for_ever(store, restarting, capsys):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))
    clock = ManualClock()

    async def nobody(_execution, _is_last):
        """Sees nothing."""

    async def wait(seconds=None):
        detail = await poll_until_end(
            restarting, hands.one.id, seconds=seconds, on_look=nobody, clock=clock
        )
        return detail.status

    restarting.away = 5
    assert await wait() is State.SUCCEEDED
    began, restarting.away = clock.monotonic(), 1000
    with pytest.raises(Unavailable):
        await wait()
    assert clock.monotonic() - began == 60.0
    began = clock.monotonic()
    with pytest.raises(Unavailable):
        await wait(seconds=7)
    assert clock.monotonic() - began == 7.0
    began, restarting.lasting = clock.monotonic(), True
    with pytest.raises(Unavailable):
        await wait()
    assert clock.monotonic() == began
    assert capsys.readouterr().err.count("connection lost") == 3
