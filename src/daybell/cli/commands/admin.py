"""`daybell tenants`, `keys`, `audit` and `secrets`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import typer

from daybell.cli import actions
from daybell.cli.options import Action, Cursor, KeyTenant, Limit, Yes, gather, group, shared
from daybell.errors import UsageError

tenants_app = group("Tenants: isolated spaces, and how much each may use.")

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]


def _quota(flag: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(flag, metavar="N", help=f"{what}; none: no limit.", show_default=False)


QUOTAS: Final = {
    "jobs": Annotated[str | None, _quota("--jobs", "How many jobs it may have")],
    "queued": Annotated[str | None, _quota("--queued", "How many unfinished executions")],
    "per_minute": Annotated[str | None, _quota("--per-minute", "How many executions a minute")],
    "running": Annotated[str | None, _quota("--running", "How many may run at the same time")],
}
KeepTimes = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="TIMES",
        help="How long ended executions are kept, such as succeeded=7d,logs=1d; none: no policy.",
        show_default=False,
    ),
]


Weight = Annotated[
    float | None,
    typer.Option(
        "--weight",
        metavar="N",
        help="Its part of the workers that serve several tenants; 1 is as much as others.",
        show_default=False,
    ),
]


@tenants_app.command("create")
@gather("quotas", QUOTAS)
@shared(tenant=None, as_json=None)
def create_tenant(name: TenantName, quotas: Any) -> Action:
    """Create a tenant."""
    return partial(actions.admin.create_tenant, name=name, words=quotas)


@tenants_app.command("list")
@shared(tenant=None)
def list_tenants() -> Action:
    """List tenants with their quotas."""
    return actions.admin.list_tenants


@tenants_app.command("update")
@gather("quotas", QUOTAS)
@shared(tenant=None, as_json=None)
def update_tenant(
    name: TenantName, quotas: Any, keep: KeepTimes = None, weight: Weight = None
) -> Action:
    """Change a tenant's quotas, retention and weight."""
    return partial(actions.admin.update_tenant, name=name, words=quotas, keep=keep, weight=weight)


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
@shared(tenant=KeyTenant)
def create_key(
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
            "--queues",
            metavar="PATTERN",
            help="Limit it to this queue, or to those that begin so. Repeatable, also as a,b.",
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
) -> Action:
    """Make a key, and show its token this once."""
    options = {"name": name, "role": role, "expires": expires}
    listed = [part for text in queues or () for part in text.split(",")]
    options |= {"jobs": jobs or None, "queues": listed or None, "actions": only_actions or None}
    return partial(actions.admin.create_key, **options)


@keys_app.command("list")
@shared(tenant=KeyTenant)
def list_keys() -> Action:
    """List keys, newest first; expired and revoked ones too."""
    return actions.admin.list_keys


@keys_app.command("revoke")
@shared(tenant=KeyTenant, as_json=None)
def revoke_key(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="Its id, or how its name or its token begins, if only one does so."
        ),
    ],
) -> Action:
    """Let a key open nothing any more, within 5 seconds."""
    return partial(actions.admin.revoke_key, wanted=key)


@shared(tenant=KeyTenant)
def login(
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
) -> Action:
    """Print a link that logs a browser in, once.

    The session ends after 12 hours. One that was made with DAYBELL_API_KEY ends with this key.
    """
    return partial(actions.admin.create_login, role=role, expires=expires, url=url)


# `daybell audit`: who changed what.

audit_app = group("The audit log: who changed what.")

Text = str | None


@audit_app.command("list")
@shared()
def list_entries(
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
) -> Action:
    """List what was changed, newest first."""
    asked = {"actor": actor, "action": action, "target": target}
    return partial(
        actions.admin.list_entries, asked=asked, span=(since, until), limit=limit, cursor=cursor
    )


@audit_app.command("verify")
@shared()
def verify_entries(
    after: Annotated[
        Text,
        typer.Option(
            "--after",
            metavar="HEAD",
            help="Start after the head that an earlier run printed; the log must still lead on from"
            " it.",
        ),
    ] = None,
) -> Action:
    """Check that no entry was altered or removed.

    Exit status 1: the log is broken."""
    return partial(actions.admin.verify_entries, after=after)


# `daybell secrets`: encrypted values that jobs refer to by name.

secrets_app = group("Secrets: values for jobs, which no answer shows.")

SecretName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="As jobs refer to it: letters, digits and _, such as API_TOKEN."
    ),
]


@secrets_app.command("list")
@shared()
def list_secrets() -> Action:
    """List secrets by name, without their values."""
    return actions.admin.list_secrets


# Words that are too many are taken here, to be refused without being repeated.
@secrets_app.command("set", context_settings={"allow_extra_args": True})
@shared()
def set_secret(context: typer.Context, name: SecretName) -> Action:
    """Keep a secret; one of the same name is replaced.

    The value comes from standard input, of which a line break at the end is left out; at a terminal
    it is asked for, twice, and not shown. It is sealed with the key in DAYBELL_SECRETS_KEY, over
    HTTP with the server's. Workers use a new value within 5 seconds.
    """
    _refuse_value(name, context.args)
    return partial(actions.admin.set_secret, name=name)


@secrets_app.command("delete")
@shared()
def delete_secret(name: SecretName, yes: Yes = False) -> Action:
    """Forget a secret; jobs that refer to it fail from then on."""
    return partial(actions.admin.delete_secret, name=name, yes=yes)


@secrets_app.command("rotate")
@shared(tenant=None)
def rotate_secrets() -> Action:
    """Seal all secrets again, with the first key.

    Set DAYBELL_SECRETS_KEY=new,old for servers, workers and this command first, and drop the old
    key afterwards. Each secret is a transaction of its own: if the command was interrupted, run it
    again. It needs a connection to the database.
    """
    return actions.admin.rotate_secrets


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
