"""Executions in lanes that no worker asks for, put there by an earlier program.

A job of the kind `sql` needs a worker that knows its connection. Programs from before that was so
know kinds only, and while some of them still run, they put its executions into a lane of the kind
alone. Nobody offers that, so whoever does upkeep moves them.
"""

from __future__ import annotations

import msgspec

from daybell.core.job import JobDefinition


def needs_of_stray(definition: str) -> str | None:
    """What an execution that lies in such a lane needs. None: it has to stay there.

    Not what the text says of itself: an earlier program that has changed the job has left that out.
    """
    try:
        needs = JobDefinition.from_json(definition).needs
    except (KeyError, msgspec.MsgspecError):  # nobody could have run it, at any time
        return None
    return None if needs == "sql" else needs
