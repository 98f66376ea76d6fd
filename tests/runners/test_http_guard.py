"""Where HTTP jobs may go: private addresses, redirects, certificates."""

import asyncio
import ipaddress

import pytest

from daybell.runners.http import Http
from daybell.runners.http_connection import HttpRequest, read_url
from tests.runners.http_places import (
    OK,
    PUBLIC,
    Authority,
    Running,
    asked,
    detour,
    failed,
    names,
    serving,
)

# The system reads some of them as private: see `test_http_connection_addresses.py`.
SPELLINGS = [
    "127.0.0.1", "127.1", "2130706433", "0177.1", "017700000001", "0x7f.1", "0x7f000001",
    "[::1]", "[::]", "0", "0.0.0.0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "localhost",
    "LocalHost", "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.1",
    "127。0。0。1", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::1]", "224.0.0.1",
    "255.255.255.255",
]  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
async def test_a_request_to_a_private_address_is_refused(host):
    http, running = Http(), Running()
    network = detour(http)

    error = await failed(f"http://{host}/latest/meta-data", http, running=running)

    assert (error.type, error.is_hopeless) == ("AddressRefused", True)
    assert "is not on the public internet" in error.message
    assert "--allow-private-http" in error.message
    assert running.lacking == "http:private"
    assert network.dialled == []


@pytest.mark.parametrize("host", ["metadata.google.internal", "intern.example.", "a.localhost"])
async def test_so_is_one_to_a_name_for_it(host):
    resolve = names(metadata="169.254.169.254", intern="10.1.2.3", a=f"{PUBLIC},::1")
    http = Http(resolve=resolve)
    network = detour(http)

    error = await failed(f"http://{host}/", http)

    assert (error.type, error.is_hopeless) == ("AddressRefused", True)
    assert error.message.startswith(f"GET http://{host}/ is refused: {host} is ")
    assert network.dialled == []


@pytest.mark.parametrize(
    "host",
    [
        "１２７.0.0.1",
        "ⓛocalhost",
        "0177.0.0.1",
        "[fe80::1%25lo]",
        "[fe80::1%lo]",
        "%31%32%37.0.0.1",
    ],
)
async def test_a_host_that_is_written_to_be_misread_is_not_even_asked_for(host):
    http = Http(resolve=names())

    error = await failed(f"http://{host}/", http)

    assert (error.type, error.is_hopeless) == ("HttpFailed", True)


async def test_a_connection_is_made_to_the_address_that_was_checked():
    resolve = names(rebind=f"{PUBLIC} 127.0.0.1")  # public at first, then this machine
    http = Http(resolve=resolve)
    network = detour(http)
    async with serving(OK) as place:
        result = await asked(f"http://rebind.example:{place.port}/", http)

        assert result["status"] == 200
        assert network.dialled == [PUBLIC]
        assert resolve.asked_for == ["rebind.example"]  # type: ignore[attr-defined]
        assert place.header("host") == f"rebind.example:{place.port}"

        error = await failed(f"http://rebind.example:{place.port}/", http)

        assert error.type == "AddressRefused"
        assert network.dialled == [PUBLIC]


async def test_the_next_address_is_tried_if_one_does_not_connect():
    http = Http(resolve=names(two="93.184.215.13,93.184.215.14"))
    network = detour(http)
    network.dead.add("93.184.215.13")
    async with serving(OK) as place:
        assert (await asked(f"http://two.example:{place.port}/", http))["status"] == 200

    assert network.dialled == ["93.184.215.13", "93.184.215.14"]


def redirect(location: str, status: str = "302 Found") -> bytes:
    return f"HTTP/1.1 {status}\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


async def test_a_redirect_is_not_followed_unless_the_job_says_so():
    async with serving(redirect("/b"), OK) as place:
        error = await failed(f"{place.url}/a")

        assert error.is_hopeless
        assert "answered 302 Found, a redirect" in error.message
        assert len(place.heads) == 1


async def test_a_redirect_is_followed_if_the_job_says_so():
    async with serving(redirect("/b?c=1"), OK) as place:
        running = Running()

        result = await asked({"url": f"{place.url}/a", "redirects": 1}, running=running)

        assert result["status"] == 200
        assert place.heads[1].startswith("GET /b?c=1 ")
        assert running.said[0][2] == f"GET {place.url}/a → 302 Found"


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://intern.example/", "intern.example is 10.1.2.3"),
        ("http://127.1/", "127.1 is 127.0.0.1"),
        ("//[::1]/", "::1 is not on the public internet"),
        ("http://outer.example:22/", "port 22 belongs to another protocol"),
        ("file:///etc/passwd", "url must begin with http:// or https://"),
        ("gopher://outer.example/", "url must begin with http:// or https://"),
        ("javascript:alert(1)", "url must begin with http:// or https://"),
        ("http://me:pw@outer.example/", "url has a login in it"),
        ("//me@outer.example/", "url has a login in it"),
        ("http://[fe80::1%25lo]/", "zone"),
        ("http://[::1/", "cannot be read"),
        ("http://outer.example:99999/", "cannot be read"),
        ("https:///x", "names no host"),
    ],
)
async def test_where_a_redirect_leads_is_checked_anew(location, why):
    http = Http(resolve=resolver_with_system(outer=PUBLIC, intern="10.1.2.3"))
    network = detour(http)
    async with serving(redirect(location), OK) as place:
        settings = {"url": f"http://outer.example:{place.port}/", "redirects": 3}

        running = Running()
        error = await failed(settings, http, running=running)

        assert (error.type, error.is_hopeless) == ("AddressRefused", True)
        assert why in error.message
        assert running.lacking is None, "something was sent: no other worker does it again"
        assert network.dialled == [PUBLIC]
        assert len(place.heads) == 1


def resolver_with_system(**addresses: str):
    from daybell.runners.http_connection import system_resolve

    known = names(**addresses)

    async def resolve(host, port):
        is_known = host.endswith(".example")
        return await known(host, port) if is_known else await system_resolve(host, port)

    return resolve


@pytest.mark.parametrize("redirects", [1, 3])
async def test_redirects_without_end_are_followed_so_often(redirects):
    async with serving(redirect("/again")) as place:
        error = await failed({"url": place.url, "redirects": redirects})

        assert error.is_hopeless
        assert f"more redirects than the {redirects} that the job allows" in error.message
        assert len(place.heads) == redirects + 1


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        ("301 Moved Permanently", "POST", "GET", b""),
        ("302 Found", "POST", "GET", b""),
        ("302 Found", "PUT", "PUT", b"hello"),
        ("303 See Other", "PUT", "GET", b""),
        ("307 Temporary Redirect", "POST", "POST", b"hello"),
        ("308 Permanent Redirect", "PATCH", "PATCH", b"hello"),
    ],
)
async def test_methods_and_bodies_are_kept_as_browsers_do(status, method, then, body):
    async with serving(redirect("/b", status), OK) as place:
        settings = {"url": place.url, "redirects": 1, "method": method, "body": "hello"}

        await asked(settings)

        assert place.heads[1].startswith(f"{then} /b ")
        assert place.bodies == [b"hello", body]
        assert (place.header("content-type") is None) == (not body)


@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_what_is_for_one_place_is_not_sent_to_another(is_elsewhere):
    http = Http(resolve=names(one=PUBLIC, two=PUBLIC))
    detour(http)
    async with serving(OK) as other:
        target = f"http://two.example:{other.port}/" if is_elsewhere else "/b"
        async with serving(redirect(target), OK) as place:
            settings = {
                "url": f"http://one.example:{place.port}/",
                "redirects": 1,
                "headers": {"Authorization": "Bearer x", "X-Api-Key": "y", "Accept": "text/html"},
            }

            await asked(settings, http)

            last = other if is_elsewhere else place
            assert place.header("authorization", 0) == "Bearer x"
            assert last.header("authorization") == (None if is_elsewhere else "Bearer x")
            assert last.header("x-api-key") == (None if is_elsewhere else "y")
            assert last.header("accept") == "text/html"


@pytest.mark.parametrize(
    ("place", "other", "is_same"),
    [
        ("http://a.example/", "http://a.example/b", True),
        ("http://a.example/", "http://A.example:80/b", True),
        ("http://a.example/", "https://a.example/", True),  # with the door closed behind
        ("https://a.example/", "http://a.example/", False),
        ("http://a.example/", "https://a.example:8443/", False),
        ("http://a.example:8080/", "https://a.example/", False),
        ("http://a.example/", "http://a.example:8080/", False),
        ("http://a.example/", "https://b.a.example/", False),
    ],
)
def test_a_place_is_the_same_with_its_scheme_host_and_port(place, other, is_same):
    request = HttpRequest(method="GET", url=read_url(place), headers={"Authorization": "x"})

    headers = request.redirected(302, other).headers

    assert headers == ({"Authorization": "x"} if is_same else {})


SECRET = {"key": {"secret": "TOKEN"}}


@pytest.mark.parametrize(("body", "args"), [(SECRET, {}), (None, SECRET)])
async def test_a_body_with_a_secret_is_not_sent_elsewhere(body, args):
    http = Http(resolve=names(one=PUBLIC, two=PUBLIC))
    detour(http)
    async with serving(OK) as other:
        target = redirect(f"http://two.example:{other.port}/", "307 Temporary Redirect")
        async with serving(target) as place:
            url = f"http://one.example:{place.port}/"
            settings = {"url": url, "method": "POST", "redirects": 1, "body": body}
            running = Running(args)

            error = await failed(settings, http, secrets={"TOKEN": "canary"}, running=running)

            assert place.bodies == [b'{"key":"canary"}']
            assert error.is_hopeless
            assert "a secret in it" in error.message
            assert other.heads == []


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "good.example")


@pytest.mark.parametrize("host", ["good.example", "good.example."])
async def test_a_certificate_is_checked_against_the_name(authority, host):
    http = Http(resolve=names(good=PUBLIC), tls=authority.client)
    detour(http)
    async with serving(OK, tls=authority.server) as place:
        assert (await asked(f"https://{host}:{place.port}/", http))["status"] == 200


async def test_a_certificate_for_another_name_is_refused(authority):
    http = Http(resolve=names(evil=PUBLIC), tls=authority.client)
    detour(http)
    async with serving(OK, tls=authority.server) as place:
        error = await failed(f"https://evil.example:{place.port}/", http)

        assert "its certificate is not trusted here: Hostname mismatch" in error.message
        assert not error.is_hopeless  # somebody may put it right
        assert place.heads == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://Canary.intern.example/", "it is not on the public internet (10.0.0.0/8"),
        ("http://Canary.outer.example:22/", "its port belongs to another protocol"),
        ("http://Canary.nowhere.example/", "its host was not found: it has no address"),
        ("https://Canary.outer.example/", "its certificate is not trusted here: Hostname mismatch"),
    ],
)
async def test_a_host_from_a_secret_is_not_shown(authority, url, why):
    known = {"intern": ["10.1.2.3"], "outer": [PUBLIC], "nowhere": []}

    async def resolve(host, port):
        return known[host.split(".")[1]]

    http = Http(resolve=resolve, tls=authority.client)
    detour(http)
    async with serving(OK, tls=authority.server) as place:
        if url.startswith("https"):
            url = url.replace(".example/", f".example:{place.port}/")
        error = await failed({"url": {"secret": "URL"}}, http, secrets={"URL": url})

    assert error.message.startswith(f"GET {url.partition(':')[0]}://… ")
    assert why in error.message
    assert "canary" not in error.message.lower()


async def test_a_certificate_that_nobody_vouches_for_is_refused(authority):
    http = Http(resolve=names(good=PUBLIC))
    detour(http)
    async with serving(OK, tls=authority.server) as place:
        error = await failed(f"https://good.example:{place.port}/", http)

    assert "its certificate is not trusted here: self-signed certificate" in error.message


async def test_a_place_without_tls_is_told_apart(authority):
    async def refuse(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failed(f"https://127.0.0.1:{port}/", Http(True, tls=authority.client))

    assert "it does not speak TLS as it should" in error.message


def test_addresses_of_tests_are_public():
    assert ipaddress.ip_address(PUBLIC).is_global
