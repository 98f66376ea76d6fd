"""Answers are read from JSON as they were written."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.client import answers, wire
from daybell.client.backfill import Backfill
from daybell.client.runs import WorkflowRun
from daybell.core.access import Action, AuditCheck, AuditEntry, Key, Scope, Secret, Tenant
from daybell.core.event import Event, NodeWait, Step
from daybell.core.execution import AttemptRecord, Execution, Priority, State
from daybell.core.job import Job, JobDefinition, JobStatus, NewTemplate, Template
from daybell.core.retry import Retry
from daybell.core.schedule import Schedule
from daybell.core.views import Queue
from daybell.core.when import cron, every
from daybell.core.when.declared import read_misfire
from daybell.core.worker import Leadership, Worker

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
    (Execution, "checkpoint"): st.none() | texts,
    (Step, "result"): st.none() | results,
    (Step, "error"): st.none() | texts,
    (Event, "data"): results,
    (NodeWait, "match"): texts,
    (WorkflowRun, "total"): st.integers(1, 9),
    (Backfill, "looked_at"): st.integers(0, 9),
    (JobStatus, "status"): st.sampled_from(["paused", "dead"]),
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
    (JobDefinition, "signature"): st.sampled_from(["", '{"type":"object"}']),
    (JobDefinition, "misfire"): st.sampled_from(["", read_misfire("fire_all", limit=3)]),
    (JobDefinition, "schedules"): st.lists(rules.map(lambda rule: rule.to_json())).map(tuple),
}


def a_kept_execution(**fields: Any) -> Execution:
    return Execution(
        **{
            "id": UUID(int=2),
            "tenant": "default",
            "job": "mail",
            "version": 1,
            "state": State.RUNNING,
            "queue": "default",
            "priority": Priority.HIGH,
            "args": "{}",
            "attempt": 1,
            "failures": 0,
            "crashes": 0,
            "created_at": 1.0,
            "run_at": 1.0,
            **fields,
        }
    )


RUNNING = a_kept_execution()


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Anything of an annotated type."""
    if get_origin(kind) is UnionType or type(kind) is UnionType:
        return st.one_of(*map(of_type, get_args(kind)))
    if kind is NoneType:
        return st.none()
    if get_origin(kind) is tuple:
        return st.lists(of_type(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(*map(of_type, get_args(kind)), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return a(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if kind in (str, Any):
        return words
    if kind is float:
        return st.floats(0, 1e6)
    return st.from_type(kind)


def a(kind: type) -> st.SearchStrategy[Any]:
    """A struct with anything in its fields."""
    hints = get_type_hints(kind)
    fields = {}
    for field in msgspec.structs.fields(kind):
        is_time = field.name in TIMES or field.name.endswith(("_at", "_until"))
        one = of_type(hints[field.name])
        if is_time:
            one = times | st.none() if NoneType in get_args(hints[field.name]) else times
        fields[field.name] = SPECIAL.get((kind, field.name), one)
    return st.builds(kind, **fields)


ONE = UUID(int=1)
WRITTEN: list[tuple[type, Callable[[Any], Any]]] = [
    (Execution, lambda one: answers.execution(one, ONE)),
    (AttemptRecord, answers.attempt),
    (Step, lambda one: answers.encode_steps([one], RUNNING)[0]),
    (Event, answers.event),
    (WorkflowRun, answers.workflow),
    (Job, answers.job_version),
    (Job, lambda one: answers.shorten_version(answers.listed_version(one, None))),
    (JobStatus, answers.job),
    (Schedule, answers.schedule),
    (Backfill, answers.backfill),
    (Worker, answers.worker),
    (Queue, answers.queue),
    (Leadership, answers.leader),
    (Key, answers.key),
    (Tenant, answers.tenant),
    (Secret, answers.secret),
    (Template, answers.template),
    (AuditEntry, answers.audit_entry),
    (AuditCheck, answers.audit_check),
]


@pytest.mark.parametrize(
    ("kind", "write"), WRITTEN, ids=[f"{kind.__name__}{n}" for n, (kind, _) in enumerate(WRITTEN)]
)
def test_an_answer_is_read_as_it_was_written(kind, write):
    @settings(max_examples=50, deadline=None)
    @given(a(kind))
    def check(one):
        answer = write(one)
        assert wire.decode(wire.encode(answer), type(answer)) == answer

    check()


def test_an_answer_has_values_and_not_their_texts():
    kept = a_kept_execution(args='{"to":"ada"}', result="[1]", error='{"type":"KeyError"}')

    answer = answers.execution(kept, ONE)

    assert answer.args == {"to": "ada"}
    assert (answer.result, answer.error) == ([1], {"type": "KeyError"})
    assert answer.priority == "high"
    assert answer.created_at.isoformat() == "1970-01-01T00:00:01+00:00"


def test_an_error_that_is_no_json_stays_as_it_is():
    assert answers.value("Segmentation fault") == "Segmentation fault"


def test_halves_of_surrogate_pairs_survive():
    kept = a_kept_execution(args='{"name":"\\ud800"}')
    answer = answers.execution(kept, ONE)

    assert wire.decode(wire.encode(answer), wire.Execution) == answer


def test_a_job_answers_all_that_its_definition_has():
    fields = {field.name for field in msgspec.structs.fields(JobDefinition)}

    assert fields <= {field.name for field in msgspec.structs.fields(wire.JobVersion)}
