"""HTTP jobs and hostile answers: without end, packed, broken, or none at all."""

import asyncio
import gzip
import tracemalloc

import pytest

from daybell.core.limits import HTTP_BODY_BYTES_MAX
from daybell.runners.http import Http
from tests.runners.http_places import (
    PUBLIC,
    Authority,
    Running,
    a_handler,
    asked,
    detour,
    failed,
    names,
    serving,
)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "good.example")


async def trickle(reader, writer):
    """Say a little now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while not writer.is_closing():
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silence(reader, writer):
    await reader.read()


@pytest.mark.parametrize("answer", [trickle, silence])
async def test_an_answer_that_takes_for_ever_is_a_failure(answer):
    async with serving(answer) as place:
        error = await failed(place.url, Http(True, seconds=0.1))

    assert not error.is_hopeless
    assert "was not answered in full within 0.1 s; give the job a timeout" in error.message


@pytest.mark.parametrize("says", ["the job", "the execution"])
async def test_a_job_with_a_timeout_is_given_as_long_as_that(says):
    of_job = {"timeout": 9.0} if says == "the job" else {}
    running = Running(timeout=9.0 if says == "the execution" else None)
    async with serving(silence) as place:
        handler = a_handler(place.url, Http(True, seconds=0.01), **of_job)
        with pytest.raises(TimeoutError):  # of this test: the engine's would come later
            await asyncio.wait_for(handler.run(running), 0.1)


async def test_a_status_counts_even_if_its_body_never_ends():
    async def slow_refusal(reader, writer):
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 9\r\n\r\nwait a")
        await writer.drain()
        await reader.read()

    async with serving(slow_refusal) as place:
        error = await failed(place.url, Http(True, seconds=0.1))

    assert error.retry_after == 9.0
    assert "answered 429 Too Many Requests: wait" in error.message


async def endless(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        writer.write(b"1, " * 10_000)
        await writer.drain()


async def test_of_a_body_without_end_the_beginning_is_kept():
    async with serving(endless) as place:
        running = Running()

        result = await asked(place.url, running=running)

    assert result["truncated"] is True
    assert result["body"].startswith("[1, 1, ")
    assert HTTP_BODY_BYTES_MAX - 10 < len(result["body"]) <= HTTP_BODY_BYTES_MAX
    assert running.said[0][2].endswith("more than 65,536 bytes")


async def test_no_half_of_a_secret_is_in_a_body_that_was_cut():
    secret = "correct horse battery staple"
    running = Running()
    running.secret = secret
    begun = "y" * (HTTP_BODY_BYTES_MAX - 20) + " "
    page = f"HTTP/1.1 200 OK\r\n\r\n{begun}{secret}{'z' * HTTP_BODY_BYTES_MAX}".encode()
    headers = {"Authorization": {"secret": "TOKEN"}}
    async with serving(page) as place:
        settings = {"url": place.url, "headers": headers}
        result = await asked(settings, running=running, secrets={"TOKEN": secret})

    assert result["truncated"] is True and "correct" not in result["body"]


async def test_a_gzip_bomb_is_not_unpacked():
    bomb = gzip.compress(b"\0 " * 15_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    async with serving(head.encode() + bomb) as place:
        await asked(place.url)  # what is imported and kept for good
        tracemalloc.start()
        try:
            result = await asked(place.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert result["truncated"] is True
    assert 65_000 < len(result["body"]) <= HTTP_BODY_BYTES_MAX
    assert peak < 3_000_000


async def test_notes_without_end_before_an_answer_end_it(authority):
    async def keep_on(reader, writer):
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 5_000 + b"\r\n\r\n")
            await writer.drain()

    http = Http(resolve=names(good=PUBLIC), tls=authority.client)
    detour(http)
    async with serving(keep_on, tls=authority.server) as place:
        error = await failed(f"https://good.example:{place.port}/", http)

    assert "524,288 bytes have come, with far less in them" in error.message


async def test_a_body_in_small_chunks_is_whole():
    chunks = b"8\r\n12345678\r\n" * (HTTP_BODY_BYTES_MAX // 8)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(head + chunks + b"0\r\n\r\n") as place:
        result = await asked(place.url)

    assert result["body"] == "12345678" * (HTTP_BODY_BYTES_MAX // 8)
    assert "truncated" not in result


async def test_what_unpacks_to_nothing_ends_all_the_same():
    async def nothing(reader, writer):
        """Empty blocks, without end."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
        writer.write(b"\x1f\x8b\x08\0\0\0\0\0\0\x03")
        while True:
            writer.write(b"\0\0\0\xff\xff" * 10_000)
            await writer.drain()

    async with serving(nothing) as place:
        result = await asked(place.url)

    assert result == {"status": 200, "headers": {}, "body": None, "truncated": True}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"no header " * 1_000 + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nonly this",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"",
    ],
    ids=["long", "many", "no", "ssh", "lengths", "short", "chunk", "nothing"],
)
async def test_an_answer_that_is_not_http_is_a_failure(answer):
    async with serving(answer) as place:
        error = await failed(place.url)

    assert (error.type, error.is_hopeless) == ("HttpFailed", False)
    assert error.message.startswith(f"GET {place.url}/ failed: ")
    assert len(error.message) < 500


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        ("https", b""),  # it does not even agree on TLS
        ("http", b""),
        ("http", b"HTTP/1.1 200 OK\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\n\r\nso far"),
    ],
)
async def test_a_cancelled_request_hangs_up_at_once(scheme, says):
    begun, gone = asyncio.Event(), asyncio.Event()

    async def wait(reader, writer):
        await reader.read(1)
        writer.write(says)
        begun.set()
        await reader.read()
        gone.set()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        handler = a_handler(f"{scheme}://127.0.0.1:{port}/")
        task = asyncio.create_task(handler.run(Running()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 300)


async def test_a_name_service_that_is_silent_is_told_of():
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    error = await failed("http://a.example/", Http(resolve=resolve, connect_seconds=0.01))

    assert not error.is_hopeless
    assert (
        "a.example was not found within 0.01 s: the name service does not answer" in error.message
    )
