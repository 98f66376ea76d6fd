"""Schedules that files fire: patterns, and what they are written as."""

import pytest

from daybell.core.when import Schedule
from daybell.core.when.file import FileMark, OnFile
from daybell.errors import InvalidSchedule


def read(file, **more) -> OnFile:
    rule = Schedule.parse({"file": file, **more})
    assert isinstance(rule, OnFile)
    return rule


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("*.csv", ["a.csv", ".csv"], ["a.txt", "x/a.csv", "acsv"]),
        ("a?.csv", ["ab.csv"], ["a.csv", "a/.csv", "abc.csv"]),
        ("[ab].x", ["a.x"], ["c.x", "ab.x"]),
        ("*/*.csv", ["x/a.csv"], ["a.csv", "x/y/a.csv"]),
        ("**/*.csv", ["a.csv", "x/a.csv", "x/y/a.csv"], ["a.txt"]),
        ("x/**", ["x/a", "x/y/a"], ["x", "y/a"]),
        ("x/**/y/*", ["x/y/a", "x/1/2/y/a"], ["x/a", "x/y/z/a"]),
        ("*" * 40 + "b", ["ab"], ["a" * 200]),
    ],
)
def test_a_pattern_fits_paths_below_its_root(pattern, fits, others):
    rule = read(f"in/{pattern}")

    assert [path for path in (*fits, *others) if rule.fits(path)] == fits
    assert rule.accepts({"path": fits[0]})
    assert not rule.accepts({"path": 5})
    assert not rule.accepts(None)


def test_it_is_written_and_read_as_the_same():
    rule = read("incoming/a/*.csv", settle="5s")

    assert rule.to_dict() == {"file": "incoming/a/*.csv", "settle": "5s"}
    assert Schedule.from_json(rule.to_json()) == rule
    assert (rule.listens_to, rule.root, rule.settle) == ("daybell.file.incoming", "incoming", 5.0)
    assert rule.describe() == "When a file incoming/a/*.csv has not changed for 5 seconds"


@pytest.mark.parametrize(
    "said",
    [
        {"file": 5},
        {"file": "*.csv"},
        {"file": "/etc/passwd"},
        {"file": "in/"},
        {"file": "in/../x"},
        {"file": "in/./x"},
        {"file": "in//x"},
        {"file": "in/a\0b"},
        {"file": "in/" + "a/" * 30 + "b"},
        {"file": "in/" + "a" * 300},
        {"file": "in/a", "settle": "soon"},
        {"file": "in/a", "settle": 0},
        {"file": "in/a", "settle": "2d"},
        {"file": "in/a", "jitter": "2s"},
        {"file": "in/a", "event": "b"},
        {"event": "daybell.file.in"},
    ],
)
def test_a_wrong_one_is_refused(said):
    with pytest.raises(InvalidSchedule):
        Schedule.parse(said)


def test_another_content_is_another_event():
    mark = FileMark(1, 2, 3)
    others = [FileMark(2, 2, 3), FileMark(1, 3, 3), FileMark(1, 2, 4)]

    ids = {one.event_id("a") for one in (mark, *others)} | {mark.event_id("b")}

    assert len(ids) == 5
    assert mark.event_id("ä" * 300) == FileMark(1, 2, 3).event_id("ä" * 300)
    assert len(mark.event_id("x" * 4_000)) < 200
