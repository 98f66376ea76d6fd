"""Modules of users: imported by name or from a file, with errors that tell how to go on."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from daybell.errors import DaybellError, UsageError, shown

LOADED_AS: Final = "daybell_app_"  # how a file is called whose name another module has


class AppImportError(UsageError):
    """The user's module raised while it was imported; its own error is the cause."""

    code = "app-import-error"
    remedy = "Correct the module; its own error is the cause."


def module_name(home: Mapping[str, Any]) -> str:
    """A module's name; of a program, the one that it has when it is imported."""
    name, spec, file = (home.get(key) for key in ("__name__", "__spec__", "__file__"))
    if name != "__main__":
        return str(name).removeprefix(LOADED_AS)
    if spec is not None:
        return str(spec.name)
    return "__main__" if file is None else file_name(Path(file))


def file_name(path: Path) -> str:
    """What a file is called as a module, with the packages that it is in."""
    path = path.resolve()
    name, folder = path.stem, path.parent
    while (folder / "__init__.py").is_file():
        name, folder = f"{folder.name}.{name}", folder.parent
    return name


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
            import_module(name)
        except AppImportError as error:
            raise AppImportError(f"{where}: {error}") from error.__cause__
        except UsageError:
            raise UsageError(
                f"{where}: there is no module {shown(name)}. Is the name right, and was this"
                " started in the folder that holds it?",
                field="include",
            ) from None


def load_module(name: str, file: str | None) -> ModuleType:
    """Import by name if that leads to the file, and else from the file."""
    if file is None or _origin(name) == str(Path(file).resolve()):
        return import_module(name)
    return import_module(name, Path(file).resolve())


def load_main(place: str, alias: str) -> ModuleType:
    """Import under another name what was a program elsewhere: a file, or a module of `python -m`.

    As in the children of multiprocessing, `__main__` leads to it: what the task itself starts
    looks for it there.
    """
    if alias in sys.modules:
        return sys.modules[alias]
    if is_file(place):
        module = import_module(alias, Path(place))
    else:
        module = ModuleType(alias)
        module.__dict__.update(runpy.run_module(place, run_name=alias, alter_sys=True))
        sys.modules[alias] = module
    sys.modules["__main__"] = module
    return module


def is_file(place: str) -> bool:
    """Check whether a place is a file, not a module."""
    return place.endswith(".py") or "/" in place


def load_file(path: Path) -> ModuleType:
    """Import a file under the name that it has as a module."""
    if not path.is_file():
        raise UsageError(f"there is no file {shown(str(path))}")
    path = path.resolve()
    name, folder = path.stem, path.parent
    while (folder / "__init__.py").is_file():  # so that its relative imports work
        name, folder = f"{folder.name}.{name}", folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if _origin(name) == str(path):
        return import_module(name)
    # Another module has that name: `email.py` must not find the standard library's.
    return import_module(LOADED_AS + path.stem, path)


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


def import_module(name: str, path: Path | None = None) -> ModuleType:
    """Import a module by its name, or this file under that name. Raises UsageError."""
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
