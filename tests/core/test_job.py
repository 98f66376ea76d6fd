"""Jobs: status and templates."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.job import NewTemplate, check_lines, next_run_at, status_of
from daybell.core.schedule import Schedule
from daybell.errors import UsageError

EVERYTHING = {
    "is_deleted": True,
    "is_paused": True,
    "unfinished": [State.SCHEDULED, State.WAITING, State.QUEUED, State.RETRYING, State.RUNNING],
    "next_run_at": 60.0,
    "last": State.DEAD,
}
ORDER = [
    ("deleted", {"is_deleted": False}),
    ("paused", {"is_paused": False}),
    ("running", {"unfinished": EVERYTHING["unfinished"][:4]}),
    ("retrying", {"unfinished": EVERYTHING["unfinished"][:3]}),
    ("queued", {"unfinished": EVERYTHING["unfinished"][:2]}),
    ("waiting", {"unfinished": []}),
    ("scheduled", {"next_run_at": None}),
    ("dead", {"last": None}),
    ("manual", {}),
]


def test_what_matters_most_is_told_first():
    known, told = dict(EVERYTHING), []
    for _, without in ORDER:
        told.append(status_of(**known))
        known |= without

    assert told == [word for word, _ in ORDER]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED])
def test_an_idle_job_says_how_it_ended(state):
    assert status_of(last=state) == state


def a_schedule(next_at, *, is_paused=False):
    return Schedule(
        id=mint(), tenant="default", job="report", rule="", next_at=next_at, is_paused=is_paused
    )


def test_a_job_runs_next_when_the_first_of_its_schedules_does():
    assert next_run_at([a_schedule(90.0), a_schedule(None), a_schedule(60.0)]) == 60.0


def test_a_paused_job_has_no_next_run():
    assert next_run_at([a_schedule(60.0, is_paused=True)]) is None


# Jobs with blanks.

PURGE = {
    "name": "purge",
    "description": "Delete old rows",
    "parameters": {
        "table": {"type": "string", "choices": ["logs", "events"]},
        "days": {"type": "integer", "default": 30, "minimum": 1, "maximum": 365},
        "token": {"type": "secret", "default": {"secret": "TOKEN"}},
    },
    "job": {
        "http": {
            "url": {"join": ["https://api.example/", {"parameter": "table"}]},
            "headers": {"Authorization": {"join": ["Bearer ", {"parameter": "token"}]}},
            "body": {"older_than": {"parameter": "days"}},
        },
        "queue": "upkeep",
    },
}


def purge(**changes):
    return NewTemplate.parse({**PURGE, **changes})


def test_blanks_are_filled_in():
    job = purge().job_with({"table": "logs", "days": 7})

    assert job == {
        "http": {
            "url": "https://api.example/logs",
            "headers": {"Authorization": {"join": ["Bearer ", {"secret": "TOKEN"}]}},
            "body": {"older_than": 7},
        },
        "queue": "upkeep",
    }


def test_what_is_put_in_stays_of_its_type():
    assert purge().job_with({"table": "logs"})["http"]["body"] == {"older_than": 30}


def test_a_template_comes_back_as_it_was():
    template = purge()

    assert NewTemplate.from_json("purge", template.to_json()) == template


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({}, "parameters.table", "needs the parameter table"),
        ({"table": "users"}, "parameters.table", "not one of 'logs', 'events'"),
        ({"table": 7}, "parameters.table", "is not text"),
        ({"table": "logs", "days": "7"}, "parameters.days", "is not a whole number"),
        ({"table": "logs", "days": True}, "parameters.days", "is not a whole number"),
        ({"table": "logs", "days": 7.5}, "parameters.days", "is not a whole number"),
        ({"table": "logs", "days": 0}, "parameters.days", "below 1"),
        ({"table": "logs", "days": 366}, "parameters.days", "above 365"),
        ({"table": "logs", "token": "x"}, "parameters.token", "reference to a secret"),
        ({"table": "logs", "dyas": 1}, "parameters.dyas", "has no parameter"),
    ],
)
def test_what_does_not_fit_is_refused(given, field, message):
    with pytest.raises(UsageError, match=message) as refused:
        purge().job_with(given)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "template"),
        ({"name": None}, "template"),
        ({"parameters": ["table"]}, "parameters"),
        ({"parameters": {"a b": "string"}}, "parameters"),
        ({"parameters": {"table": "text"}}, "parameters.table"),
        ({"parameters": {"table": {"type": "string", "default": 7}}}, "parameters.table"),
        ({"parameters": {"table": {"choices": "logs"}}}, "parameters.table"),
        ({"parameters": {"table": {"minimum": "1"}}}, "parameters.table"),
        ({"parameters": {**PURGE["parameters"], "unused": "string"}}, "parameters.unused"),
        ({"parameters": {}}, "job"),
        ({"job": {}}, "job"),
        ({"job": None}, "job"),
        ({"job": {**PURGE["job"], "name": "x"}}, "job.name"),
        ({"job": {**PURGE["job"], "template": "x"}}, "job.template"),
        ({"description": 7}, "description"),
        ({"descripton": "x"}, "template.descripton"),
    ],
)
def test_a_template_that_makes_no_sense_is_refused(changes, field):
    with pytest.raises(UsageError) as refused:
        purge(**changes)

    assert refused.value.field == field


DIR = {"parameter": "dir"}
LINE = {"join": ["ls ", DIR]}


@pytest.mark.parametrize(
    ("job", "field", "way_out"),
    [
        ({"command": LINE, "shell": True}, "command", "by env"),
        ({"command": LINE}, "command", "a list of words"),
        ({"command": DIR}, "command", "a list of words"),
        ({"command": {"run": LINE, "shell": True}}, "command.run", "by env"),
        ({"command": {"run": DIR}}, "command.run", "a list of words"),
        ({"command": {"run": {"join": ["ls ", {"secret": "S"}]}}}, "command.run", "words"),
        ({"sql": {"connection": "w", "statement": LINE}}, "sql.statement", ":name"),
        ({"sql": {"connection": "w", "statement": DIR}}, "sql.statement", "sql.parameters"),
        ({"sql": DIR}, "sql", "sql.parameters"),
    ],
)
def test_what_a_shell_or_a_database_reads_has_no_blanks(job, field, way_out):
    with pytest.raises(UsageError, match=way_out) as refused:
        check_lines(job)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "job",
    [
        {"command": ["ls", DIR, LINE]},
        {"command": {"run": ["ls", DIR], "stdin": LINE}},
        {"command": 'ls "$DIR"', "shell": {"parameter": "shell"}, "env": {"DIR": DIR}},
        {"sql": {"connection": DIR, "statement": "SELECT :a", "parameters": {"a": DIR}}},
        {"http": {"url": LINE}},
    ],
)
def test_what_nobody_reads_as_a_language_may_have_them(job):
    check_lines(job)
