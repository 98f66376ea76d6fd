"""Flags of `daybell jobs create` and `update`, from the table of job options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from daybell.core.execution import Priority
from daybell.core.kinds import SETTINGS
from daybell.core.kinds.settings import fields_of
from daybell.core.options import CHOICES, OPTIONS, Option

MANY: Final = ("notify", "dependencies")  # options of which the flag may be repeated


def text(*names: str, help: str, metavar: str = "TEXT", **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def _priorities(incomplete: str) -> list[str]:
    return [one.label for one in Priority if one.label.startswith(incomplete)]


def _flag(option: Option) -> Any:
    """Return the flag of an option, as the annotation of a parameter."""
    kinds = option.schema.get("anyOf", [option.schema])
    if option.schema.get("type") == "boolean":
        names = f"{option.flag_name}/--no-{option.flag_name[2:]}"
        return Annotated[bool | None, typer.Option(names, help=option.meaning, show_default=False)]
    more: dict[str, Any] = {"autocompletion": _priorities} if option.name == "priority" else {}
    said = text(option.flag_name, metavar=option.metavar, help=option.meaning, **more)
    if option.name in MANY:
        return Annotated[list[str] | None, said]
    is_whole = kinds[0].get("type") == "integer"
    return Annotated[int | None, said] if is_whole else Annotated[str | None, said]


def _reset(option: Option) -> Any:
    name = f"--no-{option.name.replace('_', '-')}"
    return Annotated[bool, typer.Option(name, help=f"Reset {option.name}.", hidden=True)]


def _of_schedule(name: str, metavar: str, help: str, *, many: bool = True) -> Any:
    said = text(f"--{name}", metavar=metavar, help=help)
    return Annotated[list[str] | None, said] if many else Annotated[str | None, said]


# Forms of the option `schedule`, and parts of it.
TIMES: Final = {
    "cron": _of_schedule("cron", "EXPR", "When: a cron expression, such as '0 9 * * mon-fri'."),
    "every": _of_schedule("every", "DURATION", "When: at this interval, such as 5m."),
    "at": _of_schedule("at", "TIME", "When: once, at an ISO 8601 time."),
    "delay": _of_schedule("delay", "DURATION", "When: once, after this time.", many=False),
    "rrule": _of_schedule("rrule", "RULE", "When: a recurrence rule, such as FREQ=WEEKLY."),
    "after_any": _of_schedule(
        "after-any", "JOB", "When: any of these jobs (name or id) has succeeded."
    ),
    "event": _of_schedule("event", "NAME", "When: with each event of this name.", many=False),
    "where": _of_schedule(
        "where", "JSON", 'Of --event: its data, such as {"size": {"gt": 0}}.', many=False
    ),
    "mode": _of_schedule(
        "mode", "WORD", "Of --every: rate, or delay after the end before.", many=False
    ),
    "gap": _of_schedule(
        "gap", "WORD", "Times that a change of clocks leaves out: shift, or skip.", many=False
    ),
    "fold": _of_schedule(
        "fold", "WORD", "Times that clocks show twice: first, second or both.", many=False
    ),
}
MANUAL: Final = {"manual": Annotated[bool, typer.Option("--manual", help="When: only by hand.")]}
_PLAIN: Final = {name: one for name, one in OPTIONS.items() if one.metavar and name not in CHOICES}
REST: Final = {name: _flag(one) for name, one in _PLAIN.items()}
RESETS: Final = {
    f"no_{name}": _reset(one) for name, one in _PLAIN.items() if one.schema.get("type") != "boolean"
}
KINDS: Final = {
    **{name: _flag(OPTIONS[name]) for name in CHOICES if OPTIONS[name].metavar},
    "from_file": Annotated[
        str | None,
        text("--from-file", metavar="FILE", help="A file: .yaml, .json, .toml, or - for YAML."),
    ],
}


def _kind_flags() -> dict[str, Any]:
    """Return the flags of the settings of all kinds. One flag may be of several kinds."""
    owners: dict[str, list[str]] = {}
    flags: dict[str, Any] = {}
    for kind, settings in SETTINGS.items():
        for name, field in fields_of(settings).items():
            if not field.flag:
                continue
            key = field.flag.replace("-", "_")
            owners.setdefault(key, []).append(kind)
            help = f"Of --{', --'.join(owners[key])}: {field.meaning}"
            type_ = int if name in ("rows", "redirects") or key.endswith("_code") else str
            names = [f"--{field.flag}"]
            if key == "shell":
                said = typer.Option("--shell/--no-shell", help=help, show_default=False)
                flags[key] = Annotated[bool | None, said]
                continue
            if key == "parameter":
                names.append("--param")
                help = f"{help} Of --template: its parameters."
            said = text(*names, metavar=field.metavar, help=help)
            flags[key] = Annotated[(list[type_] if field.many else type_) | None, said]
    return flags


PARTS: Final = _kind_flags()
TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "kinds": KINDS,
    "parts": PARTS,
    "times": TIMES,
    "manual": MANUAL,
    "rest": REST,
    "resets": RESETS,
}
