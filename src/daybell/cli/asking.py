"""Asking before something is done to many things at once."""

from __future__ import annotations

import sys

import typer

from daybell.cli.edge import FAILED
from daybell.cli.stopping import interruptible
from daybell.errors import UsageError


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given; without a terminal there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on; add --yes")
    try:
        with interruptible():
            is_wanted = typer.confirm(question[0].upper() + question[1:])
    except typer.Abort as abort:
        typer.echo("\nnothing was done")
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise typer.Exit(FAILED) from None  # the input has ended: that is no yes
    if not is_wanted:
        typer.echo("nothing was done")
        raise typer.Exit(FAILED)
