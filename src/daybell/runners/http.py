"""Jobs that send a request."""

from __future__ import annotations

import ssl
from typing import Any, Final

import msgspec

from daybell.core.instant import Seconds
from daybell.core.job import JobDefinition
from daybell.core.kinds.http import HttpSettings
from daybell.core.limits import HTTP_SECONDS_DEFAULT
from daybell.runners.addresses import Resolve, system_resolve
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.running import Stoppable

CONNECT_SECONDS: Final = 10.0  # to find the host, connect and agree on TLS


class Http:
    """What the requests of an event loop have in common. Opened by the first of them."""

    def __init__(
        self,
        allow_private: bool = False,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
        seconds: Seconds = HTTP_SECONDS_DEFAULT,
        connect_seconds: Seconds = CONNECT_SECONDS,
    ) -> None:
        self.allow_private: Final = allow_private
        self.resolve: Final = resolve
        self.seconds: Final = seconds  # for all of a request, if its job has no timeout
        self.connect_seconds: Final = connect_seconds
        self._tls = tls

    async def close(self) -> None:
        """Close what is open."""


class HttpHandler(KindHandler):
    """One version of a job that sends a request."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, http: Http) -> None:
        super().__init__(definition, reveal)
        self._settings = HttpSettings.parse(msgspec.json.decode(definition.settings))
        self._http = http

    async def perform(self, running: Stoppable) -> Any:
        """Send the request; answers what came back."""
        raise NotImplementedError
