"""Notification jobs. Messages are sent by apprise in helper processes: `notify_helper.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from daybell.core.execution import DescribedError
from daybell.core.job import JobDefinition
from daybell.core.kinds.settings import NotifySettings
from daybell.core.limits import NOTIFY_CHARS_MAX
from daybell.core.units import Seconds
from daybell.errors import install_advice, shown
from daybell.runners.helper_pool import (
    ENVIRONMENT,
    IDLE_SECONDS,
    HelperFailed,
    Helpers,
    module_command,
)
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.notify_helper import ALLOW_PRIVATE, Notification, NotifyAnswer
from daybell.runners.python import MaskedAttempt

SOURCE: Final = "notify"  # of lines in the log
FAILED: Final = "NotifyFailed"
COMMAND: Final = module_command("daybell.runners.notify_helper")
SILENCE_SECONDS: Final = 120.0  # for one address; apprise usually gives up long before
ANSWER_BYTES_MAX: Final = 256 * 1024
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
# A proxy would receive the refused addresses, so it needs the same permission.
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

Hear = Callable[[NotifyAnswer], None]


class Notifier:
    """Sends messages in helper processes, a few at a time; for one event loop. `allow_private`:
    also to addresses that are not public.
    """

    def __init__(
        self,
        allow_private: bool = False,
        *,
        command: Sequence[str] = COMMAND,
        idle: Seconds = IDLE_SECONDS,
        silence: Seconds = SILENCE_SECONDS,
    ) -> None:
        self.helpers = Helpers(
            [*command, *([ALLOW_PRIVATE] if allow_private else [])],
            variables=(*ENVIRONMENT, *_CERTIFICATES, *(_PROXIES if allow_private else ())),
            line_bytes_max=ANSWER_BYTES_MAX,
            idle=idle,
            silence=silence,
        )

    async def send(self, message: Notification, hear: Hear) -> None:
        """Send a message, and pass its results to `hear`. A cancellation ends the helper. Raises
        HelperFailed.
        """

        def take(line: bytes) -> bool:
            answer = msgspec.json.decode(line, type=NotifyAnswer)
            if not answer.is_done:
                hear(answer)
            if answer.missing is not None:
                raise HelperFailed(
                    f"apprise cannot be imported by this worker ({answer.missing}):"
                    f" {install_advice('notify')}"
                )
            return answer.is_done

        await self.helpers.run(msgspec.json.encode(message), take)

    async def close(self) -> None:
        """End the helpers with their unfinished messages."""
        await self.helpers.close()


class NotifyHandler(KindHandler):
    """Handler of one version of a job that sends a message to some addresses."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, notifier: Notifier) -> None:
        super().__init__(definition, reveal)
        self._settings = NotifySettings.parse(msgspec.json.decode(definition.settings))
        self._notifier = notifier

    async def perform(self, running: MaskedAttempt) -> Any:
        """Send the message; return how many addresses received it. Addresses that an earlier
        attempt reached are left out.
        """
        message = await self._message(running)
        outcome = _Outcome(running, len(message.to))
        left = {number: url for number, url in message.to.items() if number not in outcome.told}
        if left:
            try:
                await self._notifier.send(msgspec.structs.replace(message, to=left), outcome.hear)
            except HelperFailed as error:
                raise DescribedError.as_text(FAILED, str(error)) from None
        return outcome.result()

    async def _message(self, running: MaskedAttempt) -> Notification:
        settings = self._settings
        to = cast("list[Any]", await self.reveal.value(running, list(settings.to)))
        words: dict[str, Any] = {"title": settings.title, "body": settings.body}
        words = await self.reveal.value(running, words)
        args = await self.reveal.args(running)
        for name in args:
            if name not in words:
                raise _fail_permanently(
                    running, f"the arguments have {shown(name)}; a message takes title and body"
                )
        words |= args
        for name, value in words.items():
            if not isinstance(value, str):
                raise _fail_permanently(running, f"the {name} of a message is text")
            if len(value) > NOTIFY_CHARS_MAX:
                raise _fail_permanently(
                    running,
                    f"the {name} has {len(value):,} characters; the limit is {NOTIFY_CHARS_MAX:,}",
                )
        if not any(words.values()):
            raise _fail_permanently(running, "the message says nothing; give it a title or a body")
        return Notification(dict(enumerate(map(str, to), 1)), format=settings.format, **words)


class _Outcome:
    """The results so far, from which the next attempt continues."""

    def __init__(self, running: MaskedAttempt, count: int) -> None:
        self._running = running
        self._count = count
        self._failed: dict[int, NotifyAnswer] = {}
        self.told = _read_checkpoint(running.claimed.checkpoint)

    def hear(self, answer: NotifyAnswer) -> None:
        if answer.line is not None:
            level, text = answer.line
            self._running.say(level, SOURCE, text)
        if answer.told is not None:
            self.told.add(answer.told)
            self._running.report(checkpoint=msgspec.json.encode(_Checkpoint(self.told)).decode())
        if answer.failed is not None:
            self._failed[answer.failed] = answer

    def result(self) -> dict[str, Any]:
        if self._failed:
            told = "; ".join(f"place {number}: {one.why}" for number, one in self._failed.items())
            message = f"{len(self._failed)} of {self._count} could not be told: {told}"
            if all(one.is_lasting for one in self._failed.values()):
                self._running.is_hopeless = True
            raise DescribedError.as_text(FAILED, message)
        return {"sent": len(self.told)}


class _Checkpoint(msgspec.Struct):
    """The state of an attempt for the next one."""

    told: set[int] = msgspec.field(default_factory=set[int])


def _read_checkpoint(checkpoint: str | None) -> set[int]:
    return msgspec.json.decode(checkpoint, type=_Checkpoint).told if checkpoint else set()


def _fail_permanently(running: MaskedAttempt, why: str) -> DescribedError:
    running.is_hopeless = True
    return DescribedError.as_text(FAILED, why)
