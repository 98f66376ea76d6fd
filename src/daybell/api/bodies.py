"""The bodies of requests, but those of jobs: executions, templates, events, tenants and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta

from daybell.api.fields import (
    AgoBound,
    AlertName,
    Args,
    Bound,
    Delay,
    Id,
    Name,
    Optional,
    PriorityWord,
    QueryText,
    QueueName,
    Searched,
    StatusWord,
    SubscriptionName,
    TemplateName,
    TenantName,
    Text,
    Time,
    TimeLimit,
    UniqueKey,
    Version,
)
from daybell.api.validation import RequestBody, Unset, checked_by
from daybell.client.declarations import read_template
from daybell.client.requests import ARGS_PREFIX
from daybell.client.sealing import check_value
from daybell.core.access import PATTERNS_MAX, Action, Role
from daybell.core.alerts.rules import FACTOR_MAX, AlertCondition, AlertRule
from daybell.core.event import check_words
from daybell.core.flow.shares import WEIGHT_MAX, WEIGHT_MIN
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    DESCRIPTION_CHARS_MAX,
    ENQUEUE_BATCH_MAX,
    EVENT_ID_CHARS_MAX,
    EVENT_NAME_CHARS_MAX,
    EVENT_SOURCE_CHARS_MAX,
    NAME_CHARS_MAX,
    PAGE_ITEMS_MAX,
    PARAMETERS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    QUOTA_MAX,
    RETRIES_MAX,
    SEARCH_ARGS_MAX,
    SECRET_BYTES_MAX,
    SECRET_CHARS_MIN,
)
from daybell.core.subscription import STATUSES, Subscription
from daybell.errors import UsageError

IDS_MAX: Final = ENQUEUE_BATCH_MAX
LABEL_MAX: Final = NAME_CHARS_MAX + 20  # with the number of an item
NOTE_CHARS_MAX: Final = 2_000
SPEC: Final = "1.0"


class Nothing(RequestBody):
    """A body without fields."""


class Pause(RequestBody):
    """The reason for the pause of a job."""

    note: Annotated[Text, Meta(max_length=PAUSE_NOTE_CHARS_MAX)] = ""


class Rollback(RequestBody):
    """The version that becomes the current one again."""

    version: Version


class BackfillRequest(RequestBody):
    """The ticks to run."""

    since: Bound
    until: Bound
    only: Literal["missing", "failed", "all"] = "missing"
    order: Literal["oldest", "newest"] = "oldest"
    concurrency: Annotated[int, Meta(ge=1, le=BACKFILL_CONCURRENCY_MAX)] = 1
    dry_run: bool = False


class Trigger(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Options of one execution, in place of those of its job."""

    args: Optional[Args] = None
    delay: Optional[Delay] = None
    at: Optional[Time] = None
    expires: Optional[TimeLimit] = None
    priority: Optional[PriorityWord] = None
    queue: Optional[QueueName] = None
    retries: Optional[Annotated[int, Meta(ge=0, le=RETRIES_MAX)]] = None
    timeout: Optional[TimeLimit] = None
    unique_key: Optional[UniqueKey] = None
    force: Annotated[bool, Meta(description="Override the job's overlap rule.")] = False
    cache: Annotated[
        Literal["refresh"] | None, Meta(description="Run, although there may be a cached result.")
    ] = None


class Item(Trigger, kw_only=True):
    """One execution of a bulk enqueue."""

    job: Annotated[str, Meta(description="The name of its job.")]


# Executions to be enqueued, all or nothing.
Items: TypeAlias = Annotated[list[Item], Meta(min_length=1, max_length=ENQUEUE_BATCH_MAX)]


class Again(RequestBody, rename={"from_": "from"}):
    """How an execution runs again."""

    force: Annotated[bool, Meta(description="Also one that succeeded, or was discarded.")] = False
    from_: (
        Annotated[
            Text,
            Meta(
                max_length=LABEL_MAX,
                description="Of a workflow's run: the node to begin with.",
                examples=["load"],
            ),
        ]
        | None
    ) = None


class FilterFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions that executions and dead letters are selected by."""

    job_id: Optional[Annotated[Text, Meta(description="A job's id or name.")]] = None
    job: Optional[Annotated[Text, Meta(description="The same.")]] = None
    queue: Optional[Text] = None
    worker_id: Optional[Annotated[Text, Meta(description="A worker's id or name.")]] = None
    since: Optional[AgoBound] = None
    until: Optional[AgoBound] = None
    args: Optional[
        Annotated[
            dict[str, str | int | float | bool | None],
            Meta(
                description="Arguments by name or dotted path; `arg.NAME` beside this means the"
                " same.",
                min_length=1,
                max_length=SEARCH_ARGS_MAX,
                examples=[{"order_id": 42}],
            ),
        ]
    ] = None
    unique_key: Optional[UniqueKey] = None
    error: Optional[
        Annotated[
            Searched, Meta(description="The class of its error, or a part of the error's text.")
        ]
    ] = None
    ended_since: Optional[AgoBound] = None
    ended_until: Optional[AgoBound] = None
    q: Optional[QueryText] = None

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        # To search for nothing would mean all that there are.
        for name in ("args", "unique_key", "error", "ended_since", "ended_until", "q"):
            if given.get(name, "") is None:
                raise UsageError(
                    "restricts nothing, and would mean all that there are; leave it out for that",
                    field=name,
                )

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields with `arg.NAME`, as addresses have it, in `args`."""
        named = {name: one for name, one in given.items() if name.startswith(ARGS_PREFIX)}
        if not named or not isinstance(given.get("args", {}), dict):
            return given
        args = {name.removeprefix(ARGS_PREFIX): one for name, one in named.items()}
        rest = {name: one for name, one in given.items() if name not in named}
        return {**rest, "args": {**given.get("args", {}), **args}}


class LetterFilter(FilterFields):
    """Which dead letters; what is left out does not restrict."""


class ExecutionFilter(FilterFields):
    """Which executions; what is left out does not restrict."""

    status: Optional[StatusWord | list[StatusWord]] = None
    workflow_id: Optional[Id] = None


Ids: TypeAlias = Annotated[list[Id], Meta(min_length=1, max_length=IDS_MAX)]
SweepCursor: TypeAlias = Annotated[
    str, Meta(max_length=100, description="next_cursor of the answer before, to go on with it.")
]


SweepLimit: TypeAlias = Annotated[
    int,
    Meta(
        ge=PAGE_ITEMS_MAX,
        le=100_000,
        description="About how many executions one request reads; if there are more, the answer has"
        " a `next_cursor`. Without it: all, but in a search by content.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, Meta(description="Change nothing; answer `matched`, how many the filter lets through.")
]


class Selection(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which executions: ids, or a filter. A filter that is empty means all that there are.

    With a filter by content, or a `limit`, one request reads a bounded number of executions. If
    there are more, the answer has a `next_cursor`: send the same request again with it as `cursor`.
    """

    ids: Optional[Ids] = None
    filter: Optional[ExecutionFilter] = None
    cursor: Optional[SweepCursor] = None
    limit: Optional[SweepLimit] = None
    dry_run: DryRun = False


class Retrial(Selection):
    """The same for a retry."""

    force: bool = False


class LetterSelection(RequestBody):
    """Which dead letters: ids, or a filter. A filter that is empty means all that there are."""

    ids: Optional[Ids] = None
    filter: Optional[LetterFilter] = None
    cursor: Optional[SweepCursor] = None
    limit: Optional[SweepLimit] = None
    dry_run: DryRun = False


# Events, as CloudEvents 1.0 has them in JSON.


def _check_word(what: str, chars_max: int) -> Meta:
    return checked_by(lambda value: check_words(value, what=what, field=what, chars_max=chars_max))


EventName: TypeAlias = Annotated[str, _check_word("type", EVENT_NAME_CHARS_MAX)]
Dropped: TypeAlias = Annotated[Text, Meta(description="Taken, and not kept.")]


class CloudEvent(RequestBody, kw_only=True):
    """An event, as CloudEvents 1.0 has it in JSON. `id` and `source` name it: one that is sent
    twice counts once.
    """

    specversion: Literal["1.0"] = "1.0"
    id: (
        Annotated[
            str, _check_word("id", EVENT_ID_CHARS_MAX), Meta(description="Default: a new one.")
        ]
        | None
    ) = None
    source: (
        Annotated[
            str,
            _check_word("source", EVENT_SOURCE_CHARS_MAX),
            Meta(description="Default: daybell."),
        ]
        | None
    ) = None
    type: Annotated[EventName, Meta(description="Its name, which is waited for.")]
    time: Time | None = None
    subject: Dropped | None = None
    dataschema: Dropped | None = None
    datacontenttype: Annotated[Text, Meta(examples=["application/json"])] | None = None
    data: Annotated[Any, Meta(description="Any JSON.")] = None


class NewHook(RequestBody, kw_only=True):
    """A webhook of a job."""

    name: Annotated[Name, Meta(description="What you will know it by, such as its sender.")]
    expires: Annotated[TimeLimit, Meta(examples=["90d"])] | None = None
    signature: (
        Annotated[
            Literal["github", "stripe", "standard", "hmac"],
            Meta(description="How its requests are signed. Default: not at all."),
        ]
        | None
    ) = None
    secret: Annotated[Name, Meta(description="The name of the secret that signs.")] | None = None
    header: Annotated[Text, Meta(max_length=100, description="Of hmac: X-Signature.")] | None = None
    algorithm: (
        Annotated[Literal["sha256", "sha512", "sha1"], Meta(description="Of hmac: sha256.")] | None
    ) = None
    encoding: Annotated[Literal["hex", "base64"], Meta(description="Of hmac: hex.")] | None = None


class HookRotation(RequestBody):
    """A new token for a webhook."""

    overlap: Annotated[
        Delay, Meta(description="How long the old token is valid. Default: a day.")
    ] = "1d"


class Signal(RequestBody):
    """An event for one execution alone."""

    name: EventName
    data: Annotated[Any, Meta(description="Any JSON.")] = None


class Decision(RequestBody):
    """The decision of a person, whose name is that of their key."""

    name: Annotated[Name, Meta(description="As `wait_for_approval` names it.")] = "approval"
    approved: bool = True
    note: Annotated[Text, Meta(max_length=NOTE_CHARS_MAX)] | None = None


# Templates.


class TemplateParameter(msgspec.Struct, forbid_unknown_fields=True):
    """A blank, and what may be put into it."""

    type: Annotated[
        Literal["string", "integer", "number", "boolean", "array", "object", "secret"],
        Meta(description="The type of its values; `secret` is a reference to one."),
    ] = "string"
    description: Annotated[str, Meta(description="For people.")] = ""
    default: Annotated[Any, Meta(description="Without one it must be given.")] = UNSET
    choices: Annotated[list[Any], Meta(description="The only values, if there are any.")] = []
    minimum: (
        Annotated[float, Meta(description="Of a number; of a text or a list: its size.")] | None
    ) = None
    maximum: (
        Annotated[float, Meta(description="Of a number; of a text or a list: its size.")] | None
    ) = None


class TemplateFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The fields of a template."""

    description: (
        Annotated[Text, Meta(max_length=DESCRIPTION_CHARS_MAX, description="For people.")] | None
    ) = None
    parameters: (
        Annotated[
            dict[str, Any],
            Meta(
                max_length=PARAMETERS_MAX,
                description="The blanks by name: a type, or an object with `type` and more.",
                extra_json_schema={
                    "additionalProperties": {
                        "anyOf": [
                            {"type": "string"},
                            {"$ref": "#/components/schemas/TemplateParameter"},
                        ]
                    }
                },
            ),
        ]
        | None
    ) = None
    job: Annotated[
        dict[str, Any],
        Meta(
            description="As in a request to create a job, without a name, and with"
            ' `{"parameter": "NAME"}` where a value goes.'
        ),
    ]

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        names = TemplateFields.__struct_fields__
        known = {name: given[name] for name in names if given.get(name) is not None}
        if isinstance(known.get("job"), Mapping):  # else that is reported
            read_template({"name": "template", **known})

    def given(self) -> dict[str, Any]:
        """The fields that are not null, as the client takes them."""
        fields = msgspec.structs.asdict(self)
        return {name: one for name, one in fields.items() if one is not None}


class NewTemplate(TemplateFields, kw_only=True):
    """A template to be created."""

    name: TemplateName


class DeclaredTemplate(TemplateFields):
    """All that a template is."""

    name: TemplateName | None = None


# Alerts.

Pattern: TypeAlias = Annotated[Text, Meta(max_length=NAME_CHARS_MAX + 1)]
Limit: TypeAlias = Annotated[
    TimeLimit, Meta(description='Seconds, or text such as "90s", "1h30m" or "PT5M".')
]


class AlertFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The fields of an alert rule."""

    on: Annotated[str, Meta(extra_json_schema={"enum": [*map(str, AlertCondition)]})]
    job: Annotated[Pattern, Meta(description="A job, or a beginning and *.")] | None = None
    queue: Annotated[Pattern, Meta(description="A queue, or a beginning and *.")] | None = None
    to: (
        Annotated[
            Any, Meta(description="Addresses as `notify` takes them, or webhooks; a list, or one.")
        ]
        | None
    ) = None
    count: Annotated[int, Meta(ge=1, le=RETRIES_MAX)] | None = None
    rate: Annotated[float, Meta(gt=0, le=1)] | None = None
    within: Limit | None = None
    grace: (
        Annotated[
            float | str, Meta(description='A duration, or "learnt" from the runs of the job.')
        ]
        | None
    ) = None
    factor: Annotated[float, Meta(gt=0, le=FACTOR_MAX)] | None = None
    repeat: Limit | None = None
    message_queue: QueueName | None = None
    description: Annotated[Text, Meta(max_length=DESCRIPTION_CHARS_MAX)] | None = None

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        AlertRule.parse({"name": "alert", **given})

    def given(self) -> dict[str, Any]:
        """The fields that are not null, as the client takes them."""
        fields = msgspec.structs.asdict(self)
        return {name: one for name, one in fields.items() if one is not None}


class NewAlert(AlertFields, kw_only=True):
    """An alert rule to be created."""

    name: AlertName


class DeclaredAlert(AlertFields):
    """All that an alert rule is."""

    name: AlertName | None = None


class Silence(RequestBody):
    """The time without messages: `duration` or `until`. Neither: it ends."""

    duration: Limit | None = None
    until: Bound | None = None
    reason: Annotated[Text, Meta(max_length=PAUSE_NOTE_CHARS_MAX)] = ""


# Limits.


class LimitChanges(RequestBody):
    """The numbers to set. Those that are left out stay; null returns to the declared number."""

    limit: Annotated[
        int | msgspec.UnsetType | None, Meta(description="How many run at a time.")
    ] = UNSET
    rate: Annotated[
        str | list[str] | msgspec.UnsetType | None,
        Meta(description="How many start in a time, such as 100/m."),
    ] = UNSET


class LimitPause(RequestBody):
    """The pause: its duration, or until it is resumed; of all, or of one value of the key."""

    duration: Limit | None = None
    key: Annotated[Text | None, Meta(description="A value of the limit's key.")] = None


class LimitResume(RequestBody):
    """The value of the key to resume; none: all."""

    key: Annotated[Text | None, Meta(description="A value of the limit's key.")] = None


# Subscriptions to outgoing events.

Words: TypeAlias = list[Text] | Text
Status: TypeAlias = Annotated[
    str,
    Meta(description="Of executions.", extra_json_schema={"enum": list(STATUSES)}),
]


class SubscriptionFields(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The fields of a subscription."""

    secret: Unset[
        Annotated[Text, Meta(description="The name of the secret that signs the deliveries.")]
        | None
    ] = UNSET
    types: Unset[
        Annotated[Words, Meta(description="Types of events, or beginnings and *; none: all.")]
        | None
    ] = UNSET
    status: Unset[list[Status] | Status | None] = UNSET
    job: Unset[Annotated[Pattern, Meta(description="A job, or a beginning and *.")] | None] = UNSET
    queue: Unset[Annotated[Pattern, Meta(description="A queue, or a beginning and *.")] | None] = (
        UNSET
    )
    message_queue: Unset[QueueName | None] = UNSET
    description: Unset[Annotated[Text, Meta(max_length=DESCRIPTION_CHARS_MAX)] | None] = UNSET

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        Subscription.parse({"name": "one", "url": "http://one.example", **given})

    def given(self) -> dict[str, Any]:
        """The fields that are given, as the client takes them."""
        fields = msgspec.structs.asdict(self)
        return {name: one for name, one in fields.items() if one is not UNSET}


Url: TypeAlias = Annotated[Any, Meta(description="The address; text, or a reference to a secret.")]


class NewSubscription(SubscriptionFields, kw_only=True):
    """A subscription to be created."""

    name: SubscriptionName
    url: Url


class SubscriptionChange(SubscriptionFields, kw_only=True):
    """Changes of a subscription; null resets a field."""

    url: Unset[Url] = UNSET


class ExportHold(RequestBody):
    """How far an export has come."""

    until: Annotated[Bound, Meta(description="What ended before is written.")]


# Tenants, keys and secrets.

Quota: TypeAlias = Annotated[int, Meta(ge=0, le=QUOTA_MAX, description="null: no limit")]


class TenantChange(RequestBody):
    """The quotas to change. Those that are left out stay; null is no limit. `keep` is the policy of
    retention, as a job has it. `weight` is its part of the workers that serve several tenants.
    """

    jobs: Quota | msgspec.UnsetType | None = UNSET
    queued: Quota | msgspec.UnsetType | None = UNSET
    per_minute: Quota | msgspec.UnsetType | None = UNSET
    running: Quota | msgspec.UnsetType | None = UNSET
    keep: dict[str, str | float] | str | float | msgspec.UnsetType | None = UNSET
    weight: Annotated[float, Meta(ge=WEIGHT_MIN, le=WEIGHT_MAX)] | msgspec.UnsetType = UNSET


class NewTenant(RequestBody):
    """A tenant to be created, with its quotas."""

    name: TenantName
    jobs: Quota | None = None
    queued: Quota | None = None
    per_minute: Quota | None = None
    running: Quota | None = None


Patterns: TypeAlias = Annotated[list[Text], Meta(min_length=1, max_length=PATTERNS_MAX)]


class NewKey(RequestBody):
    """A key to be made."""

    name: Annotated[Text, Meta(min_length=1, max_length=200, examples=["deploy"])]
    role: Role
    expires: Annotated[TimeLimit, Meta(examples=["90d"])] | None = None
    tenant: TenantName | None = None
    jobs: (
        Annotated[
            Patterns,
            Meta(
                description="Limit it to these jobs: names, or beginnings of names with a * after"
                " them.",
                examples=[["billing-*"]],
            ),
        ]
        | None
    ) = None
    queues: (
        Annotated[
            Patterns,
            Meta(
                description="Limit it to jobs and executions in these queues, in the same manner.",
                examples=[["mail"]],
            ),
        ]
        | None
    ) = None
    actions: (
        Annotated[
            list[Action],
            Meta(
                min_length=1,
                max_length=len(Action),
                description="Limit it to these actions, which its role must include.",
                examples=[["read", "trigger"]],
            ),
        ]
        | None
    ) = None

    def limits(self) -> dict[str, Any]:
        """The limits within its role, as the client takes them."""
        fields = {"jobs": self.jobs, "queues": self.queues, "actions": self.actions}
        return {name: one for name, one in fields.items() if one is not None}


class Login(RequestBody):
    """What opens a session."""

    key: Annotated[
        str,
        Meta(min_length=1, max_length=200, description="A key, or the token of a login link."),
    ]


class NewLogin(RequestBody):
    """A login link to be made."""

    role: (
        Annotated[Role, Meta(description="At most your own, which it is if it is left out.")] | None
    ) = None
    expires: Annotated[TimeLimit, Meta(examples=["10m"])] | None = None


class NewSecret(RequestBody):
    """A secret's value, which no answer repeats."""

    value: Annotated[
        str,
        checked_by(check_value),
        Meta(
            description="The value. Sealed at once; opened only by workers, where a job runs.",
            min_length=SECRET_CHARS_MIN,
            max_length=SECRET_BYTES_MAX,
            extra_json_schema={"writeOnly": True, "format": "password"},
        ),
    ]


# Structs that bodies mention by a reference alone.
MENTIONED: Final[tuple[Any, ...]] = (TemplateParameter,)
