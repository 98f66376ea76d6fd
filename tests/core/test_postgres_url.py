"""Hosts of PostgreSQL URLs, and which connections must be encrypted."""

import pytest

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
        "postgresql://me:pw@localhost/x?service=other",
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
