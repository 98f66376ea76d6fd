"""A command that takes the words of another: `daybell jobs create NAME -- python x.py --fast`.

Imported for `--help` too: nothing heavy here.
"""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand

DASHES: Final = "--"


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
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- WORD...]"]


def words_after(context: typer.Context) -> list[str]:
    """The words that came after `--`."""
    return list(context.meta.get(DASHES, []))
