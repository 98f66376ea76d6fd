"""Print where each thread stands when a test hangs.

The option `faulthandler_timeout` of pytest starts and joins a thread for each test, and on a busy
machine each test waits for both. Here one timer serves all tests of a minute.
"""

import faulthandler
import time
from typing import Final

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

HANGS_SECONDS: Final = 240.0  # since the timer was set, up to a minute before the test
RESET_SECONDS: Final = 60.0
_set_at = float("-inf")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None):
    global _set_at
    if time.monotonic() >= _set_at + RESET_SECONDS:
        _set_at = time.monotonic()
        output = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(HANGS_SECONDS, file=output)
    try:
        return (yield)
    finally:
        if nextitem is None:  # this process may wait for others now
            faulthandler.cancel_dump_traceback_later()
            _set_at = float("-inf")
