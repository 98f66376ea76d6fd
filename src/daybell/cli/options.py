"""Options that commands share, the syntax of their values, and the call of a command."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from daybell.cli import actions
from daybell.cli.runtime import DONE, Command, report_as_json, run_command
from daybell.core.limits import POOL_SIZE, POOL_SIZE_LEAST
from daybell.settings import Settings

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="Where jobs are kept: sqlite:///file.db or postgresql://…"
        " Default: DAYBELL_DATABASE_URL, daybell.toml, sqlite:///daybell.db.",
        show_default=False,
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        metavar="URL",
        help="A server to ask instead, with the key in DAYBELL_API_KEY. Default: DAYBELL_API_URL.",
        show_default=False,
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="Write log lines from this level on: debug, info, warning, error or critical."
        " Default: info for Daybell's, warning for others'.",
        show_default=False,
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        help="text, or json: one object per line. Default: text.",
        show_default=False,
    ),
]
PoolSize = Annotated[
    str | None,
    typer.Option(
        "--pool-size",
        metavar="N",
        help=f"Connections to PostgreSQL in the pools of each process, at least {POOL_SIZE_LEAST};"
        f" no effect on SQLite. Default: DAYBELL_POOL_SIZE, daybell.toml, {POOL_SIZE}.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, for programs.", callback=report_as_json)
]
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Whose jobs these are. Default: default; over HTTP, the key's tenant.",
        show_default=False,
    ),
]
KeyTenant = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Whose key this is. Default: default; over HTTP, the key's tenant.",
        show_default=False,
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, at most.")]
Cursor = Annotated[
    str | None,
    typer.Option(
        "--cursor", help="Go on where the last page ended; it said how.", show_default=False
    ),
]
Flags = Mapping[str, str | None]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="DURATION", help="Wait no longer, such as 30s or 5m."),
]


# Filters of executions, which lists and decisions about many share.
Text = str | None
OfJob = Annotated[Text, typer.Option("--job", metavar="NAME", help="Of this job; its id will do.")]
OfQueue = Annotated[Text, typer.Option("--queue", metavar="NAME", help="In this queue.")]
OfWorker = Annotated[
    Text, typer.Option("--worker", metavar="NAME", help="On this worker; its id will do.")
]
Since = Annotated[
    Text,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Created then or later: 1h for ago, 2026-11-15, or ISO 8601.",
    ),
]
Until = Annotated[Text, typer.Option("--until", metavar="TIME", help="Created before then.")]
Args = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="NAME=VALUE",
        help="With this argument, such as order_id=42 or order.id=42; may be repeated.",
    ),
]
OfKey = Annotated[Text, typer.Option("--unique-key", metavar="KEY", help="With this unique key.")]
OfError = Annotated[
    Text,
    typer.Option("--error", metavar="TEXT", help="With an error of this class, or with this text."),
]
EndedSince = Annotated[
    Text, typer.Option("--ended-since", metavar="TIME", help="Ended then or later.")
]
OfQuery = Annotated[
    Text,
    typer.Option(
        "--q",
        metavar="QUERY",
        help="Such as 'status:dead job:etl* finished:<1d', in one text.",
    ),
]
EndedUntil = Annotated[Text, typer.Option("--ended-until", metavar="TIME", help="Ended before.")]


def read_args(typed: list[str] | None) -> dict[str, str] | None:
    """Return the arguments that `--arg` gives."""
    found: dict[str, str] = {}
    for one in typed or ():
        name, mark, value = one.partition("=")
        if not mark or not name:
            raise typer.BadParameter(f"--arg {one}: write NAME=VALUE, such as order_id=42")
        if name in found:
            raise typer.BadParameter(f"--arg {name} is given twice; give it once")
        found[name] = value
    return found or None


# Commands that cannot use a server. A worker's app may name a store, so that is checked later.
ON_STORE = frozenset({"migrate", "doctor", "scheduler", "server", "bench", "chaos"})


def statuses(incomplete: str) -> list[str]:
    """Return the values of `--status`, for completion."""
    return actions.completion.statuses(incomplete)


def priorities(incomplete: str) -> list[str]:
    """Return the values of `--priority`, for completion."""
    return actions.completion.priorities(incomplete)


def group(help: str) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None)


def skip_adapters(command: Any) -> None:
    """Convert plain words without Typer's adapters, in a command and in all below it.

    Typer imports Pydantic to convert any value, even an absent one; that takes longer than most
    commands. Typer still converts all other values, and reports the invalid ones.
    """
    for inner in getattr(command, "commands", {}).values():
        skip_adapters(inner)
    command.get_params = partial(_get_params, command)


def _get_params(command: Any, context: typer.Context) -> list[Any]:
    # With --help, which `command.params` lacks.
    params: list[Any] = command.__class__.get_params(command, context)
    for param in params:
        # Typer before 0.29 has neither adapters nor descriptors of types.
        if hasattr(param, "type_descriptor"):
            param.process_value = partial(_process_value, param)
    return params


def _process_value(param: Any, context: typer.Context, value: Any) -> Any:
    """Process plain words as `process_value` of Typer's parameters does."""
    kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
    is_many = param.multiple or param.nargs == -1
    is_absent = value is None and not param.required
    plain: Any
    if is_absent:
        plain = () if is_many else None
    elif is_many and value:
        [of] = get_args(kind)
        words = [_convert(word, of, info) for word in value]
        plain = None if None in words else words
    else:
        plain = _convert(value, kind, info)
    if plain is None and not is_absent:
        return param.__class__.process_value(param, context, value)
    return plain if param.callback is None else param.callback(context, param, plain)


def _convert(word: object, kind: object, info: Any) -> str | int | None:
    """Convert a text, or a short number within its limits. None: Typer decides."""
    if info.parser is not None:
        return None
    if kind is str and isinstance(word, str):
        return word
    if kind is int and re.fullmatch("[0-9]{1,9}", str(word)):
        number = int(str(word))
        least, most = (number if limit is None else limit for limit in (info.min, info.max))
        return number if least <= number <= most else None
    return None


def database_flag(context: typer.Context, database_url: str | None) -> str | None:
    """Return the --database-url to use: one after a command's name wins over one before it.

    An empty one counts, too: it is refused later, where falling back could hit another store.
    """
    return context.obj["database_url"] if database_url is None else database_url


def role_flags(level: str | None, format: str | None, pool_size: str | None) -> Flags:
    """Return the settings that all commands share that keep running."""
    return {"log_level": level, "log_format": format, "pool_size": pool_size}


def run(
    context: typer.Context,
    command: Command,
    database_url: str | None,
    more: Mapping[str, object] | None = None,
) -> None:
    """Run a command and end with its exit code. `more` are other flags that are settings."""
    name = context.command_path.removeprefix("daybell ")
    flags = {
        "database_url": database_flag(context, database_url),
        "api_url": context.obj["api_url"],
    }
    if None not in flags.values():
        raise typer.BadParameter("--api-url and --database-url exclude each other; give one")
    flags |= more or {}
    raise typer.Exit(run_command(command, flags, on_store=name if name in ON_STORE else None))


# Options that many commands declare together.

Action = Callable[..., Awaitable[int]]  # the work of a command; it gets the settings first
Declared = Callable[..., Any]  # a command as Typer reads it
Options = Mapping[str, Any]  # annotations by the names of the values


def shared(*, tenant: Any = Tenant, as_json: Any = Json) -> Callable[[Declared], Declared]:
    """Give a command --tenant, --json and --database-url, and run the action that it returns.

    The action gets the tenant and `as_json`, too. None: the command has no such option.
    """
    kinds = {"tenant": tenant, "as_json": as_json}
    return _with_common({name: kind for name, kind in kinds.items() if kind is not None})


def on_client(*, tenant: Any = Tenant, as_json: Any = Json) -> Callable[[Declared], Declared]:
    """Give a coroutine function over a client these options, and run it with an open client.

    It gets `as_json`, too, and returns nothing. None: the command has no such option.
    """

    def decorate(command: Declared) -> Declared:
        def declared(**given: Any) -> Action:
            async def perform(
                settings: Settings, *, tenant: str | None = None, **chosen: Any
            ) -> int:
                async with actions.connection.client_for(settings, tenant=tenant) as client:
                    await command(client, **given, **chosen)
                return DONE

            return perform

        _, *own = parameters_of(command)
        own = [one for one in own if one.name != "as_json"]
        return shared(tenant=tenant, as_json=as_json)(with_parameters(command, declared, own))

    return decorate


def _with_common(common: Options) -> Callable[[Declared], Declared]:
    last = _optional({**common, "database_url": DatabaseUrl})

    def decorate(command: Declared) -> Declared:
        own = {one.name: one for one in parameters_of(command)}

        def called(*, context: typer.Context, database_url: str | None, **given: Any) -> None:
            values = {name: given.pop(name) for name in common}
            if "context" in own:
                given["context"] = context
            run(context, partial(command(**given), **values), database_url)

        first = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        return with_parameters(command, called, [*({"context": first} | own).values(), *last])

    return decorate


def gather(
    name: str, options: Options, *, read: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> Callable[[Declared], Declared]:
    """Give a command these options. Their values, as `read` returns them, are its argument `name`.

    An option that is not typed is None, a flag False.
    """

    def decorate(command: Declared) -> Declared:
        def called(**given: Any) -> Any:
            values = {one: given.pop(one) for one in options}
            return command(**given, **{name: read(values)})

        parameters = [
            one
            for own in parameters_of(command)
            for one in (_optional(options) if own.name == name else [own])
        ]
        return with_parameters(command, called, parameters)

    return decorate


def parameters_of(command: Declared) -> list[Parameter]:
    """Return the parameters of a command, with their annotations as objects."""
    # The type of a client takes longer to import than all else, and is no option.
    kinds = get_type_hints(command, localns={"AnyClient": Any}, include_extras=True)
    return [
        one.replace(kind=Parameter.KEYWORD_ONLY, annotation=kinds[name])
        for name, one in signature(command).parameters.items()
    ]


def with_parameters(
    command: Declared, called: Declared, parameters: Sequence[Parameter]
) -> Declared:
    """Return a function with the name and help of the command, for Typer."""
    made = wraps(command)(called)
    made.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return made


def _optional(options: Options) -> list[Parameter]:
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=False if get_args(kind)[0] is bool else None,
            annotation=kind,
        )
        for name, kind in options.items()
    ]


# A command that takes the words of another: `daybell jobs create NAME -- python x.py --fast`.
#
# Imported for `--help` too: nothing heavy here.

DASHES: Final = "--"
# Typer keeps Click under a name of its own, so its error is taken from a subclass.
MISUSE: Final = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])


class CommandWithWords(TyperCommand):
    """A command whose words after `--` belong to another program, even if they look like flags."""

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
    """Return the words that came after `--`."""
    return list(context.meta.get(DASHES, []))
