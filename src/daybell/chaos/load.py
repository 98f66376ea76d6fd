"""The load of a run: enqueues, cancellations, events, bulk requests, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec

from daybell.chaos.fleet import Starvation
from daybell.chaos.tasks import (
    EVENT,
    HAPPENED,
    NO_NUMBER,
    durable,
    durable_waiting,
    flaky,
    keyed,
    long,
    quick,
    threaded,
    vanish,
)
from daybell.chaos.workflows import OUTER
from daybell.client import Client
from daybell.client.events import read_decision, read_event
from daybell.client.runs import DECISION
from daybell.core.event import NewEvent
from daybell.core.ids import mint
from daybell.core.units import Seconds
from daybell.engine.loop import Clock
from daybell.errors import Conflict, NotFound, Unavailable

# Events for durable functions under faults: two that look alike, and a decision. Each is sent until
# it is answered, as the same event every time. It may come before the wait, and in any order.

TURNS: Final = 3  # waits of each function
WITHIN_SECONDS: Final = 0.6  # after the answer to the enqueue, each is sent
PAUSE_SECONDS: Final = 0.2  # between two tries
TRIES_MAX: Final = 300


class SentEvent(msgspec.Struct, kw_only=True):
    """One event, and whether it was acknowledged."""

    execution: UUID  # the execution that should take it
    number: int  # of that execution's enqueue
    turn: int
    answered_at: Seconds | None = None
    is_refused: bool = False  # its execution had ended before it was sent

    @property
    def token(self) -> str:
        """The content that no other event has."""
        return f"{self.number}-{self.turn}"

    def event(self) -> NewEvent:
        if self.turn == TURNS - 1:
            return read_decision(
                self.execution, DECISION, approved=True, by="chaos", note=self.token
            )
        return read_event(EVENT, {"number": self.number, "note": self.token})


async def send_event(client: Client, one: SentEvent, *, after: Seconds, clock: Clock) -> None:
    """Send an event until it is answered, and note the time of the answer."""
    event = one.event()
    await clock.sleep(after)
    for turn in range(TRIES_MAX):
        try:
            await client.send(event, is_own=True)
        except Unavailable:
            await clock.sleep(PAUSE_SECONDS)
            continue
        except Conflict:
            # It has ended, because of this event if only the answer to an earlier try was lost.
            one.is_refused = turn == 0
            return
        one.answered_at = clock.monotonic()
        return


# Events that fire a job: each is published by two callers at once, and once more later, and by each
# until it is answered.

PUBLISH_AGAIN_SECONDS: Final = 0.5


class Publication(msgspec.Struct, kw_only=True):
    """One event, and the executions that its answers name."""

    number: int
    run: str  # events of another run on this store have other ids
    answers: list[Sequence[UUID]] = []

    @property
    def id(self) -> str:
        return f"{self.run}-{self.number}"


async def publish_event(client: Client, one: Publication, *, after: Seconds, clock: Clock) -> None:
    """Publish an event until it is answered."""
    await clock.sleep(after)
    for _ in range(TRIES_MAX):
        try:
            found = await client.publish(
                HAPPENED, {"number": one.number}, source="chaos", id=one.id
            )
        except Unavailable:
            await clock.sleep(PAUSE_SECONDS)
            continue
        one.answers.append(found.executions)
        return


# Bulks that are sent several times under one key, to several servers, at once and later. Whatever
# happens to servers and answers, each answer has to name the same executions.

PATH: Final = "/api/v1/executions"
ANSWER_SECONDS: Final = 10.0  # by then a server has answered, if only that the store is away
PATIENCE_SECONDS: Final = ANSWER_SECONDS + 2.0  # of the client, to measure late answers
GIVES_UP_SECONDS: Final = 40.0
ACCEPTED: Final = 202
SERVER_ERROR: Final = 500

Servers = Callable[[], list[tuple[int, str]]]  # the process and the address of each


class SubmissionTry(msgspec.Struct, kw_only=True):
    """One request, and its answer."""

    pid: int  # of the server
    asked_at: Seconds
    ended_at: Seconds | None = None
    status: int = 0  # 0: no answer
    ids: Sequence[UUID] = ()
    starved: Seconds = 0.0  # the time for which the server waited for a busy processor


class Submission(msgspec.Struct, kw_only=True):
    """One bulk, and all its tries."""

    key: str
    job: str
    numbers: range
    tries: list[SubmissionTry] = []

    def body(self) -> bytes:
        items = [{"job": self.job, "args": {"number": number}} for number in self.numbers]
        return msgspec.json.encode(items)

    @property
    def answers(self) -> list[SubmissionTry]:
        return [one for one in self.tries if one.status == ACCEPTED]


class _Made(msgspec.Struct):
    execution_id: UUID


class _Answer(msgspec.Struct):
    items: list[_Made]


class Submitter:
    """Sends submissions. `token` is that of an API key."""

    def __init__(self, servers: Servers, token: str, *, clock: Clock) -> None:
        self._servers = servers
        self._clock = clock
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            timeout=PATIENCE_SECONDS,
            trust_env=False,
            verify=False,  # without TLS; certificates are not even read
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, one: Submission, *, turn: int, after: Sequence[Seconds]) -> None:
        """Send a bulk so many times, each after its delay, to one server after another; each time
        until it is accepted.
        """
        await asyncio.gather(
            *(self._insist(one, turn + at, pause) for at, pause in enumerate(after))
        )

    async def _insist(self, one: Submission, turn: int, after: Seconds) -> None:
        await self._clock.sleep(after)
        deadline = self._clock.monotonic() + GIVES_UP_SECONDS
        while self._clock.monotonic() < deadline:
            if servers := self._servers():
                pid, address = servers[turn % len(servers)]
                status = await self._try(one, pid, address)
                if 0 < status < SERVER_ERROR:  # done, or refused permanently
                    return
                turn += 1
            await self._clock.sleep(PAUSE_SECONDS)

    async def _try(self, one: Submission, pid: int, address: str) -> int:
        this = SubmissionTry(pid=pid, asked_at=self._clock.monotonic())
        starvation = Starvation(pid)
        one.tries.append(this)
        try:
            answer = await self._http.post(
                address + PATH, content=one.body(), headers={"Idempotency-Key": one.key}
            )
        except httpx.HTTPError:
            this.ended_at, this.starved = self._clock.monotonic(), starvation.seconds()
            return 0
        this.ended_at, this.status = self._clock.monotonic(), answer.status_code
        this.starved = starvation.seconds()
        if this.status == ACCEPTED:
            made = msgspec.json.decode(answer.content, type=_Answer).items
            this.ids = [item.execution_id for item in made]
        return this.status


TURN_SECONDS: Final = 0.02
FLYING_MAX: Final = 5000  # beyond that the machine is too slow for the load, not the store
KEYS: Final = 6
WAITS: Final = 0.01  # of durable functions that wait for events, for each enqueue
WAITS_FROM: Final = 1_000_000_000  # their numbers, which no other execution has
EXITS_FROM: Final = 2_000_000_000  # the numbers of tasks that end their process
BULKS_FROM: Final = 3_000_000_000
BULKS: Final = 1 / 300  # for each enqueue
BULK_MIN: Final = 50
BULK_MAX: Final = 150
AGAIN_SECONDS: Final = 0.5  # by then a bulk is sent for the third time: some of it has ended
PUBLISHES: Final = 0.03  # of events that fire a job, for each enqueue
RUNS: Final = 0.01  # of workflows, for each enqueue: their nodes are a tenth of the load, or more


class EnqueueCall(msgspec.Struct, kw_only=True):
    """One enqueue, and its answer."""

    number: int  # NO_NUMBER for a workflow, which takes none
    job: str
    asked_at: Seconds
    key: str | None = None
    answered_at: Seconds | None = None
    failed_at: Seconds | None = None
    id: UUID | None = None  # None: not acknowledged
    is_new: bool = False


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """One request to cancel, and its answer."""

    id: UUID
    answer: str | None  # None: not answered
    answered_at: Seconds


class Load:
    """So many enqueues a second, of all kinds."""

    def __init__(
        self, client: Client, submitter: Submitter, *, rate: float, seed: int, clock: Clock
    ) -> None:
        self._client = client
        self._submitter = submitter
        self._rate = rate
        self._dice = Random(f"load {seed}")
        self._flow_dice = Random(f"runs {seed}")
        self._wait_dice = Random(f"waits {seed}")
        self._bulk_dice = Random(f"bulks {seed}")
        self._clock = clock
        self._flying: set[asyncio.Task[None]] = set()
        self.calls: list[EnqueueCall] = []
        self.cancels: list[Cancel] = []
        self.sends: list[SentEvent] = []
        self.submissions: list[Submission] = []
        self.publications: list[Publication] = []
        self._run = str(mint())
        self._exits = 0
        self.left_out = 0

    @property
    def acknowledged(self) -> int:
        return sum(call.id is not None for call in self.calls)

    async def run(self, seconds: Seconds) -> None:
        """Send requests, whatever the answers are, and wait for the last answers."""
        began = self._clock.monotonic()
        asked = runs = waits = bulks = events = 0
        while (now := self._clock.monotonic() - began) < seconds:
            while asked < now * self._rate:
                asked += 1
                self._ask(asked)
            while runs < now * self._rate * RUNS:
                runs += 1
                self._begin(OUTER[runs % len(OUTER)])
            while waits < now * self._rate * WAITS:
                waits += 1
                self._have_waited(WAITS_FROM + waits)
            while bulks < now * self._rate * BULKS:
                bulks += 1
                self._submit(bulks)
            while events < now * self._rate * PUBLISHES:
                events += 1
                self._publish(events)
            await self._clock.sleep(TURN_SECONDS)
        await asyncio.gather(*self._flying)

    def exit(self) -> None:
        """Enqueue a task that ends its process."""
        self._exits += 1
        self._fly(self._enqueue(vanish.name, {"number": EXITS_FROM + self._exits}))

    async def abandon(self) -> None:
        """Stop waiting for open requests."""
        for one in self._flying:
            one.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)

    def _ask(self, number: int) -> None:
        dice = self._dice.random()  # drawn in any case: the rest is the same for a seed
        length = self._dice.uniform(0.5, 2.0)
        if len(self._flying) >= FLYING_MAX:
            self.left_out += 1
            return
        args: dict[str, Any] = {"number": number}
        if dice < 0.69:
            self._fly(self._enqueue(quick.name, args))
        elif dice < 0.70:
            self._fly(self._enqueue(durable.name, args))
        elif dice < 0.80:
            self._fly(self._enqueue(flaky.name, args | {"fails": 1 + number % 2}))
        elif dice < 0.86:
            self._fly(self._enqueue(keyed.name, args, unique_key=f"key-{number % KEYS}"))
        elif dice < 0.93:
            self._fly(self._enqueue(quick.name, args, delay=length))
        elif dice < 0.958:
            self._fly(self._enqueue(long.name, args | {"seconds": length}))
        elif dice < 0.96:
            # Some of these run during every outage. Not many: an execution that has lost two
            # workers, as here most would, runs alone.
            self._fly(self._enqueue(long.name, args | {"seconds": 3 * length}))
        elif dice < 0.97:
            self._fly(self._enqueue(threaded.name, args | {"seconds": length / 2}))
        elif dice < 0.99:
            self._fly(self._take_back(quick.name, args, after=length / 2, delay=length))
        else:
            args["seconds"] = length
            self._fly(self._take_back(long.name, args, after=length / 2))

    def _begin(self, flow: str) -> None:
        """Enqueue a run of a workflow, and perhaps cancel it while it runs."""
        dice, after = self._flow_dice.random(), self._flow_dice.uniform(0.0, 0.5)
        if len(self._flying) >= FLYING_MAX:
            self.left_out += 1
        elif dice < 0.9:
            self._fly(self._enqueue(flow, {}))
        else:
            self._fly(self._take_back(flow, {}, after=after))

    def _have_waited(self, number: int) -> None:
        """Enqueue a function that waits for events, and send them, in any order."""
        delays = [self._wait_dice.uniform(0.0, WITHIN_SECONDS) for _ in range(TURNS)]
        if len(self._flying) >= FLYING_MAX:
            self.left_out += 1
        else:
            self._fly(self._wait(number, delays))

    async def _wait(self, number: int, delays: list[Seconds]) -> None:
        # The key allows to repeat it until it is answered: an unknown one would wait for ever.
        job, key = durable_waiting.name, f"wait-{number}"
        id = await self._call(job, {"number": number}, tries=TRIES_MAX, unique_key=key)
        if id is None:
            return
        sends = [SentEvent(execution=id, number=number, turn=turn) for turn in range(TURNS)]
        self.sends += sends
        await asyncio.gather(
            *(
                send_event(self._client, one, after=after, clock=self._clock)
                for one, after in zip(sends, delays, strict=True)
            )
        )

    def _submit(self, number: int) -> None:
        """Send a bulk to two servers at once, and again when some of it may have ended."""
        count = self._bulk_dice.randint(BULK_MIN, BULK_MAX)
        again = self._bulk_dice.uniform(0.0, AGAIN_SECONDS)
        if len(self._flying) >= FLYING_MAX:
            self.left_out += 1
            return
        first = BULKS_FROM + number * BULK_MAX
        # A key of another run on this store would be answered with that run's executions.
        one = Submission(key=f"bulk-{mint()}", job=quick.name, numbers=range(first, first + count))
        self.submissions.append(one)
        self._fly(self._send(one, number, [0.0, 0.0, again]))

    def _publish(self, number: int) -> None:
        """Publish an event by two callers at once, and again later."""
        if len(self._flying) >= FLYING_MAX:
            self.left_out += 1
            return
        one = Publication(number=number, run=self._run)
        self.publications.append(one)
        for after in (0.0, 0.0, PUBLISH_AGAIN_SECONDS):
            self._fly(publish_event(self._client, one, after=after, clock=self._clock))

    async def _send(self, one: Submission, turn: int, after: list[Seconds]) -> None:
        asked_at = self._clock.monotonic()
        calls = [
            EnqueueCall(number=number, job=one.job, asked_at=asked_at) for number in one.numbers
        ]
        self.calls += calls
        await self._submitter.send(one, turn=turn, after=after)
        for answer in one.answers[:1]:
            for call, id in zip(calls, answer.ids, strict=True):
                call.asked_at, call.answered_at = answer.asked_at, answer.ended_at
                call.id, call.is_new = id, True

    def _fly(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._flying.add(task)
        task.add_done_callback(self._flying.discard)

    async def _enqueue(self, job: str, args: dict[str, Any], **options: Any) -> None:
        await self._call(job, args, **options)

    async def _call(
        self, job: str, args: dict[str, Any], *, tries: int = 1, **options: Any
    ) -> UUID | None:
        call = EnqueueCall(
            number=args.get("number", NO_NUMBER),
            job=job,
            asked_at=self._clock.monotonic(),
            key=options.get("unique_key"),
        )
        self.calls.append(call)
        for left in reversed(range(tries)):
            try:
                answer = await self._client.enqueue(job, args, **options)
            except Unavailable:
                if left:
                    await self._clock.sleep(PAUSE_SECONDS)
                continue
            call.id, call.is_new = answer.id, answer.created
            call.answered_at = self._clock.monotonic()
            return answer.id
        call.failed_at = self._clock.monotonic()
        return None  # it may exist or not: nothing was promised

    async def _take_back(
        self, job: str, args: dict[str, Any], *, after: Seconds, **options: Any
    ) -> None:
        id = await self._call(job, args, **options)
        if id is None:
            return
        await self._clock.sleep(after)
        answer: str | None = None
        try:
            answer = str(await self._client.cancel(id))
        except Unavailable:
            pass
        except (Conflict, NotFound) as error:
            answer = f"refused: {error}"
        self.cancels.append(Cancel(id=id, answer=answer, answered_at=self._clock.monotonic()))
