"""Hosts of PostgreSQL URLs, and which connections must be encrypted."""

from typing import Any, cast

import certifi
import pytest
from asyncpg import connect_utils

from daybell.core.postgres_url import (
    check_options,
    is_same_login,
    read_hosts,
    ssl_mode,
    tls_options,
)
from daybell.errors import UsageError


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://me:a@b/x", [("b", 5432)]),
        ("postgresql://me@a:1,b/x", [("a", 1), ("b", 5432)]),
        ("postgresql://me@[::1]:7,[::2]/x", [("::1", 7), ("::2", 5432)]),
        ("postgresql:///x?host=a,b&port=3,4", [("a", 3), ("b", 4)]),
        ("postgresql:///x?host=a,b&port=3", [("a", 3), ("b", 3)]),
        ("postgresql://%2Frun%2Fpg/x", [("/run/pg", 5432)]),
    ],
)
def test_the_hosts_of_a_url_are_read(url, hosts):
    assert read_hosts(url) == hosts


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:pw@localhost/x",
        "postgresql://me:pw@127.8.0.1:5432/x",
        "postgresql://me:pw@[::1]/x",
        "postgresql://me:pw@[::ffff:127.0.0.1]/x",
        "postgresql://me:pw@localhost:1,127.0.0.1:2/x",
        "postgresql:///x?host=/run/postgresql",
        "postgresql://me@%2Frun%2Fpostgresql/x",
        "postgresql:///x",
    ],
)
def test_this_machine_may_be_spoken_to_without_tls(url):
    assert tls_options(url, {}) == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:pw@db.example/x",
        "postgresql://me:pw@10.0.0.7/x",
        "postgresql://me:pw@0.0.0.0/x",
        "postgresql://me:pw@127.0.0.1.example/x",
        "postgresql://me:pw@localhost.example/x",
        "postgresql://localhost@db.example/x",
        "postgresql://localhost,db.example/x",
        "postgresql://x@db.example,@localhost/x",
        "postgresql://me:pw@/x?host=db.example",
    ],
)
def test_a_network_is_spoken_to_with_tls_unless_the_mode_is_given(url):
    more = "&" if "?" in url else "?"

    assert tls_options(url, {}) == {"ssl": "require"}
    assert tls_options(f"{url}{more}sslmode=disable", {}) == {}
    assert tls_options(url, {"PGSSLMODE": "prefer"}) == {}
    assert ssl_mode(f"{url}{more}sslmode=verify-full", {"PGSSLMODE": "x"}) == "verify-full"


def test_the_environment_may_name_a_host_of_the_network():
    assert tls_options("postgresql:///x", {"PGHOST": "db.example"}) == {"ssl": "require"}
    assert tls_options("postgresql:///x", {"PGHOST": "/run/pg"}) == {}


SERVICES = f"""
[strict]
host=db.example
sslmode=verify-full
sslrootcert={certifi.where()}
[plain]
host=db.example
sslmode=disable
[silent]
host=db.example
"""


@pytest.fixture
def services(tmp_path, monkeypatch):
    """The environment, with a service file."""
    for name in ("PGSERVICE", "PGSSLMODE", "PGHOST"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "services.conf"
    file.write_text(SERVICES)
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    return {"PGSERVICEFILE": str(file)}


def driver_mode(url: str, **options: Any) -> str:
    """The mode that the driver makes of a URL and options."""
    names = (
        "host", "port", "user", "password", "passfile", "database", "ssl", "service", "servicefile",
        "direct_tls", "server_settings", "target_session_attrs", "krbsrvname", "gsslib",
    )  # fmt: skip
    parse = cast("Any", connect_utils)._parse_connect_dsn_and_args
    _, found = parse(dsn=url, **{**dict.fromkeys(names), **options})
    return found.sslmode.name


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql:///?service=strict", "verify_full"),
        ("postgresql://me@db.example/x?service=strict", "verify_full"),
        ("postgresql:///?service=strict&sslmode=disable", "disable"),
        ("postgresql:///?service=plain", "disable"),
        ("postgresql:///?service=silent", "require"),
        ("postgresql://localhost/x?service=silent", "require"),
        ("postgresql:///?service=unknown", "require"),
    ],
)
def test_the_mode_of_a_service_file_holds(services, url, mode):
    assert driver_mode(url, **tls_options(url, services)) == mode


def test_a_service_file_wins_over_the_environment(services):
    environ = {**services, "PGSSLMODE": "disable"}

    assert ssl_mode("postgresql:///?service=strict", environ) == "verify-full"
    assert ssl_mode("postgresql:///?service=silent", environ) == "disable"


def test_a_service_file_is_found_at_home(services, monkeypatch, tmp_path):
    (tmp_path / ".pg_service.conf").write_text(SERVICES)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert ssl_mode("postgresql:///?service=strict", {}) == "verify-full"


def test_a_service_of_the_environment_is_ignored_as_the_driver_does(services, monkeypatch):
    monkeypatch.setenv("PGSERVICE", "strict")
    url = "postgresql://me@localhost/x"

    assert tls_options(url, {**services, "PGSERVICE": "strict"}) == {}
    assert driver_mode(url) == "prefer"


def test_a_service_file_that_cannot_be_read_is_named_without_its_text(tmp_path):
    file = tmp_path / "services.conf"
    file.write_text("password=hidden")

    with pytest.raises(UsageError, match=r"services\.conf cannot be read") as refused:
        tls_options("postgresql:///?service=x", {"PGSERVICEFILE": str(file)})
    assert "hidden" not in str(refused.value)


def test_options_of_other_drivers_are_refused():
    for option in ("ssl=true", "tls=1", "ssl_mode=require", "ssl"):
        with pytest.raises(UsageError, match="TLS is chosen with sslmode, such as"):
            check_options(f"postgresql://db/x?application_name=a&{option}")
    check_options("postgresql://db/x?sslmode=require&application_name=a")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("postgresql://me:a@db/x", "postgres://me:b@DB:5432/x?sslmode=require", True),
        ("postgresql://me@127.0.0.1/x", "postgresql://me@localhost/x", True),
        ("postgresql://me@a,b/x", "postgresql://me@b/x", True),
        ("postgresql://me@db", "postgresql://me@db/me", True),
        ("postgresql://me@db/x", "postgresql://me@db/y", False),
        ("postgresql://me@db/x", "postgresql://reporter@db/x", False),
        ("postgresql://me@db/x", "postgresql://me@db:5433/x", False),
    ],
)
def test_urls_of_one_login_are_told(one, other, is_same):
    assert is_same_login(one, other) is is_same
