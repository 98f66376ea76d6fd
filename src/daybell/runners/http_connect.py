"""Connections of HTTP jobs: made only to addresses that were looked at.

The check is part of connecting, so there is no way around it: not by a redirect, and not by a name
that stands for something else a moment later, since nothing resolves it again.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpcore
import httpx

from daybell.core.instant import Seconds
from daybell.runners.addresses import Resolve, checked_addresses
from daybell.runners.http_request import Request

# More than an answer takes of which all is kept: its headers, and its body in tiny chunks.
RECEIVED_BYTES_MAX: Final = 512 * 1024
# Looked at in one go. Chunks of one byte take long enough for others to notice.
READ_BYTES_MAX: Final = 16 * 1024


class HostUnknown(Exception):
    """The host has no address, as far as the system knows at the moment. `unnamed` says it without
    the host, which may be a secret.
    """

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host} {why}")
        self.unnamed = f"its host {why}"


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to hosts at addresses that were checked, one after the other."""

    def __init__(self, *, allow_private: bool, resolve: Resolve) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        # Its class stands for another where anyio is missing, which is all that types know.
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the interface is not ours)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout) as limit:
                addresses = await checked_addresses(
                    host, port, allow_private=self._allow_private, resolve=self._resolve
                )
        except TimeoutError:
            raise HostUnknown(
                host, f"was not found within {timeout:g} s: the name service does not answer"
            ) from None
        except UnicodeError:  # of the system's own encoder, for what is no name at all
            raise HostUnknown(host, "cannot be a name") from None
        except OSError as error:
            raise HostUnknown(host, f"was not found: {error.strerror or error}") from None
        return await self._connect_any(addresses, port, limit.when())

    async def _connect_any(
        self, addresses: list[str], port: int, until: float | None
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        for left in range(len(addresses), 0, -1):
            # Each has its share of the time: one that says nothing must not use up all of it.
            share = None if until is None else max(0.0, until - loop.time()) / left
            try:
                return await self._network.connect_tcp(addresses[-left], port, timeout=share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 1:
                    raise
        raise AssertionError("a host has an address at least")


class _Line(httpcore.AsyncNetworkBackend):
    """The connection of one request, to be ended at any moment: also while TLS is agreed on, when
    httpcore does not know it yet.
    """

    def __init__(self, network: CheckedNetwork) -> None:
        self._network = network
        self._stream: httpcore.AsyncNetworkStream | None = None
        self.came = 0

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        self._stream = await self._network.connect_tcp(*args, **options)
        return _Metered(self._stream, self)

    async def hang_up(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    def count(self, part: bytes) -> bytes:
        """Notes without end before an answer, or chunks of nothing, would keep a worker busy."""
        self.came += len(part)
        if self.came > RECEIVED_BYTES_MAX:
            raise httpcore.RemoteProtocolError(
                f"{RECEIVED_BYTES_MAX:,} bytes have come, with far less in them"
            )
        return part


class _Metered(httpcore.AsyncNetworkStream):
    """What is said on a line, counted."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, line: _Line) -> None:
        self._stream = stream
        self._line = line
        self.write = stream.write
        self.aclose = stream.aclose
        self.get_extra_info = stream.get_extra_info

    async def read(self, max_bytes: int, *args: Any, **options: Any) -> bytes:
        part = await self._stream.read(min(max_bytes, READ_BYTES_MAX), *args, **options)
        return self._line.count(part)

    async def start_tls(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _Metered(await self._stream.start_tls(*args, **options), self._line)


@asynccontextmanager
async def sent(
    request: Request, network: CheckedNetwork, tls: ssl.SSLContext | None, seconds: Seconds
) -> AsyncGenerator[httpcore.Response]:
    """Connect and send a request; what is read of the answer is up to the caller. The connection
    ends here, however much there was to come.
    """
    url = request.url
    target = httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    line = _Line(network)
    connection = httpcore.AsyncHTTPConnection(target.origin, tls, network_backend=line)
    extensions = {
        "timeout": {"connect": seconds},
        # A certificate names a host without the dot that may end it.
        "sni_hostname": url.raw_host.decode("ascii").rstrip("."),
    }
    try:
        async with connection.stream(
            request.method,
            target,
            headers=request.lines(),
            content=request.body,
            extensions=extensions,
        ) as response:
            yield response
    finally:
        await line.hang_up()


def trusted() -> ssl.SSLContext:
    """Whose certificates count: those of SSL_CERT_FILE, else of all the world's authorities."""
    return httpx.create_ssl_context()


def reason_of(error: BaseException, *, names_host: bool = True) -> str:
    """What was wrong in the first place, in the words of who knows it."""
    said = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = cause.verify_message
            said = said if names_host else said.partition(",")[0]  # for which host it is not valid
            return f"its certificate is not trusted here: {said}"
        if isinstance(cause, ssl.SSLError):
            return f"it does not speak TLS as it should: {cause.reason}"
        if isinstance(cause, OSError) and (cause.errno or 0) > 0:
            said = os.strerror(cause.errno or 0)  # an event loop has words of its own
        cause = cause.__cause__ or cause.__context__
    return said or type(error).__name__
