"""Bulks that are sent several times under one key, to several API servers, at once and later.

Whatever happens to servers and answers, each answer has to name the same executions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import httpx
import msgspec

from daybell.core.instant import Seconds
from daybell.engine.clock import Clock

PATH: Final = "/api/v1/executions"
ANSWER_SECONDS: Final = 10.0  # by then a server has answered, if only that the store is away
PATIENCE_SECONDS: Final = ANSWER_SECONDS + 2.0  # of the client, to see how late an answer is
PAUSE_SECONDS: Final = 0.2  # between two tries
GIVES_UP_SECONDS: Final = 40.0
ACCEPTED: Final = 202
SERVER_ERROR: Final = 500

Servers = Callable[[], list[tuple[int, str]]]  # the process and the address of each


class Try(msgspec.Struct, kw_only=True):
    """One request, and its answer."""

    pid: int  # of the server
    asked_at: Seconds
    ended_at: Seconds | None = None
    status: int = 0  # 0: no answer
    ids: Sequence[UUID] = ()


class Submission(msgspec.Struct, kw_only=True):
    """One bulk, and all that became of it."""

    key: str
    job: str
    numbers: range
    tries: list[Try] = []

    def body(self) -> bytes:
        items = [{"job": self.job, "args": {"number": number}} for number in self.numbers]
        return msgspec.json.encode(items)

    @property
    def answers(self) -> list[Try]:
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
            verify=False,  # there is no TLS; not even its certificates are to be read
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, one: Submission, *, turn: int, after: Sequence[Seconds]) -> None:
        """Send it so many times, each after so long, from one server to the next; each time until
        it is accepted.
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
                if 0 < status < SERVER_ERROR:  # done, or refused for good
                    return
                turn += 1
            await self._clock.sleep(PAUSE_SECONDS)

    async def _try(self, one: Submission, pid: int, address: str) -> int:
        this = Try(pid=pid, asked_at=self._clock.monotonic())
        one.tries.append(this)
        try:
            answer = await self._http.post(
                address + PATH, content=one.body(), headers={"Idempotency-Key": one.key}
            )
        except httpx.HTTPError:
            this.ended_at = self._clock.monotonic()
            return 0
        this.ended_at, this.status = self._clock.monotonic(), answer.status_code
        if this.status == ACCEPTED:
            made = msgspec.json.decode(answer.content, type=_Answer).items
            this.ids = [item.execution_id for item in made]
        return this.status
