"""Options of `daybell jobs create` and `update`, from the table of job options."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_args, get_type_hints

from daybell.cli import actions


def _is_flag(kind: Any) -> bool:
    return get_args(kind)[0] is bool


def with_options(*tables: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the flags of these tables, too; their values come to it as `said`.

    The tables are imported when the command is typed: a list of commands does without them.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        kinds = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=kinds[name])
            for name, parameter in signature(command).parameters.items()
            if name != "said"
        ]

        def with_flags() -> Callable[..., None]:
            options = {k: v for table in tables for k, v in actions.job_flags.TABLES[table].items()}
            more = [
                Parameter(
                    name,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=False if _is_flag(kind) else None,
                    annotation=kind,
                )
                for name, kind in options.items()
            ]

            def called(**given: Any) -> None:
                said = {name: given.pop(name) for name in options}
                command(said=said, **given)

            # Those that every command has come last, as everywhere.
            first = [one for one in own if one.name in ("context", "name")]
            return _with_parameters(command, called, [*first, *more, *own[len(first) :]])

        def listed(**_: Any) -> None:
            raise AssertionError("the command is called with its flags")

        stub = _with_parameters(command, listed, own)
        stub.with_flags = with_flags  # pyright: ignore[reportFunctionMemberAccess]
        return stub

    return decorate


def _with_parameters(
    command: Callable[..., None], called: Callable[..., None], parameters: list[Parameter]
) -> Callable[..., None]:
    made = wraps(command)(called)
    made.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return made
