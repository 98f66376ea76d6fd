"""Count the figures of the code base: files, imports, inheritance, cycles, words.

python tools/house.py [--list single-importers | cycles | depth | imports | names]

`tests/test_tidy.py` holds the code to limits on these figures.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "src" / "daybell"
# Words that docstrings and comments should rarely need, and how many of them per 1,000 words.
WORDS: Final[dict[str, tuple[frozenset[str], float]]] = {
    "what": (frozenset({"what", "whatever"}), 3.0),
    "who": (frozenset({"who", "whom", "whose", "whoever"}), 0.5),
    "nobody": (frozenset({"nobody", "somebody", "anybody"}), 0.3),
}


@dataclass(frozen=True)
class Module:
    """One source file under its dotted name."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree; to walk through it takes longer than to make it."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def prose(self) -> tuple[str, ...]:
        """Its docstrings and comments."""
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [ast.get_docstring(node) or "" for node in self.nodes if isinstance(node, kinds)]
        return (*found, *self._comments())

    def _comments(self) -> Iterator[str]:
        """Yield each line from its first `#` outside of texts; tokenize takes ten times as long."""
        lines = [line.encode() if "#" in line else b"" for line in self.text.split("\n")]
        texts: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, ast.Constant | ast.JoinedStr):
                end = node.end_lineno or node.lineno
                if node.lineno == end:
                    texts[end].append((node.col_offset, node.end_col_offset or 0))
                elif any(lines[node.lineno - 1 : end]):
                    # The line belongs to the text, or is between two parts of it.
                    tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
                    yield from (one.string for one in tokens if one.type == tokenize.COMMENT)
                    return
        for number, line in enumerate(lines, 1):
            start = line.find(b"#")
            while start >= 0 and any(begin <= start < end for begin, end in texts[number]):
                start = line.find(b"#", start + 1)
            if start >= 0:
                yield line[start:].decode()


@dataclass(frozen=True)
class House:
    """All modules of the package."""

    modules: dict[str, Module]

    @classmethod
    def read(cls, package: Path = PACKAGE) -> House:
        modules: dict[str, Module] = {}
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = Module(name, path.read_text())
        return cls(modules)

    def targets(self, module: Module, node: ast.AST) -> Iterator[str]:
        """The modules of the package that an import statement names."""
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            found = name if name in self.modules else name.rpartition(".")[0]
            if found in self.modules and found != module.name:
                yield found

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules that each module imports, inside functions and for types, too."""
        return {
            name: {t for node in one.nodes for t in self.targets(one, node)}
            for name, one in self.modules.items()
        }

    @cached_property
    def single_importers(self) -> list[tuple[str, str]]:
        """Modules that exactly one other module imports, and that module. Packages do not count."""
        importers: defaultdict[str, set[str]] = defaultdict(set)
        packages = {name.rpartition(".")[0] for name in self.modules}
        for name, targets in self.imports.items():
            for target in targets:
                importers[target].add(name)
        return [
            (name, next(iter(by)))
            for name, by in sorted(importers.items())
            if len(by) == 1 and name not in packages
        ]

    @cached_property
    def cycles(self) -> list[list[str]]:
        """Groups of modules that import each other, those of functions and types included."""
        return [sorted(group) for group in _components(self.imports) if len(group) > 1]

    @cached_property
    def imports_in_functions(self) -> list[str]:
        """Places of all imports inside functions."""
        return [
            f"{name}:{inner.lineno}"
            for name, one in self.modules.items()
            if re.search(r"^\s+(import|from)\s", one.text, re.M)
            for outer in one.nodes
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(outer)
            if isinstance(inner, ast.Import | ast.ImportFrom)
        ]

    @cached_property
    def _bases(self) -> dict[str, list[str]]:
        """The bases of each class, all by their full names."""
        bases: dict[str, list[str]] = {}
        for name, one in self.modules.items():
            aliases = {
                alias.asname or alias.name: f"{node.module}.{alias.name}"
                for node in one.nodes
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            for node in one.nodes:
                if isinstance(node, ast.ClassDef):
                    # Generic bases count, too: `Base[T]` is `Base`.
                    plain = [b.value if isinstance(b, ast.Subscript) else b for b in node.bases]
                    names = [base.id for base in plain if isinstance(base, ast.Name)]
                    if any(one.arg == "total" for one in node.keywords):
                        names = []  # a TypedDict: its bases are fields, not behaviour
                    bases[f"{name}.{node.name}"] = [
                        aliases.get(base, f"{name}.{base}") for base in names
                    ]
        return bases

    def _depths(self, bases: dict[str, list[str]]) -> dict[str, int]:
        def depth(key: str, seen: tuple[str, ...] = ()) -> int:
            if key not in bases or key in seen:
                return 0
            return 1 + max((depth(base, (*seen, key)) for base in bases[key]), default=0)

        return {key: depth(key) for key in bases}

    @cached_property
    def depths(self) -> dict[str, int]:
        """The depth of each class: 1 without a base of daybell."""
        return self._depths(self._bases)

    @cached_property
    def depths_inside(self) -> dict[str, int]:
        """The depth of each class, where only bases of its own layer count."""
        inside = {
            key: [base for base in bases if layer_of(base) == layer_of(key)]
            for key, bases in self._bases.items()
        }
        return self._depths(inside)

    @cached_property
    def class_names(self) -> dict[str, list[str]]:
        """The modules that define a public class of each name."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name, one in self.modules.items():
            for node in one.nodes:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(name)
        return {name: sorted(modules) for name, modules in found.items()}

    @cached_property
    def folders(self) -> dict[str, int]:
        """The number of modules in each package; packages inside it do not count."""
        packages = {name.rpartition(".")[0] for name in self.modules}
        return dict(Counter(n.rpartition(".")[0] for n in self.modules if n not in packages))

    @cached_property
    def word_rates(self) -> dict[str, float]:
        """How often docstrings and comments use each word, per 1,000 words."""
        return rates(" ".join(part for one in self.modules.values() for part in one.prose))

    def figures(self) -> dict[str, object]:
        deepest = max(self.depths, key=lambda key: self.depths[key])
        return {
            "files": len(self.modules),
            "lines": sum(len(one.text.splitlines()) for one in self.modules.values()),
            "modules with a single importer": len(self.single_importers),
            "deepest inheritance": f"{self.depths[deepest]} ({deepest})",
            "modules in cycles": sum(map(len, self.cycles)),
            "imports in functions": len(set(self.imports_in_functions)),
            **{f"'{name}' per 1,000 words": round(r, 1) for name, r in self.word_rates.items()},
        }


def rates(text: str) -> dict[str, float]:
    """Count each of `WORDS` in a text, per 1,000 words."""
    counts = Counter(re.findall(r"[a-z']+", text.lower()))
    total = max(1, counts.total()) / 1000
    return {name: sum(counts[w] for w in words) / total for name, (words, _) in WORDS.items()}


def page_prose(page: str) -> str:
    """Return the text of a page without its blocks of code and its addresses."""
    return re.sub(
        r"\]\([^)]*\)", "]", re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", page, flags=re.M | re.S)
    )


def layer_of(name: str) -> str:
    """Return the layer of a full name: `store` for `daybell.store.postgres.queue`."""
    return name.split(".")[1] if "." in name else name


def _components(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Strongly connected parts of a graph."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _walk(graph, start, seen, order)
    reverse: defaultdict[str, set[str]] = defaultdict(set)
    for node, targets in graph.items():
        for target in targets:
            reverse[target].add(node)
    seen = set()
    for start in reversed(order):
        part: list[str] = []
        _walk(reverse, start, seen, part)
        if part:
            yield set(part)


def _walk(
    graph: dict[str, set[str]] | defaultdict[str, set[str]],
    start: str,
    seen: set[str],
    order: list[str],
) -> None:
    """Append all nodes that can be reached, each after those that it leads to."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(graph.get(start, ()))))]
    while stack:
        node, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(sorted(graph.get(target, ())))))
                break
        else:
            order.append(node)
            stack.pop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tools/house.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--list", choices=("single-importers", "cycles", "depth", "imports", "names")
    )
    arguments = parser.parse_args()
    house = House.read()
    lists = {
        "single-importers": (f"{name} <- {by}" for name, by in house.single_importers),
        "cycles": (" ".join(group) for group in house.cycles),
        "depth": (f"{d} {name}" for name, d in house.depths.items() if d > 2),
        "imports": iter(house.imports_in_functions),
        "names": (f"{n}: {', '.join(m)}" for n, m in house.class_names.items() if len(m) > 1),
    }
    if arguments.list:
        print("\n".join(lists[arguments.list]))
        return
    for name, value in house.figures().items():
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
