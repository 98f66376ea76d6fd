"""`daybell alerts`: rules, their tests and silences, and incidents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from daybell.cli import actions, output
from daybell.cli.options import Cursor, Limit, Yes, gather, group, on_client
from daybell.cli.output import Column
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.units import format_duration
from daybell.errors import DuplicateKey, UsageError, VersionConflict

if TYPE_CHECKING:
    from daybell.client import wire
    from daybell.client.remote.client import AnyClient

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
@on_client()
async def list_alerts(client: AnyClient, *, as_json: bool) -> None:
    """List the rules, with their open incidents."""
    rules = await client.alerts()
    if as_json:
        return output.echo_list(rules)
    counts = await _count_open(client)
    rows = [
        (
            one.name,
            one.on,
            _scope(one),
            _limits(one),
            str(len(one.to)),
            str(counts.pop(one.name, 0)),
            "" if one.silenced_until is None else output.format_moment(one.silenced_until),
        )
        for one in rules
    ]
    # Rules of jobs: their option `notifications`.
    rows += [(name, "", "", "notifications", "", str(n), "") for name, n in counts.items()]
    columns = (
        Column("rule", least=16, rank=0),
        "on",
        Column("watches", least=8),
        Column("limits", least=12, rank=2),
        Column("addresses", rank=3),
        "open",
        Column("silenced until", rank=4),
    )
    output.echo_table(columns, rows, empty="no alerts; daybell alerts create NAME makes one")


@app.command("create")
@gather("fields", FIELDS)
@on_client()
async def create_alert(
    client: AnyClient,
    name: RuleName,
    on: On,
    fields: Any,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of one that has this name.")
    ] = False,
    *,
    as_json: bool,
) -> None:
    """Create a rule.

    A rule without --to opens incidents and sends no messages. @secret:NAME stands for an address
    that is kept as a secret. Messages are sent by workers that can notify.
    """
    value: dict[str, Any] = {"name": name, "on": on}
    value |= {key: one for key, one in fields.items() if one is not None}
    secret = value.pop("webhook_secret", None)
    if secret is not None and "webhook" not in value:
        raise UsageError("--webhook-secret signs events; --webhook names their receiver")
    to: list[Any] = [actions.references.parse_reference(one) for one in value.pop("to", ())]
    to += [
        {"webhook": actions.references.parse_reference(one), "secret": secret}
        for one in value.pop("webhook", ())
    ]
    if to:
        value["to"] = to
    try:
        expect = None if replace else 0
        made = await client.set_alert(value, author=actions.terminal.current_actor(), expect=expect)
    except (VersionConflict, DuplicateKey):
        if replace:
            raise
        raise DuplicateKey(
            f"there is an alert rule named {name!r} already; --replace takes its place"
        ) from None
    if as_json:
        return output.echo_json(made)
    typer.echo(f"alert rule {made.name} is at version {made.version}; it watches {_scope(made)}")
    if not made.to:
        typer.echo("note: it has no receivers, so it sends nothing; --to adds one", err=True)


@app.command("delete")
@on_client()
async def delete_alert(
    client: AnyClient, name: RuleName, yes: Yes = False, *, as_json: bool
) -> None:
    """Delete a rule. Its incidents close without a message."""
    found = await client.alert(name)
    actions.terminal.confirm(f"delete alert rule {found.name}? Its open incidents close.", yes=yes)
    await client.delete_alert(name)
    if as_json:
        output.echo_json({"name": found.name})
    else:
        typer.echo(f"alert rule {found.name} is deleted")


@app.command("silence")
@on_client()
async def silence_alert(
    client: AnyClient,
    name: RuleName,
    duration: Annotated[
        str | None, _given("--for", "DURATION", "The length of the silence, such as 2h.")
    ] = None,
    until: Annotated[str | None, _given("--until", "TIME", "The end of the silence.")] = None,
    reason: Annotated[str, _given("--reason", "TEXT", "The reason, for people.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End a silence.")] = False,
    *,
    as_json: bool,
) -> None:
    """Send no messages of a rule for some time.

    Incidents open and close meanwhile. One that is still open at the end gets its message then.
    """
    if sum((duration is not None, until is not None, end)) != 1:
        raise typer.BadParameter("specify one of --for DURATION, --until TIME and --end")
    silenced = await client.silence_alert(
        name, duration=duration, until=until, reason=reason, author=actions.terminal.current_actor()
    )
    if as_json:
        output.echo_json(silenced)
    elif silenced.silenced_until is None:
        typer.echo(f"alert rule {name} sends messages again")
    else:
        typer.echo(
            f"alert rule {name} is silent until {output.format_moment(silenced.silenced_until)}"
        )


@app.command("test")
@on_client()
async def test_alert(client: AnyClient, name: RuleName, *, as_json: bool) -> None:
    """Send a test message to the addresses of a rule."""
    sent = await client.test_alert(name)
    if as_json:
        output.echo_json(sent)
    else:
        typer.echo(
            f"execution {sent.execution_id} sends the message; see how it ends:"
            f" daybell executions wait {sent.execution_id}"
        )


@app.command("incidents")
@on_client()
async def list_incidents(
    client: AnyClient,
    rule: Annotated[str | None, _given("--rule", "NAME", "Only those of this rule.")] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are open.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    *,
    as_json: bool,
) -> None:
    """List incidents, newest first."""
    page = await client.incidents(rule=rule, is_open=is_open or None, limit=limit, cursor=cursor)
    if as_json:
        return output.echo_json(page)
    rows = [
        (
            str(one.incident_id),
            one.rule,
            _state(one),
            output.format_moment(one.opened_at),
            one.subject,
            one.detail,
        )
        for one in page.items
    ]
    columns = (
        Column("incident", rank=1),
        Column("rule", least=12, rank=0),
        "state",
        "opened",
        Column("subject", least=12),
        Column("detail", least=20, rank=3),
    )
    output.echo_table(columns, rows, empty="no incidents")
    output.echo_more(page.next_cursor)


@app.command("acknowledge")
@on_client()
async def acknowledge(
    client: AnyClient,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of an open incident.")],
    *,
    as_json: bool,
) -> None:
    """Acknowledge an incident: no messages but that of its end."""
    found = await client.acknowledge_incident(id, author=actions.terminal.current_actor())
    if as_json:
        output.echo_json(found)
    else:
        typer.echo(f"incident of {found.rule} about {found.subject} is acknowledged")


async def _count_open(client: AnyClient) -> Counter[str]:
    """Return the number of open incidents of each rule."""
    counts = Counter[str]()
    cursor = None
    while True:
        page = await client.incidents(is_open=True, limit=PAGE_ITEMS_MAX, cursor=cursor)
        counts.update(one.rule for one in page.items)
        cursor = page.next_cursor
        if cursor is None:
            return counts


def _scope(rule: wire.Alert) -> str:
    parts = (("job", rule.job), ("queue", rule.queue))
    return ", ".join(f"{what} {name}" for what, name in parts if name is not None) or "all"


def _limits(rule: wire.Alert) -> str:
    words = [] if rule.grace is None else [f"grace {format_duration(rule.grace)}"]
    if rule.repeat is not None:
        words.append(f"repeat {format_duration(rule.repeat)}")
    return ", ".join(words)


def _state(one: wire.Incident) -> str:
    if one.closed_at is not None:
        return "closed"
    return "open" if one.acknowledged_at is None else "acknowledged"
