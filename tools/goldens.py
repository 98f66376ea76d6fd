"""Record the outside of the product, to compare two commits before and after a move.

python tools/goldens.py FOLDER [--seeds 1000]

Writes into FOLDER: the OpenAPI document, the help of every command, the JSON of a scripted world
on both stores, the public names with their signatures, the schemas of both stores, and a hash of
the trace of each simulated seed. Compare two folders with `diff -r`.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import daybell  # noqa: E402
from tests.postgres import Postgres  # noqa: E402
from tests.simulation.cluster import simulate  # noqa: E402

UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
SECRET: Final = re.compile(r"dbk_\w+")
HOME: Final = re.compile(r"daybell(?:\.[a-z_]+)+\.|(?<= at )0x[0-9a-f]+")
METHOD: Final = re.compile(r"^\((client|app): '\w+'")  # a method is a function over a context
NUMBER: Final = re.compile(r"\b\d+\.\d{3,}\b")
WORLD: Final = (
    ("migrate",),
    ("tenants", "create", "shop"),
    ("tenants", "list", "--json"),
    ("keys", "create", "ci", "--role", "operator", "--json"),
    ("keys", "list", "--json"),
    ("jobs", "create", "disk", "--every", "1d", "--command", "df -h .", "--json"),
    ("jobs", "create", "nightly", "--cron", "0 3 * * *", "--command", "true", "--json"),
    ("jobs", "create", "alive", "--every", "1h", "--http", "https://example.org/", "--json"),
    ("jobs", "trigger", "disk", "--delay", "1h", "--json"),
    ("jobs", "update", "nightly", "--cron", "30 3 * * *", "--json"),
    ("jobs", "pause", "alive"),
    ("jobs", "list", "--json"),
    ("jobs", "show", "nightly", "--json"),
    ("jobs", "versions", "nightly", "--json"),
    ("executions", "list", "--json"),
    ("dead-letters", "list", "--json"),
    ("workers", "list", "--json"),
    ("queues", "list", "--json"),
    ("audit", "list", "--json"),
    ("cron", "explain", "0 9 * * mon-fri", "--from", "2026-01-01T00:00:00Z", "--json"),
    ("jobs", "show", "nosuch", "--json"),
    ("jobs", "create", "bad", "--cron", "61 * * * *", "--command", "true"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tools/goldens.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1000, help="default: 1000")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "names.txt").write_text("\n".join(public_names()) + "\n")
    (folder / "help.txt").write_text("\n".join(help_texts()) + "\n")
    (folder / "openapi.json").write_text(openapi())
    with Postgres() as server, tempfile.TemporaryDirectory() as scratch:
        for store, url in (
            ("sqlite", f"sqlite:///{scratch}/world.db"),
            ("postgres", server.create_database("world")),
        ):
            (folder / f"world-{store}.txt").write_text("\n".join(world(url, scratch)) + "\n")
        (folder / "schema-sqlite.sql").write_text(sqlite_schema(Path(scratch, "world.db")))
        (folder / "schema-postgres.sql").write_text(postgres_schema(server.url("world")))
    (folder / "simulation.txt").write_text("\n".join(trace_hashes(arguments.seeds)) + "\n")


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "daybell", *arguments],
        env=environ | environment,
        capture_output=True,
        text=True,
    )


def public_names() -> Iterator[str]:
    """Each public name of the package, and the signatures of its methods."""
    for name in sorted(daybell.__all__):
        thing = getattr(daybell, name)
        yield f"{name}{signature(thing)}"
        if inspect.isclass(thing):
            for member in sorted(dir(thing)):
                if not member.startswith("_"):
                    yield f"{name}.{member}{signature(getattr(thing, member))}"


def signature(thing: Any) -> str:
    try:
        text = str(inspect.signature(thing)) if callable(thing) else ""
        text = METHOD.sub("(self", text)
        return HOME.sub("", text)  # the module that defines a type may change
    except ValueError:
        return ""


def help_texts(*command: str) -> Iterator[str]:
    """The help of a command and of all below it."""
    text = call(*command, "--help").stdout
    yield f"$ daybell {' '.join(command)} --help\n{text}"
    _, is_group, commands = text.partition("Commands")
    if is_group:
        for name in re.findall(r"^[│ ]{1,3}([a-z][a-z-]*)\s", commands, re.MULTILINE):
            yield from help_texts(*command, name)


def openapi() -> str:
    from daybell.api import create_api

    document = create_api(daybell.Client("memory://")).openapi()
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def world(url: str, folder: str) -> Iterator[str]:
    """What the command line answers to a script, with ids and times made alike."""
    known: dict[str, str] = {}
    for command in WORLD:
        done = call(*command, DAYBELL_DATABASE_URL=url, HOME=folder)
        text = done.stdout + done.stderr
        text = UUID.sub(lambda id: known.setdefault(id[0], f"id-{len(known)}"), text)
        for pattern, word in ((TIME, "TIME"), (SECRET, "KEY"), (NUMBER, "NUMBER")):
            text = pattern.sub(word, text)
        yield f"$ daybell {' '.join(command)}  -> {done.returncode}\n{text}"


def sqlite_schema(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY 1")
        return "\n".join(sql for (sql,) in rows) + "\n"


def postgres_schema(url: str) -> str:
    import asyncio

    import asyncpg

    async def read() -> list[str]:
        link: Any = await asyncpg.connect(url)
        columns = await link.fetch(
            """SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable
                      || ' ' || coalesce(column_default, '')
                 FROM information_schema.columns WHERE table_schema = 'daybell'
                  AND table_name !~ '_\\d{8}$' ORDER BY table_name, ordinal_position"""
        )
        indexes = await link.fetch(
            """SELECT indexdef FROM pg_indexes WHERE schemaname = 'daybell'
                  AND tablename !~ '_\\d{8}$' ORDER BY 1"""
        )
        functions = await link.fetch(
            """SELECT pg_get_functiondef(oid) FROM pg_proc
                WHERE pronamespace = 'daybell'::regnamespace ORDER BY proname, 1"""
        )
        await link.close()
        return [row[0] for row in (*columns, *indexes, *functions)]

    return "\n".join(asyncio.run(read())) + "\n"


def trace_hashes(seeds: int) -> Iterator[str]:
    """Hash the trace of each seed."""
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(trace_hash, range(1, seeds + 1), chunksize=10)


def trace_hash(seed: int) -> str:
    outcome = simulate(seed)
    text = UUID.sub("", "\n".join(outcome.trace()))
    return f"{seed} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


if __name__ == "__main__":
    main()
