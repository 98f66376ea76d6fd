"""Columns of statements, and the rows that `unnest` makes of them."""

from operator import itemgetter
from uuid import UUID

import pytest
from msgspec.structs import replace

from daybell.core.workflow.run import Node, NodeState
from daybell.store.postgres.progress import NEW, START_READERS
from daybell.store.postgres.run_rows import (
    CHANGED_READERS,
    FOUND_NODES,
    RUN_READERS,
    SET_RUNS,
    Columns,
    changed_rows,
)

RUN = UUID(int=7)


def pairs(*rows):
    return Columns.of(rows, {"number": itemgetter(0), "text": itemgetter(1)})


def test_rows_become_a_list_for_each_column():
    assert list(pairs((1, "a"), (2, None))) == [[1, 2], ["a", None]]


@pytest.mark.parametrize(
    ("numbers", "sent"), [([3, 3, 3], [3]), ([3, 3, 4], [3, 3, 4]), ([None, None], [None])]
)
def test_a_constant_is_sent_once(numbers, sent):
    columns = pairs(*((number, "a") for number in numbers))

    columns.collapse("number")

    assert columns.values["number"] == sent
    assert columns.values["text"] == ["a"] * len(numbers)


@pytest.mark.parametrize(("numbers", "sent"), [([None, None], []), ([None, 0], [None, 0])])
def test_a_column_of_nulls_is_sent_empty(numbers, sent):
    columns = pairs(*((number, "a") for number in numbers))

    columns.drop_nulls("number")

    assert columns.values["number"] == sent


@pytest.mark.parametrize(
    ("numbers", "sent"), [([5, 0, 0], [5]), ([5, 0, 1], [5, 0, 1]), ([0, None, 0], [0])]
)
def test_zeros_behind_the_first_rows_are_not_sent(numbers, sent):
    columns = pairs(*((number, "a") for number in numbers))

    columns.cut_zeros(1, "number")

    assert columns.values["number"] == sent


def test_columns_of_zeros_are_left_out():
    assert pairs((0, "a"), (None, "b")).without_zeros().values == {"text": ["a", "b"]}


async def test_unnest_fills_shortened_columns_with_nulls(sql):
    columns = pairs((1, "a"), (1, None), (1, None))
    columns.collapse("number")
    columns.cut_zeros(1, "text")

    rows = await sql.fetch(
        "SELECT coalesce(u.number, ($1::int[])[1]) AS number, u.text, n"
        " FROM unnest($1::int[], $2::text[], $3::int[]) u(number, text, n)",
        *columns,
        [1, 2, 3],
    )

    assert list(map(tuple, rows)) == [(1, "a", 1), (1, None, 2), (1, None, 3)]


def test_nodes_with_counts_come_first_and_columns_end_behind_them():
    plain = Node("plain", 1, NodeState.STARTED)
    counts = replace(plain.parents, total=3, succeeded=1)
    rich = Node("rich", 2, NodeState.WAITING, parents=counts)

    columns = changed_rows(RUN, [plain, rich])

    assert columns.values["run"] == [RUN]
    assert columns.values["label"] == ["rich", "plain"]
    assert columns.values["succeeded"] == [1]
    assert columns.values["failed"] == [0]


@pytest.mark.parametrize(
    ("readers", "statement"),
    [(START_READERS, NEW), (CHANGED_READERS, FOUND_NODES), (RUN_READERS, SET_RUNS)],
)
def test_columns_are_read_in_the_order_of_their_statement(readers, statement):
    _, _, listed = statement.partition(" u(")

    assert listed.partition(")")[0].replace(",", " ").split() == list(readers)
