"""What tests of HTTP jobs need: servers that say what they are told to, and an execution."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from daybell.core import payload
from daybell.core.execution import DescribedError
from daybell.core.job import JobDefinition
from daybell.core.references import fill_args, fill_references
from daybell.runners.http import Http, HttpHandler

EXECUTION = UUID("0199a8f0-0000-7000-8000-000000000001")
PUBLIC = "93.184.215.14"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Running:
    """An execution as a handler sees it."""

    is_cancelled = False
    is_hopeless = is_watchful = False
    durable = ledger = None
    devices: dict[str, list[int]] | None = None
    lacking: str | None = None
    patience = 0.0
    secret = ""  # what is masked

    def __init__(self, args: Any = None, *, attempt: int = 1, timeout: float | None = None):
        text = payload.encode(args or {})
        self.claimed: Any = SimpleNamespace(
            id=EXECUTION, attempt=attempt, timeout=timeout, args=text
        )
        self.said: list[tuple[str, str, str]] = []

    def hide(self, values): ...
    def without_secrets(self, text):
        return text

    def report(self, **_): ...
    def say(self, level, source, message, *, length=None):
        self.said.append((level, source, message))

    def print(self, stream, text): ...
    def mask(self, text):
        return text.replace(self.secret, "***") if self.secret else text

    async def begin(self): ...
    async def undo(self): ...


class Secrets:
    """Puts in secrets that are given in clear text."""

    def __init__(self, **values: str):
        self._values = values

    async def value(self, running, value):
        return fill_references(value, "secret", self._values.__getitem__)

    async def args(self, running):
        given = payload.decode(running.claimed.args)
        return fill_args(given, self._values.__getitem__)


class Place:
    """A server on this machine, and what it was asked."""

    def __init__(self, port: int, scheme: str = "http"):
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    @property
    def head(self) -> str:
        (head,) = self.heads
        return head

    def header(self, name: str, index: int = -1) -> str | None:
        """A header of a request: the last, or another."""
        for line in self.heads[index].split("\r\n")[1:]:
            said, _, value = line.partition(": ")
            if said.lower() == name.lower():
                return value
        return None


@asynccontextmanager
async def serving(*answers: bytes | Serve, tls=None) -> AsyncGenerator[Place]:
    """A server that gives one answer after the other, and the last of them for ever."""
    place: Place
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            place.heads.append(head)
            length = place.header("content-length")
            place.bodies.append(await reader.readexactly(int(length or 0)))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    place = Place(server.sockets[0].getsockname()[1], "https" if tls else "http")
    async with server:
        yield place


class Detour:
    """A network in which every address is this machine: nothing leaves it, and what was dialled is
    on record.
    """

    def __init__(self, network: Any):
        self._network = network
        self.dialled: list[str] = []
        self.dead: set[str] = set()

    async def connect_tcp(self, host, port, **options):
        self.dialled.append(host)
        target = port if host not in self.dead else 1  # nobody listens there
        return await self._network.connect_tcp("127.0.0.1", target, **options)


def detour(http: Http) -> Detour:
    """Lead all connections of `http` to this machine."""
    network: Any = http.network
    network._network = Detour(network._network)
    return network._network


def a_handler(settings: Any, http: Http | None = None, **options: Any) -> HttpHandler:
    secrets = options.pop("secrets", {})
    definition = JobDefinition(
        name="ask", kind="http", settings=msgspec.json.encode(settings).decode(), **options
    )
    return HttpHandler(definition, Secrets(**secrets), http or Http(allow_private=True))


async def asked(settings: Any, http: Http | None = None, **options: Any) -> Any:
    """The result of a request."""
    running = options.pop("running", None) or Running()
    text = await a_handler(settings, http, **options).run(running)
    return payload.decode(text or "null")


class Failed(msgspec.Struct):
    """How an attempt failed."""

    type: str
    message: str
    is_hopeless: bool
    retry_after: float | None


async def failed(settings: Any, http: Http | None = None, **options: Any) -> Failed:
    """How a request failed."""
    running = options.pop("running", None) or Running()
    try:
        result = await a_handler(settings, http, **options).run(running)
    except DescribedError as error:
        account = error.account
        message = account.message.head
        return Failed(account.type, message, running.is_hopeless, error.retry_after)
    raise AssertionError(f"it has not failed: {result}")


def names(**addresses: str):
    """A resolver that knows these; each is asked in turn for what it says next."""
    asked_for: list[str] = []

    async def resolve(host, port):
        asked_for.append(host)
        known = addresses[host.partition(".")[0]].split()
        return known[min(asked_for.count(host), len(known)) - 1].split(",")

    resolve.asked_for = asked_for  # type: ignore[attr-defined]
    return resolve


class Authority:
    """Signs itself, for one name."""

    def __init__(self, folder: Path, name: str):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = folder / "both.pem"
        file.write_bytes(certificate.public_bytes(pem) + private)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(file)
        self.client = ssl.create_default_context(cafile=str(file))
