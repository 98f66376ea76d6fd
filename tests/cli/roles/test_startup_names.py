"""By which names a server is reached."""

import socket

import pytest

from daybell.cli.roles.startup import allowed_names, describe_names, is_everywhere


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_who_listens_everywhere_goes_by_this_machines_names(host, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "desk")
    monkeypatch.setattr(socket, "getfqdn", lambda: "desk.example.org")

    assert is_everywhere(host)
    assert allowed_names(host, ["jobs.example"]) == ("jobs.example", "desk", "desk.example.org")


def test_who_listens_at_one_address_goes_by_what_was_given():
    assert allowed_names("127.0.0.1", ["jobs.example"]) == ("jobs.example",)
    assert allowed_names("desk", []) == ()


def test_a_machine_with_an_odd_name_can_be_used(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Ana's desk")
    monkeypatch.setattr(socket, "getfqdn", lambda: "")

    assert allowed_names("0.0.0.0", []) == ()


def test_the_names_are_told():
    assert describe_names(["desk"]).startswith(
        "reached as localhost, desk, and by this machine's addresses"
    )
