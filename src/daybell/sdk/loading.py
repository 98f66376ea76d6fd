"""Loading an App by `module:app`, `module`, or a file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Final

from daybell.errors import UsageError, shown
from daybell.sdk.app import App
from daybell.sdk.modules import import_module, is_file, load_file

SOURCES_MAX: Final = 300  # files and folders to search for tasks
SOURCE_BYTES_MAX: Final = 256 * 1024
_NOT_SOURCES: Final = {"tests", "venv", "node_modules", "__pycache__"}
_DECLARES: Final = re.compile(r"^[ \t]*@\w+(?:\.\w+)*\.task\b|\bapp\.workflow\(", re.M)


def load_app(spec: str) -> App:
    """Import the module or file, and return its App."""
    place, _, name = spec.partition(":")
    if not place:
        raise UsageError(f"{shown(spec)} names no app; write module:app or path/to/file.py")
    # As `python -m` does: the current folder comes first.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = load_file(Path(place)) if is_file(place) else import_module(place)
    app = _find_named_app(module, place, name) if name else _find_only_app(module, place)
    app.load_included()
    return app


def undeclared_modules(app: App) -> list[str]:
    """List modules beside the app's that seem to declare tasks, and are not imported."""
    name, file = app.module
    if file is None:
        return []
    path = Path(file).resolve()
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    found: list[str] = []
    for source in _sources(path.parent):
        if str(source) not in loaded and source.stat().st_size <= SOURCE_BYTES_MAX:
            parts = source.relative_to(path.parent).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            is_name = all(map(str.isidentifier, parts))
            if is_name and _DECLARES.search(source.read_text(errors="replace")):
                found.append(".".join([*filter(None, [package]), *parts]))
    return sorted(found)


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the Python files in a folder, up to a limit."""
    files = 0
    for place, inner, names in islice(os.walk(folder), SOURCES_MAX):
        if files > SOURCES_MAX:
            return
        inner[:] = [one for one in inner if one.isidentifier() and one not in _NOT_SOURCES]
        for name in names:
            if name.endswith(".py"):
                files += 1
                yield Path(place, name)


def _find_named_app(module: ModuleType, place: str, name: str) -> App:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    apps = ", ".join(_apps(module)) or "none"
    kind = type(found).__name__
    fact = "there is no such name" if found is None else f"that is {kind}, not an App"
    raise UsageError(f"{place}:{name}: {fact}; apps in {place}: {apps}")


def _find_only_app(module: ModuleType, place: str) -> App:
    apps = _apps(module)
    if len(set(map(id, apps.values()))) == 1:
        return next(iter(apps.values()))
    if not apps:
        raise UsageError(f"{place} has no App; make one: `app = App()`")
    raise UsageError(f"{place} has several apps ({', '.join(apps)}); say which: {place}:name")


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}
