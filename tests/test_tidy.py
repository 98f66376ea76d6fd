"""House rules that no reviewer should have to remember: layers, sizes, banned calls, names, words.

A rule is a function from a module, or from the whole house, to its problems. Each is shown a bad
example below: a rule that cannot fail guards nothing. `python tools/house.py` prints the figures.

Exceptions and ceilings are in `tests/tidy_limits.py` and may only shrink. A change that makes an
entry unnecessary removes it: `test_every_exception_is_still_needed` lists those entries.
"""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

import pytest

from tests.tidy_limits import (
    CYCLES,
    DEEPEST,
    IMPORTS_IN_FUNCTIONS,
    LONG_FILES,
    NAMED_TWICE,
    SHAPES,
    SINGLE_IMPORTERS,
    USER_FILES,
)
from tools import house
from tools.house import House, layer_of

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "daybell"

FILE_LINES = 800  # a file ends where its concern ends; a longer one gives its reason below
TEST_FILE_LINES = 800
FUNCTION_LINES = 60
FOLDER_MODULES = 24
DEPTH = 2  # of inheritance, counted inside a layer

# Who may import whom. `errors` and `settings` are open to all, and everybody may import itself.
OPEN = {"errors", "settings", "version"}
LAYERS: dict[str, set[str]] = {
    "core": set(),
    "store": {"core"},
    "engine": {"core", "store"},
    "runners": {"core"},
    "client": {"core", "store"},
    "sdk": {"client", "engine", "runners", "core"},
    "api": {"client", "core"},
    "logging": {"sdk"},  # for the logging configuration of users
    # Observers, with an extra each.
    "otel": {"core"},
    "sentry": {"core"},
    "demo": {"sdk", "engine", "core"},  # a user's app that comes with the package
    # Its own load, processes and judge, for `daybell chaos` and the tests.
    "chaos": {"sdk", "client", "engine", "store", "core"},
    # For users' tests: turns the engine by hand, on a store in memory.
    "testing": {"sdk", "client", "engine", "runners", "store", "core"},
    "errors": set(),
    "version": set(),
    "settings": {"core"},  # durations are written as "15s" there, too
}
LAYERS |= {edge: set(LAYERS) | {"cli"} for edge in ("cli", "__init__", "__main__")}

BANNED = {
    "asyncio.sleep": "clock.sleep(), so that a test can move time",
    "datetime.date.today": "`now` as an argument",
    "datetime.datetime.now": "`now` as an argument, or clock.now() in the engine",
    "datetime.datetime.today": "`now` as an argument, or clock.now() in the engine",
    "datetime.datetime.utcnow": "`now` as an argument, or clock.now() in the engine",
    "eval": "a parser; text is never code",
    "exec": "a parser; text is never code",
    "os.urandom": "an id from core/ids.py",
    "pickle": "JSON through core/payload.py; a pickle runs whatever was put into it",
    "random": "`jitter` as an argument",
    "time.monotonic": "clock.monotonic()",
    "time.sleep": "clock.sleep(), which never blocks the loop",
    "time.time": "`now` as an argument, or clock.now() in the engine",
    "time.time_ns": "`now` as an argument, or clock.now() in the engine",
    "uuid.uuid4": "an id from core/ids.py",
}
# The ports: where the world is let in, what exactly, and why there.
ALLOWED: dict[str, tuple[set[str], str]] = {
    "store/sqlite/*": ({"time.time"}, "the store's clock; SQLite has no server to ask"),
    "chaos/faults.py": ({"random", "random.Random"}, "faults drawn from a seed"),
    "chaos/load.py": ({"random", "random.Random"}, "a load drawn from a seed"),
    "chaos/workflows.py": ({"random", "random.Random"}, "workflows drawn from a seed"),
    "cli/doctor/report.py": ({"time.time"}, "it compares this machine's clock with the store's"),
    "engine/loop.py": (
        {"time.time", "time.monotonic", "random", "random.random", "asyncio.sleep"},
        "the engine's port to time and chance",
    ),
    "api/server.py": ({"asyncio.sleep"}, "it waits for the machine to have files again"),
    "runners/http.py": ({"time.time"}, "receivers of a signed request compare it with their clock"),
    "client/backfill.py": ({"asyncio.sleep"}, "it waits for another backfill to be made"),
    "sdk/durable.py": ({"random", "random.Random"}, "drawn from the execution's id as its seed"),
    "core/ids.py": ({"time.time_ns", "os.urandom"}, "UUIDv7 is a time and random bits"),
}

NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")),
    *sorted(ROOT.glob("docs/**/*.md")),
]

# A checkout's own path is added below. Lock files say which version, never where it came from.
MACHINE_TRACES = [
    r"(?<![\w.])/(?:root|home/\w+|Users/\w+)/",
    r"(?:index-url|find-links|registry)\s*[=:]\s*\S*://",
    r'"resolved": "\w+://',
]


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the package, as in the tables above."""

    path: str
    text: str

    @cached_property
    def parsed(self) -> house.Module:
        return house.Module(self.path, self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return self.parsed.nodes

    @property
    def layer(self) -> str:
        return self.path.partition("/")[0].removesuffix(".py")

    @property
    def package(self) -> list[str]:
        """The parts of the package that relative imports start from."""
        return ["daybell", *Path(self.path).parent.parts]


Rule = Callable[[Module], Iterable[str]]


def layers(module: Module) -> Iterator[str]:
    if module.layer not in LAYERS:
        yield f"{module.layer} is no known layer; give it a place in LAYERS"
        return
    for line, layer in imported_layers(module):
        if layer not in LAYERS[module.layer] | OPEN | {module.layer}:
            yield f"line {line}: {module.layer} must not import {layer}"


def imported_layers(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in import_targets(node, module.package):
                # The version is a constant and belongs to everybody.
                if target[0] == "daybell" and target[1:] != ["__version__"]:
                    yield node.lineno, target[1] if len(target) > 1 else "__init__"


def import_targets(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[list[str]]:
    """Return the full dotted names that a statement imports, relative ones resolved."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".") for alias in node.names]
    start = package[: len(package) - node.level + 1] if node.level else []
    source = [*start, *(node.module.split(".") if node.module else [])]
    return [[*source, alias.name] for alias in node.names]


def sizes(module: Module) -> Iterator[str]:
    count = len(module.text.splitlines())
    if count > FILE_LINES and module.path not in LONG_FILES:
        yield f"{count} lines; over {FILE_LINES} a file needs a reason in LONG_FILES"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES:
                yield f"{node.name} has {count} lines; a function has at most {FUNCTION_LINES}"


def sizes_of_tests(module: Module) -> Iterator[str]:
    count = len(module.text.splitlines())
    if count > TEST_FILE_LINES:
        yield f"{count} lines; a file of tests stays under {TEST_FILE_LINES}: divide it by subject"


def docstrings(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.parsed.tree):
        yield "the module has no docstring"


def banned_calls(module: Module) -> Iterator[str]:
    ports = [names for place, (names, _) in ALLOWED.items() if fnmatch(module.path, place)]
    allowed = set[str]().union(*ports)
    for line, used in sorted(set(names_used(module.nodes))):
        for name, instead in BANNED.items():
            if (used == name or used.startswith(f"{name}.")) and used not in allowed:
                yield f"line {line}: {used} is banned; use {instead}"


def names_used(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield every dotted name in full, whatever it was imported as."""
    origin: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                origin[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            first, dot, rest = dotted(node).partition(".")
            # A name of our own, such as a parameter called `random`, is not the module.
            if first in origin or first in ("eval", "exec"):
                yield node.lineno, origin.get(first, first) + dot + rest


def dotted(node: ast.expr) -> str:
    """Return a name with its dots; empty: it is of something that has no name."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def loose_ends(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if mark := re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"line {number}: {mark[0]}; do it, or open an issue"


def telling_names(module: Module) -> Iterator[str]:
    for part in Path(module.path).with_suffix("").parts:
        if part in NAMES_THAT_SAY_NOTHING:
            yield f"{part!r} says nothing; name it after what it does"


def file_names(module: Module) -> Iterator[str]:
    """Files and dotted names in docstrings and comments exist."""
    for text in module.parsed.prose:
        for path in mentioned_files(text):
            if not is_file(path, beside=f"src/daybell/{module.path}"):
                yield f"{path} does not exist"
        for name in re.findall(rf"`((?:daybell\.)?(?:{FLOORS})(?:\.\w+)+)[`(]", text):
            if not names_something(name):
                yield f"{name} does not exist"


FLOORS = "core|store|engine|runners|client|sdk|api|cli|chaos|testing"


def mentioned_files(text: str) -> Iterator[str]:
    prose = re.sub(r"\]\([^)]*\)", "]", text)  # `test_docs.py` follows the links
    for path in re.findall(r"(?<![\w./<-])[\w.-]+(?:/[\w.-]+)*\.(?:py|sql)\b", prose):
        if path not in USER_FILES:
            yield path


@cache
def all_files() -> frozenset[str]:
    kinds = ("*.py", "*.sql")
    return frozenset(
        file.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "tools", "benchmarks", "examples")
        for kind in kinds
        for file in (ROOT / folder).rglob(kind)
    )


def is_file(path: str, *, beside: str) -> bool:
    """Whether a path names a file: from the root, the package, the tests, or one beside."""
    starts = ("", "src/daybell/", "tests/", f"{Path(beside).parent.as_posix()}/")
    if any(start + path in all_files() for start in starts):
        return True
    return "/" in path and any(file.endswith(f"/{path}") for file in all_files())


def names_something(name: str) -> bool:
    """Whether a dotted name is a module, or a name that its module has."""
    modules = the_house().modules
    full = name if name.startswith("daybell.") else f"daybell.{name}"
    module, rest = full, ""
    while module and module not in modules:
        module, _, rest = module.rpartition(".")
    return not rest or re.search(rf"\b{rest}\b", modules[module].text) is not None


RULES: list[Rule] = [
    layers,
    sizes,
    docstrings,
    banned_calls,
    loose_ends,
    telling_names,
    file_names,
]
RULES_OF_TESTS: list[Rule] = [sizes_of_tests, docstrings, telling_names]


@cache
def the_house() -> House:
    return House.read()


def inheritance(whole: House) -> Iterator[str]:
    for name, depth in whole.depths_inside.items():
        most = DEEPEST.get(layer_of(name), DEPTH)
        if depth > most:
            yield f"{name} is {depth} classes deep; at most {most}: pass objects, do not inherit"


def cycles(whole: House) -> Iterator[str]:
    for cycle in whole.cycles:
        if not any(is_within(cycle, known) and len(cycle) <= CYCLES[known] for known in CYCLES):
            yield f"these import each other: {', '.join(cycle)}"


def is_within(cycle: list[str], known: tuple[str, ...]) -> bool:
    return all(any(fnmatch(name, pattern) for pattern in known) for name in cycle)


def folders(whole: House) -> Iterator[str]:
    for folder, count in whole.folders.items():
        if count > FOLDER_MODULES:
            yield f"{folder} has {count} modules; at most {FOLDER_MODULES}: merge, or make a room"


def single_importers(whole: House) -> Iterator[str]:
    found = [f"{name} <- {by}" for name, by in whole.single_importers]
    if len(found) > SINGLE_IMPORTERS:
        yield f"{len(found)} modules have one importer, at most {SINGLE_IMPORTERS}: {found}"


def imports_in_functions(whole: House) -> Iterator[str]:
    count = len(set(whole.imports_in_functions))
    if count > IMPORTS_IN_FUNCTIONS:
        yield f"{count} imports are in functions, at most {IMPORTS_IN_FUNCTIONS}: move them up"


def words(whole: House) -> Iterator[str]:
    yield from over_budget(whole.word_rates, "docstrings and comments")


def words_of_pages(pages: Iterable[str]) -> Iterator[str]:
    rates = house.rates(" ".join(house.page_prose(page) for page in pages))
    yield from over_budget(rates, "pages")


def over_budget(rates: Mapping[str, float], prose: str) -> Iterator[str]:
    for word, rate in rates.items():
        most = house.WORDS[word][1]
        if rate > most:
            yield (
                f"{word!r} is used {rate:.2f} times per 1,000 words of {prose}, at most {most}:"
                " name the component"
            )


def class_names(whole: House) -> Iterator[str]:
    for name, modules in homonyms(whole):
        if name not in NAMED_TWICE:
            yield f"{name} is a class of {', '.join(modules)}; one word is for one thing"


def homonyms(whole: House) -> Iterator[tuple[str, list[str]]]:
    """Yield class names that several modules use, and these, without the groups above."""
    for name, modules in whole.class_names.items():
        own = [one for one in modules if one not in SHAPES]
        if len(own) > 1:
            yield name, own


RULES_OF_THE_HOUSE: list[Callable[[House], Iterable[str]]] = [
    inheritance,
    cycles,
    folders,
    single_importers,
    imports_in_functions,
    words,
    class_names,
]


def exceptions_without_need(whole: House) -> Iterator[str]:
    """Yield entries of the tables above that nothing needs any more."""
    for path in LONG_FILES:
        file = PACKAGE / path
        if not file.is_file() or len(file.read_text().splitlines()) <= FILE_LINES:
            yield f"LONG_FILES: {path}"
    for layer, most in DEEPEST.items():
        depth = max(d for name, d in whole.depths_inside.items() if layer_of(name) == layer)
        if depth < most:
            yield f"DEEPEST: {layer} is {depth}"
    for known, most in CYCLES.items():
        size = max((len(one) for one in whole.cycles if is_within(one, known)), default=0)
        if size < most:
            yield f"CYCLES: {known} is {size}"
    twice = {name for name, _ in homonyms(whole)}
    yield from (f"NAMED_TWICE: {name}" for name in NAMED_TWICE if name not in twice)


def machine_traces(file: str, text: str, *, checkout: Path = ROOT) -> Iterator[str]:
    """Yield what ties a file to the machine it was written on."""
    patterns = list(MACHINE_TRACES)
    # A shallow path such as /src would be found in half of all prose.
    if len(checkout.parts) > 2:
        patterns.append(rf"(?<![\w.]){re.escape(str(checkout))}\b")
    if file.startswith("requirements/"):
        patterns.append(r"\w+://")
    patterns = [pattern for pattern in patterns if re.search(pattern, text)]  # seldom any
    for number, line in enumerate(text.splitlines() if patterns else (), 1):
        for pattern in patterns:
            if found := re.search(pattern, line):
                yield f"{file}:{number}: {found[0]}"


def modules_in(folder: Path) -> Iterator[Module]:
    """Read modules one by one. No tree is kept: it would slow down the garbage collection."""
    for file in sorted(folder.rglob("*.py")):
        yield Module(file.relative_to(folder).as_posix(), file.read_text())


def problems_in(folder: Path, rules: Iterable[Rule]) -> list[str]:
    found: list[str] = []
    for module in modules_in(folder):
        for rule in rules:
            found += [f"{rule.__name__}: {module.path}: {problem}" for problem in rule(module)]
    return found


def test_the_source_follows_the_rules():
    assert list(PACKAGE.rglob("*.py"))
    assert not (problems := problems_in(PACKAGE, RULES)), "\n".join(problems)


def test_the_tests_follow_the_rules():
    assert not (problems := problems_in(ROOT / "tests", RULES_OF_TESTS)), "\n".join(problems)


def test_the_house_follows_the_rules_and_every_exception_is_still_needed():
    whole = House.read()
    problems = [
        f"{rule.__name__}: {problem}" for rule in RULES_OF_THE_HOUSE for problem in rule(whole)
    ]
    unneeded = list(exceptions_without_need(whole))

    assert whole.modules
    assert not problems, "\n".join(problems)
    assert not unneeded, "remove, or lower:\n" + "\n".join(unneeded)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_mention_files_that_exist(page):
    name = page.relative_to(ROOT).as_posix()

    gone = [path for path in mentioned_files(page.read_text()) if not is_file(path, beside=name)]

    assert gone == []


def test_pages_keep_to_the_word_budget():
    assert list(words_of_pages(page.read_text() for page in PAGES)) == []


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("Look at what it does.", "'what' is used"),
        ("The worker whose lease ends", "'who' is used"),
        ("[Somebody](a.md) has it.", "'nobody' is used"),
    ],
)
def test_a_word_over_the_budget_of_pages_is_noticed(page, problem):
    assert any(problem in found for found in words_of_pages([page]))


def test_code_and_addresses_are_no_prose():
    page = "A [name](what-it-does.md).\n```python\nwho = what\n```\nAn end.\n"

    assert list(words_of_pages([page])) == []


def test_the_glossary_names_classes_that_exist():
    rows = glossary((ROOT / "ARCHITECTURE.md").read_text())

    gone = [(word, path, name) for word, path, name in rows if not defines(path, name)]

    assert len(rows) > 15
    assert gone == []


def test_the_rooms_name_modules_that_exist():
    names = list(rooms((ROOT / "ARCHITECTURE.md").read_text()))

    gone = [name for name in names if not is_module(name)]

    assert len(names) > 50
    assert gone == []


def rooms(text: str) -> Iterator[str]:
    """Yield the modules and folders in the table of rooms; its header names the folder of each."""
    header, _, *rows = re.findall(r"^\|.*\|$", text[text.index("| room |") :], re.M)
    folders = [re.findall(r"`([\w/]+/)`", cell) for cell in header.split("|")]
    for row in rows:
        if row.startswith("| floor |"):
            return
        for places, cell in zip(folders, row.split("|"), strict=True):
            for name in re.findall(r"`([\w/]+)`", cell):
                yield from (place + name for place in places)


def is_module(name: str) -> bool:
    return (PACKAGE / f"{name}.py").is_file() or (PACKAGE / name).is_dir()


def glossary(text: str) -> list[tuple[str, str, str]]:
    """Return the words of the glossary with the file and the class that carry them."""
    return re.findall(r"^\| \*\*([\w ]+)\*\* \|.*\| `([\w/]+\.py): (\w+)` \|$", text, re.M)


def defines(path: str, name: str) -> bool:
    file = PACKAGE / path
    return file.is_file() and f"\nclass {name}" in file.read_text()


def test_tracked_files_carry_no_trace_of_a_machine():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    files = [name for name in listed if name and (ROOT / name).is_file()]

    problems: list[str] = []
    for name in files:
        if name != "tests/test_tidy.py":  # holds the bad examples
            text = (ROOT / name).read_text(errors="replace")
            problems += machine_traces(name, text)

    assert "pyproject.toml" in files
    assert not problems, "\n".join(problems)


LONG_FUNCTION = "def f():\n" + "    pass\n" * FUNCTION_LINES


@pytest.mark.parametrize(
    ("rule", "path", "text", "problem"),
    [
        (layers, "core/job.py", "from daybell.store import memory", "core must not import store"),
        (layers, "core/job.py", "from daybell import store", "core must not import store"),
        (
            layers,
            "core/job.py",
            "from ..store.sqlite import SqliteStore",
            "core must not import store",
        ),
        (layers, "core/job.py", "import daybell", "core must not import __init__"),
        (layers, "engine/loop.py", "def f():\n    import daybell.sdk.app", "must not import sdk"),
        (layers, "runners/http.py", "from daybell import store", "runners must not import store"),
        (
            layers,
            "api/routes/jobs.py",
            "from daybell.store import memory",
            "api must not import store",
        ),
        (layers, "client.py", "from .engine import node", "client must not import engine"),
        (layers, "novelty.py", "", "no known layer"),
        (sizes, "core/job.py", "\n" * (FILE_LINES + 1), "needs a reason"),
        (sizes, "core/job.py", LONG_FUNCTION, "a function has at most"),
        (sizes_of_tests, "test_jobs.py", "\n" * 801, "a file of tests stays under"),
        (file_names, "core/job.py", "# see `core/jobs_of_old.py`", "jobs_of_old.py does not"),
        (file_names, "core/job.py", "# see queue.py", "queue.py does not exist"),
        (file_names, "core/job.py", "# see `core.lifecycle.Nowhere`", "Nowhere does not exist"),
        (docstrings, "core/job.py", "x = 1", "no docstring"),
        (loose_ends, "core/job.py", "x = 1  # FIXME", "FIXME"),
        (telling_names, "core/utils.py", "", "says nothing"),
        (telling_names, "common/job.py", "", "says nothing"),
        (banned_calls, "core/a.py", "import time\ntime.time()", "use `now`"),
        (banned_calls, "core/a.py", "import time as t\nt.sleep(1)", "time.sleep is banned"),
        (banned_calls, "core/a.py", "from time import monotonic\nf = monotonic", "time.monotonic"),
        (banned_calls, "core/a.py", "from datetime import datetime as d\nd.now()", "datetime.now"),
        (banned_calls, "core/a.py", "import datetime\ndatetime.datetime.utcnow()", "utcnow"),
        (banned_calls, "core/a.py", "import asyncio\nawait asyncio.sleep(1)", "clock.sleep()"),
        (banned_calls, "core/a.py", "from random import choice\nchoice([1])", "random.choice"),
        (banned_calls, "core/a.py", "from uuid import uuid4\nuuid4()", "uuid.uuid4"),
        (banned_calls, "core/a.py", "import os\nos.urandom(8)", "os.urandom"),
        (banned_calls, "core/a.py", "eval('1')", "eval is banned"),
        (banned_calls, "core/a.py", "exec('1')", "exec is banned"),
        (banned_calls, "core/a.py", "import pickle\npickle.loads(b'')", "pickle.loads"),
        (banned_calls, "store/sqlite/a.py", "import time\ntime.sleep(1)", "time.sleep is banned"),
    ],
)
def test_a_rule_notices(rule, path, text, problem):
    assert any(problem in found for found in rule(Module(path, text)))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (layers, "core/job.py", "from daybell.core.retry import Retry\nfrom daybell import errors"),
        (
            layers,
            "store/sqlite.py",
            "from ..core import job\nfrom . import protocol\nimport os",
        ),
        (layers, "api/schema.py", "from daybell import __version__"),
        (layers, "cli/__init__.py", "from daybell import engine, sdk"),
        (sizes, "core/job.py", "\n" * FILE_LINES),
        (sizes, "store/postgres/queue.py", "\n" * (FILE_LINES + 1)),
        (sizes_of_tests, "test_jobs.py", "\n" * TEST_FILE_LINES),
        (
            file_names,
            "core/job.py",
            "# `core.lifecycle.TRANSITIONS`, `retry.py`, core/when/zone.py",
        ),
        (banned_calls, "core/a.py", "def f(random, now):\n    return random.next(now.time())"),
        (banned_calls, "core/a.py", "import re\nre.compile('x').exec"),
        (banned_calls, "store/sqlite/clock.py", "import time\ntime.time()"),
        (banned_calls, "core/ids.py", "import os, time\nos.urandom(time.time_ns())"),
    ],
)
def test_a_rule_lets_good_code_pass(rule, path, text):
    assert list(rule(Module(path, text))) == []


def a_house(**texts: str) -> House:
    """A house of modules in `core`, `_` standing for a dot."""
    named = {f"daybell.{name.replace('_', '.')}": text for name, text in texts.items()}
    return House({name: house.Module(name, text) for name, text in named.items()})


TOWER = "class A: ...\nclass B(A): ...\nclass C(B[int]): ..."


@pytest.mark.parametrize(
    ("rule", "texts", "problem"),
    [
        (inheritance, {"engine_a": TOWER}, "engine.a.C is 3 classes deep"),
        (
            cycles,
            {
                "core_a": "def f():\n    from daybell.core.b import y",
                "core_b": "import daybell.core.a",
            },
            "daybell.core.a, daybell.core.b",
        ),
        (folders, {f"core_m{n}": "" for n in range(FOLDER_MODULES + 1)}, "core has 25 modules"),
        (
            single_importers,
            {f"core_m{n}": "" for n in range(SINGLE_IMPORTERS + 1)}
            | {
                "core_z": "\n".join(
                    f"import daybell.core.m{n}" for n in range(SINGLE_IMPORTERS + 1)
                )
            },
            "have one importer",
        ),
        (
            imports_in_functions,
            {"core_a": "def f():\n" + "    import os\n" * (IMPORTS_IN_FUNCTIONS + 1)},
            "imports are in functions",
        ),
        (words, {"core_a": '"""What it does."""'}, "'what' is used"),
        (words, {"core_a": "# whoever asks"}, "'who' is used"),
        (words, {"core_a": "# for nobody"}, "'nobody' is used"),
        (class_names, {"core_a": "class Tick: ...", "cli_a": "class Tick: ..."}, "Tick is a class"),
    ],
)
def test_a_rule_of_the_house_notices(rule, texts, problem):
    assert any(problem in found for found in rule(a_house(**texts)))


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        (inheritance, {"engine_a": "class A: ...\nclass B(A): ..."}),
        (
            inheritance,
            {
                "core_a": "class A: ...\nclass B(A): ...",
                "engine_a": "from daybell.core.a import B\nclass C(B): ...",
            },
        ),
        (cycles, {"core_a": "import daybell.core.b", "core_b": ""}),
        (words, {"core_a": '"""Return the name of a queue."""'}),
        (class_names, {"core_a": "class Tick: ...", "cli_a": "class _Tick: ..."}),
    ],
)
def test_a_rule_of_the_house_lets_good_code_pass(rule, texts):
    assert list(rule(a_house(**texts))) == []


def test_a_room_that_is_gone_is_noticed():
    table = (
        "| room | `core/` | `store/sqlite/` |\n| --- | --- | --- |\n| jobs | `job` | `cellar` |\n"
    )

    found = {name: is_module(name) for name in rooms(table)}

    assert found == {"core/job": True, "store/sqlite/cellar": False}


def test_an_exception_without_need_is_noticed():
    layers_with_towers = {f"{layer}_a": "class A: ..." for layer in DEEPEST}

    unneeded = list(exceptions_without_need(a_house(**layers_with_towers)))

    assert "DEEPEST: errors is 1" in unneeded
    assert "NAMED_TWICE: Run" in unneeded


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("README.md", "see /home/somebody/daybell"),
        ("README.md", "cd /build/daybell/src"),
        ("web/.npmrc", "registry=https://registry.example"),
        ("web/package-lock.json", '"resolved": "https://registry.example/react.tgz"'),
        ("requirements/run.txt", "rich @ https://files.example/rich.whl"),
    ],
)
def test_a_trace_of_a_machine_is_noticed(file, text):
    assert list(machine_traces(file, text, checkout=Path("/build/daybell")))


def test_addresses_in_prose_are_no_trace_of_a_machine():
    text = "https://www.postgresql.org/docs/ and /usr/lib/postgresql and http://127.0.0.1:8080/src/"

    assert list(machine_traces("README.md", text, checkout=Path("/src"))) == []
