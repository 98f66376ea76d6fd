"""Rules for the tree of tests: a file has the name of a module, a module has a file of tests.

Exceptions are in `tests/tidy_limits.py`; each rule is shown a bad example, as in `test_tidy.py`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.test_tidy import PACKAGE, ROOT, modules_in
from tests.tidy_limits import TESTED_IN, TESTED_WITH, TESTS_OF_NO_MODULE

TESTED_LINES = 100  # a longer module has a file of tests


@dataclass(frozen=True)
class Tree:
    """Paths in the package, with their numbers of lines, and paths in `tests/`."""

    modules: dict[str, int]
    tests: frozenset[str]
    helpers: frozenset[str] = frozenset()

    def tests_of(self, module: str) -> list[str]:
        return [test for test in self.tests if is_test_of(test, module)]


@cache
def read_tree() -> Tree:
    paths = {module.path for module in modules_in(ROOT / "tests")}
    tests = {path for path in paths if PurePosixPath(path).name.startswith("test_")}
    lines = {module.path: len(module.text.splitlines()) for module in modules_in(PACKAGE)}
    return Tree(lines, frozenset(tests), frozenset(paths - tests))


def is_test_of(test: str, module: str) -> bool:
    """Whether a file has the name of a module, alone or before a topic, in the same folder.

    The `__init__.py` of a folder is tested under the name of the folder. All files of a folder
    that has the name of a module are tests of the module.
    """
    place, stem = parts_of(test)
    folder, name = parts_of(module)
    if name in ("__init__", "__main__"):
        name = folder.rpartition("/")[2] if folder != "." else "daybell"
    elif place == (name if folder == "." else f"{folder}/{name}"):
        return True
    topic = stem.removeprefix("test_")
    return (topic == name or topic.startswith(f"{name}_")) and place in (
        folder,
        TESTED_WITH.get(folder),
    )


@cache
def parts_of(path: str) -> tuple[str, str]:
    """The folder of a file, and its name without the suffix."""
    file = PurePosixPath(path)
    return str(file.parent), file.stem


def misnamed_tests(tree: Tree) -> Iterator[str]:
    modules = {*tree.modules, *tree.helpers}
    for test in sorted(tree.tests):
        if any(fnmatch(test, pattern) for pattern in TESTS_OF_NO_MODULE):
            continue
        if not any(is_test_of(test, module) for module in modules):
            yield f"{test} has the name of no module: test_<module>_<topic>.py, in its folder"


def untested_modules(tree: Tree) -> Iterator[str]:
    for module, lines in tree.modules.items():
        if lines <= TESTED_LINES or tree.tests_of(module):
            continue
        if TESTED_IN.get(module) not in tree.tests:
            yield f"{module} has no file of tests, and TESTED_IN names none that exists"


def exceptions_without_need(tree: Tree) -> Iterator[str]:
    for pattern in TESTS_OF_NO_MODULE:
        if not any(fnmatch(test, pattern) for test in tree.tests):
            yield f"TESTS_OF_NO_MODULE: {pattern}"
    for module in TESTED_IN:
        if tree.modules.get(module, 0) <= TESTED_LINES or tree.tests_of(module):
            yield f"TESTED_IN: {module}"


RULES: list[Callable[[Tree], Iterable[str]]] = [
    misnamed_tests,
    untested_modules,
    exceptions_without_need,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_follows(rule):
    tree = read_tree()

    problems = list(rule(tree))

    assert tree.modules
    assert tree.tests
    assert not problems, "\n".join(problems)


def a_tree(module: str, *tests: str, lines: int = TESTED_LINES + 1, helper: str = "x.py") -> Tree:
    return Tree({module: lines}, frozenset(tests), frozenset({helper}))


@pytest.mark.parametrize(
    ("rule", "tree", "problem"),
    [
        (misnamed_tests, a_tree("core/job.py", "core/test_mourning.py"), "the name of no module"),
        (misnamed_tests, a_tree("core/job.py", "core/test_jobs.py"), "the name of no module"),
        (misnamed_tests, a_tree("core/job.py", "test_job.py"), "the name of no module"),
        (misnamed_tests, a_tree("core/job.py", "core/kinds/test_job.py"), "the name of no module"),
        (
            misnamed_tests,
            a_tree("store/sqlite/queue.py", "store/postgres/test_queue.py"),
            "the name of no module",
        ),
        (untested_modules, a_tree("core/job.py"), "core/job.py has no file of tests"),
        (untested_modules, a_tree("core/job.py", "core/test_jobs.py"), "has no file of tests"),
        (untested_modules, a_tree("client/wire.py"), "TESTED_IN names none that exists"),
        (
            exceptions_without_need,
            a_tree("client/wire.py", "client/test_wire.py"),
            "TESTED_IN: client/wire.py",
        ),
        (exceptions_without_need, a_tree("client/wire.py", lines=9), "TESTED_IN: client/wire.py"),
        (exceptions_without_need, a_tree("core/job.py"), "TESTED_IN: client/wire.py"),
        (exceptions_without_need, a_tree("core/job.py"), "TESTS_OF_NO_MODULE: test_docs.py"),
    ],
)
def test_a_rule_notices(rule, tree, problem):
    assert any(problem in found for found in rule(tree))


@pytest.mark.parametrize(
    "tree",
    [
        a_tree("core/job.py", "core/test_job.py"),
        a_tree("core/job.py", "core/test_job_templates.py"),
        a_tree("sdk/durable.py", "sdk/durable/test_waiting.py"),
        a_tree("core/when/__init__.py", "core/when/test_when_effort.py"),
        a_tree("store/sqlite/queue.py", "store/test_queue_claim.py"),
        a_tree("cli/actions/admin.py", "cli/commands/test_admin_keys.py"),
        a_tree("core/ids.py", "cli/test_forks.py", lines=TESTED_LINES, helper="cli/forks.py"),
        a_tree("core/ids.py", "test_docs.py", lines=TESTED_LINES),
    ],
)
def test_rules_let_good_names_pass(tree):
    assert [*misnamed_tests(tree), *untested_modules(tree)] == []
