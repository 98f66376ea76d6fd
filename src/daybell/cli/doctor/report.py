"""`daybell doctor`: run all checks of the settings and the store, and print the result."""

from __future__ import annotations

import os
import stat
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from daybell.cli.actions.definitions import check_app_code
from daybell.cli.apps import check_missing_jobs, find_app
from daybell.cli.doctor.checks import (
    check_kinds,
    check_schedules,
    check_sealing,
    check_stranded,
    check_tasks,
    is_fine,
)
from daybell.cli.runtime import DONE, FAILED, describe_error, with_flag
from daybell.client.admin import Sealer
from daybell.core.access import BOUND
from daybell.core.postgres_url import WEAK_MODES, is_local, ssl_mode
from daybell.core.units import format_duration
from daybell.core.views import Check
from daybell.errors import DaybellError, SchemaError, Unavailable, UsageError
from daybell.sdk.app import App
from daybell.sdk.modules import AppImportError
from daybell.settings import FILE_NAME, Settings, masked_url
from daybell.store.open import check_pooler, store_for
from daybell.store.postgres.timeouts import timeouts_for
from daybell.store.protocol import Store

ROUND_TRIPS: Final = 5
ROUND_TRIP_SECONDS_MOST: Final = 0.1
CLOCK_SECONDS_MOST: Final = 1.0
# A worker renews three times per lease; a store that restarts or fails over takes a few seconds.
LEASE_SECONDS_LEAST: Final = 5.0
LEASE_SECONDS_MOST: Final = 300.0


async def doctor(
    settings: Settings, *, as_json: bool, flag: str | None = None, spec: str | None = None
) -> int:
    """Make all checks and show them. `flag` is a --database-url, `spec` names an app, whose store
    it is then.
    """
    app, found = None, list[Check]()
    try:
        app = None if spec is None else find_app(spec, settings, flag=flag)
    except AppImportError as error:
        found = [Check(name="app", is_ok=False, found=str(error))]
    if app is not None:
        settings = replace(settings, database_url=app.url)
    found += [*await check_store(settings, flag=flag, app=app), check_lease(settings.lease)]
    found += check_tls(settings)
    found += check_file(Path(FILE_NAME))
    typer.echo(settings.mask(encode_checks(found) if as_json else render_checks(found)))
    return DONE if all(check.is_ok for check in found) else FAILED


def refuse(error: UsageError) -> None:
    """Report to a program that the settings cannot be used: it reads JSON, whatever is wrong."""
    name = "store" if error.field == "database_url" else "settings"
    advice = "mend the flag, the variable or the line in daybell.toml that it comes from"
    typer.echo(encode_checks([Check(name=name, is_ok=False, found=str(error), advice=advice)]))


def encode_checks(found: Sequence[Check]) -> str:
    """JSON, for programs."""
    is_ok = all(check.is_ok for check in found)
    report = {"is_ok": is_ok, "checks": [advised(check) for check in found]}
    return msgspec.json.encode(report).decode()


async def check_store(
    settings: Settings, *, flag: str | None = None, app: App | None = None
) -> list[Check]:
    """Whether it can be reached and used, what it says of itself, and whether it goes by what the
    app's code says.
    """
    place = masked_url(settings.database_url)
    sealer = None if settings.secrets_key is None else Sealer(settings.secrets_key)
    pool_size = settings.pool_size
    store = store_for(settings.database_url, lease=settings.lease, pool_size=pool_size)
    try:
        await store.open()
        found = [*await _measure(store, place), *(await store.health()).checks]
        found += await check_pooler(store)
        found += await check_schedules(store)
        found += await check_missing_jobs(store)
        found += await _check_bound(store)
        found += await _check_takers(store)
        found += await check_sealing(store, sealer)
        found += [] if app is None else [await check_app_code(store, app)]
        return [*found, await check_gates(store)]
    except SchemaError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return [_failed("store", f"{place}: {with_flag(str(error), flag)}")]
        reached = Check(name="store", is_ok=True, found=place)
        return [reached, _failed("schema", with_flag(str(error), flag))]
    except DaybellError as error:
        said = describe_error(error, limit=f"within {timeouts_for(settings.lease).connect:g} s")
        return [_failed("store", f"{place}: {said}", otherwise=_way_out(error, place))]
    finally:
        await store.close()


async def _check_bound(store: Store) -> list[Check]:
    """Report secrets whose seals are bound to no version: an older value could be put back."""
    count = 0
    for tenant in await store.list_tenants():
        secrets = await store.list_secrets(tenant)
        count += sum(not one.key_id.startswith(BOUND) for one in secrets)
    if not count:
        return []
    return [
        Check(
            name="secrets",
            is_ok=False,
            found=f"secrets that an earlier release sealed, bound to no version: {count}",
            advice="when all workers have this release, run `daybell secrets rotate`",
        )
    ]


async def _check_takers(store: Store) -> list[Check]:
    """Whether somebody runs what is to run. Where something waits in vain, only that is said: a run
    that began waits for its nodes, whoever could begin another.
    """
    waiting = [*await check_stranded(store), *await check_tasks(store)]
    return [one for one in await check_kinds(store) if not (waiting and is_fine(one))] + waiting


def _failed(name: str, said: str, *, otherwise: str = "") -> Check:
    """A message that ends with the way out, in its two parts."""
    found, mark, way_out = said.rpartition(". ")
    if mark and way_out.startswith(("Run ", "Check ", "Upgrade ")):
        return Check(name=name, is_ok=False, found=found, advice=way_out[0].lower() + way_out[1:])
    found, mark, way_out = said.partition("; run `")
    return Check(name=name, is_ok=False, found=found, advice=mark[2:] + way_out or otherwise)


def _way_out(error: DaybellError, place: str) -> str:
    if not isinstance(error, Unavailable):
        return ""  # what was asked for is wrong, and the message says how
    if place.startswith("sqlite:"):
        return "look at the file, its permissions and those of its folder"
    return (
        "check that PostgreSQL runs there, that host and port are right, and that no firewall is in"
        " between"
    )


async def _measure(store: Store, place: str) -> list[Check]:
    """Ask a few times; the quickest answer says most about the way there and about the clock."""
    quickest, ahead, product = float("inf"), 0.0, ""
    for _ in range(ROUND_TRIPS):
        before = time.time()
        health = await store.health()
        after = time.time()
        if after - before < quickest:
            quickest, product = after - before, health.product
            ahead = health.now - (before + after) / 2
    return [check_round_trip(place, product, quickest), check_clock(ahead, quickest)]


async def check_gates(store: Store) -> Check:
    """A slot that is counted and that nobody has keeps a job from ever running again."""
    wrong = await store.recount_gates()
    first = wrong[0] if wrong else None
    found = "each counts as many inside as there are"
    if first is not None:
        rest = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        name = f"{first.gate} of tenant {first.tenant}"
        found = f"{name} counts {first.counted} inside, and there are {first.inside}{rest}"
    return Check(
        name="gates",
        is_ok=not wrong,
        found=found,
        advice="a running worker or scheduler counts anew every hour; please report it",
    )


def check_round_trip(place: str, product: str, seconds: float) -> Check:
    """Every claim and every finish waits for at least one of these."""
    return Check(
        name="store",
        is_ok=seconds <= ROUND_TRIP_SECONDS_MOST,
        found=f"{place}, {product}, answers in {seconds * 1000:.1f} ms",
        advice="that is slow: run Daybell near its database, and look at the database's load",
    )


def check_clock(ahead: float, round_trip: float) -> Check:
    """Nothing is decided by this machine's clock, but people compare its logs with the store's."""
    way = "ahead of" if ahead > 0 else "behind"
    return Check(
        name="clock",
        is_ok=abs(ahead) <= CLOCK_SECONDS_MOST + round_trip / 2,
        found=f"the store is {abs(ahead):.3f} s {way} this machine",
        advice="due times go by the store's clock; let NTP set both",
    )


def check_lease(seconds: float) -> Check:
    """Too short, and a hiccup costs work; too long, and a dead worker's work waits."""
    is_short = seconds < LEASE_SECONDS_LEAST
    return Check(
        name="lease",
        is_ok=LEASE_SECONDS_LEAST <= seconds <= LEASE_SECONDS_MOST,
        found=f"{format_duration(seconds)}: a dead worker's work is given to others after that",
        advice="a restart of the database would outlast it; raise DAYBELL_LEASE to 15s"
        if is_short
        else "work of a dead worker waits that long; lower DAYBELL_LEASE",
    )


def check_tls(settings: Settings) -> list[Check]:
    """Report for each server of a network whether passwords and data travel encrypted."""
    urls = {"database_url": settings.database_url, "listen_url": settings.listen_url}
    urls |= {f"connections.{name}": url for name, url in settings.connections.items()}
    found: list[Check] = []
    for name, url in urls.items():
        if url is None or not url.startswith("postgres"):
            continue
        try:
            if is_local(url, os.environ):
                continue
            mode = ssl_mode(url, os.environ)
        except (ValueError, UsageError):
            continue  # it cannot be used, which is reported where it is
        fact = f"sslmode={mode}"
        if mode is None:
            fact = "no sslmode: a server that refuses TLS is not used"
        elif mode in ("disable", *WEAK_MODES):
            may = "may travel" if mode in WEAK_MODES else "travel"
            fact += f": the password and all data {may} unencrypted"
        found.append(
            Check(
                name="tls",
                is_ok=mode not in WEAK_MODES,
                found=f"{name} has {fact}",
                advice="a server, or a machine on the way to it, can refuse TLS; write"
                " sslmode=require or verify-full, or sslmode=disable for a network that is trusted",
            )
        )
    return found


def check_file(file: Path) -> list[Check]:
    """Report a file with the key of all secrets in it; other users must not read that."""
    try:
        mode = file.stat().st_mode
        has_key = "secrets_key" in tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return []  # the settings were read without it, or have said what is wrong with it
    if not has_key:
        return []
    return [
        Check(
            name="settings",
            is_ok=not mode & (stat.S_IRGRP | stat.S_IROTH),
            found=f"{file} has the key that seals secrets, and its mode is {mode & 0o777:o}",
            advice=f"others on this machine can read it; run chmod 600 {file}",
        )
    ]


def advised(check: Check) -> Check:
    """The same; advice is for what needs it."""
    return msgspec.structs.replace(check, advice="") if check.is_ok else check


def render_checks(found: Sequence[Check]) -> str:
    """Lines for people, in colour on a terminal."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for check in map(advised, found):
        word = Text("ok", "green") if check.is_ok else Text("problem", "bold red")
        said = f"{check.found}; {check.advice}" if check.advice else check.found
        # Text, not markup: a message may contain square brackets.
        table.add_row(word, check.name, Text(said))
    # A file has no margin to fold at.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
