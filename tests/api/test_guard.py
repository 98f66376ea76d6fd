"""The guard: requests refused by their head or size, and headers of every answer."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.app import Application
from daybell.api.caller import answer_json
from daybell.api.guard import REQUEST_UNITS, Guard, Limits, host_name, is_json
from daybell.api.router import Routes
from daybell.client import Holder
from daybell.core.limits import LARGE_BODY_BYTES
from daybell.errors import Unavailable
from tests.api.sockets import PATIENCE, app, come, guarded, is_well

JSON = {"content-type": "application/json"}


def an_app() -> Application:
    open_to_all: Any = {"role": None, "action": None}
    routes = Routes("")
    probes = Routes("", base="")

    @routes.post("/jobs", id="jobs", **open_to_all)
    async def jobs(request: Request) -> Response:
        return answer_json(len(await request.body()))

    @routes.post("/executions", id="executions", **open_to_all)
    async def executions(request: Request) -> Response:
        return answer_json(len(await request.body()))

    @routes.get("/jobs", id="listed", **open_to_all)
    async def listed() -> Response:
        return answer_json([])

    @probes.get("/healthz", id="healthz", **open_to_all)
    async def healthz() -> Response:
        return answer_json("ok")

    @routes.get("/broken", id="broken", **open_to_all)
    async def broken() -> Response:
        raise LookupError("secret inside")

    @routes.get("/forever", id="forever", **open_to_all)
    async def forever() -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    assert jobs and executions and listed and healthz and broken and forever
    return Application([*routes, *probes])


def client(guard: Any = None, base: str = "http://localhost:8080", **options: Any):
    guard = guard or Guard(an_app(), **options)
    transport = httpx.ASGITransport(guard, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=base)


async def admit_by_header(scope: Any) -> Holder:
    """Whoever says so is of that tenant."""
    return Holder(dict(scope["headers"]).get(b"tenant", b"default").decode())


def all_used(guard: Guard) -> int:
    return sum(one.used for one in (guard.connections, guard.bodies, guard.large, guard.requests))


async def stuck():
    yield b"{"
    await asyncio.Event().wait()


def is_problem(answer: httpx.Response, status: int, kind: str) -> bool:
    content = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    return (answer.status_code, content["type"], content["status"]) == (
        status, f"urn:daybell:problem:{kind}", status,
    )  # fmt: skip


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8080", "localhost.", "jobs.example"]
)
async def test_names_of_this_server_are_served(host):
    async with client(hosts={"jobs.example"}) as http:
        answer = await http.get("/api/v1/jobs", headers={"host": host})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("169.254.169.254", 421),
        ("[::2]", 421),
        ("", 400),
        ("localhost@evil.example", 400),
        ("localhost/evil", 400),
        ("localhost:80:80", 400),
        ("[::1", 400),
        ("localhost:http", 400),
    ],
)
async def test_a_name_that_is_not_ours_is_refused(host, status):
    async with client() as http:
        for path in ("/api/v1/jobs", "/healthz"):
            answer = await http.get(path, headers={"host": host})
            assert is_problem(answer, status, "wrong-host" if status == 421 else "bad-host")


async def test_a_name_that_is_refused_is_told_in_short():
    async with client() as http:
        answer = await http.get("/healthz", headers={"host": "x" * 5000})

    assert "the name 'xxx" in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 400


async def test_two_hosts_are_refused():
    async with client() as http:
        headers = [("host", "localhost"), ("host", "localhost")]
        assert (await http.get("/api/v1/jobs", headers=headers)).status_code == 400


async def test_the_address_that_was_called_is_a_name_of_ours():
    # The transport says that the server's address is the name in the URL, as a socket would.
    async with client(base="http://10.1.2.3:8080") as http:
        assert (await http.get("/api/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:8080"},
        {"origin": "https://localhost:8080"},  # a proxy speaks TLS for us
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
async def test_a_page_of_our_own_may_write(headers):
    async with client() as http:
        answer = await http.post("/api/v1/jobs", json={}, headers=headers)

    assert answer.status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:8081"},
        {"origin": "http://localhost"},
        {"origin": "http://localhost:8080.evil.example"},
        {"origin": "http://evil@localhost:8080"},
        {"origin": "http://localhost:99999"},
        {"origin": "file://localhost:8080"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_another_site_may_nothing(method, headers):
    async with client() as http:
        answer = await http.request(method, "/api/v1/jobs", headers=headers)

    assert is_problem(answer, 403, "foreign-origin")
    assert "access-control-allow-origin" not in answer.headers


async def test_a_link_from_another_site_may_be_followed():
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    async with client() as http:
        assert (await http.get("/api/v1/jobs", headers=headers)).status_code == 200
        assert (await http.post("/api/v1/jobs", headers=headers)).status_code == 403


async def test_over_tls_a_page_without_it_is_another_site():
    async with client(base="https://localhost:8443", is_tls=True) as http:
        headers = {"origin": "http://localhost:8443"}
        assert (await http.post("/api/v1/jobs", json={}, headers=headers)).status_code == 403


@pytest.mark.parametrize(
    "query",
    [
        "key=x", "api_key=x", "API_KEY=x", "token=", "token", "access_token=x", "a=1&key=x",
        "%6bey=x", "q=dbk_abc", "q=%64bk_abc", "dbk_abc", "a=1&b=dbk_abc", "q=%20dbk_abc",
    ],
)  # fmt: skip
async def test_a_key_in_the_address_is_refused_and_not_repeated(query, caplog):
    async with client() as http:
        answer = await http.get(f"/api/v1/jobs?{query}")

    assert is_problem(answer, 400, "key-in-address")
    assert "dbk_abc" not in answer.text + caplog.text.replace(str(answer.request.url), "")


async def test_a_key_in_the_path_is_refused():
    async with client() as http:
        assert is_problem(await http.get("/api/v1/keys/dbk_abc"), 400, "key-in-address")


@pytest.mark.parametrize("query", ["q=monkey", "unique_key=7", "q=my-dbk_", "label=key:x"])
async def test_an_ordinary_query_is_no_key(query):
    async with client() as http:
        assert (await http.get(f"/api/v1/jobs?{query}")).status_code == 200


@pytest.mark.parametrize(
    "content_type",
    [
        None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
        "application/x-python-serialize", "application/yaml", "application/json; charset=utf-16",
        "text/json", "json", "text/plain, application/json",
    ],
)  # fmt: skip
async def test_a_body_that_is_not_json_by_its_own_account_is_refused(content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    async with client() as http:
        answer = await http.post("/api/v1/jobs", content=b"{}", headers=headers)

    assert is_problem(answer, 415, "unsupported")


@pytest.mark.parametrize(
    ("path", "headers", "is_taken"),
    [
        ("/api/v1/events", {"ce-specversion": "1.0", "content-type": "text/plain"}, True),
        ("/api/v1/events", {"content-type": "text/plain"}, False),
        ("/api/v1/events", {"ce-specversion": "1.0", "content-type": "image/png"}, False),
        ("/api/v1/jobs", {"ce-specversion": "1.0", "content-type": "text/plain"}, False),
    ],
)
async def test_text_is_taken_as_the_data_of_an_event_and_nowhere_else(path, headers, is_taken):
    async with client() as http:
        answer = await http.post(path, content=b"{}", headers=headers)

    assert is_taken == (answer.status_code != 415)
    if path != "/api/v1/events":
        assert answer.json()["detail"] == "send JSON, with Content-Type: application/json"


async def test_a_packed_body_is_refused():
    async with client() as http:
        headers = {**JSON, "content-encoding": "gzip"}
        answer = await http.post("/api/v1/jobs", content=b"{}", headers=headers)

    assert is_problem(answer, 415, "unsupported")


async def test_a_post_without_a_body_needs_no_content_type():
    async with client() as http:
        assert (await http.post("/api/v1/jobs")).status_code == 200


SMALL = Limits(request_bytes=100, bulk_bytes=1000, bodies_bytes=3000)


async def pieces(count: int, size: int = 50):
    for _ in range(count):
        yield b"x" * size


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_over_the_limit_is_refused_however_it_comes(is_announced):
    async with client(limits=SMALL) as http:

        async def post(path, count):
            content = b"x" * 50 * count if is_announced else pieces(count)
            return await http.post(path, content=content, headers=JSON)

        assert (await post("/api/v1/jobs", 2)).json() == 100
        assert is_problem(await post("/api/v1/jobs", 3), 413, "payload-too-large")
        assert (await post("/api/v1/executions", 20)).json() == 1000
        assert is_problem(await post("/api/v1/executions", 21), 413, "payload-too-large")


async def test_what_is_over_the_limit_is_not_read():
    read = []

    async def endless():
        while True:
            read.append(50)
            yield b"x" * 50

    async with client(limits=SMALL) as http:
        answer = await http.post("/api/v1/jobs", content=endless(), headers=JSON)

    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert len(read) <= 3


async def test_the_bodies_of_a_key_are_bounded_and_given_back():
    guard = Guard(an_app(), limits=Limits(bodies_bytes=20_000), admit=admit_by_header)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow():
        yield b"x" * 9000
        begun.set()
        await go_on.wait()
        yield b""

    async with client(guard) as http:
        first = asyncio.create_task(http.post("/api/v1/executions", content=slow(), headers=JSON))
        await begun.wait()
        other = JSON | {"tenant": "other"}
        second = await http.post("/api/v1/executions", content=pieces(3, 2000), headers=JSON)
        beside = await http.post("/api/v1/executions", content=pieces(3, 2000), headers=other)
        go_on.set()

        assert is_problem(second, 429, "too-many-requests")
        assert second.headers["retry-after"] == "1"
        assert (beside.status_code, (await first).status_code) == (200, 200)
    assert all_used(guard) == 0


async def test_a_body_that_does_not_come_is_given_up():
    async with client(limits=Limits(body_seconds=0.05)) as http:
        answer = await http.post("/api/v1/jobs", content=stuck(), headers=JSON)

    assert is_problem(answer, 408, "request-timeout")


async def test_a_request_that_takes_too_long_is_given_up():
    async with client(limits=Limits(request_seconds=0.05)) as http:
        answer = await http.get("/api/v1/forever")

    assert is_problem(answer, 503, "too-late")
    assert answer.headers["retry-after"] == "5"


async def test_requests_over_the_share_of_a_key_wait_and_those_of_others_do_not():
    guard = Guard(an_app(), limits=Limits(requests=3 * REQUEST_UNITS), admit=admit_by_header)
    async with client(guard) as http:
        first = asyncio.create_task(http.get("/api/v1/forever"))
        await come(lambda: guard.requests.used > 0)
        second = asyncio.create_task(http.get("/api/v1/jobs"))
        await come(lambda: guard.connections.used == 2)

        other = await http.get("/api/v1/jobs", headers={"tenant": "other"})

        assert other.status_code == 200
        assert (await http.get("/healthz")).status_code == 200
        assert not second.done()
        first.cancel()
        assert (await second).status_code == 200
    assert all_used(guard) == 0


async def test_requests_over_the_share_of_connections_are_refused_and_those_of_others_are_not():
    guard = Guard(an_app(), limits=Limits(connections=3), admit=admit_by_header)
    async with client(guard) as http:
        first = asyncio.create_task(http.post("/api/v1/jobs", content=stuck(), headers=JSON))
        await come(lambda: guard.connections.used == 1)

        second = await http.get("/api/v1/jobs")
        other = await http.get("/api/v1/jobs", headers={"tenant": "other"})

        assert is_problem(second, 429, "too-many-requests")
        assert second.headers["retry-after"] == "1"
        assert other.status_code == 200
        assert guard.requests.used == 0  # a body that has not come takes no turn
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert all_used(guard) == 0


async def test_after_a_large_body_tenants_that_wait_have_their_time():
    guard = Guard(an_app(), admit=admit_by_header)
    large = b"x" * (LARGE_BODY_BYTES + 1)
    async with client(guard) as http:
        await http.post("/api/v1/executions", content=large, headers=JSON)
        alone = guard.large.used
        other = asyncio.create_task(http.get("/api/v1/forever", headers={"tenant": "other"}))
        await come(lambda: guard.connections.used == 1)

        await http.post("/api/v1/executions", content=large, headers=JSON)

        assert alone == 0 and guard.large.used > 0
        await come(lambda: guard.large.used == 0)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


async def test_the_turn_of_a_large_body_ends_before_a_slow_reader_has_the_answer():
    guard = Guard(an_app(), admit=admit_by_header)
    body = b"x" * (LARGE_BODY_BYTES + 1)
    is_read, held = asyncio.Event(), []

    async def receive():
        if is_read.is_set():
            await asyncio.Event().wait()
        is_read.set()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        held.append((guard.large.used, guard.connections.used))

    headers = [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/jobs", "query_string": b""}
    scope |= {"scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1)}
    scope |= {"headers": [*headers, (b"content-type", b"application/json")]}
    await guard(scope, receive, send)

    assert held == [(0, 1), (0, 1)]


async def test_a_key_whose_tenant_is_over_its_share_is_told_so():
    async def admit(scope: Any) -> Holder:
        return Holder("a", dict(scope["headers"])[b"x-key"].decode())

    guard = Guard(an_app(), limits=Limits(connections=1), admit=admit)
    async with client(guard) as http:
        headers = {**JSON, "x-key": "1"}
        first = asyncio.create_task(http.post("/api/v1/jobs", content=stuck(), headers=headers))
        await come(lambda: guard.connections.used == 1)

        answer = await http.get("/api/v1/jobs", headers={"x-key": "2"})

        assert is_problem(answer, 429, "too-many-requests")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_server_that_is_full_is_busy():
    guard = Guard(an_app(), limits=Limits(connections=1), admit=admit_by_header)
    async with client(guard) as http:
        first = asyncio.create_task(http.post("/api/v1/jobs", content=stuck(), headers=JSON))
        await come(lambda: guard.connections.used == 1)

        answer = await http.get("/api/v1/jobs", headers={"tenant": "other"})

        assert is_problem(answer, 503, "busy")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize(
    "path", ["/api/v1/jobs", "/healthz", "/nothing", "/api/v1/broken", "/api/v1/jobs?key=1"]
)
async def test_every_answer_protects_browsers(path):
    async with client() as http:
        answer = await http.get(path)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "strict-transport-security" not in answer.headers
    assert "server" not in answer.headers


async def test_with_tls_browsers_are_told_to_stay_with_it():
    async with client(is_tls=True) as http:
        answer = await http.get("/healthz")

    assert answer.headers["strict-transport-security"].startswith("max-age=")


async def test_a_mistake_of_ours_is_told_without_what_it_was(caplog):
    async with client() as http:
        answer = await http.get("/api/v1/broken?q=private")

    assert is_problem(answer, 500, "internal-error")
    assert "secret inside" not in answer.text
    ours = [one for one in caplog.records if one.name.startswith("daybell")]
    assert len(ours) == 1 and "LookupError" in caplog.text
    assert "private" not in ours[0].getMessage()


async def test_who_asks_is_found_out_before_a_body_is_read():
    read = []

    async def body():
        read.append(1)
        yield b"{}"

    async def admit(scope):
        raise Unavailable("connection to db.internal refused")

    async with client(admit=admit) as http:
        answer = await http.post("/api/v1/jobs", content=body(), headers=JSON)
        health = await http.get("/healthz")

    assert (answer.status_code, health.status_code) == (503, 200)
    assert answer.headers["retry-after"]
    assert "db.internal" not in json.dumps(answer.json())
    assert read == []


def test_a_host_is_read_as_it_is_written():
    assert host_name("Jobs.Example:80") == "jobs.example"
    assert host_name("[::1]:80") == "::1"
    assert host_name("jobs.example:") is None
    assert host_name("jöbs.example") is None


def test_content_types_that_are_json():
    assert is_json("application/json")
    assert is_json('Application/JSON; charset="UTF-8"')
    assert is_json("application/cloudevents+json")
    assert not is_json("application/jsonp")


# Bodies that are refused while they are sent: the answer arrives, and nobody is waited for.

BODY = b"x" * 8_000_000
HEAD = b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def post(port: int) -> int:
    """As many clients do it: all is sent before anything is read."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api", BODY, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def limited(**limits: Any) -> dict[str, Any]:
    return {"limits": Limits(request_bytes=1000, **limits)}


@pytest.mark.parametrize("times", [1, 5])
async def test_who_sends_too_much_hears_of_it(times):
    async with guarded(app, guard=limited()) as (server, port):
        sent = [asyncio.to_thread(post, port) for _ in range(times)]
        assert await asyncio.gather(*sent) == [413] * times

        await come(lambda: not server.connections)
        assert await is_well(port)


async def begin_to_send(
    port: int, begun: bytes = b"Content-Length: 8000000000\r\n\r\n"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send too much, and not all, and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + begun + b"x" * 2000)
    answer = await asyncio.wait_for(reader.readuntil(b'"status":413'), PATIENCE)
    assert answer.startswith(b"HTTP/1.1 413")
    return reader, writer


async def test_who_sends_no_more_is_not_waited_for():
    async with guarded(app, guard=limited(linger_seconds=0.05)) as (server, port):
        reader, writer = await begin_to_send(port)

        await asyncio.wait_for(reader.read(), PATIENCE)
        await come(lambda: not server.connections)
        writer.close()


async def test_who_sends_without_end_is_not_listened_to():
    async with guarded(app, guard=limited(linger_bytes=100_000)) as (server, port):
        reader, writer = await begin_to_send(port)

        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                writer.write(b"x" * 10_000)
                await asyncio.wait_for(writer.drain(), PATIENCE)
        await come(lambda: not server.connections)
        writer.close()
        del reader


async def test_who_is_not_done_sending_makes_way_for_others():
    async with guarded(app, guard=limited(), connections=10) as (server, port):
        senders = [await begin_to_send(port) for _ in range(10)]
        assert server.connections == 10

        assert await is_well(port)
        for _, writer in senders:
            writer.close()


async def test_a_body_that_turns_out_to_be_nonsense_is_answered_once():
    async with guarded(app, guard=limited()) as (_, port):
        reader, writer = await begin_to_send(port, b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n")

        writer.write(b"\r\nzz\r\n")
        assert b"HTTP/1.1 " not in await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()


async def test_an_application_that_does_not_read_is_heard_too():
    async def deaf(_scope, _receive, send):
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async with guarded(deaf, guard={"limits": Limits(request_bytes=10_000_000)}) as (_, port):
        assert await asyncio.to_thread(post, port) == 201
