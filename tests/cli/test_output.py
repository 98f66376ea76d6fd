"""Tables on terminals of any width, and in files."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell import Client
from daybell.cli.output import GAP, Column, fit, format_relative
from daybell.core.ids import mint
from daybell.store.open import store_for
from tests.builders import TENANT, a_worker, dead
from tests.cli.terminal import Typing, daybell

LISTS = [["executions", "list"], ["dead-letters", "list"], ["workers", "list", "--dead"],
         ["jobs", "list"], ["queues", "list"]]  # fmt: skip
JOB = "invoices.remind-all-customers-of-what-they-owe"


@pytest.fixture
async def letter(tmp_path):
    """A dead letter with long names around it, in the store of the folder."""
    store = store_for(f"sqlite:///{tmp_path}/daybell.db")
    await store.migrate()
    await store.open()
    worker = a_worker(id=mint(), name="worker-of-the-accounts-department", queues=("a", "b") * 20)
    await store.queue.register(TENANT, worker, lease=30)
    async with Client(store) as client:
        await client.define(JOB, queue="accounts-receivable", description="word " * 30)
    (letter,) = await dead(store, job=JOB, queue="accounts-receivable")
    yield letter
    await store.close()


def on_terminal(*words, folder, columns):
    command = Typing(*words, folder=folder, columns=columns)
    assert command.end() == 0, command.shown
    return re.sub(r"\x1b\[[\d;]*m", "", command.shown).splitlines()


@pytest.mark.parametrize("words", LISTS, ids=lambda words: words[0])
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_row_is_one_line_that_fits(words, columns, letter, tmp_path):
    whole = daybell(*words, folder=tmp_path).out.splitlines()
    lines = on_terminal(*words, folder=tmp_path, columns=columns)

    assert max(map(len, lines)) <= columns
    assert [line[:8] for line in lines] == [line[:8] for line in whole]


def test_80_columns_show_what_matters(letter, tmp_path):
    headings, row = on_terminal("dead-letters", "list", folder=tmp_path, columns=80)

    assert headings.split() == ["id", "job", "status", "time", "note"]
    assert re.match(rf"{letter}  {JOB[:10]}\S*…  dead +(now|\d+s ago) +ValueErr", row)


def test_a_file_gets_everything(letter, tmp_path):
    out = daybell("executions", "list", folder=tmp_path).out

    assert "…" not in out
    assert out.splitlines()[0].split() == [
        "id", "job", "status", "queue", "attempt", "time", "took", "note",
    ]  # fmt: skip
    assert f"{letter}  {JOB}  dead    accounts-receivable  1 " in out


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "now"), (-0.4, "now"), (-5, "5s ago"), (-59, "59s ago"), (-60, "1m ago"),
        (300, "in 5m"),
        (-3599, "59m ago"), (3600, "in 1h"), (-86_400, "24h ago"), (-200_000, "2d ago"),
        (40_000_000, "in 462d"),
    ],
)  # fmt: skip
def test_a_time_is_seen_from_now(seconds, said):
    assert format_relative(1_000_000_000 + seconds, now=1_000_000_000) == said


@given(
    st.lists(
        st.tuples(st.none() | st.integers(1, 30), st.integers(0, 5), st.integers(1, 60)),
        min_size=1, max_size=8,
    ),
    st.integers(1, 300),
)  # fmt: skip
def test_columns_fit_as_far_as_they_may_be_left_out(drawn, room):
    columns = [Column(f"c{n}", least, rank) for n, (least, rank, _) in enumerate(drawn)]
    wanted = [want for *_, want in drawn]

    widths = fit(columns, wanted, room=room)

    left = [one for one, width in zip(columns, widths, strict=True) if width]
    taken = sum(widths) + GAP * (len(left) - 1)
    assert taken <= room or all(one.rank == 0 for one in left)
    for column, width, want in zip(columns, widths, wanted, strict=True):
        if width == 0:
            assert column.rank >= max((one.rank for one in left), default=0)
        else:
            assert min(want, column.least or want) <= width <= want
    if sum(wanted) + GAP * (len(wanted) - 1) <= room:
        assert widths == wanted
