"""The store is put together from parts that share one namespace."""

from collections import Counter

from daybell.store.postgres import PostgresStore


def test_no_part_takes_a_name_of_another():
    """A statement of the same name in two parts would silently be the other one's."""
    parts = [part for part in PostgresStore.__mro__ if part.__module__.startswith("daybell")]
    names = Counter(name for part in parts for name in vars(part) if not name.startswith("__"))

    assert [name for name, count in names.items() if count > 1] == []
