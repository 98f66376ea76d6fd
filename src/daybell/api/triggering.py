"""One execution of a job, asked for by name."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import Request, Response

from daybell.api.answers import answer
from daybell.api.body import checked, may_have_twice, read_json
from daybell.api.caller import Caller
from daybell.api.idempotency import Try, once
from daybell.api.schema import Trigger
from daybell.client.requests import id_in
from daybell.client.submitting import is_name, read_many, read_new
from daybell.core import payload
from daybell.core.execution import Enqueued, NewExecution, State
from daybell.core.limits import PAYLOAD_DEPTH_MAX

ID_CHARS_MIN: Final = 32


class Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A body that says nothing but what the job is called with."""

    args: dict[str, Any]


_DECODER: Final = msgspec.json.Decoder(Plain)


async def trigger(
    request: Request, caller: Caller, name: str, raw: bytes, key: str | None
) -> Response:
    """Run a job as a body says."""
    options = read_options(raw)

    async def perform(this: Try) -> Response:
        return await _trigger(caller, name, options, this)

    return await once(request, caller, key, raw, perform)


def read_options(raw: bytes) -> dict[str, Any]:
    """What a body says. All that is wrong with it is told at once."""
    if not raw:
        return {}
    plain = _read_plain(raw)
    if plain is not None:
        return {"args": plain}
    wanted = checked(read_json(raw), Trigger)
    return {field: getattr(wanted, field) for field in wanted.model_fields_set}


def _read_plain(raw: bytes) -> dict[str, Any] | None:
    """The arguments in a body that has nothing else, and nothing that could be refused; None: it
    has to be looked at more closely.
    """
    if raw.count(b"{") + raw.count(b"[") > PAYLOAD_DEPTH_MAX:
        return None
    try:
        plain = _DECODER.decode(raw)
    except (ValueError, RecursionError):
        return None
    return None if may_have_twice(raw, plain) else plain.args


async def _trigger(caller: Caller, name: str, options: dict[str, Any], this: Try) -> Response:
    is_given = options.get("args") is not None
    new = await _read_new(caller, name, options, this)
    if is_given:
        caller.check_args([new.args])
    made = await _submit(caller, new, this)
    is_now = new.delay is None and new.at is None
    is_sure = made.created and is_now and not made.at_gate and not this.is_repeated
    state = State.QUEUED if is_sure else await _state_of(caller, made)
    return answer(
        {"execution_id": str(made.id), "status": str(state), "created": made.created},
        status=202,
        headers={"Location": f"/api/v1/executions/{made.id}"},
    )


async def _submit(caller: Caller, new: NewExecution, this: Try) -> Enqueued:
    """Enqueue it, and put it on record in the same transaction."""
    after = {"execution_id": new.id}
    entry = caller.entry("job.trigger", new.job, after=after, id=this.made("entry"))
    if new.unique_key is None:
        return await caller.client.submit(new, repeat=this.is_repeated, entry=entry)
    # Not together with others: if its key is held, there is nothing to tell.
    with caller.client.auditing(entry):
        (made,) = await caller.client.submit_many([new], repeat=this.is_repeated)
    return made


async def _read_new(caller: Caller, name: str, options: dict[str, Any], this: Try) -> NewExecution:
    """The execution as a store takes it. The job is looked up only if something of it is needed:
    its name if this is its id, or the arguments that its schedules use.
    """
    args = options.pop("args", None)
    id = this.made("execution")
    is_named = len(name) < ID_CHARS_MIN or id_in(name) is None
    if args is not None and is_named and not options:
        plain = read_many([name], [args], [id])
        if plain is not None:
            return plain[0]
    if args is None or not is_named or not is_name(name):
        job = await caller.client.job_named(name)
        name, args = job.name, payload.decode(job.definition.args) if args is None else args
    return read_new(name, args, id=id, **options)


async def _state_of(caller: Caller, made: Enqueued) -> State:
    return (await caller.client.execution(made.id)).execution.state
