"""Command jobs: environment, start, and the meaning of the exit code and the output."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NoReturn, cast

import msgspec

from daybell.core import payload
from daybell.core.execution import Claimed, DescribedError
from daybell.core.job import JobDefinition
from daybell.core.kinds import CommandSettings, read_settings
from daybell.core.kinds.settings import JSON, why_refused
from daybell.core.limits import COMMAND_JSON_CHARS_MAX, COMMAND_OUTPUT_CHARS_MAX
from daybell.core.placement import device_variables
from daybell.core.units import to_iso
from daybell.errors import PayloadError, shown
from daybell.runners.command_processes import (
    LEFTOVERS_SECONDS,
    PROGRESS,
    CommandExit,
    Commands,
    Listener,
    ProgramSpec,
)
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.process_tree import ATTEMPT, EXECUTION, make_mark
from daybell.runners.python import MaskedAttempt, RunningAttempt

# The environment of a command: a part of the worker's, the variables of Daybell, and the job's own.

# Variables that programs need. The others belong to the worker: the address of the database, the
# key of the secrets, credentials of a cloud.
USUAL: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")


def inherit_variables(environ: Mapping[str, str], pass_env: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of the worker's environment that a command gets."""
    names = {*USUAL, *pass_env}
    return {
        name: value for name, value in environ.items() if name in names or fnmatchcase(name, "LC_*")
    }


def execution_variables(claimed: Claimed, args: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that describe an execution to its command."""
    own = {
        EXECUTION: str(claimed.id),
        ATTEMPT: str(claimed.attempt),
        "DAYBELL_JOB": claimed.job,
        "DAYBELL_TENANT": claimed.tenant,
        "DAYBELL_ARGS": payload.encode(dict(args)),
    }
    if claimed.scheduled_for is not None:
        own["DAYBELL_SCHEDULED_FOR"] = to_iso(claimed.scheduled_for)
    return own


def find_refusal(names: Iterable[str], allowed: frozenset[str]) -> str | None:
    """Return the reason to refuse a command with these variables; None: it is allowed."""
    for name in names:
        if name not in allowed and (why := why_refused(name)) is not None:
            return (
                f"a job may not set {name}: it {why}. A worker that is started with"
                f" --allow-env {name} runs it"
            )
    return None


FAILED: Final = "CommandFailed"
SAID_LINES_MAX: Final = 5  # of the end of its output, in the message of a failure
SAID_CHARS_MAX: Final = 2_000
VARIABLE_BYTES_MAX: Final = 128 * 1024 - 1  # of one variable or one word: the limit of Linux

# These may be gone at the next attempt; all other errors are permanent.
_TEMPORARY_ERRORS: Final = {
    errno.EAGAIN: "no more processes are allowed (ulimit -u)",
    errno.ENOMEM: "there is no memory for it",
    errno.EMFILE: "too many files are open (ulimit -n); a lower --concurrency helps",
    errno.ENFILE: "too many files are open on this machine",
    errno.ETXTBSY: "somebody is writing the program",
}


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The variables that a worker passes to commands, and those that jobs may set."""

    allow_env: frozenset[str] = frozenset()  # dangerous names that jobs may set
    pass_env: tuple[str, ...] = ()  # names that commands get from the worker, beyond the usual


class CommandHandler(KindHandler):
    """Handler of one version of a command job."""

    def __init__(
        self,
        definition: JobDefinition,
        reveal: Reveal,
        options: CommandOptions,
        commands: Commands,
    ) -> None:
        super().__init__(definition, reveal)
        settings = read_settings("command", msgspec.json.decode(definition.settings))
        assert isinstance(settings, CommandSettings)
        self._settings = settings
        self._options = options
        self._commands = commands
        self.grace = settings.grace

    async def perform(self, running: MaskedAttempt) -> Any:
        """Run the command; return its exit code and the end of its output."""
        order = await self._order(running)

        def patience() -> float:
            return running.patience if running.is_cancelled else LEFTOVERS_SECONDS

        try:
            ended = await self._commands.run(order, _listener(running), patience)
        except (OSError, ValueError) as error:
            _refuse_start(running, order, error)
        if ended.is_stopped:
            if not running.is_cancelled:
                raise asyncio.CancelledError
            # The executor reports the stop; this adds how the command ended.
            raise DescribedError.as_text(
                FAILED, f"when it was stopped, {_describe_failure(running, ended)}"
            )
        if ended.leftovers:
            what = "a process" if ended.leftovers == 1 else f"{ended.leftovers} processes"
            message = f"{what} that it left running had to be ended"
            running.say("warning", "daybell", message)
        return self._judged(running, ended)

    async def _order(self, running: RunningAttempt) -> ProgramSpec:
        """Build the command with all its secrets. Nothing is looked up for a command that does not
        run.
        """
        settings, options = self._settings, self._options
        why = find_refusal(settings.env, options.allow_env)
        if why is not None:
            _fail_permanently(running, "VariableRefused", why)
        claimed = running.claimed
        # Not the variables as a whole: one of them may be called "secret".
        said = [settings.argv, list(settings.env.values()), settings.stdin]
        argv, values, stdin = cast(
            "tuple[list[str], list[str], str | None]", await self.reveal.value(running, said)
        )
        env = dict(zip(settings.env, values, strict=True))
        args = await self.reveal.args(running)
        environ = (
            inherit_variables(os.environ, options.pass_env)
            | env
            | device_variables(running.devices or {})
            | execution_variables(claimed, args)
        )
        for name, value in environ.items():
            size = len(name) + 1 + len(value.encode(errors="replace"))
            if size > VARIABLE_BYTES_MAX:
                what = "the arguments are" if name == "DAYBELL_ARGS" else f"{name} is"
                _fail_permanently(
                    running,
                    FAILED,
                    f"{what} too long for a variable, which has {VARIABLE_BYTES_MAX:,} bytes at"
                    f" most and would need {size:,}; put such data in a file, or on stdin",
                )
        return ProgramSpec(
            mark=make_mark(claimed.id, claimed.attempt),
            argv=argv,
            env=environ,
            directory=settings.directory,
            stdin=stdin,
            chars_max=self._chars_max,
        )

    @property
    def _chars_max(self) -> int:
        is_json = self._settings.output == JSON
        return COMMAND_JSON_CHARS_MAX if is_json else COMMAND_OUTPUT_CHARS_MAX

    def _judged(self, running: MaskedAttempt, ended: CommandExit) -> dict[str, Any]:
        """Return the result if the exit code means success; else raise."""
        settings, code = self._settings, ended.code
        if code in settings.success_codes:
            if settings.output == JSON:
                return {"exit_code": code, "output": _read_json(running, ended)}
            output, is_cut = ended.stdout.end(running.mask, COMMAND_OUTPUT_CHARS_MAX)
            # As in `$(…)`: users want the output without the final line break.
            result = {"exit_code": code, "output": output.rstrip("\r\n")}
            return {**result, "truncated": True} if is_cut else result
        is_code = code is not None and code >= 0
        if is_code and settings.retry_codes is not None and code not in settings.retry_codes:
            running.is_hopeless = True
        raise DescribedError.as_text(FAILED, _describe_failure(running, ended))


def _listener(running: MaskedAttempt) -> Listener:
    def report(percent: float, note: str | None) -> None:
        running.report(progress=percent, note=note)

    def complain() -> None:
        running.say(
            "warning",
            "daybell",
            f"a line in ${PROGRESS} was ignored: it is not a percentage from 0 to 100, perhaps with"
            " a note, such as `50 halfway`",
        )

    return Listener(print=running.print, progress=report, malformed=complain)


def _read_json(running: MaskedAttempt, ended: CommandExit) -> Any:
    """Parse the output as JSON. Secrets in it are masked with the rest of the result."""
    said = ended.stdout
    if said.is_cut or len(said.text) > COMMAND_JSON_CHARS_MAX:
        _fail_permanently(
            running,
            FAILED,
            f"the command printed more than the {COMMAND_JSON_CHARS_MAX:,} characters that are read"
            " as JSON; have it write them to a file, and print where",
        )
    try:
        return payload.decode(said.text, what="what it printed")
    except PayloadError as error:
        text, _ = said.end(running.mask, COMMAND_OUTPUT_CHARS_MAX)
        words = _format_output_tail(text) or "; it printed nothing"
        raise DescribedError.as_text(
            FAILED, f"the command should print JSON (output: json), and did not: {error}{words}"
        ) from None


def _describe_failure(running: MaskedAttempt, ended: CommandExit) -> str:
    """Describe how the command ended, with the end of its output."""
    if ended.code is None:
        fate = "it is not known how the command ended"
    elif ended.code < 0:
        fate = f"the command was killed by {_signal_name(-ended.code)}"
    else:
        fate = f"the command ended with exit code {ended.code}"
    said, _ = (ended.stderr if ended.stderr.text else ended.stdout).end(
        running.mask, COMMAND_OUTPUT_CHARS_MAX
    )
    return fate + _format_output_tail(said)


def _fail_permanently(running: RunningAttempt, type: str, message: str) -> NoReturn:
    running.is_hopeless = True
    raise DescribedError.as_text(type, message) from None


def _refuse_start(
    running: MaskedAttempt, order: ProgramSpec, error: OSError | ValueError
) -> NoReturn:
    """Describe why the command could not be started."""
    program = shown(running.mask(order.argv[0]))  # which may cut it
    if not isinstance(error, OSError):
        _fail_permanently(running, FAILED, f"{program} cannot be started: {error}")
    if error.errno is None or error.errno in _TEMPORARY_ERRORS:
        why = _TEMPORARY_ERRORS.get(error.errno or 0, str(error))
        raise DescribedError.as_text(FAILED, f"{program} could not be started: {why}") from None
    directory = order.directory
    if directory is not None and error.filename in (directory, os.path.join(directory, "")):
        why = f"its working directory {shown(directory)}: {os.strerror(error.errno)}"
        _fail_permanently(
            running, FAILED, f"{program} was not started. This worker cannot enter {why}"
        )
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR if "/" in order.argv[0]:
            why = "this worker has no such file, or not what its first line names"
        case errno.ENOENT | errno.ENOTDIR:
            path = shown(running.mask(order.env.get("PATH", os.defpath)))
            why = f"this worker finds no such program in its PATH, which is {path}"
        case errno.EACCES:
            why = "this worker may not execute it (chmod +x?), or it is a folder"
        case errno.ENOEXEC:
            why = "the system cannot execute it; a script's first line names what runs it (#!)"
        case errno.E2BIG:
            why = "its words and variables are too long; put such data in a file, or on stdin"
        case _:
            why = os.strerror(error.errno)
    _fail_permanently(running, FAILED, f"{program} cannot be started: {why}")


def _format_output_tail(text: str) -> str:
    """Format the end of the output for the message of a failure."""
    lines = [line.rstrip() for line in text.rstrip().split("\n")[-SAID_LINES_MAX:]]
    while len(lines) > 1 and sum(map(len, lines)) > SAID_CHARS_MAX:
        lines.pop(0)
    words = "\n".join(lines).lstrip("\n")
    if not words:
        return ""
    return f":\n{words}" if len(words) <= SAID_CHARS_MAX else f":\n…{words[1 - SAID_CHARS_MAX :]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
