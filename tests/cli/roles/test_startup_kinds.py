"""What workers are told to allow to jobs without code, and what they allow by themselves."""

from typing import Any

import pytest
from typer.main import get_command

from daybell.cli import app as program
from daybell.cli.apps import find_app
from daybell.cli.roles import dev, worker
from daybell.cli.roles.dev import DevOptions, allow_kinds, describe_kinds
from daybell.cli.roles.startup import read_kind_options, read_names
from daybell.cli.roles.worker import WorkerRequest, worker_options
from daybell.errors import UsageError
from daybell.sdk.app import App
from daybell.settings import Settings

EVERYWHERE = ("task", "http", "workflow", "notify")


def test_names_of_variables_are_read():
    assert read_names(" LANG, TZ,,LANG", "--pass-env") == ("LANG", "TZ")
    assert read_names("", "--pass-env") == ()
    with pytest.raises(UsageError, match=r"--allow-env: 'A=1' cannot name a variable"):
        read_names("PATH,A=1", "--allow-env")


def test_a_worker_offers_what_it_was_told_to_and_the_connections_that_it_knows():
    app = App("memory://")
    plain = app.handlers.kinds
    settings = Settings(connections={"shop": "sqlite:///s.db", "mail": "sqlite:///m.db"})

    app.handlers.kind_options = read_kind_options(
        settings, allow_command=True, allow_env="PATH", pass_env="TZ"
    )

    assert plain == EVERYWHERE
    assert app.handlers.kinds == (
        "task", "command", "http", "workflow", "notify", "sql:mail", "sql:shop"
    )  # fmt: skip
    options = app.handlers.kind_options
    assert (options.allow_env, options.pass_env) == (frozenset({"PATH"}), ("TZ",))
    assert worker_options(app, settings, WorkerRequest()).kinds == app.handlers.kinds
    assert "sqlite" not in repr(options)  # a URL may have a password


def test_a_worker_without_code_does_not_take_tasks():
    app = App("memory://")
    app.handlers.kind_options = read_kind_options(Settings(), tasks=False, allow_command=True)

    assert app.handlers.kinds == ("command", "http", "workflow", "notify")


def test_a_worker_without_apprise_does_not_offer_to_notify(monkeypatch):
    monkeypatch.setattr("daybell.sdk.handlers.can_notify", lambda: False)

    assert App("memory://").handlers.kinds == ("task", "http", "workflow")


def test_a_key_that_is_none_is_refused_at_the_start():
    with pytest.raises(UsageError, match=r"DAYBELL_SECRETS_KEY.* `daybell secrets key` makes one"):
        read_kind_options(Settings(secrets_key="c2hvcnQ="))


def test_a_connection_that_names_no_database_is_refused_at_the_start():
    with pytest.raises(UsageError, match=r"connection shop: 'sqlite:///s.db\?a=b' names no file"):
        read_kind_options(Settings(connections={"shop": "sqlite:///s.db?a=b"}))


def test_the_key_of_all_secrets_is_passed_to_no_command():
    with pytest.raises(UsageError, match=r"every command could open all secrets"):
        read_kind_options(Settings(), pass_env="TZ,DAYBELL_SECRETS_KEY")


@pytest.mark.parametrize(
    ("host", "said", "expected"),
    [
        ("127.0.0.1", {}, (True, True)),
        ("localhost", {}, (True, True)),
        ("::1", {}, (True, True)),
        ("0.0.0.0", {}, (False, False)),
        ("192.0.2.1", {}, (False, False)),
        ("127.0.0.1", {"allow_command": False}, (False, True)),
        ("127.0.0.1", {"allow_private_http": False}, (True, False)),
        ("0.0.0.0", {"allow_command": True}, (True, False)),
        ("0.0.0.0", {"allow_private_http": True}, (False, True)),
    ],
)
def test_dev_allows_by_itself_what_only_this_machine_can_ask_for(host, said, expected):
    app = App("memory://")

    allow_kinds(app, Settings(), DevOptions(host=host, **said))

    options = app.handlers.kind_options
    assert (options.allow_command, options.allow_private_http) == expected
    assert ("command" in app.handlers.kinds) is expected[0]


def as_read(words):
    """The options of a command, as it reads these words."""
    name, *rest = words[3:]
    group: Any = get_command(program)
    command = group.load(name)
    return command.make_context(name, list(rest), resilient_parsing=True).params


def test_several_processes_are_told_the_same():
    request = WorkerRequest(
        allow_command=True, allow_private_http=True, allow_env="PATH", pass_env="TZ,LANG"
    )
    options = worker_options(App("memory://"), Settings(), request)

    told = as_read(worker.child_command(request, Settings(), options, 1))
    plain = as_read(worker.child_command(WorkerRequest(spec="app:app"), Settings(), options, 1))

    assert told["app"] is None  # and not an empty name
    assert (told["allow_command"], told["allow_private_http"]) == (True, True)
    assert (told["allow_env"], told["pass_env"]) == ("PATH", "TZ,LANG")
    assert (plain["app"], plain["allow_command"], plain["allow_private_http"]) == (
        "app:app", False, False
    )  # fmt: skip


@pytest.mark.parametrize("said", [None, True, False])
def test_a_process_that_is_started_afresh_is_told_the_same(said):
    options = DevOptions(
        allow_command=said, allow_private_http=said, allow_env="PATH", pass_env="TZ"
    )

    told = as_read(dev.child_command("app:app", options, None))

    assert (told["allow_command"], told["allow_private_http"]) == (said, said)
    assert (told["allow_env"], told["pass_env"]) == ("PATH", "TZ")


def test_without_an_app_there_is_one_without_tasks(monkeypatch):
    monkeypatch.delenv("DAYBELL_DATABASE_URL", raising=False)
    app = find_app(None, Settings(), flag=None)

    assert app.tasks == {}
    with pytest.raises(UsageError, match=r"there is no file 'gone.py'"):
        find_app("gone.py", Settings(), flag=None)


@pytest.mark.parametrize(
    ("host", "kinds", "is_said"),
    [
        ("127.0.0.1", ("task", "command"), True),
        ("localhost", ("task", "command"), True),
        ("127.0.0.1", EVERYWHERE, False),
        ("0.0.0.0", ("task", "command"), False),  # who gets in has a key
    ],
)
def test_who_starts_dev_is_told_whose_commands_may_run(host, kinds, is_said):
    line = describe_kinds(kinds, host=host)

    assert line.startswith(", ".join(kinds))
    assert ("may define jobs" in line and line.endswith("(--no-allow-command)")) is is_said


@pytest.mark.parametrize(
    ("store", "connection"),
    [
        ("sqlite:///daybell.db", "sqlite:///./x/../daybell.db"),
        ("sqlite:///daybell.db", "sqlite:///link.db"),
        ("sqlite:///daybell.db", "sqlite:///hard.db"),
        ("postgresql://me:hunter2@db/x", "postgres://me:other-secret@DB:5432/x?sslmode=require"),
    ],
)
def test_a_connection_that_is_the_store_is_refused(store, connection, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "daybell.db").touch()
    (tmp_path / "link.db").symlink_to("daybell.db")
    (tmp_path / "hard.db").hardlink_to("daybell.db")
    settings = Settings(database_url=store, connections={"shop": connection})

    with pytest.raises(UsageError, match=r"connection shop: .* is the store itself") as refused:
        read_kind_options(settings)
    assert "secret@" not in str(refused.value)

    read_kind_options(settings, store_url="sqlite:///other.db")
    read_kind_options(Settings(database_url="postgresql://me@db/x",
                          connections={"shop": "postgresql://reporter@db/x"}))  # fmt: skip
