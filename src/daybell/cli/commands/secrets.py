"""`daybell secrets`: encrypted values that jobs refer to by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, group, run
from daybell.errors import UsageError

if TYPE_CHECKING:
    pass


app = group("Secrets: values that jobs use and nobody reads.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="As jobs refer to it: letters, digits and _, such as API_TOKEN."
    ),
]


@app.command("list")
def list_secrets(
    context: typer.Context,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List secrets by name, without their values."""
    command = partial(actions.secrets.list_secrets, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


# Words that are too many are taken here, to be refused without being repeated.
@app.command("set", context_settings={"allow_extra_args": True})
def set_secret(
    context: typer.Context,
    name: Name,
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
        partial(actions.secrets.set_secret, name=name, tenant=tenant, as_json=as_json),
        database_url,
    )


@app.command("delete")
def delete_secret(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Forget a secret; jobs that refer to it fail from then on."""
    run(
        context,
        partial(actions.secrets.delete_secret, name=name, yes=yes, tenant=tenant, as_json=as_json),
        database_url,
    )


@app.command("rotate")
def rotate_secrets(
    context: typer.Context, as_json: Json = False, database_url: DatabaseUrl = None
) -> None:
    """Seal all secrets again, with the first key.

    Set DAYBELL_SECRETS_KEY=new,old for servers, workers and this command first, and drop the old
    key afterwards. Each secret is a transaction of its own: if the command was interrupted, run it
    again. It needs a connection to the database.
    """
    run(context, partial(actions.secrets.rotate_secrets, as_json=as_json), database_url)


@app.command("key")
def make_key() -> None:
    """Print a new key for DAYBELL_SECRETS_KEY."""
    actions.secrets.make_key()


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
