"""Jobs that send a request.

http_request.py makes it, http_connect.py connects to addresses that were checked (addresses.py),
http_exchange.py follows redirects and says what went wrong, http_answer.py reads what comes back.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final

import msgspec

from daybell.core import payload
from daybell.core.failure import Described
from daybell.core.instant import Seconds
from daybell.core.job import JobDefinition
from daybell.core.kinds.http import HttpSettings
from daybell.core.limits import HTTP_SECONDS_DEFAULT
from daybell.core.references import names_in, names_in_args
from daybell.errors import UsageError
from daybell.runners.addresses import Resolve, system_resolve
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.running import Stoppable

if TYPE_CHECKING:  # what speaks HTTP takes a moment to import, and most workers never need it
    from daybell.runners.http_connect import CheckedNetwork
    from daybell.runners.http_request import Request

CONNECT_SECONDS: Final = 10.0  # to find the host and connect, and as much for TLS


class Http:
    """What the requests of an event loop have in common. Opened by the first of them.

    Every request has a connection of its own, which ends with it.
    """

    def __init__(
        self,
        allow_private: bool = False,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
        seconds: Seconds = HTTP_SECONDS_DEFAULT,
        connect_seconds: Seconds = CONNECT_SECONDS,
    ) -> None:
        self.seconds: Final = seconds  # for all of a request, if its job has no timeout
        self.connect_seconds: Final = connect_seconds
        self._allow_private = allow_private
        self._resolve = resolve
        self._tls = tls
        self._network: CheckedNetwork | None = None

    @property
    def network(self) -> CheckedNetwork:
        """The way to the hosts that requests may go to."""
        from daybell.runners.http_connect import CheckedNetwork

        if self._network is None:
            self._network = CheckedNetwork(allow_private=self._allow_private, resolve=self._resolve)
        return self._network

    def find_tls(self) -> ssl.SSLContext:
        """Whose certificates count."""
        from daybell.runners.http_connect import trusted

        if self._tls is None:
            self._tls = trusted()
        return self._tls

    async def close(self) -> None:
        """Nothing stays open; for those who close what they have opened."""


class HttpHandler(KindHandler):
    """One version of a job that sends a request."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, http: Http) -> None:
        super().__init__(definition, reveal)
        self._settings = HttpSettings.parse(msgspec.json.decode(definition.settings))
        self._http = http

    async def perform(self, running: Stoppable) -> Any:
        """Send the request; answers what came back."""
        from daybell.runners.http_exchange import Exchange, RequestFailed

        request = await self._request(running)
        exchange = Exchange(
            request,
            self._settings,
            self._http.network,
            find_tls=self._http.find_tls,
            connect_seconds=self._http.connect_seconds,
            say=lambda level, message: running.say(level, "http", message),
            mask=running.mask,
        )
        has_timeout = self.timeout is not None or running.claimed.timeout is not None
        try:
            answer = await exchange.run(None if has_timeout else self._http.seconds)
        except RequestFailed as error:
            running.is_hopeless = running.is_hopeless or error.is_lasting
            running.lacking = error.lacking
            raise Described.as_text(error.type, str(error), retry_after=error.retry_after) from None
        return answer.result()

    async def _request(self, running: Stoppable) -> Request:
        """The request with its secrets. One that cannot be sent will be no different next time."""
        from daybell.runners.http_request import (
            Request,
            body_of,
            read_headers,
            read_url,
            with_usual_headers,
        )

        asked, claimed = self._settings, running.claimed
        url = await self.reveal.value(running, asked.url)
        headers = await self.revealed(running, asked.headers)
        body = await self.reveal.value(running, asked.body)
        args = await self.reveal.args(running)
        args_secrets = names_in_args(payload.decode(claimed.args, what="args"))
        try:
            sent, content_type = body_of(asked.method, body, args)
            given = read_headers(headers)
            return Request(
                method=asked.method,
                url=read_url(url),
                headers=with_usual_headers(
                    given, claimed, method=asked.method, content_type=content_type
                ),
                body=sent,
                is_secret=bool(names_in(asked.url)),
                has_secret_body=bool(names_in(asked.body) or args_secrets),
                has_secrets=bool(
                    names_in([asked.url, *asked.headers.values(), asked.body]) or args_secrets
                ),
            )
        except UsageError as error:
            running.is_hopeless = True
            raise Described.as_text("HttpFailed", f"the request cannot be sent: {error}") from None
