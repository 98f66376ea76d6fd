"""What is written as JSON is read as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.client import wire
from daybell.client.remote import messages
from daybell.client.schedules import Backfill, BackfilledTick
from daybell.client.when import read_misfire
from daybell.core.access import Action, AuditEntry, Key, Scope, Tenant
from daybell.core.execution import AttemptRecord, Execution, ExecutionDetail
from daybell.core.job import Job, JobDefinition, JobStatus, NewTemplate, Template
from daybell.core.retry import Retry
from daybell.core.schedule import Schedule
from daybell.core.views import Page, Queue
from daybell.core.when import cron, every
from daybell.core.worker import Leadership, Worker

NONE = UUID(int=0)

# What is not on the wire, because only workers and schedulers need it.
UNTOLD: dict[type, set[str]] = {
    Execution: {"gate", "checkpoint"},
    Schedule: {"misfire"},
    Worker: {"tasks"},
    BackfilledTick: {"schedule"},
}

TIMES = {"at", "now", "until", "scheduled_for", "since", "succeeded_for"}
times = st.integers(0, 4 * 10**15).map(lambda microseconds: microseconds / 1e6)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
texts = st.dictionaries(words, values, max_size=3).map(
    lambda one: msgspec.json.encode(one).decode()
)
results = values.filter(lambda one: one is not None).map(
    lambda one: msgspec.json.encode(one).decode()
)
rules = st.sampled_from([cron("0 9 * * mon-fri", tz="Europe/Rome"), every("5m"), cron("H * * * *")])

new_templates = st.sampled_from(
    [
        {"name": "plain", "job": {"command": "true"}},
        {
            "name": "backup",
            "description": "Saves a database.",
            "parameters": {"day": {"type": "integer", "default": 1, "maximum": 7}},
            "job": {"http": {"url": "https://example.org", "body": {"parameter": "day"}}},
        },
    ]
).map(NewTemplate.parse)

SPECIAL: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (Execution, "args"): texts,
    (Execution, "result"): st.none() | results,
    (Execution, "error"): st.none() | texts,
    (AttemptRecord, "error"): st.none() | texts,
    (AuditEntry, "before"): st.none() | texts,
    (AuditEntry, "after"): st.none() | texts,
    (Schedule, "args"): texts,
    (Schedule, "rule"): rules.map(lambda rule: rule.to_json()),
    (Template, "template"): new_templates,
    (Key, "scope"): st.none()
    | st.builds(
        Scope,
        jobs=st.lists(words, min_size=1, max_size=3).map(tuple),
        queues=st.lists(words, max_size=3).map(tuple),
        actions=st.lists(st.sampled_from(Action), max_size=3).map(tuple),
    ),
    (JobDefinition, "args"): texts,
    (JobDefinition, "settings"): texts,
    (JobDefinition, "retry"): st.sampled_from([Retry(), Retry.fixed("5s", retries=9, jitter=0)]),
    (JobDefinition, "template"): st.just("") | texts,
    (JobDefinition, "misfire"): st.sampled_from(["", read_misfire("fire_all", limit=3)]),
    (JobDefinition, "schedules"): st.lists(rules.map(lambda rule: rule.to_json())).map(tuple),
}


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Anything of an annotated type."""
    if get_origin(kind) is UnionType or type(kind) is UnionType:
        return st.one_of(*map(of_type, get_args(kind)))
    if kind is NoneType:
        return st.none()
    if get_origin(kind) is tuple:
        return st.lists(of_type(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(words, words, max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return a(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if kind is str:
        return words
    if kind is float:
        return st.floats(0, 1e6)
    return st.from_type(kind)


def a(kind: type) -> st.SearchStrategy[Any]:
    """A struct with anything in its fields, but nothing in those that are not told."""
    hints = get_type_hints(kind)
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.name in UNTOLD.get(kind, ()):
            continue
        is_time = field.name in TIMES or field.name.endswith(("_at", "_until"))
        one = of_type(hints[field.name])
        if is_time:
            one = times | st.none() if NoneType in get_args(hints[field.name]) else times
        fields[field.name] = SPECIAL.get((kind, field.name), one)
    if kind is BackfilledTick:
        fields["schedule"] = st.just(NONE)
    return st.builds(kind, **fields)


def sent(value: Any) -> Any:
    """What the other side gets."""
    return json.loads(json.dumps(value))


ROUND_TRIPS: list[tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (Execution, wire.execution, messages.execution),
    (ExecutionDetail, wire.detail, messages.detail),
    (AttemptRecord, wire.attempt, messages.attempt),
    (Job, wire.job, messages.job),
    (Worker, wire.worker, messages.worker),
    (Queue, wire.queue, messages.queue),
    (Leadership, wire.leader, messages.leader),
    (Key, wire.key, messages.key),
    (Tenant, wire.tenant, messages.tenant),
    (Template, wire.template, messages.template),
    (AuditEntry, wire.entry, messages.entry),
    (
        Schedule,
        wire.schedule,
        messages.schedule,
    ),
]


@pytest.mark.parametrize(
    ("kind", "write", "read"), ROUND_TRIPS, ids=[kind.__name__ for kind, *_ in ROUND_TRIPS]
)
def test_what_is_written_is_read_as_it_was(kind, write, read):
    @settings(max_examples=50, deadline=None)
    @given(a(kind))
    def check(one):
        assert read(sent(write(one))) == one

    check()


@settings(max_examples=50, deadline=None)
@given(a(JobStatus))
def test_how_a_job_stands_is_read_as_it_was(one):
    schedules = tuple(
        msgspec.structs.replace(schedule, tenant=one.job.tenant, job=one.job.name)
        for schedule in one.schedules
    )
    # What a definition says of its schedules is told by those that stand.
    declared = tuple(schedule.rule for schedule in schedules if schedule.is_declared)
    definition = msgspec.structs.replace(one.job.definition, schedules=declared)
    job = msgspec.structs.replace(one.job, definition=definition)
    standing = msgspec.structs.replace(one, job=job, schedules=schedules)

    assert messages.standing(sent(wire.standing(standing))) == standing


@settings(max_examples=50, deadline=None)
@given(a(Backfill))
def test_a_backfill_is_read_as_it_was(one):
    plan = msgspec.structs.replace(one, id=NONE) if one.is_dry_run else one

    assert messages.backfill(sent(wire.backfill(plan)), none=NONE) == plan


@given(st.lists(a(Execution), max_size=3), st.none() | words)
@settings(max_examples=20, deadline=None)
def test_a_page_is_read_as_it_was(items, cursor):
    page = Page(items=tuple(items), next_cursor=cursor)

    assert messages.page(sent(wire.page(page, wire.execution)), messages.execution) == page


def test_an_error_that_is_no_json_stays_as_it_is():
    assert messages.failure(sent(wire.value("Segmentation fault"))) == "Segmentation fault"


def test_halves_of_surrogate_pairs_survive():
    text = '{"name":"\\ud800"}'

    assert messages.text(wire.value(text)) == text


@pytest.mark.parametrize("kind", UNTOLD)
def test_what_is_not_told_is_a_field_of_the_thing(kind):
    assert UNTOLD[kind] <= {field.name for field in msgspec.structs.fields(kind)}
