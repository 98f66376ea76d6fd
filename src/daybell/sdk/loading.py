"""Finding an App by what people type: `module:app`, `module`, or a file."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from daybell.errors import DaybellError, UsageError, shown
from daybell.sdk.app import App, module_name

SOURCES_MAX: Final = 300  # files, and folders, that are searched for tasks
SOURCE_BYTES_MAX: Final = 256 * 1024
_NOT_SOURCES: Final = {"tests", "venv", "node_modules", "__pycache__"}
_DECLARES: Final = re.compile(r"^[ \t]*@\w+(?:\.\w+)*\.task\b|\bapp\.workflow\(", re.M)


class AppImportError(UsageError):
    """The user's module raised while it was imported; its own error is the cause."""


def load_app(spec: str) -> App:
    """Import the module or file that `spec` names, and return the App in it."""
    place, _, name = spec.partition(":")
    if not place:
        raise UsageError(f"{shown(spec)} names no app; write module:app or path/to/file.py")
    # As `python -m` does: modules beside the user are the user's.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _load_file(Path(place)) if _is_file(place) else _load_module(place)
    app = _find_named_app(module, place, name) if name else _find_only_app(module, place)
    app.load_included()
    return app


def import_included(names: Iterable[str], *, home: Mapping[str, Any], line: int) -> None:
    """Import the modules of `App(include=…)`, which is at this line of the module `home`."""
    if home.get("__name__") == "__main__":
        # Else a module that imports the app's would run that file again and get another app.
        sys.modules.setdefault(module_name(home), sys.modules["__main__"])
    where = f"App(include=…) in {home.get('__file__', '<input>')}, line {line}"
    for name in names:
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            continue  # another thread imports it, and may wait for this one
        try:
            _load_module(name)
        except AppImportError as error:
            raise AppImportError(f"{where}: {error}") from error.__cause__
        except UsageError:
            raise UsageError(
                f"{where}: there is no module {shown(name)}. Is the name right, and was this"
                " started in the folder that holds it?",
                field="include",
            ) from None


def undeclared_modules(app: App) -> list[str]:
    """The modules beside the app's that look as if they declare tasks, and are not imported."""
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
    """The Python files in a folder, as far as it is worth looking."""
    files = 0
    for place, inner, names in islice(os.walk(folder), SOURCES_MAX):
        if files > SOURCES_MAX:
            return
        inner[:] = [one for one in inner if one.isidentifier() and one not in _NOT_SOURCES]
        for name in names:
            if name.endswith(".py"):
                files += 1
                yield Path(place, name)


def load_module(name: str, file: str | None) -> ModuleType:
    """Import by name if that leads to the file, and else from the file."""
    if file is None or _origin(name) == str(Path(file).resolve()):
        return _load_module(name)
    return _load_module(name, Path(file).resolve())


def load_main(place: str, alias: str) -> ModuleType:
    """Import under another name what was a program elsewhere: a file, or a module of `python -m`.

    As in the children of multiprocessing, `__main__` leads to it: what the task itself starts
    looks for it there.
    """
    if alias in sys.modules:
        return sys.modules[alias]
    if _is_file(place):
        module = _load_module(alias, Path(place))
    else:
        module = ModuleType(alias)
        module.__dict__.update(runpy.run_module(place, run_name=alias, alter_sys=True))
        sys.modules[alias] = module
    sys.modules["__main__"] = module
    return module


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {shown(str(path))}")
    path = path.resolve()
    name, folder = path.stem, path.parent
    while (folder / "__init__.py").is_file():  # so that its relative imports work
        name, folder = f"{folder.name}.{name}", folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if _origin(name) == str(path):
        return _load_module(name)
    # Another module has that name: `email.py` must not find the standard library's.
    return _load_module(f"daybell_app_{path.stem}", path)


def _origin(name: str) -> str | None:
    """The file that importing this name would load, or has loaded."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else str(Path(spec.origin).resolve())


def _load_from(name: str, path: Path) -> ModuleType:
    module = sys.modules.get(name)
    if module is not None and module.__file__ == str(path):
        return module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_module(name: str, path: Path | None = None) -> ModuleType:
    try:
        return importlib.import_module(name) if path is None else _load_from(name, path)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {shown(name)} here; run this in the folder that holds it,"
                " or give a file: path/to/file.py"
            ) from None
        raise AppImportError(
            f"importing {shown(name)} failed: {error}; is it installed in this environment"
            f" ({sys.prefix})?"
        ) from error
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}: " if error.filename else ""
        raise AppImportError(f"importing {shown(name)} failed: {where}{error.msg}") from error
    except SystemExit as error:
        raise AppImportError(
            f"{shown(name)} ends the program when it is imported, with {error!r}; put what only a"
            ' script does under `if __name__ == "__main__":`'
        ) from error
    except Exception as error:
        raise AppImportError(
            f"importing {shown(name)} failed: {describe_import_error(error)}"
        ) from error


def describe_import_error(error: Exception) -> str:
    """What an error of the user's code says. Of our own, people need not know the type."""
    said = str(error)
    if isinstance(error, DaybellError) and said:
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _find_named_app(module: ModuleType, place: str, name: str) -> App:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    apps = ", ".join(_apps(module)) or "none"
    what = "has no such name" if found is None else f"that is {type(found).__name__}, not an App"
    raise UsageError(f"{place}:{name}: {what}; apps in {place}: {apps}")


def _find_only_app(module: ModuleType, place: str) -> App:
    apps = _apps(module)
    if len(set(map(id, apps.values()))) == 1:
        return next(iter(apps.values()))
    if not apps:
        raise UsageError(f"{place} has no App; make one: `app = App()`")
    raise UsageError(f"{place} has several apps ({', '.join(apps)}); say which: {place}:name")


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}
