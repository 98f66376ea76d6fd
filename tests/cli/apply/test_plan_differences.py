"""What differs, as people read it."""

from daybell.cli.apply.plan import echo_change, lines_of
from daybell.client.declarations import diff_requests


def lines(before, after):
    return list(lines_of(diff_requests(before, after)))


def test_a_field_is_shown_with_what_it_was_and_is():
    before = {"schedule": "0 0 * * *", "queue": "mail", "http": {"headers": {"A": "1"}}}
    after = {"schedule": "0 1 * * *", "retries": 3, "http": {"headers": {"A": "1", "B": "2"}}}

    assert lines(before, after) == [
        '    schedule: "0 0 * * *" → "0 1 * * *"',
        '    queue: "mail" → (not set)',
        '    http.headers.B: "2"',
        "    retries: 3",
    ]


def test_a_long_text_is_shown_by_its_lines():
    text = "".join(f"line {number}\n" for number in range(10))

    assert lines({"body": text}, {"body": text.replace("line 5", "line five")}) == [
        "    body:",
        "      @@ -4,5 +4,5 @@",
        "        line 3",
        "        line 4",
        "      - line 5",
        "      + line five",
        "        line 6",
        "        line 7",
    ]


def test_a_text_that_only_ends_otherwise_is_still_shown():
    assert lines({"body": "a\nb"}, {"body": "a\nb\n"}) == [
        "    body:",
        '      - "a\\nb"',
        '      + "a\\nb\\n"',
    ]


def test_what_is_new_or_gone_is_shown_whole():
    words = [f"word number {number}" for number in range(6)]

    assert lines({}, {"command": words})[:2] == ["    command:", "      + - word number 0"]
    assert lines({"command": words}, {})[:2] == ["    command:", "      - - word number 0"]


def test_secrets_are_shown_by_name():
    env = {"TOKEN": {"secret": "API_TOKEN"}}

    assert lines({}, {"env": env}) == ['    env: {"TOKEN": {"secret": "API_TOKEN"}}']


def test_nothing_that_is_shown_moves_the_cursor(capsys):
    echo_change("+", "a\x1b[2J", diff_requests({}, {"body": "\x1b[31m\n" * 2, "b": "\x1b\u202e"}))

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\u001b[31m" in out
