"""`daybell top`: a look at everything, on a terminal and in a file."""

import json
import os
import re
import signal
import termios
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from daybell import Client
from daybell.cli.views.dashboard import FRAME_LINES, HEAD_LINES, divide, render_screen
from daybell.client import answers
from daybell.client.workers import Overview, rates_between
from daybell.core.views import Activity, Queue
from daybell.store.open import store_for
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, a_worker, apply, claimed, dead, enqueued, finished, retry
from tests.cli.terminal import Typing, daybell
from tests.ports import WrappedStore

NASTY = "\x1b[2J\u202egnp.exe\x9b31m\x7f"
SHOWN = "q quits"


@pytest.fixture
async def store(tmp_path):
    """The store of the folder, open, with some of everything."""
    store = store_for(f"sqlite:///{tmp_path}/daybell.db")
    await store.migrate()
    await store.open()
    hands = await claimed(store, 2, queue="mail")
    await apply(store, hands, retry(hands.executions[0], delay=3600.0))
    await dead(store, queue="broken")
    await enqueued(store, 3, queue="images")
    await enqueued(store, 2, queue="images", delay=3600.0)
    await store.catalog.pause_queue(TENANT, "images", paused=True)
    await store.queue.register(TENANT, a_worker(name="bob", host="h", capacity=7), lease=60)
    yield store
    await store.close()


def queue(name="q", **counts: Any):
    fields: dict[str, Any] = {"queued": 0, "scheduled": 0, "running": 0, "waiting": 0} | counts
    return Queue(name=name, is_paused=False, **fields)


def an_overview(now=1000.0, *, queues=(), enqueued=0, failed=0):
    activity = Activity(now=now, enqueued=enqueued, failed=failed)
    return Overview(activity=activity, queues=tuple(queues), workers=(), letters=())


async def test_a_look_is_printed_where_there_is_no_terminal(store, tmp_path):
    ended = daybell("top", "--interval", "100ms", folder=tmp_path)

    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    assert "1 running, 3 queued, 2 scheduled, 1 retrying, 1 dead letter" in ended.out
    assert "enqueued 0.0/s  finished 0.0/s  failed 0.0/s" in ended.out
    (images,) = re.findall(r"^images +.*$", ended.out, re.M)
    assert re.fullmatch(r"images +3 +0 +2 +0 +0 +\S+ \S+ +paused", images)
    (mail,) = re.findall(r"^mail +.*$", ended.out, re.M)
    assert mail.split() == ["mail", "0", "1", "0", "1", "0", "open"]
    assert re.search(r"^bob +live +0 of 7 +", ended.out, re.M)
    assert "ValueError" in ended.out


async def test_a_program_gets_one_object(store, tmp_path):
    ended = daybell("top", "--json", "--interval", "100ms", folder=tmp_path)

    seen = json.loads(ended.out)
    assert seen["rates"]["enqueued"] == seen["rates"]["failed"] == 0
    assert {one["name"]: one["retrying"] for one in seen["queues"]}["mail"] == 1
    assert "bob" in [one["name"] for one in seen["workers"]]
    assert [one["status"] for one in seen["dead_letters"]] == ["dead"]


@pytest.mark.parametrize(("keys", "code"), [("q", 0), ("xQ", 0), ("\x03", 0)])
async def test_it_is_quit_and_leaves_the_terminal_as_it_was(keys, code, store, tmp_path):
    command = Typing("top", "--interval", "100ms", folder=tmp_path)
    terminal = os.dup(command.screen.fileno())
    before = command.modes
    command.type("", after=SHOWN)
    during = termios.tcgetattr(terminal)

    command.type(keys, after="failed 0.0/s")
    assert command.end() == code

    assert before[3] & termios.ICANON
    assert not during[3] & (termios.ICANON | termios.ECHO)
    assert termios.tcgetattr(terminal) == before
    os.close(terminal)
    assert command.shown.count("\x1b[?1049h") == command.shown.count("\x1b[?1049l") == 1
    assert command.shown.rindex("\x1b[?25h") > command.shown.rindex("\x1b[?25l")
    assert "Traceback" not in command.shown


async def test_what_happens_is_seen(store, tmp_path):
    command = Typing("top", "--interval", "100ms", folder=tmp_path)
    command.type("", after="failed 0.0/s")

    await enqueued(store, 500, queue="images")

    command.type("q", after="503 queued")
    assert command.end() == 0


async def test_another_size_is_drawn_at_once(store, tmp_path):
    command = Typing("top", "--interval", "60s", folder=tmp_path)
    command.type("", after=SHOWN)
    shown = len(command.shown)

    termios.tcsetwinsize(command.screen, (40, 120))
    os.kill(command.process.pid, signal.SIGWINCH)
    while SHOWN not in command.shown[shown:]:
        assert command.read()

    command.type("q", after=SHOWN)
    assert command.end() == 0


@pytest.mark.parametrize(
    "words", [["--interval", "1ms"], ["--interval", "2h"], ["--interval", "x"]]
)
async def test_an_interval_has_bounds(words, store, tmp_path):
    assert daybell("top", *words, folder=tmp_path).code == 2


async def test_a_look_is_four_operations():
    asked = []

    class Counting(WrappedStore):
        def wrap(self, name, operation):
            if name.startswith(("list_", "count_", "get_", "activity", "health")):
                asked.append(name)
            return operation

    store: Any = Counting(SqliteStore.in_memory())
    await store.migrate()
    await store.open()
    async with Client(store) as client:
        await client.stats()
        asked.clear()
        await client.stats()

    assert tuple(asked) == ("activity", "list_queues", "list_workers", "list_executions")


def test_what_ended_is_not_known_of_a_queue_that_is_too_long_to_count():
    first = an_overview(queues=[queue(queued=10_000, at_least=("queued",))])
    second = an_overview(1001.0, queues=[queue(queued=10_000, at_least=("queued",))], enqueued=7)

    rates = rates_between(first, second)

    assert rates is not None
    assert (rates.enqueued, rates.finished) == (7, None)


async def test_what_ended_is_what_came_and_is_there_no_more():
    store = SqliteStore.in_memory()
    await store.migrate()
    await store.open()
    async with Client(store) as client:
        await enqueued(store, 4, queue="old")
        first = await client.stats()
        await finished(store, 3)
        await dead(store, 2)
        await enqueued(store, 5, queue="new")
        second = await client.stats()

    assert second.rates is not None and second.rates.finished is not None
    seconds = (second.now - first.now).total_seconds()
    rates = [rate * seconds for rate in (second.rates.enqueued, second.rates.finished)]
    assert rates == pytest.approx([10, 5], rel=1e-3)
    assert second.rates.failed * seconds == pytest.approx(2, rel=1e-3)


def test_rates_are_never_negative():
    earlier = an_overview(queues=[queue(queued=5)])
    grown = an_overview(1002.0, queues=[queue(queued=105)], enqueued=20)
    shrunk = an_overview(1002.0, queues=[queue(queued=1)], enqueued=2, failed=6)

    by_bulk, by_work = rates_between(earlier, grown), rates_between(earlier, shrunk)

    assert by_bulk is not None and by_work is not None
    assert (by_bulk.enqueued, by_bulk.finished) == (50.0, 0.0)
    assert (by_work.enqueued, by_work.finished, by_work.failed) == (1.0, 3.0, 3.0)
    assert rates_between(earlier, earlier) is None


@given(st.integers(0, 60), st.lists(st.integers(1, 50), min_size=3, max_size=3))
def test_sections_share_the_lines_that_there_are(lines, wanted):
    shares = divide(lines, wanted)

    taken = sum(share + FRAME_LINES for share in shares if share) - 1
    assert taken <= max(lines, 0) or not any(shares)
    assert all(0 <= share <= want for share, want in zip(shares, wanted, strict=True))
    if taken < lines and all(shares):
        assert shares == wanted


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40), (40, 10), (20, 5)])
def test_a_screen_fits_and_shows_nothing_raw(columns, lines):
    queues = [queue(f"queue-{n}-{NASTY}", queued=n) for n in range(60)]
    console = Console(width=columns, height=lines, force_terminal=True, color_system=None)

    with console.capture() as captured:
        console.print(
            render_screen(
                answers.stats(an_overview(queues=queues), {}),
                store="s",
                columns=columns,
                lines=lines,
            )
        )
    out = captured.get().splitlines()

    assert len(out) <= max(lines, HEAD_LINES)
    assert max(map(len, out)) <= columns
    assert all(one.isprintable() for line in out for one in line)
    if lines >= 24:
        assert "queue-59" in out[5]
        assert any("more" in line for line in out)
