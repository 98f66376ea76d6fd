"""`daybell alerts`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import typer

from daybell.cli import actions
from daybell.cli.options import Action, Cursor, Limit, Yes, gather, group, shared

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
        " no_worker, lost_workers, paused, store_health, succeeded or heartbeat.",
    ),
]
FIELDS: Final = {
    "to": Annotated[
        list[str] | None,
        _given("--to", "ADDRESS", "A receiver, as in jobs create --notify; may be repeated."),
    ],
    "webhook": Annotated[
        list[str] | None,
        _given("--webhook", "URL", "A receiver of events; @secret:NAME; may be repeated."),
    ],
    "webhook_secret": Annotated[
        str | None, _given("--webhook-secret", "NAME", "The secret that signs these events.")
    ],
    "job": Annotated[
        str | None, _given("--job", "NAME", "Only this job; a beginning and * for several.")
    ],
    "queue": Annotated[
        str | None, _given("--queue", "NAME", "Only this queue; a beginning and * for several.")
    ],
    "count": Annotated[int | None, _given("--count", "N", "Of failures in a row, or ends.")],
    "rate": Annotated[float | None, _given("--rate", "PART", "Of failures, from 0 to 1.")],
    "within": Annotated[
        str | None, _given("--within", "DURATION", "The time in which ends are counted.")
    ],
    "grace": Annotated[
        str | None,
        _given("--grace", "DURATION", "The time that is allowed; learnt: by earlier runs."),
    ],
    "factor": Annotated[
        float | None, _given("--factor", "N", "Of a learnt grace: times the p99 of the runs.")
    ],
    "repeat": Annotated[
        str | None, _given("--repeat", "DURATION", "Repeat messages while an incident is open.")
    ],
    "message_queue": Annotated[
        str | None, _given("--message-queue", "NAME", "The queue of the messages.")
    ],
    "description": Annotated[
        str | None, _given("--description", "TEXT", "A line of each message, for people.")
    ],
}


@app.command("list")
@shared()
def list_alerts() -> Action:
    """List the rules, with their open incidents."""
    return actions.alerts.list_alerts


@app.command("create")
@gather("fields", FIELDS)
@shared()
def create_alert(
    name: RuleName,
    on: On,
    fields: Any,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of one that has this name.")
    ] = False,
) -> Action:
    """Create a rule.

    A rule without --to opens incidents and sends no messages. @secret:NAME stands for an address
    that is kept as a secret. Messages are sent by workers that can notify.
    """
    return partial(
        actions.alerts.create_alert, name=name, fields={"on": on, **fields}, replace=replace
    )


@app.command("delete")
@shared()
def delete_alert(name: RuleName, yes: Yes = False) -> Action:
    """Delete a rule. Its incidents close without a message."""
    return partial(actions.alerts.delete_alert, name=name, yes=yes)


@app.command("silence")
@shared()
def silence_alert(
    name: RuleName,
    duration: Annotated[
        str | None, _given("--for", "DURATION", "The length of the silence, such as 2h.")
    ] = None,
    until: Annotated[str | None, _given("--until", "TIME", "The end of the silence.")] = None,
    reason: Annotated[str, _given("--reason", "TEXT", "The reason, for people.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End a silence.")] = False,
) -> Action:
    """Send no messages of a rule for some time.

    Incidents open and close meanwhile. One that is still open at the end gets its message then.
    """
    if sum((duration is not None, until is not None, end)) != 1:
        raise typer.BadParameter("specify one of --for DURATION, --until TIME and --end")
    return partial(
        actions.alerts.silence_alert, name=name, duration=duration, until=until, reason=reason
    )


@app.command("test")
@shared()
def test_alert(name: RuleName) -> Action:
    """Send a test message to the addresses of a rule."""
    return partial(actions.alerts.test_alert, name=name)


@app.command("incidents")
@shared()
def list_incidents(
    rule: Annotated[str | None, _given("--rule", "NAME", "Only those of this rule.")] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are open.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Action:
    """List incidents, newest first."""
    return partial(
        actions.alerts.list_incidents,
        rule=rule,
        is_open=True if is_open else None,
        limit=limit,
        cursor=cursor,
    )


@app.command("acknowledge")
@shared()
def acknowledge(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of an open incident.")],
) -> Action:
    """Acknowledge an incident: no messages but that of its end."""
    return partial(actions.alerts.acknowledge, id=id)
