"""A bulk is sent until each time is answered, to one server after the other, under one key."""

import asyncio
import json
from contextlib import asynccontextmanager

from daybell.chaos.load import Submission, Submitter
from daybell.core.ids import mint
from daybell.engine.loop import SystemClock


@asynccontextmanager
async def a_server(answer):
    """Run a server that answers with a status and a body each time; None breaks the connection."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split()[0])
        await reader.readexactly(length)
        found = answer(head)
        if found is not None:
            status, body = found
            raw = json.dumps(body).encode()
            writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\n" % status)
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(raw), raw))
        writer.close()

    server = await asyncio.start_server(attend, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_it_is_sent_until_it_is_accepted_by_one_server_after_the_other():
    id, heads = mint(), list[str]()
    answers = iter([None, (503, {}), (202, {"items": [{"execution_id": str(id)}]})])

    def answer(head: str):
        heads.append(head)
        return next(answers)

    one = Submission(key="Bulk-1", job="quick", numbers=range(7, 8))
    async with a_server(answer) as first, a_server(answer) as second:
        servers = [(1, first), (2, second)]
        submitter = Submitter(lambda: servers, "dbk_x", clock=SystemClock())
        await submitter.send(one, turn=0, after=[0.0])
        await submitter.close()

    assert [(it.pid, it.status) for it in one.tries] == [(1, 0), (2, 503), (1, 202)]
    assert [it.ids for it in one.answers] == [[id]]
    assert all("idempotency-key: bulk-1" in head for head in heads)
    assert json.loads(one.body()) == [{"job": "quick", "args": {"number": 7}}]


async def test_what_is_refused_is_not_sent_again():
    one = Submission(key="k", job="quick", numbers=range(1))
    async with a_server(lambda _: (422, {})) as address:
        submitter = Submitter(lambda: [(1, address)], "dbk_x", clock=SystemClock())
        await submitter.send(one, turn=0, after=[0.0, 0.0])
        await submitter.close()

    assert [it.status for it in one.tries] == [422, 422]
    assert one.answers == []
