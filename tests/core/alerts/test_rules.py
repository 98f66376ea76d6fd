"""Rules of alerts: what they take, and what they watch."""

import pytest

from daybell.core.alerts.notifications import JobNotification
from daybell.core.alerts.rules import (
    CONDITIONS,
    AlertCondition,
    AlertRule,
    is_message_job,
    message_job,
    rules_of_job,
)
from daybell.core.limits import NAME_CHARS_MAX, check_name
from daybell.core.options import JobDefinition
from daybell.errors import DaybellError
from tests.builders import an_alert


@pytest.mark.parametrize("on", AlertCondition)
def test_a_rule_has_the_limits_of_its_condition_and_can_be_kept(on):
    rule = an_alert(on=str(on))

    assert all(getattr(rule, name) == one for name, one in CONDITIONS[on].fields.items())
    assert AlertRule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"on": "nonsense"}, "on"),
        ({"on": ""}, "on"),
        ({"count": 3}, "count"),
        ({"on": "failures", "count": 0}, "count"),
        ({"on": "failures", "grace": "1m"}, "grace"),
        ({"on": "failure_rate", "rate": 1.5}, "rate"),
        ({"on": "failure_rate", "rate": True}, "rate"),
        ({"on": "failure_rate", "within": 0}, "within"),
        ({"on": "late_start", "grace": "learnt"}, "grace"),
        ({"on": "late_start", "grace": "soon"}, "grace"),
        ({"on": "late_start", "factor": 2}, "factor"),
        ({"on": "queue_age", "job": "a"}, "job"),
        ({"on": "store_health", "queue": "a"}, "queue"),
        ({"job": "a/b"}, "job"),
        ({"to": ["nowhere"]}, "to"),
        ({"repeat": "0s"}, "repeat"),
        ({"message_queue": "a/b"}, "queue"),
        ({"nonsense": 1}, "alert.nonsense"),
        ({"name": "a/b"}, "alert"),
    ],
)
def test_a_field_that_is_wrong_or_has_no_effect_is_refused(fields, field):
    with pytest.raises(DaybellError) as caught:
        AlertRule.parse({"name": "a", "on": "dead_letter", **fields})
    assert getattr(caught.value, "field", None) == field


def test_a_learnt_grace_is_none():
    assert an_alert(on="long_run").grace is None
    assert an_alert(on="missed_run", grace="learnt").grace is None
    assert an_alert(on="missed_run").grace == 600.0


@pytest.mark.parametrize(
    ("fields", "job", "queue", "is_watched"),
    [
        ({}, "a", "default", True),
        ({"job": "a"}, "a", None, True),
        ({"job": "a"}, "ab", None, False),
        ({"job": "a*"}, "ab", None, True),
        ({"queue": "mail"}, "a", "mail", True),
        ({"queue": "mail"}, "a", "default", False),
        ({}, "alert:a", "default", False),
        ({"job": "alert:*"}, "alert:a", "default", False),
        ({"job": "alert:a"}, "alert:a", "default", True),
    ],
)
def test_a_rule_watches_its_jobs_and_queues_but_no_messages(fields, job, queue, is_watched):
    assert an_alert(**fields).watches(job=job, queue=queue) is is_watched


@pytest.mark.parametrize("rule", ["a", "a" * NAME_CHARS_MAX, "job/1/dead", "ä" * NAME_CHARS_MAX])
def test_the_job_of_messages_has_a_valid_name(rule):
    assert check_name(message_job(rule), what="job")
    assert is_message_job(message_job(rule))


def test_long_names_of_rules_have_different_jobs():
    names = ["a" * (NAME_CHARS_MAX - 1) + end for end in "bc"]

    assert len({message_job(name) for name in names}) == 2


def test_notifications_stand_for_rules_with_names_that_no_rule_can_have():
    notifications = (
        JobNotification(("dead", "late"), ("json://a",)),
        JobNotification(("succeeded",), ("json://b",)),
    )
    definition = JobDefinition(name="report", notifications=notifications)

    rules = rules_of_job("default", definition, version=3, since=7.0)

    assert [(one.name, one.rule.on, one.rule.to) for one in rules] == [
        ("report/1/dead", "dead_letter", ("json://a",)),
        ("report/1/late", "missed_run", ("json://a",)),
        ("report/2/succeeded", "succeeded", ("json://b",)),
    ]
    assert {(one.rule.job, one.rule.since) for one in rules} == {("report", 7.0)}
    assert JobDefinition.from_json(definition.to_json()) == definition
    assert '"notifications":[{' in definition.to_json()  # as the statements of the stores look
