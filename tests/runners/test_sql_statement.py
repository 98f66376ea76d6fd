"""SQL statements: places of parameters, and numbers of rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.runners.sql_statement import (
    BATCH_ROWS_MAX,
    ROWS_BYTES_MAX,
    Rows,
    foreign_parameters,
    number_parameters,
    parameter_names,
    read_tokens,
)

PG, LITE = "postgresql", "sqlite"


@pytest.mark.parametrize(
    ("statement", "becomes"),
    [
        ("SELECT :a", "SELECT $1"),
        ("SELECT :a,:b,:a", "SELECT $1,$2,$1"),
        ("SELECT :a::int", "SELECT $1::int"),
        ("SELECT now()::date, x :: text", None),
        ("SELECT f(a := 1, b:=2)", None),
        ("SELECT a[1:2], a[1:n], a[n:m], a[f(x):m], a[b[1]:c], a[:2], a['1':n]", None),
        ("SELECT a[1: :n], a[:n], a[:n:2]", "SELECT a[1: $1], a[$1], a[$1:2]"),
        ("SELECT ARRAY[:a, :b], ARRAY[CASE WHEN :a THEN 1 END]",
         "SELECT ARRAY[$1, $2], ARRAY[CASE WHEN $1 THEN 1 END]"),
        ("SELECT ':a', 'it''s :a', \":a\", \"x\"\":a\"", None),
        (r"SELECT '\', :a", r"SELECT '\', $1"),
        (r"SELECT E'\' :a', e'\\', :a", r"SELECT E'\' :a', e'\\', $1"),
        ("SELECT E'a'\n  '\\' :a', :b", "SELECT E'a'\n  '\\' :a', $1"),
        ("SELECT E'a' -- x\n '\\' :a', :b", "SELECT E'a' -- x\n '\\' :a', $1"),
        (r"SELECT nameE'\', :a", r"SELECT nameE'\', $1"),
        ("SELECT $$ :a $$, $x$ $$ :a $x$, :b", "SELECT $$ :a $$, $x$ $$ :a $x$, $1"),
        ("SELECT a$b$ , :c, '$b$'", "SELECT a$b$ , $1, '$b$'"),
        ("SELECT 1 -- :a\n, :b", "SELECT 1 -- :a\n, $1"),
        ("SELECT /* :a /* :b */ :c */ :d", "SELECT /* :a /* :b */ :c */ $1"),
        ("SELECT 1 - :a / :b", "SELECT 1 - $1 / $2"),
        ("SELECT j ? 'a' AND j ?| :b", "SELECT j ? 'a' AND j ?| $1"),
        ("SELECT 'never closed :a", None),
        ("SELECT /* never closed :a", None),
        ("SELECT $$ never closed :a", None),
    ],
)  # fmt: skip
def test_only_parameters_become_numbers_in_postgresql(statement, becomes):
    assert number_parameters(statement)[0] == (statement if becomes is None else becomes)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT :a, ':b', \":c\", [:d], `:e`, :f", ["a", "f"]),
        ("SELECT 1 /* :a /* :b */ + :c", ["c"]),  # comments do not nest
        (r"SELECT 'a\', :b, E'\', :c", ["b", "c"]),  # and there are no escapes
        ("SELECT 1 -- :a\n, :b", ["b"]),
    ],
)
def test_sqlite_quotes_in_its_own_ways(statement, found):
    assert parameter_names(statement, LITE) == found


def test_parameters_of_other_kinds_are_seen():
    assert foreign_parameters("SELECT ?, ?2, @a, $b, :c, '?', \"@d\" -- ?", LITE) == [
        "?", "?2", "@a", "$b",
    ]  # fmt: skip
    assert foreign_parameters("SELECT $1, '$2', j ? 'a', a$3", PG) == ["$1"]


word = st.text("ab'\"$:[]/*-\\ \n", max_size=6)
PIECES = {
    "text": word.map(lambda inside: "'" + inside.replace("'", "''") + "'"),
    "escaped": word.map(
        lambda inside: "E'" + inside.replace("\\", "\\\\").replace("'", "\\'") + "'"
    ),
    "quoted": word.map(lambda inside: '"' + inside.replace('"', '""') + '"'),
    "dollar": word.map(lambda inside: f"$t$ {inside} $t$"),
    "comment": word.map(lambda inside: f"/*{inside.replace('/', '').replace('*', '')}*/"),
    "nested": word.map(lambda _: "/* /* :a */ ' */"),
    "line": word.map(lambda inside: "--" + inside.replace("\n", " ") + "\n"),
    "cast": st.just("::int"),
    "other": st.sampled_from(["x", "1", "+", "(", ")", ",", "=", "SELECT", ";"]),
}
parameter = st.sampled_from(["a", "b_2", "Name", "_x"])
piece = st.one_of(
    *(pieces.map(lambda text: (text, None)) for pieces in PIECES.values()),
    parameter.map(lambda name: (f":{name}", name)),
)


@given(st.lists(piece, max_size=12))
def test_a_statement_has_the_parameters_that_were_put_into_it(pieces):
    # Spaces keep pieces from becoming others, such as - and - a comment; but no line breaks, which
    # make one text of two.
    statement = " ".join(text for text, _ in pieces)

    order = list(dict.fromkeys(name for _, name in pieces if name is not None))
    text, found = number_parameters(statement)

    assert found == order
    numbers = {name: f"${number}" for number, name in enumerate(order, 1)}
    assert text == " ".join(numbers[name] if name else text for text, name in pieces)


@given(st.text("ab:'\"$[]/*-\\e \nE1?@`é", max_size=40), st.sampled_from([PG, LITE]))
def test_nothing_of_a_statement_is_lost(statement, dialect):
    assert "".join(token.text for token in read_tokens(statement, dialect)) == statement


# How many rows are asked for, and how many are kept.


def fetched(rows: Rows, *, wide: int) -> list[int]:
    """The sizes of batches, out of rows without end that are so wide."""
    batches: list[int] = []
    while not batches or all(rows.take(["x" * wide]) for _ in range(batches[-1])):
        batches.append(rows.wanted)
    return batches


def test_batches_grow_and_end_with_one_row_more_than_is_kept():
    assert fetched(Rows(["a"], 10), wide=1) == [1, 2, 6, 2]
    assert fetched(Rows(["a"], 0), wide=1) == [1]
    assert max(fetched(Rows(["a"], 10_000), wide=1)) == BATCH_ROWS_MAX


def test_of_wide_rows_few_are_fetched_at_a_time():
    wide = ROWS_BYTES_MAX // 10

    assert sum(fetched(Rows(["a"], 10_000), wide=wide)) == 10


def test_columns_of_one_name_are_told_apart():
    rows = Rows(["id", "id", "id_2", "id"], 1)

    rows.take([1, 2, 3, 4])

    assert rows.result()["rows"] == [{"id": 1, "id_2": 2, "id_2_2": 3, "id_3": 4}]
