"""Handlers around others have their policies."""

from types import SimpleNamespace
from typing import Any

from daybell.core.retry import Retry
from daybell.runners.kind import HandlerWrapper


def test_policies_are_those_of_the_handler_inside_also_if_it_learns_them_as_it_runs():
    policies = {"retry": Retry(), "timeout": 5.0, "goes_on": True, "starts_once": True}
    inner: Any = SimpleNamespace(**policies, grace=0.0)
    around = HandlerWrapper(inner)

    inner.grace = 3.0  # as a command's settings say, once they are known

    assert {name: getattr(around, name) for name in policies} == policies
    assert around.grace == 3.0
