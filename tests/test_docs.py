"""What the documentation shows is run, and what it points to exists.

A Python block runs on its own in an empty folder. `<!-- not run: reason -->` on the line above a
block excludes it. `<!-- needs PostgreSQL -->` there, or "Needs PostgreSQL" in the first line of an
example, has it run with DAYBELL_DATABASE_URL set to a migrated database. An example ends with `#
Expected output:` and the lines it prints; there `…` stands for any text, and on a line of its own
for any lines.
"""

import asyncio
import importlib
import importlib.util
import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

import daybell
from tests.cli.terminal import run_script
from tests.stores import Servers

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS_LIST = ROOT / "docs" / "README.md"
CLI_REFERENCE = ROOT / "docs" / "reference" / "cli.md"

FENCE = re.compile(
    r"^ *(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *(?P=fence) *$", re.M | re.S
)
NOT_RUN = re.compile(r"<!-- not run: \S.* --> *\n\Z")
NEEDS_POSTGRES = re.compile(r"<!-- needs PostgreSQL --> *\n\Z")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
EXPECTED = "# Expected output:"


class Block(NamedTuple):
    """A Python block that is to be run, and where it stands."""

    file: str
    line: int
    code: str
    needs_postgres: bool = False


def blocks_in(file: str, text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        if match["language"] == "python" and not NOT_RUN.search(text[: match.start()]):
            line = text.count("\n", 0, match.start("code")) + 1
            needs_postgres = NEEDS_POSTGRES.search(text[: match.start()]) is not None
            yield Block(file, line, textwrap.dedent(match["code"]), needs_postgres)


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def blocks() -> list[Block]:
    shown = [
        page for page in pages() if page.parent != ROOT or page.stem in ("README", "ARCHITECTURE")
    ]
    return [block for page in shown for block in blocks_in(name_of(page), page.read_text())]


@asynccontextmanager
async def settings_for(needs_postgres: bool, servers: Servers) -> AsyncIterator[dict[str, str]]:
    """What is to be configured: nothing, or a database that a server has to be started for."""
    if not needs_postgres:
        yield {}
        return
    async with servers.live("18") as url:
        yield {"DAYBELL_DATABASE_URL": url}


def run(script: Path, folder: Path, settings: dict[str, str] | None = None) -> str:
    """Run a script as a reader would: in an empty folder and with nothing else configured."""
    ended = run_script(script, folder=folder, **(settings or {}))
    assert ended.code == 0, ended.out + ended.err
    return ended.out


def expected_output(source: str) -> str:
    """Return what an example says at its bottom that it prints."""
    _, mark, rest = source.rpartition(f"\n{EXPECTED}\n")
    assert mark, f"the example does not end with {EXPECTED!r}"
    return "".join(f"{line.removeprefix('#').removeprefix(' ')}\n" for line in rest.splitlines())


def is_as_expected(output: str, expected: str) -> bool:
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split("…")) + r"\n"
    return re.fullmatch(pattern, output) is not None


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links to files that do not exist, and to headings that a page does not have."""
    broken: list[str] = []
    for link in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def anchors(page: Path) -> set[str]:
    """Return the anchors of all headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def loaded(group: Any) -> Any:
    """The root with all commands in place of their stubs."""
    group.commands = {name: group.load(name) for name in group.commands}
    return group


def commands(group: Any, name: str) -> Iterator[str]:
    """Yield every command a user can type, in full."""
    for word, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}"


def test_the_readme_shows_code():
    assert README.exists()
    assert list(blocks_in("README.md", README.read_text()))


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.file}:{block.line}")
async def test_a_code_block_runs(block, tmp_path, servers):
    # Blank lines in front, so that a traceback names the line of the page.
    script = tmp_path / "block.py"
    script.write_text("\n" * (block.line - 1) + block.code)

    async with settings_for(block.needs_postgres, servers) as settings:
        await asyncio.to_thread(run, script, tmp_path, settings)


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda file: file.name)
async def test_an_example_prints_what_it_promises(example, tmp_path, servers):
    source = example.read_text()
    expected = expected_output(source)

    needs_postgres = "Needs PostgreSQL" in source.partition("\n")[0]
    async with settings_for(needs_postgres, servers) as settings:
        output = await asyncio.to_thread(run, example, tmp_path, settings)

    assert is_as_expected(output, expected), f"expected:\n{expected}\nprinted:\n{output}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    assert broken_links(page, page.read_text()) == []


def test_the_list_of_pages_has_every_page():
    listed = set(LINK.findall(DOCS_LIST.read_text()))
    found = {page.relative_to(DOCS_LIST.parent).as_posix() for page in ROOT.glob("docs/*/*.md")}

    assert found
    assert found - listed == set()
    assert "docs/README.md" in LINK.findall(README.read_text())


def test_every_command_is_in_the_reference():
    cli = importlib.import_module("daybell.cli")

    names = list(commands(loaded(get_command(cli.app)), "daybell"))
    reference = CLI_REFERENCE.read_text()

    assert names
    assert [name for name in names if name not in reference] == []


def test_the_changelog_knows_this_version():
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)

    assert headings[0] == "Unreleased"
    assert ".dev" in daybell.__version__ or daybell.__version__ in headings


def test_only_python_blocks_without_a_reason_not_to_are_run():
    page = (
        "```python\na = 1\n```\n"
        "```sh\nls\n```\n"
        "<!-- not run: needs a server -->\n```python\nb = 1\n```\n"
        "<!-- not run: -->\n```python\nc = 1\n```\n"
        "<!-- not run: too far away -->\n\n```python\nd = 1\n```\n"
        "- in a list\n\n  ```python\n  if d:\n      e = 1\n  ```\n"
    )

    assert [(block.line, block.code) for block in blocks_in("page.md", page)] == [
        (2, "a = 1\n"),
        (13, "c = 1\n"),
        (18, "d = 1\n"),
        (23, "if d:\n    e = 1\n"),
    ]


def test_a_failing_block_is_noticed(tmp_path):
    script = tmp_path / "block.py"
    script.write_text("print('before')\nraise SystemExit(3)\n")

    with pytest.raises(AssertionError, match="before"):
        run(script, tmp_path)


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("took 12 ms (fast)\n", "took … ms (fast)\n", True),
        ("took 12\n ms (fast)\n", "took … ms (fast)\n", False),
        ("a\nb\nc\nd\n", "a\n…\nd\n", True),
        ("a\nd\n", "a\n…\nd\n", True),
        ("a.c\n", "abc\n", False),
        ("", "", True),
    ],
)
def test_an_ellipsis_stands_for_any_text(output, expected, same):
    assert is_as_expected(output, expected) is same


def test_an_example_must_say_what_it_prints():
    assert expected_output("print(1)\n\n# Expected output:\n# 1\n#\n#   2\n") == "1\n\n  2\n"
    with pytest.raises(AssertionError, match="Expected output"):
        expected_output("print(1)\n")


def test_a_broken_link_is_noticed(tmp_path):
    (tmp_path / "there.md").write_text(
        "# A part\n\n## `daybell` and more\n```sh\n# no heading\n```\n"
    )
    page = tmp_path / "page.md"
    text = (
        "# Here\n"
        "[a](there.md#a-part) [b](gone.md) [c](https://example.org/x) [d](#here)"
        " [e](there.md#part) [f](there.md#daybell-and-more) [g](#there) [h](there.md#no-heading)\n"
        "```text\n[i](not-a-link.md)\n```\n"
    )
    page.write_text(text)

    assert broken_links(page, text) == ["gone.md", "there.md#part", "#there", "there.md#no-heading"]
