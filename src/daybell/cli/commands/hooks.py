"""`daybell hooks`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Action, group, shared

app = group("Hooks: webhooks of jobs, addresses that others post to.")

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The hook's name, such as that of its sender.")
]
Text = str | None


@app.command("create")
@shared()
def create_hook(
    job: Job,
    name: Name,
    expires: Annotated[
        Text, typer.Option("--expires", metavar="DURATION", help="Let it end, such as after 90d.")
    ] = None,
    signature: Annotated[
        Text,
        typer.Option(
            "--signature",
            metavar="WORD",
            help="How requests are signed: github, stripe, standard or hmac.",
        ),
    ] = None,
    secret: Annotated[
        Text, typer.Option("--secret", metavar="NAME", help="The secret that signs them.")
    ] = None,
    header: Annotated[
        Text, typer.Option("--header", metavar="NAME", help="Of hmac; X-Signature, if left out.")
    ] = None,
    algorithm: Annotated[
        Text,
        typer.Option("--algorithm", metavar="WORD", help="Of hmac: sha256, sha512 or sha1."),
    ] = None,
    encoding: Annotated[
        Text, typer.Option("--encoding", metavar="WORD", help="Of hmac: hex or base64.")
    ] = None,
) -> Action:
    """Make an address of a job; a POST there fires it."""
    fields = {
        "expires": expires,
        "signature": signature,
        "secret": secret,
        "header": header,
        "algorithm": algorithm,
        "encoding": encoding,
    }
    return partial(actions.hooks.create_hook, job=job, name=name, fields=fields)


@app.command("list")
@shared()
def list_hooks(job: Job) -> Action:
    """List the hooks of a job, newest first; ended ones too."""
    return partial(actions.hooks.list_hooks, job=job)


@app.command("rotate")
@shared()
def rotate_hook(
    job: Job,
    name: Name,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="DURATION", help="How long the old address is valid."),
    ] = "1d",
) -> Action:
    """Give a hook a new address, and show it this once."""
    return partial(actions.hooks.rotate_hook, job=job, name=name, overlap=overlap)


@app.command("revoke")
@shared()
def revoke_hook(job: Job, name: Name) -> Action:
    """Close the addresses of a hook."""
    return partial(actions.hooks.revoke_hook, job=job, name=name)
