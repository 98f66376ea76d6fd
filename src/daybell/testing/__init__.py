"""Tools for the tests of programs with Daybell. Reading order: bench, driver, store, fixtures."""

from daybell.testing.bench import Bench, SyncBench
from daybell.testing.context import START, TestContext, context
from daybell.testing.driver import EndlessRun, Run

__all__ = ["START", "Bench", "EndlessRun", "Run", "SyncBench", "TestContext", "context"]
