"""What a worker allows to jobs without code, from the words typed."""

from __future__ import annotations

from daybell.client.sealing import VARIABLE, Sealer
from daybell.core.kinds.command import read_env
from daybell.errors import UsageError
from daybell.sdk.kinds import KindOptions
from daybell.settings import Settings


def kind_options(
    settings: Settings,
    *,
    tasks: bool = True,
    allow_command: bool = False,
    allow_private_http: bool = False,
    allow_env: str = "",
    pass_env: str = "",
    store_url: str | None = None,
) -> KindOptions:
    """Read what was allowed; connections come from the settings. `store_url`: that of an app which
    has one of its own. What no job could use is refused
    here, and not by the first job that needs it.
    """
    if settings.secrets_key is not None:
        Sealer(settings.secrets_key)
    if settings.connections:
        from daybell.runners.sql import Connections

        Connections(settings.connections, store_url=store_url or settings.database_url)
    passed = read_names(pass_env, "--pass-env")
    if VARIABLE in passed:
        raise UsageError(
            f"--pass-env: with {VARIABLE} every command could open all secrets; let it refer to"
            ' the one that it needs: env: {"TOKEN": {"secret": "NAME"}}'
        )
    return KindOptions(
        tasks=tasks,
        allow_command=allow_command,
        allow_private_http=allow_private_http,
        allow_env=frozenset(read_names(allow_env, "--allow-env")),
        pass_env=passed,
        connections=dict(settings.connections),
    )


def read_names(text: str, flag: str) -> tuple[str, ...]:
    """Read names of variables: `LANG,TZ`."""
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    try:
        read_env(dict.fromkeys(names, ""))
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None
    return tuple(dict.fromkeys(names))
