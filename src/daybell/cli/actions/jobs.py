"""The work of `daybell jobs`: list, show, pause, resume and trigger."""

from __future__ import annotations

from typing import Any

import msgspec
import typer
from msgspec.structs import asdict, replace

from daybell.cli import output
from daybell.cli.actions.job_options import rephrase_errors, rephrase_trigger_error
from daybell.cli.actions.selection import explain_missing_job, none_if_denied
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE
from daybell.cli.views.jobs import echo_job, echo_jobs, find_workflow_users, next_run
from daybell.cli.views.reasons import echo_job_why
from daybell.cli.views.transcripts import wait_for_end
from daybell.client import answers
from daybell.core import payload
from daybell.core.units import parse_duration
from daybell.errors import AccessDenied
from daybell.settings import Settings


async def list_jobs(
    settings: Settings, *, asked: dict[str, Any], tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        page = await client.jobs(**asked)
        now = (await client.health()).now
        is_all = page.next_cursor is None and not any(
            asked[name] for name in asked if name != "limit"
        )
        users = None if as_json else await find_workflow_users(client, page.items, is_all=is_all)
    if as_json:
        output.echo_json(answers.page(page, answers.shorten_version))
        return DONE
    none = _none(asked, is_over=page.next_cursor is None)
    echo_jobs(page.items, now=now, empty=none, users=users)
    output.echo_more(page.next_cursor)
    return DONE


def _none(asked: dict[str, Any], *, is_over: bool) -> str:
    """Return the reason for an empty list."""
    if not is_over:
        return "none so far"
    if any(asked[name] for name in ("status", "user_id", "queue", "text")):
        return "no jobs like that"
    prefix = asked["prefix"]
    none = f"no job's name begins with {prefix!r}" if prefix else "no jobs"
    return f"{none}; a worker defines those of its app"


async def show_job(
    settings: Settings, *, name: str, version: int | None, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            standing = await client.standing(name)
        if version is not None:
            old = await client.job(standing.name, version=version)
            if not old.is_current:
                standing = replace(standing, **asdict(old))
        counts = await client.count(job=standing.name)
        now = (await client.health()).now
    if as_json:
        output.echo_json(msgspec.to_builtins(standing) | msgspec.to_builtins(counts))
    else:
        echo_job(standing, counts, now=now)
    return DONE


async def pause_job(settings: Settings, *, name: str, note: str, tenant: str | None) -> int:
    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            before = await none_if_denied(client.job(name))
            await client.pause(name, note)
        found = await none_if_denied(client.schedules_page(name, limit=1))
    if before is not None and before.paused_at is not None and not note:
        kept = f" ({output.printable(before.pause_note)})" if before.pause_note else ""
        typer.echo(f"{name} was paused already{kept}; daybell jobs resume {name}")
        return DONE
    has_none = found is not None and not found.items
    then = "it has no schedules" if has_none else "its schedules do not fire"
    typer.echo(f"{name} is paused: {then}, and it can be triggered; daybell jobs resume {name}")
    return DONE


async def explain_job(settings: Settings, *, name: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.why_job(name)
    if as_json:
        output.echo_json(found)
    else:
        echo_job_why(found)
    return DONE


async def resume_job(settings: Settings, *, name: str, tenant: str | None) -> int:
    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            before = await none_if_denied(client.job(name))
            await client.resume(name)
        standing = await none_if_denied(client.standing(name))
    is_paused = before is None or before.paused_at is not None
    if standing is None:
        typer.echo(f"{name} is not paused any more")
        return DONE
    runs = f"runs next {next_run(standing)}" if standing.next_run_at else "has no next time"
    typer.echo(f"{name} {'goes on' if is_paused else 'was not paused'} and {runs}")
    return DONE


async def trigger_job(
    settings: Settings,
    *,
    name: str,
    args: str | None,
    options: dict[str, Any],
    wait: bool,
    within: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    seconds = None if within is None else parse_duration(within, what="timeout")
    arguments = None if args is None else payload.decode(args, what="--args")
    async with client_for(settings, tenant=tenant) as client:
        with rephrase_errors(rephrase_trigger_error):
            async with explain_missing_job(client, name):
                answer = await client.trigger(name, arguments, **options)
        status = answer.state
        try:
            if wait:
                return await wait_for_end(client, answer.id, seconds=seconds, as_json=as_json)
            status = status or (await client.execution(answer.id)).status
        except AccessDenied as error:
            raise AccessDenied(
                f"execution {answer.id} is {status} and goes on; it cannot be waited for: {error}"
            ) from None
    if as_json:
        said = {"execution_id": str(answer.id), "status": status, "created": answer.created}
        output.echo_json(said)
    elif answer.created:
        typer.echo(f"{answer.id} is {status}")
    elif options.get("unique_key") is None:
        typer.echo(f"{answer.id} is the answer to this request and is {status}; nothing was added")
    else:
        typer.echo(f"{answer.id} has that unique key already and is {status}; nothing was added")
    return DONE
