"""A command that takes the words of another: `daybell jobs create NAME -- python x.py --fast`.

Imported for `--help` too: nothing heavy here.
"""

from __future__ import annotations

from typing import Any, Final, cast

import typer
from typer.core import TyperCommand

DASHES: Final = "--"
# Typer keeps Click under a name of its own, so its error is found by way of another.
MISUSE: Final = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])


class TakesWords(TyperCommand):
    """A command whose words after `--` belong to somebody else, whatever they look like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, after = args, list[str]()
        if DASHES in args:
            place = args.index(DASHES)
            own, after = args[:place], args[place + 1 :]
            if not after:
                raise typer.BadParameter("after -- comes a command, and there is none", ctx=ctx)
        ctx.meta[DASHES] = after
        try:
            return super().parse_args(ctx, own)
        except MISUSE as error:
            if "unexpected extra argument" not in error.message:
                raise
            said = error.message.rstrip(".")
            raise typer.BadParameter(f"{said}; quote a command, or put it after --", ctx) from None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- WORD...]"]


def words_after(context: typer.Context) -> list[str]:
    """The words that came after `--`."""
    return list(context.meta.get(DASHES, []))
