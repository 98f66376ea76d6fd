"""What `daybell jobs create` and `update` may be told of a job, besides what it runs.

Imported for `--help` too: nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer

from daybell.cli.options import priorities


def text(*names: str, help: str, metavar: str = "TEXT", **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


Args = Annotated[
    str | None, text("--args", metavar="JSON", help="What it is called with, by name, as JSON.")
]
Cron = Annotated[
    list[str] | None,
    text("--cron", metavar="EXPR", help="When: a cron expression, such as '0 9 * * mon-fri'."),
]
Every = Annotated[
    list[str] | None, text("--every", metavar="DURATION", help="When: so far apart, such as 5m.")
]
At = Annotated[
    list[str] | None, text("--at", metavar="TIME", help="When: once, at an ISO 8601 time.")
]
Delay = Annotated[
    str | None, text("--delay", metavar="DURATION", help="When: once, so long from now.")
]
Rrule = Annotated[
    list[str] | None,
    text("--rrule", metavar="RULE", help="When: a recurrence rule, such as FREQ=WEEKLY."),
]
AfterAny = Annotated[
    list[str] | None,
    text("--after-any", metavar="JOB", help="When: any of these jobs (name or id) has succeeded."),
]
Manual = Annotated[bool, typer.Option("--manual", help="When: never by itself.")]
Mode = Annotated[
    str | None,
    text("--mode", metavar="WORD", help="Of --every: rate, or delay after the end before it."),
]
Zone = Annotated[
    str | None, text("--tz", metavar="ZONE", help="Whose clock, such as Europe/Berlin.")
]
Gap = Annotated[
    str | None,
    text("--gap", metavar="WORD", help="A time that clocks leave out: shift, or skip."),
]
Fold = Annotated[
    str | None,
    text("--fold", metavar="WORD", help="A time that clocks show twice: first, second or both."),
]
Calendar = Annotated[
    str | None,
    text("--calendar", metavar="COUNTRY", help="Not on its public holidays: DE; or JSON."),
]
StartAt = Annotated[str | None, text("--start-at", metavar="TIME", help="Not before then.")]
EndAt = Annotated[str | None, text("--end-at", metavar="TIME", help="Not after then.")]
MaxExecutions = Annotated[
    int | None, text("--max-executions", metavar="N", help="Not more often than that.")
]
Jitter = Annotated[
    str | None, text("--jitter", metavar="DURATION", help="Late by up to that, to spread load.")
]
Overlap = Annotated[
    str | None,
    text(
        "--overlap",
        metavar="RULE",
        help="When the one before has not ended: skip, queue, queue_all, replace or allow.",
    ),
]
Misfire = Annotated[
    str | None,
    text("--misfire", metavar="RULE", help="Missed times: fire_once, skip or fire_all."),
]
MisfireLimit = Annotated[
    int | None, text("--misfire-limit", metavar="N", help="Of fire_all: so many at most.")
]
MisfireWithin = Annotated[
    str | None, text("--misfire-within", metavar="DURATION", help="Of fire_all: no older ones.")
]
MisfireGrace = Annotated[
    str | None, text("--misfire-grace", metavar="DURATION", help="Later than that is missed.")
]
PauseAfter = Annotated[
    int | None,
    text("--pause-after-failures", metavar="N", help="Pause it when so many in a row have died."),
]
Queue = Annotated[str | None, text("--queue", metavar="NAME", help="Its queue.")]
Priority = Annotated[
    str | None,
    text(
        "--priority",
        metavar="WORD",
        help="critical, high, normal or low.",
        autocompletion=priorities,
    ),
]
Retries = Annotated[int | None, text("--retries", metavar="N", help="Tries after the first.")]
Backoff = Annotated[
    str | None,
    text("--backoff", metavar="RULE", help="Between tries: exponential; or JSON."),
]
MaxCrashes = Annotated[
    int | None,
    text("--max-crashes", metavar="N", help="Dead once so many workers were lost with it."),
]
OnLost = Annotated[
    str | None,
    text("--on-lost", metavar="WORD", help="When its worker is lost: retry, or dead."),
]
Limit = Annotated[
    str | None, text("--timeout", metavar="DURATION", help="How long an attempt may take.")
]
Expires = Annotated[
    str | None, text("--expires", metavar="DURATION", help="Not started in that time: skipped.")
]
Description = Annotated[str | None, text("--description", help="What it is for.")]

User = Annotated[str | None, text("--user", metavar="ID", help="Whose it is.")]
DependsOn = Annotated[
    list[str] | None,
    text("--depends-on", metavar="JOB", help="A job that must have succeeded before it runs."),
]
NoDependencies = Annotated[
    bool, typer.Option("--no-dependencies", help="It depends on no other job any more.")
]
OnDependencyFailure = Annotated[
    str | None,
    text(
        "--on-dependency-failure",
        metavar="WORD",
        help="When one of those has failed for good: wait, skip or run.",
    ),
]

TIMES: Final = {
    "cron": Cron,
    "every": Every,
    "at": At,
    "delay": Delay,
    "rrule": Rrule,
    "after_any": AfterAny,
}
REST: Final = {
    "mode": Mode,
    "tz": Zone,
    "gap": Gap,
    "fold": Fold,
    "calendar": Calendar,
    "start_at": StartAt,
    "end_at": EndAt,
    "max_executions": MaxExecutions,
    "jitter": Jitter,
    "overlap": Overlap,
    "misfire": Misfire,
    "misfire_limit": MisfireLimit,
    "misfire_within": MisfireWithin,
    "misfire_grace": MisfireGrace,
    "pause_after_failures": PauseAfter,
    "queue": Queue,
    "priority": Priority,
    "retries": Retries,
    "backoff": Backoff,
    "max_crashes": MaxCrashes,
    "on_lost": OnLost,
    "timeout": Limit,
    "expires": Expires,
    "user_id": User,
    "dependencies": DependsOn,
    "on_dependency_failure": OnDependencyFailure,
    "description": Description,
}


def _is_flag(kind: Any) -> bool:
    return get_args(kind)[0] is bool


def taking(options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take these options, too; what is said of them comes to it as `said`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        kinds = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=kinds[name])
            for name, parameter in signature(command).parameters.items()
            if name != "said"
        ]
        more = [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=False if _is_flag(kind) else None,
                annotation=kind,
            )
            for name, kind in options.items()
        ]
        # Those that every command has come last, as everywhere.
        first = [one for one in own if one.name in ("context", "name")]
        parameters = [*first, *more, *(one for one in own if one not in first)]

        @wraps(command)
        def called(**given: Any) -> None:
            said = {name: given.pop(name) for name in options}
            command(said=said, **given)

        called.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return decorate


def read_options(said: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, as a definition takes it."""
    from daybell.core import payload

    given = {
        key: value
        for key, value in said.items()
        if value is not None and value is not False and value != []
    }
    schedules = _schedules(given)
    for key in ("cron", "every", "at", "delay", "rrule", "after_any", "mode", "tz"):
        given.pop(key, None)
    dst = {key: given.pop(key) for key in ("gap", "fold") if key in given}
    if dst:
        given["dst"] = dst
    if "args" in given:
        given["args"] = payload.decode(given["args"], what="--args")
    if "backoff" in given and given["backoff"].lstrip().startswith("{"):
        given["backoff"] = payload.decode(given["backoff"], what="--backoff")
    if "calendar" in given:
        given["calendar"] = _calendar(given["calendar"])
    for key in ("calendar", "start_at", "end_at", "jitter"):
        if said.get(key) == "none":
            given[key] = None
    if given.pop("no_dependencies", False):
        if "dependencies" in given:
            raise typer.BadParameter("--no-dependencies and --depends-on: choose one")
        given["dependencies"] = []
    if given.pop("manual", False):
        given["schedule"] = "manual"
    elif schedules:
        given["schedule"] = schedules
    return given


def _schedules(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schedules that were typed, each with the zone and mode that apply to it."""
    if given.get("mode") is not None and "every" not in given:
        raise typer.BadParameter("--mode is for --every; add it, or leave --mode out")
    schedules: list[dict[str, Any]] = []
    for kind in ("cron", "every", "at", "delay", "rrule"):
        texts = given.get(kind, [])
        for text in [texts] if isinstance(texts, str) else texts:
            one = {kind: text, "tz": given.get("tz")}
            if kind == "every":
                one["mode"] = given.get("mode")
            schedules.append({key: value for key, value in one.items() if value is not None})
    if given.get("tz") is not None and not schedules:
        raise typer.BadParameter("--tz is for a time; say --cron, --every, --at or --rrule, too")
    if "after_any" in given:
        schedules.append({"after_any": given["after_any"]})
    if schedules and given.get("manual"):
        raise typer.BadParameter("--manual means no times; leave it or the times out")
    return schedules


def _calendar(text: str) -> dict[str, Any]:
    """A country's code, DE or DE-BY, or an object as JSON."""
    from daybell.core import payload

    if text.lstrip().startswith("{"):
        return payload.decode(text, what="--calendar")
    country, dash, subdivision = text.partition("-")
    return {"country": country, "subdivision": subdivision} if dash else {"country": country}
