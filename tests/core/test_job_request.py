"""Requests for jobs: all errors at once, the way through a file, and changes of any options."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.job_request import (
    COLLAPSING,
    OF_COLLAPSING,
    build_request,
    merge_kind,
    merge_options,
    read_request,
    write_kind,
    write_options,
)
from daybell.core.options import OPTIONS, JobDefinition
from daybell.errors import InvalidFields, InvalidSchedule, UsageError, faults_of

TIMES = st.sampled_from(
    [
        "0 2 * * *",
        {"cron": "30 3 * * mon", "tz": "Europe/Rome", "jitter": "5s"},
        {
            "cron": "0 4 * * *",
            "dst": {"gap": "skip", "fold": "both"},
            "end_at": "2040-01-01T00:00:00Z",
        },
        {"every": "5m", "mode": "delay"},
        {"rrule": "FREQ=WEEKLY;BYDAY=MO", "tz": "Asia/Tokyo", "max_executions": 9},
    ]
)
VALUES = {
    "schedule": TIMES | st.lists(TIMES, min_size=1, max_size=3),
    "tz": st.sampled_from(["Europe/Berlin", "UTC"]),
    "calendar": st.sampled_from([{"country": "DE"}, {"dates": ["2030-12-24"]}]),
    "dst": st.sampled_from([{"gap": "skip"}, {"gap": "shift", "fold": "second"}]),
    "start_at": st.just("2030-01-01T00:00:00Z"),
    "end_at": st.just("2041-01-01T00:00:00Z"),
    "max_executions": st.integers(1, 5),
    "jitter": st.sampled_from(["30s", 7]),
    "args": st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=2),
    "description": st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5),
    "queue": st.sampled_from(["mail", "slow"]),
    "priority": st.sampled_from(["critical", "low"]),
    "retries": st.integers(0, 9),
    "backoff": st.sampled_from(["exponential", {"base": "2s"}, {"delays": ["1s", 9]}]),
    "timeout": st.sampled_from([60, "1h30m"]),
    "expires": st.sampled_from(["5m"]),
    "max_crashes": st.integers(1, 5),
    "on_lost": st.sampled_from(["retry", "dead"]),
    "store_result": st.booleans(),
    "user_id": st.just("ada"),
    "overlap": st.sampled_from(["queue", "allow"]),
    "misfire": st.sampled_from(["fire_all", {"policy": "skip", "grace": "1m"}]),
    "misfire_limit": st.integers(1, 9),
    "misfire_within": st.just("2h"),
    "misfire_grace": st.just("3m"),
    "pause_after_failures": st.integers(1, 9),
    "dependencies": st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2, unique=True),
    "on_dependency_failure": st.sampled_from(["wait", "skip", "run"]),
    "notifications": st.just([{"on": ["dead", "late"], "to": ["json://a", {"secret": "B"}]}]),
    "source": st.sampled_from(["apply", "apply:a"]),
    "keep": st.sampled_from(["30d", {"succeeded": "1d", "logs": 3600}, "dead=90d,results=2h"]),
    "debounce": st.sampled_from(["5s", {"wait": 5, "key": "a.b"}]),
    "max_wait": st.just("1m"),
    "throttle": st.sampled_from(["1/10m", {"rate": "3/h", "key": "{a}-{b}"}]),
    "singleton": st.sampled_from(["running", {"scope": "unfinished", "key": "a"}]),
    "on_conflict": st.sampled_from(["return", "replace", "cancel", "error"]),
    "cache_for": st.just("1h"),
    "cache_key": st.sampled_from(["a.b", "{a}:{b}"]),
    "cache_version": st.sampled_from(["1", "2"]),
    "concurrency": st.sampled_from([3, {"limit": 2, "key": "a.b"}, [{"name": "s", "limit": 9}, 1]]),
    "rate": st.sampled_from(["100/m", {"rate": "5/10m", "burst": 2}, ["10/s", "100000 per day"]]),
    "share": st.sampled_from([True, ["org", "user"], {"key": "a.b", "weights": {"x": 3}}]),
    "on_full": st.sampled_from(["skip", "keep_newest"]),
    "labels": st.sampled_from([{"team": "billing"}, {"team": "x", "tier": "1"}]),
    "requires": st.sampled_from([{"gpu": "a100"}, {"zone": ["eu", "us"], "disk": "ssd"}]),
    "prefer": st.just({"zone": "eu"}),
    "near": st.just("parent"),
    "resources": st.sampled_from([{"gpu": 1}, {"memory": "4GB", "gpu": 0.5}]),
    "made_from": st.just({"name": "t", "version": 2, "parameters": {"a": 1}}),
}
KINDS = st.sampled_from(
    [
        {"command": "df -h"},
        {"command": {"run": "df | wc", "directory": "/"}, "shell": True, "env": {"A": "x"}},
        {"http": "https://example.org"},
        {"http": {"url": "https://example.org", "body": {"a": 1}, "expect": [200, "3xx"]}},
        {"sql": {"connection": "w", "statement": "SELECT 1", "rows": 3}},
        {"notify": {"to": "json://a", "title": "Hi"}},
    ]
)


def read(fields):
    return read_request("job", fields).definition()


def some(values):
    return st.fixed_dictionaries({}, optional=values)


@st.composite
def definitions(draw) -> JobDefinition:
    fields = draw(some(VALUES))
    if "schedule" not in fields:
        for name in OPTIONS:
            if OPTIONS[name].part == "schedule" and name != "dependencies":
                fields.pop(name, None)
    if "dependencies" not in fields:
        fields.pop("on_dependency_failure", None)
    rules = [name for name in COLLAPSING if name in fields]
    for name in rules[1:]:
        del fields[name]
    for name, of in OF_COLLAPSING.items():
        if of not in rules[:1]:
            fields.pop(name, None)
    if "cache_for" in rules[:1]:
        fields.pop("store_result", None)
    if "share" in fields:
        fields.pop("near", None)
    return read({**draw(KINDS), **fields})


def test_the_strategies_have_every_option_but_those_of_kinds():
    assert VALUES.keys() == {
        name for name, one in OPTIONS.items() if one.in_code or name in ("backoff", "source")
    } | {"made_from"}


@given(definitions())
@settings(max_examples=200, deadline=None)
def test_a_definition_that_is_written_and_read_is_the_same(definition):
    fields = build_request(definition)

    assert read_request(fields.pop("name"), fields).definition() == definition
    assert read({**write_kind(definition), **write_options(definition)}) == definition


def change(definition, given):
    """Change a job as `update` does, without a store."""
    kind = merge_kind(definition, given)
    options = merge_options(definition, given, kind)
    request = read_request(definition.name, {**kind, **options}, needs_kind=False)
    return request.definition(kind=definition.kind, settings=definition.settings)


@given(definitions())
@settings(max_examples=100, deadline=None)
def test_a_change_of_nothing_changes_nothing(definition):
    assert change(definition, {}) == definition


# Options that are parts of a field; the others are not touched by a change of one of them.
PARTS = ("schedule", "misfire", "retries")


@given(definitions(), some(VALUES))
@settings(max_examples=300, deadline=None)
def test_a_change_keeps_every_option_that_it_does_not_name(definition, given):
    try:
        after = write_options(change(definition, given))
    except UsageError as error:
        # A change may name an option that the job has no schedule for.
        assert all(one.field for one in faults_of(error))
        return

    before = write_options(definition)
    touched = {OPTIONS[name].part or name for name in given}
    for name, value in before.items():
        if (OPTIONS[name].part or name) not in touched and OPTIONS[name].merge != "reset":
            assert after[name] == value, name


def test_another_time_keeps_calendar_jitter_zone_and_dependencies():
    calendar = {"country": "DE"}
    old = read(
        {
            "command": "df",
            "schedule": {"cron": "0 2 * * *", "tz": "Europe/Rome", "jitter": "5s"},
            "calendar": calendar,
            "dst": {"gap": "skip", "fold": "both"},
            "dependencies": ["x"],
            "on_dependency_failure": "run",
            "misfire": {"policy": "fire_all", "limit": 7},
        }
    )

    new = change(old, {"schedule": "0 3 * * *", "misfire_within": "1h"})

    (rule,) = (write_options(new)["schedule"],)
    assert rule == {
        "cron": "0 3 * * *",
        "tz": "Europe/Rome",
        "jitter": 5.0,
        "calendar": write_options(old)["schedule"]["calendar"],
        "dst": {"gap": "skip", "fold": "both"},
    }
    assert (new.dependencies, new.on_dependency_failure) == (("x",), "run")
    assert write_options(new)["misfire"] == {"policy": "fire_all", "limit": 7, "within": 3600.0}


def test_the_clock_of_a_schedule_changes_alone_and_returns_to_utc():
    old = read({"command": "df", "schedule": [{"every": "1h"}, "0 2 * * *"], "jitter": "5s"})

    moved = change(old, {"tz": "Asia/Tokyo"})
    reset = change(moved, {"tz": None})

    zones = [rule.get("tz") for rule in write_options(moved)["schedule"]]
    assert zones == ["Asia/Tokyo", "Asia/Tokyo"]
    assert reset == old


@given(definitions(), st.sampled_from(sorted(VALUES.keys() - {"schedule", "dependencies"})))
@settings(max_examples=100, deadline=None)
def test_null_returns_an_option_to_its_default(definition, name):
    option = OPTIONS[name]
    if option.part == "schedule" and not definition.schedules:
        return

    after = write_options(change(definition, {name: None}))

    usual = write_options(JobDefinition(name="job"))
    if name in usual and (option.part not in PARTS or name == "on_dependency_failure"):
        assert after[name] == usual[name]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": "ls", "near": "sibling"}, "parent"),
        ({"command": "ls", "near": "parent", "share": "org"}, "near and share both decide"),
        ({"workflow": {"nodes": []}, "near": "parent"}, "a workflow has no near"),
    ],
)
def test_near_is_refused_where_it_has_no_meaning(fields, message):
    (fault,) = [one for one in read_request("job", fields).faults if one.field == "near"]

    assert message in str(fault)


def test_all_that_is_wrong_is_found_at_once():
    request = read_request(
        "a/b",
        {
            "schedule": {"cron": "0 25 * * *"},
            "jitter": "soon",
            "retries": "three",
            "timeout": 0,
            "queue": "a,b",
            "env": {"A": 5},
            "command": "ls",
            "colour": "red",
            "labels": {"a": 1},
        },
    )

    assert [one.field for one in request.faults] == [
        *("name", "schedule.hour", "jitter", "retries", "timeout", "queue", "env.A"),
        *("colour", "labels.a"),
    ]
    with pytest.raises(InvalidFields) as refused:
        request.check()
    assert refused.value.errors == tuple(request.faults)


def test_one_error_keeps_its_class():
    with pytest.raises(InvalidSchedule) as refused:
        read({"command": "ls", "schedule": "0 25 * * *"})

    assert refused.value.field == "schedule.hour"
