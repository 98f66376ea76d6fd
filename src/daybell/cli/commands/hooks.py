"""`daybell hooks`: create, list, rotate and revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli import actions, output
from daybell.cli.options import group, on_client
from daybell.cli.output import Column

if TYPE_CHECKING:
    from daybell.client import wire
    from daybell.client.remote.client import AnyClient

app = group("Hooks: webhooks of jobs, addresses that others post to.")

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The hook's name, such as that of its sender.")
]
Text = str | None


@app.command("create")
@on_client()
async def create_hook(
    client: AnyClient,
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
    *,
    as_json: bool,
) -> None:
    """Make an address of a job; a POST there fires it."""
    made = await client.create_hook(
        job,
        name,
        expires=expires,
        signature=signature,
        secret=secret,
        header=header,
        algorithm=algorithm,
        encoding=encoding,
        created_by=actions.terminal.current_actor(),
    )
    _show(made, as_json=as_json)


@app.command("list")
@on_client()
async def list_hooks(client: AnyClient, job: Job, *, as_json: bool) -> None:
    """List the hooks of a job, newest first; ended ones too."""
    found = await client.hooks(job)
    if as_json:
        return output.echo_list(found)
    rows = [
        (
            one.name,
            one.hint,
            one.signature or "none",
            output.format_moment(one.created_at),
            None if one.used_at is None else output.format_moment(one.used_at),
            _end(one),
        )
        for one in found
    ]
    columns = (
        Column("hook", least=8, rank=0),
        Column("token", rank=2),
        Column("signature", rank=1),
        Column("created", rank=4),
        Column("used", rank=3),
        Column("ends", rank=1),
    )
    empty = f"job {job} has no hooks; daybell hooks create {job} NAME makes one"
    output.echo_table(columns, rows, empty=empty)


@app.command("rotate")
@on_client()
async def rotate_hook(
    client: AnyClient,
    job: Job,
    name: Name,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="DURATION", help="How long the old address is valid."),
    ] = "1d",
    *,
    as_json: bool,
) -> None:
    """Give a hook a new address, and show it this once."""
    made = await client.rotate_hook(
        job, name, overlap=overlap, created_by=actions.terminal.current_actor()
    )
    _show(made, as_json=as_json)


@app.command("revoke")
@on_client()
async def revoke_hook(client: AnyClient, job: Job, name: Name, *, as_json: bool) -> None:
    """Close the addresses of a hook."""
    gone = await client.revoke_hook(job, name)
    if as_json:
        return output.echo_json(gone)
    typer.echo(output.printable(f"hook {gone.name} of job {gone.job} takes nothing any more"))


def _show(made: wire.NewHookAnswer, *, as_json: bool) -> None:
    if as_json:
        return output.echo_json(made)
    until = "" if made.expires_at is None else f", until {output.format_moment(made.expires_at)}"
    signed = "" if made.signature is None else f" signed as {made.signature} and"
    typer.echo(
        f"what is posted to this address of a server,{signed} up to 1 MiB, fires job"
        f" {made.job}{until}. Keep it, it cannot be shown again:",
        err=True,
    )
    typer.echo(made.path)
    if made.signature is None:
        typer.echo("note: requests are not signed; --signature and --secret ask for it", err=True)


def _end(one: wire.Hook) -> str | None:
    if one.revoked_at is not None:
        return f"revoked {output.format_moment(one.revoked_at)}"
    return None if one.expires_at is None else output.format_moment(one.expires_at)
