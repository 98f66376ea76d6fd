"""Discard what a failed test leaves behind.

A test that fails leaves its connections open: its traceback holds them. They are closed when
garbage is collected, in the middle of a later test, which the warning about them would fail too.
As a plugin (`-p tests.leftovers`, and tests/conftest.py) this collects them after the failure.
"""

import gc
import sys
import warnings
from typing import Final

import pytest

FAILED: Final = pytest.StashKey[bool]()
OF_LAST_ERROR: Final = ("last_type", "last_value", "last_traceback", "last_exc")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item):
    result = yield
    if item.stash.get(FAILED, False):
        discard()
    return result


def discard() -> None:
    """Collect garbage without warnings about it."""
    for name in OF_LAST_ERROR:  # pytest keeps the error for a debugger
        if hasattr(sys, name):
            delattr(sys, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
