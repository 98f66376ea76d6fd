"""`daybell migrate`: bring the schema up to date, or list the pending steps."""

from __future__ import annotations

import re

import typer

from daybell.cli.runtime import DONE, FAILED, with_flag
from daybell.errors import NotFound, UsageError, shown
from daybell.settings import Settings, masked_url
from daybell.store.open import has_role, store_for


async def migrate(
    settings: Settings, *, check: bool, grant: str | None, flag: str | None = None
) -> int:
    """Run the pending steps, or only list them. `flag` is a --database-url."""
    if check and grant is not None:
        raise UsageError("--check changes nothing, --grant does; give one of them")
    place = masked_url(settings.database_url)
    store = store_for(settings.database_url, lease=settings.lease)
    give = getattr(store, "grant", None)
    if grant is not None and give is None:
        raise UsageError(f"--grant is for PostgreSQL; {place} has no roles")
    try:
        if check:
            return _tell(place, await store.pending_migrations(), flag)
        if grant is not None and not await has_role(store, grant):
            # This check comes before all changes: a part of the request must not be done alone.
            raise NotFound(
                f"{place} has no role {shown(grant)}, and nothing was changed; create it first:"
                f" CREATE ROLE {_identifier(grant)} LOGIN"
            )
        for step in await store.migrate():
            typer.echo(f"made {step}")
        typer.echo(f"{place} is up to date")
        if grant is not None and give is not None:
            await give(grant)
            typer.echo(f"{grant} may run Daybell there, and not change its schema")
    finally:
        await store.close()
    return DONE


def _identifier(name: str) -> str:
    """Return a name as SQL reads it."""
    is_plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name)
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _tell(place: str, pending: tuple[str, ...], flag: str | None) -> int:
    for step in pending:
        typer.echo(f"pending {step}")
    advice = with_flag("run: daybell migrate", flag)
    typer.echo(f"{place} is not up to date; {advice}" if pending else f"{place} is up to date")
    return FAILED if pending else DONE
