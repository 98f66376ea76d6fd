"""What looks wrong with the settings of a job, and is pointed out when it is made."""

import pytest

from daybell.core.kinds import read_settings, warnings_of


@pytest.mark.parametrize(
    "line",
    [
        "a | b",
        "a && b",
        "a > out",
        "a 2>&1",
        "a ; b",
        "a < in",
        "cd /var",
        "export A=1",
        ". ./env",
        "NAME=value program",
        "ls ~/data",
        'echo "$HOME"',
        "tar -C ${DATA}/old",
        "echo $(date)",
        ["cd", "/var"],
    ],
)
def test_words_that_a_shell_would_have_meant_are_pointed_out(line):
    (warning,) = warnings_of(read_settings("command", line))

    assert '"shell": true' in warning
    assert warnings_of(read_settings("command", {"run": "a | b", "shell": True})) == []


@pytest.mark.parametrize(
    "command",
    [
        ["grep", "|"],
        ["echo", "$HOME"],
        [{"secret": "PROGRAM"}, "cd"],
        "echo a=b cd",
        "grep ^$ 'costs $5' file",
        "awk '{print $1}' x",
        "settle",
    ],
)
def test_words_that_are_what_they_are_are_not(command):
    assert warnings_of(read_settings("command", command)) == []


def test_variables_that_workers_refuse_are_pointed_out():
    settings = read_settings("command", {"run": "a", "env": {"LD_PRELOAD": "x", "MODE": "y"}})

    (warning,) = warnings_of(settings)

    assert "refuses to set LD_PRELOAD, which makes every program load" in warning
    assert warning.endswith("--allow-env LD_PRELOAD")


SECRET = 'keep it as a secret: {"secret": "NAME"}'


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Cookie", "PRIVATE-TOKEN"])
def test_a_header_that_lets_somebody_in_is_pointed_out(name):
    url = "https://example.org"
    (warning,) = warnings_of(read_settings("http", {"url": url, "headers": {name: "hunter2"}}))

    assert f"can read header {name}; {SECRET}" in warning
    assert "hunter2" not in warning
    kept = {name: {"join": ["Bearer ", {"secret": "TOKEN"}]}, "Idempotency-Key": "a", "Accept": "b"}
    assert warnings_of(read_settings("http", {"url": url, "headers": kept})) == []


@pytest.mark.parametrize(
    "address",
    [
        "mailto://ops:hunter2@example.org",
        "mailtos://example.org?user=ops&pass=hunter2",
        "slack://hunter2/B0/C0/#ops",
        "Discord://1/hunter2",
        "jsons://hunter2@example.org/hook",
        "ntfy://hunter2@example.org/topic",
    ],
)
def test_an_address_with_a_login_is_pointed_out(address):
    settings = read_settings("notify", {"to": [{"secret": "WHERE"}, address], "body": "x"})

    (warning,) = warnings_of(settings)

    assert SECRET in warning and address.partition("://")[0] in warning
    assert "hunter2" not in warning


@pytest.mark.parametrize(
    "address",
    ["mailto://ops@example.org", "json://example.org/hook?x=1", "mailto://a.org?to=ops@b.org"],
)
def test_an_address_without_one_is_not(address):
    assert warnings_of(read_settings("notify", {"to": address, "body": "x"})) == []
