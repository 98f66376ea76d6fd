"""`daybell tenants`, `keys`, `audit` and `secrets`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Cursor, DatabaseUrl, Json, KeyTenant, Limit, Tenant, Yes, group, run
from daybell.errors import UsageError

tenants_app = group("Tenants: isolated spaces, and how much each may use.")

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]


def _quota(flag: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(flag, metavar="N", help=f"{what}; none: no limit.", show_default=False)


Jobs = Annotated[str | None, _quota("--jobs", "How many jobs it may have")]
Queued = Annotated[str | None, _quota("--queued", "How many unfinished executions")]
PerMinute = Annotated[str | None, _quota("--per-minute", "How many executions a minute")]
Running = Annotated[str | None, _quota("--running", "How many may run at the same time")]
KeepTimes = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="TIMES",
        help="How long ended executions are kept, such as succeeded=7d,logs=1d; none: no policy.",
        show_default=False,
    ),
]


@tenants_app.command("create")
def create_tenant(
    context: typer.Context,
    name: TenantName,
    jobs: Jobs = None,
    queued: Queued = None,
    per_minute: PerMinute = None,
    running: Running = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a tenant."""
    quotas = {"jobs": jobs, "queued": queued, "per_minute": per_minute, "running": running}
    run(context, partial(actions.admin.create_tenant, name=name, words=quotas), database_url)


@tenants_app.command("list")
def list_tenants(
    context: typer.Context, as_json: Json = False, database_url: DatabaseUrl = None
) -> None:
    """List tenants with their quotas."""
    run(context, partial(actions.admin.list_tenants, as_json=as_json), database_url)


@tenants_app.command("update")
def update_tenant(
    context: typer.Context,
    name: TenantName,
    jobs: Jobs = None,
    queued: Queued = None,
    per_minute: PerMinute = None,
    running: Running = None,
    keep: KeepTimes = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a tenant's quotas and retention; the others stay."""
    quotas = {"jobs": jobs, "queued": queued, "per_minute": per_minute, "running": running}
    run(
        context,
        partial(actions.admin.update_tenant, name=name, words=quotas, keep=keep),
        database_url,
    )


# `daybell keys`: tokens that open the HTTP API.

keys_app = group("Keys: who may use the HTTP API, and for what.")


def complete_roles(incomplete: str) -> list[str]:
    """What `--role` may be, for completion."""
    return actions.completion.roles(incomplete)


def complete_actions(incomplete: str) -> list[str]:
    """What `--action` may be, for completion."""
    return actions.completion.actions(incomplete)


Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="DURATION",
        help="Let it end by itself, such as after 30d.",
        show_default=False,
    ),
]


@keys_app.command("create")
def create_key(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you will know it by.")],
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="What it may do: viewer, operator, admin, superadmin or worker.",
            show_default=False,
            autocompletion=complete_roles,
        ),
    ],
    expires: Expires = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="PATTERN",
            help="Limit it to this job, or to those that begin so: billing-*. Repeatable.",
            show_default=False,
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="PATTERN",
            help="Limit it to this queue, or to those that begin so. Repeatable.",
            show_default=False,
        ),
    ] = None,
    only_actions: Annotated[
        list[str] | None,
        typer.Option(
            "--action",
            metavar="ACTION",
            help="Limit it to this action, such as read or trigger. Repeatable.",
            show_default=False,
            autocompletion=complete_actions,
        ),
    ] = None,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key, and show its token this once."""
    options = {"name": name, "role": role, "expires": expires}
    options |= {"jobs": jobs or None, "queues": queues or None, "actions": only_actions or None}
    run(
        context,
        partial(actions.admin.create_key, **options, tenant=tenant, as_json=as_json),
        database_url,
    )


@keys_app.command("list")
def list_keys(
    context: typer.Context,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List keys, newest first; expired and revoked ones too."""
    run(context, partial(actions.admin.list_keys, tenant=tenant, as_json=as_json), database_url)


@keys_app.command("revoke")
def revoke_key(
    context: typer.Context,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="Its id, or how its name or its token begins, if only one does so."
        ),
    ],
    tenant: KeyTenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a key open nothing any more, within 5 seconds."""
    run(context, partial(actions.admin.revoke_key, wanted=key, tenant=tenant), database_url)


def login(
    context: typer.Context,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="What the browser may do. Default: admin, or what DAYBELL_API_KEY may.",
            show_default=False,
            autocompletion=complete_roles,
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="How long the link works.")
    ] = "10m",
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Where the browser reaches the server. Default: DAYBELL_API_URL, or this machine.",
            show_default=False,
        ),
    ] = None,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Print a link that logs a browser in, once.

    The session ends after 12 hours. One that was made with DAYBELL_API_KEY ends with this key.
    """
    run(
        context,
        partial(
            actions.admin.create_login,
            role=role,
            expires=expires,
            url=url,
            tenant=tenant,
            as_json=as_json,
        ),
        database_url,
    )


# `daybell audit`: who changed what.

audit_app = group("The audit log: who changed what.")

Text = str | None


@audit_app.command("list")
def list_entries(
    context: typer.Context,
    actor: Annotated[
        Text, typer.Option("--actor", metavar="NAME", help="By whom, as listed.")
    ] = None,
    action: Annotated[
        Text, typer.Option("--action", metavar="WORD", help="Such as job.update, or all of job.")
    ] = None,
    target: Annotated[
        Text, typer.Option("--target", metavar="NAME", help="The name or id changed.")
    ] = None,
    since: Annotated[
        Text,
        typer.Option(
            "--since", metavar="TIME", help="Then or later: 1h for ago, a date, or ISO 8601."
        ),
    ] = None,
    until: Annotated[Text, typer.Option("--until", metavar="TIME", help="Before then.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List what was changed, newest first."""
    asked = {"actor": actor, "action": action, "target": target}
    command = partial(
        actions.admin.list_entries,
        asked=asked,
        span=(since, until),
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@audit_app.command("verify")
def verify_entries(
    context: typer.Context,
    after: Annotated[
        Text,
        typer.Option(
            "--after",
            metavar="HEAD",
            help="Start after the head that an earlier run printed; the log must still lead on from"
            " it.",
        ),
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Check that no entry was altered or removed.

    Exit status 1: the log is broken."""
    command = partial(actions.admin.verify_entries, after=after, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


# `daybell secrets`: encrypted values that jobs refer to by name.

secrets_app = group("Secrets: values that jobs use and nobody reads.")

SecretName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="As jobs refer to it: letters, digits and _, such as API_TOKEN."
    ),
]


@secrets_app.command("list")
def list_secrets(
    context: typer.Context,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List secrets by name, without their values."""
    command = partial(actions.admin.list_secrets, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


# Words that are too many are taken here, to be refused without being repeated.
@secrets_app.command("set", context_settings={"allow_extra_args": True})
def set_secret(
    context: typer.Context,
    name: SecretName,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Keep a secret; one of the same name is replaced.

    The value comes from standard input, of which a line break at the end is left out; at a terminal
    it is asked for, twice, and not shown. It is sealed with the key in DAYBELL_SECRETS_KEY, over
    HTTP with the server's. Workers use a new value within 5 seconds.
    """
    _refuse_value(name, context.args)
    run(
        context,
        partial(actions.admin.set_secret, name=name, tenant=tenant, as_json=as_json),
        database_url,
    )


@secrets_app.command("delete")
def delete_secret(
    context: typer.Context,
    name: SecretName,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Forget a secret; jobs that refer to it fail from then on."""
    run(
        context,
        partial(actions.admin.delete_secret, name=name, yes=yes, tenant=tenant, as_json=as_json),
        database_url,
    )


@secrets_app.command("rotate")
def rotate_secrets(
    context: typer.Context, as_json: Json = False, database_url: DatabaseUrl = None
) -> None:
    """Seal all secrets again, with the first key.

    Set DAYBELL_SECRETS_KEY=new,old for servers, workers and this command first, and drop the old
    key afterwards. Each secret is a transaction of its own: if the command was interrupted, run it
    again. It needs a connection to the database.
    """
    run(context, partial(actions.admin.rotate_secrets, as_json=as_json), database_url)


@secrets_app.command("key")
def make_key() -> None:
    """Print a new key for DAYBELL_SECRETS_KEY."""
    actions.admin.make_key()


def _refuse_value(name: str, words: list[str]) -> None:
    """Other users of a machine see the words of a command, and the shell keeps them. So does a
    message: it shows none of them.
    """
    if words or "=" in name:
        raise UsageError(
            "a secret's value is not given as an argument, which others can see and the shell"
            " keeps; it comes from standard input: daybell secrets set NAME < file",
            field="value",
        )
