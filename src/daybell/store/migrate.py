"""Schema versions: numbered `.sql` files that only go forward.

Each file is called `0001_initial.sql` and says in its first line whether programs that do not
know it can go on working: `-- compatible` or `-- breaking`. Applied files are recorded with a
checksum, so that an edited one is detected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from daybell.errors import SchemaError


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    sql: str
    checksum: str
    is_breaking: bool

    @property
    def label(self) -> str:
        return f"{self.version:04}_{self.name}"


class Applied(NamedTuple):
    """A step that a database has on record."""

    version: int
    name: str
    checksum: str
    is_breaking: bool


def known_migrations(package: str) -> list[Migration]:
    """Return the steps that this program has for a kind of store, as `daybell.store.sqlite`."""
    folder = files(package) / "migrations"
    found = [
        parse(entry.name, entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found, key=lambda migration: migration.version)


def parse(file_name: str, text: str) -> Migration:
    """Read one file's name and marker."""
    number, _, rest = file_name.removesuffix(".sql").partition("_")
    marker = text.split("\n", 1)[0].strip()
    if not number.isdigit() or marker not in ("-- compatible", "-- breaking"):
        raise SchemaError(
            f"{file_name} is no migration: it must be called 0001_name.sql"
            " and begin with the line '-- compatible' or '-- breaking'"
        )
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return Migration(int(number), rest, text, checksum, marker == "-- breaking")


def pending(known: Sequence[Migration], applied: Sequence[Applied]) -> list[Migration]:
    """Return the steps not applied yet. Raises SchemaError if the applied steps are not those that
    this program knows.
    """
    by_version: Mapping[int, Migration] = {migration.version: migration for migration in known}
    for step in applied:
        migration = by_version.get(step.version)
        if migration is None:
            if step.is_breaking:
                raise SchemaError(
                    f"the database's schema is newer than this program: migration {step.version:04}"
                    f" ({step.name}) is unknown here and marked breaking."
                    " Upgrade daybell on this machine"
                )
        elif migration.checksum != step.checksum:
            raise SchemaError(
                f"migration {step.version:04} ({step.name}) was applied with another text than this"
                " program has. Migrations must not be edited once applied: restore the file"
            )
    done = {step.version for step in applied}
    return [migration for migration in known if migration.version not in done]


def check(known: Sequence[Migration], applied: Sequence[Applied]) -> int:
    """Return the schema's version, if this program fits it. Raises SchemaError with a remedy."""
    missing = pending(known, applied)
    if missing:
        names = ", ".join(migration.label for migration in missing)
        has = (
            "is empty" if not applied else f"is at version {max(step.version for step in applied)}"
        )
        raise SchemaError(f"the database's schema {has}; missing: {names}. Run `daybell migrate`")
    return max(step.version for step in applied)
