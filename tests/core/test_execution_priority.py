"""Four priorities."""

import pytest

from daybell.core.execution import Priority
from daybell.errors import InvalidPriority


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        ("critical", Priority.CRITICAL),
        ("High", Priority.HIGH),
        ("NORMAL", Priority.NORMAL),
        ("medium", Priority.NORMAL),
        (" low ", Priority.LOW),
        (0, Priority.CRITICAL),
        (3, Priority.LOW),
        (Priority.HIGH, Priority.HIGH),
    ],
)
def test_a_priority_is_read_by_name_or_number(value, priority):
    assert Priority.parse(value) is priority


@pytest.mark.parametrize(
    ("value", "shown"),
    [("urgent", "'urgent'"), ("", "''"), (4, "4"), (-1, "-1"), (True, "True"), (1.0, "1.0")],
)
def test_what_is_no_priority_is_refused_with_what_there_is(value, shown):
    with pytest.raises(InvalidPriority) as refusal:
        Priority.parse(value)

    expected = f"{shown} is not a priority; use critical, high, normal (or medium) or low"
    assert str(refusal.value) == expected


def test_more_important_sorts_first():
    assert sorted(Priority) == [Priority(number) for number in range(4)]
    assert [priority.label for priority in Priority] == ["critical", "high", "normal", "low"]
