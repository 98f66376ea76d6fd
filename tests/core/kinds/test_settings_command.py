"""What may be said of a command."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.kinds import CommandSettings, read_settings, settings_json
from daybell.errors import UsageError

words = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("python report.py", ["python", "report.py"]),
        ("echo 'a b' \"c d\" e\\ f", ["echo", "a b", "c d", "e f"]),
        ("echo $HOME `id` $(id) ; id", ["echo", "$HOME", "`id`", "$(id)", ";", "id"]),
        ("id | cat > x", ["id", "|", "cat", ">", "x"]),
        ("echo *.py ~ {a,b}", ["echo", "*.py", "~", "{a,b}"]),
        ("echo # no comment", ["echo", "#", "no", "comment"]),
    ],
)  # fmt: skip
def test_a_line_is_split_as_a_shell_would_and_nothing_more(line, argv):
    assert CommandSettings.parse(line).argv == argv


@given(words)
def test_words_are_run_as_they_are(given_words):
    assert CommandSettings.parse(given_words).argv == given_words


def test_a_shell_is_only_used_when_it_is_asked_for():
    settings = CommandSettings.parse({"run": "a | b", "shell": True})

    assert settings.argv == ["/bin/sh", "-c", "a | b"]


@pytest.mark.parametrize(
    ("value", "field", "message"),
    [
        ("", "command", "empty"),
        ("  ", "command", "empty"),
        ([], "command", "empty"),
        ([""], "command", "empty"),
        ("''", "command", "empty"),
        (None, "command", "must be text"),
        (7, "command", "must be text"),
        ("a 'b", "command", "no closing quotation"),
        ("a\0b", "command", "NUL"),
        (["a", "b\0"], "command", "NUL"),
        (["a", 1], "command", "must be text"),
        (["a", {"secret": "1"}], "secret", "cannot name a secret"),
        ("x" * 100_001, "command", "the limit is"),
        (["x" * 60_000, "y" * 60_000], "command", "too many"),
        ({"run": ["a"], "shell": True}, "command", "one text"),
        ({"run": "a", "shell": "yes"}, "shell", "true or false"),
        ({"run": "a", "directory": "here"}, "command.directory", "begins with /"),
        ({"run": "a", "env": ["A=1"]}, "env", "by name"),
        ({"run": "a", "env": {"A B": "1"}}, "env", "cannot name a variable"),
        ({"run": "a", "env": {"A=B": "1"}}, "env", "cannot name a variable"),
        ({"run": "a", "env": {"A": 1}}, "env.A", "must be text"),
        ({"run": "a", "env": {f"A{n}": "" for n in range(201)}}, "env", "the limit is"),
        ({"run": "a", "stdin": 1}, "command.stdin", "must be text"),
        ({"run": "a", "success_codes": []}, "command", "never succeed"),
        ({"run": "a", "success_codes": [256]}, "command.success_codes", "0 to 255"),
        ({"run": "a", "success_codes": [True]}, "command.success_codes", "0 to 255"),
        ({"run": "a", "retry_codes": "all"}, "command.retry_codes", "0 to 255"),
        ({"run": "a", "retry_codes": [0]}, "command", "both success and a retry"),
        ({"run": "a", "grace": "1h"}, "command", "too long"),
        ({"run": "a", "output": "yaml"}, "command.output", "must be text, or json"),
        ({"run": "a", "output": ["json"]}, "command.output", "must be text, or json"),
        ({"run": "a", "sheel": True}, "command.sheel", "did you mean 'shell'"),
        ({"shell": True}, "command", "must be text"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(value, field, message):
    with pytest.raises(UsageError, match=message) as refused:
        CommandSettings.parse(value)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "value",
    [
        "python x.py",
        ["python", {"secret": "FILE"}],
        {
            "run": "x",
            "shell": True,
            "directory": "/srv",
            "env": {"A": {"join": ["a", {"secret": "B"}]}},
            "stdin": {"secret": "C"},
            "success_codes": [3, 0],
            "retry_codes": 75,
            "grace": "30s",
            "output": "json",
        },
    ],
)
def test_what_is_kept_says_the_same(value):
    settings = CommandSettings.parse(value)

    assert read_settings("command", settings_json(settings)) == settings


def test_what_is_as_usual_is_not_kept():
    assert settings_json(CommandSettings.parse("ls")) == {"run": "ls"}
