"""Imports of users' modules by name or from a file, with helpful errors."""

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

LOADED_AS: Final = "daybell_app_"  # prefix for a file with the name of another module


class AppImportError(UsageError):
    """The user's module raised an error during its import, which is the cause."""

    code = "app-import-error"
    remedy = "Correct the module; its own error is the cause."


def module_name(home: Mapping[str, Any]) -> str:
    """Return a module's name; for a program, its name as an imported module."""
    name, spec, file = (home.get(key) for key in ("__name__", "__spec__", "__file__"))
    if name != "__main__":
        return str(name).removeprefix(LOADED_AS)
    if spec is not None:
        return str(spec.name)
    return "__main__" if file is None else file_name(Path(file))


def file_name(path: Path) -> str:
    """Return the module name of a file, with its packages."""
    path = path.resolve()
    name, folder = path.stem, path.parent
    while (folder / "__init__.py").is_file():
        name, folder = f"{folder.name}.{name}", folder.parent
    return name


def import_included(names: Iterable[str], *, home: Mapping[str, Any], line: int) -> None:
    """Import the modules of `App(include=…)`, at this line of the module `home`."""
    if home.get("__name__") == "__main__":
        # A module that imports the app's module must get this one instead of running it again.
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
    """Import by name if that leads to the file, else from the file."""
    if file is None or _origin(name) == str(Path(file).resolve()):
        return import_module(name)
    return import_module(name, Path(file).resolve())


def load_main(place: str, alias: str) -> ModuleType:
    """Import a program of another process under an alias: a file, or a module of `python -m`.

    `__main__` becomes an alias for it, as in children of multiprocessing.
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
    """Return True for a file, False for a module."""
    return place.endswith(".py") or "/" in place


def load_file(path: Path) -> ModuleType:
    """Import a file under its module name."""
    if not path.is_file():
        raise UsageError(f"there is no file {shown(str(path))}")
    path = path.resolve()
    name = file_name(path)  # with its packages, so that relative imports work
    folder = path.parents[name.count(".")]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if _origin(name) == str(path):
        return import_module(name)
    # Another module has that name: `email.py` must not replace the standard library's.
    return import_module(LOADED_AS + path.stem, path)


def _origin(name: str) -> str | None:
    """Return the file that an import of this name loads."""
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
    """Import a module by name, or a file under that name. Raises UsageError."""
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
    """Describe an error of the user's code; the type is left out for errors of Daybell."""
    text = str(error)
    if isinstance(error, DaybellError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
