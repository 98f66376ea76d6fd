"""Asking a server: what is sent, and what goes wrong on the way."""

import asyncio
import gzip
import socket
from pathlib import Path
from uuid import UUID

import pytest

from daybell import errors
from daybell.client import wire
from daybell.client.remote import transport
from daybell.client.remote.transport import Transport, build_path, check_url
from daybell.errors import AccessDenied, Unavailable, UsageError
from tests.api.sockets import serving
from tests.client.remote.answering import GONE, a_problem, an_answer, answering

KEY = "dbk_secret123"
TLS = Path(__file__).parents[2] / "api" / "tls"


@pytest.fixture
async def ask():
    """Makes a transport to a server, and closes it in the end."""
    made: list[Transport] = []

    def make(url, **options):
        made.append(Transport(url, **options))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_a_request_carries_the_key_and_parameters_that_are_given(ask):
    async with answering(an_answer(200, {"items": []})) as server:
        answer = await ask(server.url + "/", key=KEY).ask(
            "GET", "/jobs", object, parameters={"q": "a b", "queue": None}
        )

    (asked,) = server.asked
    assert answer == {"items": []}
    assert (asked.method, asked.path) == ("GET", "/api/v1/jobs?q=a+b")
    assert asked.headers["authorization"] == f"Bearer {KEY}"


async def test_another_tenant_is_named_with_every_request(ask):
    async with answering(an_answer(200, {})) as server:
        await ask(server.url, tenant="acme").ask("POST", "/queues/mail/pause", object)

    assert server.asked[0].path == "/api/v1/queues/mail/pause?tenant=acme"


async def test_an_address_may_name_the_base_already_and_a_path_before_it(ask):
    async with answering(an_answer(200, {})) as server:
        await ask(f"{server.url}/bell/api/v1/").ask("GET", "/jobs", object)

    assert server.asked[0].path == "/bell/api/v1/jobs"


async def test_this_machine_is_asked_without_a_proxy(ask, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with answering(an_answer(200, {})) as server:
        for host in ("127.0.0.1", "localhost"):
            url = server.url.replace("127.0.0.1", host)
            assert await ask(url, key=KEY).ask("GET", "/jobs", object) == {}

    with pytest.raises(Unavailable, match="cannot be reached"):
        await ask("http://daybell.invalid").ask("GET", "/jobs", object)


def test_a_name_is_one_part_of_a_path():
    assert build_path("jobs", "a b/c?d", "trigger") == "/jobs/a%20b%2Fc%3Fd/trigger"


@pytest.mark.parametrize("lost", [GONE, a_problem(503, "unavailable"), an_answer(502, b"oops")])
async def test_what_is_done_once_is_sent_again_under_the_same_key(ask, lost):
    async with answering(lost, an_answer(202, {"execution_id": "x"})) as server:
        answer = await ask(server.url).ask(
            "POST", "/jobs/a/trigger", object, {"args": {}}, once=True
        )

    first, second = server.asked
    assert answer == {"execution_id": "x"}
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert UUID(first.headers["idempotency-key"])
    assert first.body == second.body == b'{"args":{}}'


async def test_it_is_sent_again_once_only(ask):
    async with answering(a_problem(503, "unavailable", "the store is away")) as server:
        with pytest.raises(Unavailable, match="the store is away"):
            await ask(server.url).ask("POST", "/jobs/a/trigger", object, {}, once=True)

    assert len(server.asked) == 2


async def test_two_requests_have_two_keys(ask):
    async with answering(an_answer(202, {})) as server:
        remote = ask(server.url)
        await remote.ask("POST", "/jobs/a/trigger", object, {}, once=True)
        await remote.ask("POST", "/jobs/a/trigger", object, {}, once=True)

    assert len({one.headers["idempotency-key"] for one in server.asked}) == 2


async def test_what_may_not_be_done_twice_is_not_sent_again(ask):
    async with answering(GONE, an_answer(200, {})) as server:
        with pytest.raises(Unavailable, match="the connection broke"):
            await ask(server.url).ask("POST", "/executions/x/retry", object)

    assert len(server.asked) == 1


async def test_what_only_looks_is_asked_again(ask):
    async with answering(GONE, an_answer(200, {"items": [1]})) as server:
        assert await ask(server.url).ask("GET", "/jobs", object) == {"items": [1]}


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (a_problem(404, "unknown-job", "no job x"), errors.JobNotFound, "^no job x$"),
        (a_problem(409, "duplicate-key"), errors.DuplicateKey, "it is so"),
        (a_problem(409, "conflict"), errors.Conflict, "it is so"),
        (a_problem(412, "precondition-failed"), errors.VersionConflict, "it is so"),
        (a_problem(413, "payload-too-large"), errors.PayloadTooLarge, "it is so"),
        (a_problem(403, "access-denied", "this takes admin"), AccessDenied, "^this takes admin$"),
        (a_problem(403, "foreign-origin"), AccessDenied, "it is so"),
        (a_problem(404, "brand-new-kind"), errors.NotFound, "it is so"),
        (a_problem(400, "brand-new-kind"), UsageError, "it is so"),
        (a_problem(500, "internal-error"), errors.DaybellError, "it is so"),
        (a_problem(503, "schema-error"), Unavailable, "it is so"),
    ],
)
async def test_a_problem_is_the_error_that_the_database_would_raise(ask, answer, kind, said):
    async with answering(answer) as server:
        with pytest.raises(kind, match=said) as caught:
            await ask(server.url, key=KEY).ask("GET", "/jobs/x", object)

    assert caught.type is kind


async def test_a_problem_names_the_field(ask):
    found = [{"field": "timeout", "message": "no"}, {"field": "queue", "message": "no"}]
    async with answering(a_problem(422, "invalid-duration", errors=found)) as server:
        with pytest.raises(errors.InvalidDuration) as caught:
            await ask(server.url).ask("POST", "/jobs", object, {})

    assert caught.value.field == "timeout"


async def test_a_code_that_only_the_server_has_is_that_of_the_error(ask):
    async with answering(a_problem(409, "limit-full", "wait")) as server:
        with pytest.raises(errors.Conflict) as caught:
            await ask(server.url).ask("GET", "/jobs", object)

    assert caught.value.code == "limit-full"
    assert errors.Conflict.code == "conflict"


async def test_a_quota_says_which_and_until_when(ask):
    answer = a_problem(429, "quota-exceeded", quota="jobs").replace(
        b"Connection:", b"Retry-After: 7\r\nConnection:"
    )
    async with answering(answer) as server:
        with pytest.raises(errors.QuotaExceeded) as caught:
            await ask(server.url).ask("POST", "/jobs", object, {})

    assert (caught.value.quota, caught.value.retry_after) == ("jobs", 7.0)


async def test_what_is_in_the_way_is_named(ask):
    id = "01a1e074-1e02-7b87-ae9e-6ec860fb4d7d"
    async with answering(a_problem(409, "execution-in-the-way", execution_id=id)) as server:
        with pytest.raises(errors.ExecutionInTheWay) as caught:
            await ask(server.url).ask("POST", "/jobs/x/trigger", object, {})

    assert caught.value.execution == UUID(id)


@pytest.mark.parametrize(
    ("key", "advice"), [(None, "takes a key"), (KEY, "does not know this key")]
)
async def test_a_missing_or_wrong_key_is_told_with_the_way_out(ask, key, advice):
    async with answering(a_problem(401, "key-needed")) as server:
        with pytest.raises(AccessDenied, match=f"{advice}.*DAYBELL_API_KEY") as caught:
            await ask(server.url, key=key).ask("GET", "/jobs", object)

    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (an_answer(200, b"<html>welcome</html>", kind="text/html"), "no JSON.*DAYBELL_API_URL"),
        (an_answer(404, b"<html>nothing</html>", kind="text/html"), "404.*DAYBELL_API_URL"),
        (an_answer(404, {"message": "nothing"}), "404, but not as Daybell does"),
        (an_answer(404, ["nothing"]), "404, but not as Daybell does"),
        (an_answer(302, b"", Location="https://elsewhere.example"), "redirects are not followed"),
    ],
)
async def test_a_stranger_is_noticed(ask, answer, said):
    async with answering(answer) as server:
        with pytest.raises(UsageError, match=said):
            await ask(server.url, key=KEY).ask("GET", "/jobs", object)

    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", [{}, [], None, "jobs", {"items": [{}]}, {"items": 3}])
async def test_an_answer_to_something_else_is_noticed(ask, answer):
    async with answering(an_answer(200, answer)) as server:
        with pytest.raises(UsageError, match=r"does not understand.*daybell server"):
            await ask(server.url).page("/jobs", wire.Job, {})


async def test_an_answer_has_an_end(ask, monkeypatch):
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1000)
    bomb = an_answer(200, gzip.compress(b" " * 100_000), Content_Encoding="gzip")
    async with answering(bomb) as server:
        with pytest.raises(UsageError, match="more than 1,000 bytes"):
            await ask(server.url).ask("GET", "/jobs", object)


async def test_an_answer_that_does_not_come_is_not_waited_for(ask):
    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        remote = ask(url, seconds=0.05)
        with pytest.raises(Unavailable, match=r"no answer within 0\.05 s"):
            await remote.ask("POST", "/executions/x/cancel", object)
        await remote.close()


async def test_a_server_that_is_down_is_told_with_the_way_out(ask):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"

        with pytest.raises(Unavailable, match=f"{url} cannot be reached.*DAYBELL_API_URL"):
            await ask(url, key=KEY).ask("POST", "/jobs/a/trigger", object, {}, once=True)


async def well(scope, receive, send):
    """An application that is well, whatever it is asked."""
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


async def test_a_certificate_is_checked_and_may_be_of_an_authority_of_ones_own(ask, monkeypatch):
    tls = {"tls_cert": str(TLS / "cert.pem"), "tls_key": str(TLS / "key.pem")}
    async with serving(well, **tls) as (_, port):
        url = f"https://localhost:{port}"
        with pytest.raises(Unavailable, match=r"not trusted here.*SSL_CERT_FILE") as caught:
            await ask(url, key=KEY).ask("GET", "/jobs", object)
        assert caught.value.is_lasting

        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
        assert await ask(url, key=KEY).ask("GET", "/jobs", object) == {}

        with pytest.raises(Unavailable, match=r"the connection broke: .*; is it https://\?"):
            await ask(f"http://localhost:{port}").ask("GET", "/jobs", object)


@pytest.mark.parametrize(
    ("name", "reason"), [("none.pem", "No such file"), ("a.pem", "it is no certificate")]
)
async def test_a_file_of_authorities_that_cannot_be_read_is_named(
    ask, monkeypatch, tmp_path, name, reason
):
    (tmp_path / "a.pem").write_text("hello")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))

    with pytest.raises(UsageError, match=rf"SSL_CERT_FILE '.*{name}' cannot be read: {reason}"):
        await ask("https://127.0.0.1:1").ask("GET", "/jobs", object)


async def test_tls_where_there_is_none_is_told(ask):
    async with serving(well) as (_, port):
        with pytest.raises(Unavailable, match=r"does not speak TLS.*is it http://"):
            await ask(f"https://127.0.0.1:{port}").ask("GET", "/jobs", object)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host", "not the address of a server"),
        ("http://", "not the address of a server"),
        ("127.0.0.1:8200", "begins with http:// or https://"),
        ("http://host:port", "not the address of a server"),
        ("http://ada:hunter22@host", "a login does not belong"),
        ("http://host?key=hunter22", "more than an address"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_secrets(url, said):
    with pytest.raises(UsageError, match=said) as caught:
        check_url(url)

    assert caught.value.field == "api_url"
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("key", ["dbk_ä", "dbk_a b", "dbk_a\nb"])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(UsageError, match="characters that no key has"):
        Transport("http://host", key=key)
