"""One request of a job with its answer, and what may go wrong in between."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import httpcore

from daybell.core.instant import Seconds
from daybell.core.kinds.http import PRIVATE, HttpSettings
from daybell.errors import UsageError
from daybell.runners.addresses import AddressRefused
from daybell.runners.http_answer import Answer, beginning
from daybell.runners.http_connect import CheckedNetwork, HostUnknown, reason_of, sent
from daybell.runners.http_request import REDIRECTS, Request

_REASON_CHARS_SHOWN: Final = 300
_BROKEN: Final = (
    AddressRefused, HostUnknown, OSError, httpcore.NetworkError, httpcore.ProtocolError,
    httpcore.TimeoutException,
)  # fmt: skip


class RequestFailed(Exception):
    """Why there is no good answer. A lasting reason would be no different next time."""

    def __init__(
        self,
        message: str,
        *,
        type: str = "HttpFailed",
        is_lasting: bool = False,
        retry_after: Seconds | None = None,
        lacking: str | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.is_lasting = is_lasting
        self.retry_after = retry_after
        self.lacking = lacking  # what another worker may offer; nothing has been sent


class Exchange:
    """A request, the redirects that are followed from it, and the answer."""

    def __init__(
        self,
        request: Request,
        settings: HttpSettings,
        network: CheckedNetwork,
        *,
        find_tls: Callable[[], ssl.SSLContext],
        connect_seconds: Seconds,
        say: Callable[[str, str], None],
        mask: Callable[[str], str],
    ) -> None:
        self._request = request  # the one at hand
        self._is_first = True  # nothing has been sent before it
        self._answer: Answer | None = None  # to it, as far as it has come
        self._settings = settings
        self._network = network
        self._find_tls = find_tls
        self._connect_seconds = connect_seconds
        self._say = say
        self._mask = mask  # before something is cut

    async def run(self, seconds: Seconds | None) -> Answer:
        """Send the request and read the answer, within so many seconds. Raises RequestFailed."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                answer = await self._follow()
        except _BROKEN as error:
            if self._answer is not None:
                self._check_status(self._answer)  # which says more than that its body broke off
            if limit.expired():
                raise RequestFailed(
                    f"{self._request.title} was not answered in full within {seconds:g} s; give the"
                    " job a timeout if it may take longer"
                ) from None
            raise self._explained(error) from None
        self._check_status(answer)
        if answer.problem is not None:
            raise self._failed(f"its body cannot be read: {answer.problem}")
        return answer

    async def _follow(self) -> Answer:
        followed = 0
        while True:
            place = await self._ask()
            if place is None:
                assert self._answer is not None
                return self._answer
            if followed == self._settings.redirects:
                raise self._failed(
                    f"it leads to more redirects than the {followed} that the job allows",
                    is_lasting=True,
                )
            followed += 1
            self._redirect(place)

    async def _ask(self) -> str | None:
        """Send the request at hand; answers where it is to be sent next, or None."""
        self._answer = None
        request = self._request
        tls = self._find_tls() if request.url.scheme == "https" else None
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with sent(request, self._network, tls, self._connect_seconds) as response:
            answer = self._answer = Answer.of(
                response.status,
                response.headers,
                mask=self._mask,
                has_secrets=request.has_secrets,
            )
            place = answer.headers.get("location")
            is_followed = self._settings.redirects > 0 and not self._settings.expects(answer.status)
            if place and is_followed and answer.status in REDIRECTS:
                self._say("info", f"{request.title} → {answer.words}")
                return place
            await answer.read(response.aiter_stream())
        took = round(1000 * (loop.time() - start))
        self._say("info", f"{request.title} → {answer.words} in {took:,} ms, {answer.size}")
        if answer.left_out is not None:
            self._say("warning", f"the body of the answer is not kept: {answer.left_out}")
        return None

    def _redirect(self, place: str) -> None:
        assert self._answer is not None
        self._is_first = False
        status, self._answer = self._answer.status, None
        try:
            self._request = self._request.redirected(status, place)
        except UsageError as error:
            raise RequestFailed(
                f"{self._request.title} answered with a redirect that is not followed: {error}",
                type="AddressRefused",
                is_lasting=True,
            ) from None

    def _check_status(self, answer: Answer) -> None:
        if self._settings.expects(answer.status):
            return
        message = f"{self._request.title} answered {answer.words}"
        if answer.status in REDIRECTS and not self._settings.redirects:
            message += ", a redirect, which is followed if the job's settings say redirects"
        if excerpt := answer.excerpt:
            message += f": {excerpt}"
        if not answer.is_passing:
            raise RequestFailed(message, is_lasting=True)
        raise RequestFailed(message, retry_after=answer.retry_after())

    def _explained(self, error: Exception) -> RequestFailed:
        is_secret = self._request.is_secret
        match error:
            case AddressRefused():
                why = error.unnamed if is_secret else str(error)
                message = f"{self._request.title} is refused: {why}"
                lacking = PRIVATE if self._is_first else None
                return RequestFailed(
                    message, type="AddressRefused", is_lasting=True, lacking=lacking
                )
            case HostUnknown():
                return self._failed(error.unnamed if is_secret else str(error))
            case httpcore.ConnectTimeout():
                return self._failed(f"no connection within {self._connect_seconds:g} s")
            case httpcore.ConnectError():
                return self._failed(f"no connection: {reason_of(error, names_host=not is_secret)}")
            case httpcore.LocalProtocolError():  # it shows what it does not like, secrets and all
                return self._failed("it has something in it that HTTP cannot say", is_lasting=True)
            case httpcore.RemoteProtocolError():
                reason = beginning(self._mask(str(error)), _REASON_CHARS_SHOWN)
                return self._failed(f"the answer is not as HTTP/1.1 has it: {reason}")
            case _:
                return self._failed(f"the connection broke: {reason_of(error)}")

    def _failed(self, why: str, *, is_lasting: bool = False) -> RequestFailed:
        return RequestFailed(f"{self._request.title} failed: {why}", is_lasting=is_lasting)
