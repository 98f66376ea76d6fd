"""`daybell alerts`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, Yes, group, run

app = group("Alerts: rules, their incidents, and messages.")

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")]


def _given(flag: str, metavar: str, help: str) -> typer.models.OptionInfo:
    return typer.Option(flag, metavar=metavar, help=help, show_default=False)


On = Annotated[
    str,
    _given(
        "--on",
        "CONDITION",
        "dead_letter, failures, failure_rate, missed_run, late_start, long_run, queue_age,"
        " no_worker, lost_workers, paused, store_health or succeeded.",
    ),
]
To = Annotated[
    list[str] | None,
    _given("--to", "ADDRESS", "A receiver, as in jobs create --notify; may be repeated."),
]
Job = Annotated[
    str | None, _given("--job", "NAME", "Only this job; a beginning and * for several.")
]
Queue = Annotated[
    str | None, _given("--queue", "NAME", "Only this queue; a beginning and * for several.")
]
Count = Annotated[int | None, _given("--count", "N", "Of failures in a row, or ends.")]
Rate = Annotated[float | None, _given("--rate", "PART", "Of failures, from 0 to 1.")]
Within = Annotated[
    str | None, _given("--within", "DURATION", "The time in which ends are counted.")
]
Grace = Annotated[
    str | None,
    _given("--grace", "DURATION", "The time that is allowed; learnt: by earlier runs."),
]
Factor = Annotated[
    float | None, _given("--factor", "N", "Of a learnt grace: times the p99 of the runs.")
]
Repeat = Annotated[
    str | None, _given("--repeat", "DURATION", "Repeat messages while an incident is open.")
]
MessageQueue = Annotated[
    str | None, _given("--message-queue", "NAME", "The queue of the messages.")
]
Description = Annotated[
    str | None, _given("--description", "TEXT", "A line of each message, for people.")
]


@app.command("list")
def list_alerts(
    context: typer.Context,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the rules, with their open incidents."""
    run(context, partial(actions.alerts.list_alerts, tenant=tenant, as_json=as_json), database_url)


@app.command("create")
def create_alert(
    context: typer.Context,
    name: RuleName,
    on: On,
    to: To = None,
    job: Job = None,
    queue: Queue = None,
    count: Count = None,
    rate: Rate = None,
    within: Within = None,
    grace: Grace = None,
    factor: Factor = None,
    repeat: Repeat = None,
    message_queue: MessageQueue = None,
    description: Description = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of one that has this name.")
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a rule.

    A rule without --to opens incidents and sends no messages. @secret:NAME stands for an address
    that is kept as a secret. Messages are sent by workers that can notify.
    """
    fields = {
        "on": on,
        "to": to or None,
        "job": job,
        "queue": queue,
        "count": count,
        "rate": rate,
        "within": within,
        "grace": grace,
        "factor": factor,
        "repeat": repeat,
        "message_queue": message_queue,
        "description": description,
    }
    command = partial(
        actions.alerts.create_alert,
        name=name,
        fields=fields,
        replace=replace,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("delete")
def delete_alert(
    context: typer.Context,
    name: RuleName,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Delete a rule. Its incidents close without a message."""
    command = partial(
        actions.alerts.delete_alert, name=name, yes=yes, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("silence")
def silence_alert(
    context: typer.Context,
    name: RuleName,
    duration: Annotated[
        str | None, _given("--for", "DURATION", "The length of the silence, such as 2h.")
    ] = None,
    until: Annotated[str | None, _given("--until", "TIME", "The end of the silence.")] = None,
    reason: Annotated[str, _given("--reason", "TEXT", "The reason, for people.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End a silence.")] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Send no messages of a rule for some time.

    Incidents open and close meanwhile. One that is still open at the end gets its message then.
    """
    if sum((duration is not None, until is not None, end)) != 1:
        raise typer.BadParameter("specify one of --for DURATION, --until TIME and --end")
    command = partial(
        actions.alerts.silence_alert,
        name=name,
        duration=duration,
        until=until,
        reason=reason,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("test")
def test_alert(
    context: typer.Context,
    name: RuleName,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Send a test message to the addresses of a rule."""
    command = partial(actions.alerts.test_alert, name=name, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("incidents")
def list_incidents(
    context: typer.Context,
    rule: Annotated[str | None, _given("--rule", "NAME", "Only those of this rule.")] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are open.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List incidents, newest first."""
    command = partial(
        actions.alerts.list_incidents,
        rule=rule,
        is_open=True if is_open else None,
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("acknowledge")
def acknowledge(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of an open incident.")],
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Acknowledge an incident: no messages but that of its end."""
    command = partial(actions.alerts.acknowledge, id=id, tenant=tenant, as_json=as_json)
    run(context, command, database_url)
