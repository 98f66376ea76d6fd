"""`daybell cron explain`: words, times, and what is wrong."""

import json

import pytest

from tests.cli.terminal import daybell


@pytest.fixture
def explain(tmp_path):
    return lambda *words: daybell("cron", "explain", *words, folder=tmp_path)


def test_an_expression_is_explained_with_its_next_times(explain):
    ended = explain("30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28", "--count", "3")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "At 02:30, Europe/Berlin",
        "",
        "day  time                 offset  remark",
        "Sat  2026-03-28 02:30:00  +01:00",
        "Sun  2026-03-29 03:00:00  +02:00  clocks have just changed",
        "Mon  2026-03-30 02:30:00  +02:00",
    ]


def test_a_time_that_exists_twice_is_told_apart(explain):
    ended = explain("*/30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-10-25", "--count", "3")

    assert [line[23:] for line in ended.out.splitlines()[3:]] == [
        "0  +02:00  first of two",
        "0  +02:00  first of two",
        "0  +01:00  second of two",
    ]


def test_json_has_the_description_and_the_times(explain):
    words = ["0 9 * * mon-fri", "--tz", "Europe/Berlin", "--from", "2026-11-13T10:00:00Z"]
    ended = explain(*words, "--count", "2", "--json")

    assert json.loads(ended.out) == {
        "description": "At 09:00 on Monday to Friday, Europe/Berlin",
        "next": ["2026-11-16T09:00:00+01:00", "2026-11-17T09:00:00+01:00"],
    }


def test_a_step_that_is_larger_than_its_field_is_warned_of(explain):
    ended = explain("0 0 1 */20 *", "--from", "2026-11-13", "--count", "2")
    found = explain("*/100 * * * *", "--json")

    assert (ended.code, ended.err.strip()) == (
        0,
        "warning: month */20: the step of */20 reaches no second value, so only the first one"
        " matches",
    )
    assert [line[5:15] for line in ended.out.splitlines()[3:]] == ["2027-01-01", "2028-01-01"]
    assert json.loads(found.out)["warnings"] == [
        "minute */100: the step of */100 reaches no second value, so only the first one matches"
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0 0 12 ? * 2", "--dialect", "quartz"], "At 12:00 on Monday, UTC"),
        (["cron(0 12 ? * 2 *)"], "At 12:00 on Monday, UTC"),
        (["FREQ=DAILY", "--tz", "Asia/Tokyo"], "By the rule FREQ=DAILY, Asia/Tokyo"),
        (['{"every": "90m"}'], "Every 1 hour 30 minutes"),
        (["@reboot"], "When a scheduler starts and none was running"),
        (["manual"], "Only when it is triggered"),
    ],
)
def test_other_languages_are_understood(words, said, explain):
    ended = explain(*words, "--count", "1")

    assert (ended.code, ended.out.splitlines()[0]) == (0, said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["61 * * * *"], "minute '61' has 61; it takes 0-59"),
        (["0 0 30 2 *"], "never fires: there is no such date"),
        (["0 0 0 1 1 ? 2020"], "it never fires from"),
        (["FREQ=DAILY;COUNT=3"], 'without one from 1970: say "DTSTART:'),
        (["* * *"], "has 3 fields; unix cron takes 5"),
        (["@dayly"], "there is no macro '@dayly'"),
        (["* * * * *", "--tz", "berlin"], "no time zone 'berlin'; did you mean 'Europe/Berlin'?"),
        (["* * * * *", "--from", "soon"], "--from: 'soon' is not a time"),
        (["* * * * *", "--dialect", "klingon"], "dialect 'klingon' is not one of unix, quartz"),
    ],
)
def test_what_is_wrong_is_said(words, said, explain):
    ended = explain(*words)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
