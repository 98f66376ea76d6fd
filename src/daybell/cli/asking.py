"""Asking before something is done to many things at once."""

from __future__ import annotations

import sys

import typer

from daybell.cli.edge import FAILED
from daybell.errors import UsageError


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given; without a terminal there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on; add --yes")
    if not typer.confirm(question[0].upper() + question[1:]):
        typer.echo("nothing was done")
        raise typer.Exit(FAILED)
