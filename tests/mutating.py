"""The source with a mistake in it, for those who break the code on purpose: always a copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Protocol

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src"


class Change(Protocol):
    """A way to break the code: in these files, these texts become others."""

    @property
    def name(self) -> str: ...
    @property
    def changes(self) -> tuple[tuple[str, str, str], ...]: ...


def copy_of(mutant: Change, folder: Path, *, is_once: bool) -> Path:
    """The source with this mutation."""
    source = folder / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in changed(mutant, is_once=is_once).items():
        (source / "daybell" / name).write_text(text)
    return source


def changed(mutant: Change, *, is_once: bool) -> dict[str, str]:
    """What becomes of the files that it changes. `is_once`: each text must be there just once."""
    files: dict[str, str] = {}
    for name, old, new in mutant.changes:
        text = files.get(name) or (SOURCE / "daybell" / name).read_text()
        count = text.count(old)
        if count == 0 or (is_once and count > 1):
            raise SystemExit(f"{name} has {old!r} {count} times; mend {mutant.name!r}")
        files[name] = text.replace(old, new)
    return files
