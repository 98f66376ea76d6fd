"""The environment of a command: little of the worker's, what Daybell says, and the job's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from daybell.core import payload
from daybell.core.execution import Claimed
from daybell.core.instant import to_iso
from daybell.core.kinds.variables import why_refused
from daybell.runners.trees import ATTEMPT, EXECUTION

# What programs need to find their way. All else is the worker's: the address of the database, the
# key of the secrets, whatever the cloud has put there.
USUAL: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")


def inherited(environ: Mapping[str, str], pass_env: Iterable[str] = ()) -> dict[str, str]:
    """What a command gets of its worker's environment."""
    names = {*USUAL, *pass_env}
    return {
        name: value for name, value in environ.items() if name in names or fnmatchcase(name, "LC_*")
    }


def told(claimed: Claimed, args: Mapping[str, Any]) -> dict[str, str]:
    """What a command is told of its execution."""
    own = {
        EXECUTION: str(claimed.id),
        ATTEMPT: str(claimed.attempt),
        "DAYBELL_JOB": claimed.job,
        "DAYBELL_TENANT": claimed.tenant,
        "DAYBELL_ARGS": payload.encode(dict(args)),
    }
    if claimed.scheduled_for is not None:
        own["DAYBELL_SCHEDULED_FOR"] = to_iso(claimed.scheduled_for)
    return own


def refusal(names: Iterable[str], allowed: frozenset[str]) -> str | None:
    """Why a command with these variables is not run; None: it may be."""
    for name in names:
        if name not in allowed and (why := why_refused(name)) is not None:
            return (
                f"a job may not set {name}: it {why}. A worker that is started with"
                f" --allow-env {name} runs it"
            )
    return None
