"""What may be said of a statement, and of a message."""

import pytest

from daybell.core.job import JobDefinition
from daybell.core.kinds import NotifySettings, SqlSettings, read_settings, settings_json
from daybell.errors import UsageError

SQL = {"connection": "warehouse", "statement": "DELETE FROM x WHERE id = :id"}
NOTIFY = {"to": "mailto://a:b@example.org", "body": "done"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"connection": None}, "sql.connection"),
        ({"connection": "Ware House"}, "sql.connection"),
        ({"connection": "postgresql://x"}, "sql.connection"),
        ({"connection": 1}, "sql.connection"),
        ({"statement": None}, "sql.statement"),
        ({"statement": " "}, "sql.statement"),
        ({"statement": "a\0"}, "sql.statement"),
        ({"statement": "x" * 100_001}, "sql.statement"),
        ({"parameters": [1]}, "sql.parameters"),
        ({"parameters": {"a b": 1}}, "sql.parameters"),
        ({"rows": -1}, "sql.rows"),
        ({"rows": 10_001}, "sql.rows"),
        ({"rows": True}, "sql.rows"),
        ({"querry": "x"}, "sql.querry"),
    ],
)
def test_a_statement_that_makes_no_sense_is_refused(change, field):
    with pytest.raises(UsageError) as refused:
        SqlSettings.parse({**SQL, **change})

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"to": None}, "notify.to"),
        ({"to": []}, "notify.to"),
        ({"to": "somebody"}, "notify.to"),
        ({"to": "me@example.org"}, "notify.to"),
        ({"to": [1]}, "notify.to"),
        ({"to": ["json://a"] * 51}, "notify.to"),
        ({"body": ""}, "notify.body"),
        ({"body": 1}, "notify.body"),
        ({"title": "x" * 100_001}, "notify.title"),
        ({"format": "pdf"}, "notify.format"),
        ({"subject": "x"}, "notify.subject"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused(change, field):
    with pytest.raises(UsageError) as refused:
        NotifySettings.parse({**NOTIFY, **change})

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("sql", SQL),
        ("sql", {**SQL, "parameters": {"id": {"secret": "ID"}}, "rows": 0}),
        ("notify", NOTIFY),
        ("notify", {"to": [{"secret": "HOOK"}, "json://h"], "title": "t", "format": "html"}),
    ],
)
def test_what_is_kept_says_the_same(kind, value):
    settings = read_settings(kind, value)

    assert read_settings(kind, settings_json(settings)) == settings


def test_a_statement_needs_a_worker_that_knows_its_connection():
    definition = JobDefinition(
        name="purge", kind="sql", settings='{"connection": "warehouse", "statement": "x"}'
    )

    assert definition.needs == "sql:warehouse"
    assert '"needs":"sql:warehouse"' in definition.to_json()
    assert JobDefinition.from_json(definition.to_json()) == definition


def test_others_need_their_kind():
    definition = JobDefinition(name="ls", kind="command", settings='{"run": "ls"}')

    assert definition.needs == "command"
    assert "needs" not in definition.to_json()
