"""Jobs that tell somebody, through apprise, which runs in processes of its own: notifying.py."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from daybell.core.failure import Described
from daybell.core.instant import Seconds
from daybell.core.job import JobDefinition
from daybell.core.kinds.notify import NotifySettings
from daybell.core.limits import NOTIFY_CHARS_MAX
from daybell.errors import shown
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.notifying import ALLOW_PRIVATE, Answer, Message
from daybell.runners.running import Stoppable

SOURCE: Final = "notify"  # of lines in the log
FAILED: Final = "NotifyFailed"
COMMAND: Final = (sys.executable, "-P", "-m", "daybell.runners.notifying")
SENDERS_MAX: Final = 4
IDLE_SECONDS: Final = 30.0
SILENCE_SECONDS: Final = 120.0  # for one place; apprise gives up long before, as a rule
ANSWER_BYTES_MAX: Final = 256 * 1024
# Of the worker's environment, what a program needs to find itself, and the network's certificates.
_ENVIRONMENT: Final = (
    "PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
# A proxy would be asked for what is refused here, so it takes the same permission.
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

Hear = Callable[[Answer], None]


class CannotSend(Exception):
    """The process that sends could not do its work."""


class Notifier:
    """Sends messages, a few at a time, in processes that are kept for a while; for one event loop.
    `allow_private`: also to places that are not on the public internet.
    """

    def __init__(
        self,
        allow_private: bool = False,
        *,
        command: Sequence[str] = COMMAND,
        idle: Seconds = IDLE_SECONDS,
        silence: Seconds = SILENCE_SECONDS,
    ) -> None:
        names = (*_ENVIRONMENT, *(_PROXIES if allow_private else ()))
        self._environment = {name: os.environ[name] for name in names if name in os.environ}
        self._command = [*command, *([ALLOW_PRIVATE] if allow_private else [])]
        self._idle_seconds = idle
        self._silence = silence
        self._turns = asyncio.Semaphore(SENDERS_MAX)
        self._idle: list[tuple[asyncio.subprocess.Process, asyncio.TimerHandle]] = []
        self._senders: set[asyncio.subprocess.Process] = set()
        self._leaving: set[asyncio.Task[Any]] = set()

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [sender.pid for sender in self._senders]

    async def send(self, message: Message, hear: Hear) -> None:
        """Send a message, and tell `hear` what comes of it. Cancelling this ends the process that
        sends. Raises CannotSend.
        """
        async with self._turns:
            sender = await self._sender()
            try:
                await self._order(sender, message, hear)
            except BaseException:
                await self._end(sender)
                raise
            self._keep(sender)

    async def close(self) -> None:
        """End the processes, with what they are sending."""
        for _, timer in self._idle:
            timer.cancel()
        self._idle.clear()
        for sender in list(self._senders):
            await self._end(sender)

    async def _sender(self) -> asyncio.subprocess.Process:
        while self._idle:
            sender, timer = self._idle.pop()
            timer.cancel()
            if sender.returncode is None:
                return sender
            self._senders.discard(sender)
        try:
            sender = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment,
                limit=ANSWER_BYTES_MAX,
                start_new_session=True,  # a terminal's Ctrl-C is for the worker
            )
        except OSError as error:
            raise CannotSend(f"the process that sends could not be started: {error}") from None
        self._senders.add(sender)
        return sender

    async def _order(
        self, sender: asyncio.subprocess.Process, message: Message, hear: Hear
    ) -> None:
        assert sender.stdin is not None and sender.stdout is not None
        sender.stdin.write(msgspec.json.encode(message) + b"\n")
        try:
            await sender.stdin.drain()
            while True:
                async with asyncio.timeout(self._silence):
                    line = await sender.stdout.readline()
                answer = msgspec.json.decode(line, type=Answer)
                if answer.is_done:
                    return
                hear(answer)
                if answer.missing is not None:
                    raise CannotSend(
                        f"apprise cannot be imported by this worker ({answer.missing}); install it"
                        " with pip install 'daybell[notify]'"
                    )
        except TimeoutError:
            raise CannotSend(f"there was no answer within {self._silence:g} s") from None
        except (OSError, ValueError, msgspec.DecodeError):
            raise CannotSend("the process that sends has ended in the middle of it") from None

    def _keep(self, sender: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._idle_seconds, self._retire, sender)
        self._idle.append((sender, timer))

    def _retire(self, sender: asyncio.subprocess.Process) -> None:
        """Nobody has needed it for long enough."""
        self._idle = [(one, timer) for one, timer in self._idle if one is not sender]
        ending = asyncio.get_running_loop().create_task(self._end(sender))
        self._leaving.add(ending)
        ending.add_done_callback(self._leaving.discard)

    async def _end(self, sender: asyncio.subprocess.Process) -> None:
        self._senders.discard(sender)
        if sender.returncode is None:
            with suppress(ProcessLookupError):
                sender.kill()
        await asyncio.shield(sender.wait())
        assert sender.stdin is not None
        sender.stdin.close()


class NotifyHandler(KindHandler):
    """One message to some places."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, notifier: Notifier) -> None:
        super().__init__(definition, reveal)
        self._settings = NotifySettings.parse(msgspec.json.decode(definition.settings))
        self._notifier = notifier

    async def perform(self, running: Stoppable) -> Any:
        """Send the message; answers how many were told. Places that an earlier attempt has told
        are not told again.
        """
        message = await self._message(running)
        outcome = _Outcome(running, len(message.to))
        left = {number: url for number, url in message.to.items() if number not in outcome.told}
        if left:
            try:
                await self._notifier.send(msgspec.structs.replace(message, to=left), outcome.hear)
            except CannotSend as error:
                raise Described.as_text(FAILED, str(error)) from None
        return outcome.result()

    async def _message(self, running: Stoppable) -> Message:
        settings = self._settings
        to = cast("list[Any]", await self.reveal.value(running, list(settings.to)))
        words: dict[str, Any] = {"title": settings.title, "body": settings.body}
        words = await self.reveal.value(running, words)
        args = await self.reveal.args(running)
        for name in args:
            if name not in words:
                raise _give_up(
                    running, f"the arguments have {shown(name)}; a message takes title and body"
                )
        words |= args
        for name, value in words.items():
            if not isinstance(value, str):
                raise _give_up(running, f"the {name} of a message is text")
            if len(value) > NOTIFY_CHARS_MAX:
                raise _give_up(
                    running,
                    f"the {name} has {len(value):,} characters; the limit is {NOTIFY_CHARS_MAX:,}",
                )
        if not any(words.values()):
            raise _give_up(running, "the message says nothing; give it a title or a body")
        return Message(dict(enumerate(map(str, to), 1)), format=settings.format, **words)


class _Outcome:
    """What has come of a message so far. It is kept, for the next attempt to go on from."""

    def __init__(self, running: Stoppable, count: int) -> None:
        self._running = running
        self._count = count
        self._failed: dict[int, Answer] = {}
        self.told = _told_before(running.claimed.checkpoint)

    def hear(self, answer: Answer) -> None:
        if answer.line is not None:
            level, text = answer.line
            self._running.say(level, SOURCE, text)
        if answer.told is not None:
            self.told.add(answer.told)
            self._running.report(checkpoint=msgspec.json.encode(_Kept(self.told)).decode())
        if answer.failed is not None:
            self._failed[answer.failed] = answer

    def result(self) -> dict[str, Any]:
        if self._failed:
            told = "; ".join(f"place {number}: {one.why}" for number, one in self._failed.items())
            message = f"{len(self._failed)} of {self._count} could not be told: {told}"
            if all(one.is_lasting for one in self._failed.values()):
                self._running.is_hopeless = True
            raise Described.as_text(FAILED, message)
        return {"sent": len(self.told)}


class _Kept(msgspec.Struct):
    """What an attempt leaves for the next one."""

    told: set[int] = msgspec.field(default_factory=set[int])


def _told_before(checkpoint: str | None) -> set[int]:
    return msgspec.json.decode(checkpoint, type=_Kept).told if checkpoint else set()


def _give_up(running: Stoppable, why: str) -> Described:
    running.is_hopeless = True
    return Described.as_text(FAILED, why)
