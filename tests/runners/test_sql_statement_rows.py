"""How many rows are asked for, and how many are kept."""

from daybell.runners.sql_statement import BATCH_ROWS_MAX, ROWS_BYTES_MAX, Rows


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
