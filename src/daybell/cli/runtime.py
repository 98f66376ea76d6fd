"""The boundary between terminal and program: settings, errors, exit codes. Light: for `--help`."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from daybell.errors import (
    HTTP_FAULT,
    AccessDenied,
    DaybellError,
    SchemaError,
    Unavailable,
    UsageError,
    build_problem,
    faults_of,
)
from daybell.settings import Settings, masked_url

Command = Callable[[Settings], Awaitable[int]]

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

_mask: Callable[[str], str] = str  # hides the secrets of the settings in use
_flags: Mapping[str, object] = {}  # settings that were given with the command
spoken: logging.Logger | None = None  # takes lines of text as records; None: they stay text
_is_json = False  # errors are reported as JSON
_store = ""  # the URL of the store in use, which errors name; none of a server's, over HTTP


def run_command(
    command: Command, flags: Mapping[str, object], *, on_store: str | None = None
) -> int:
    """Read the settings and run a command to its end; return its exit code.

    `on_store` names a command that cannot do its work by way of a server.
    """
    global _flags, _mask, _store
    settings = Settings.load(flags)
    if flags.get("database_url") is not None:
        settings = replace(settings, api_url=None)  # a named store comes before a server
    for name in ("log_level", "log_format", "pool_size"):
        # Also for the processes that this one starts, and for the app.
        if flags.get(name) is not None:
            os.environ[f"DAYBELL_{name.upper()}"] = str(flags[name])
    _flags, _mask, _store = flags, settings.mask, settings.database_url
    if on_store is not None:
        require_store(settings, on_store)
    try:
        return run_async(command(settings))
    except UsageError as error:
        if error.field == "database_url" and _store == settings.database_url:
            raise UsageError(f"{_source(flags)}: {error}", field=error.field) from error
        raise
    except Unavailable as error:
        if not _store:
            raise
        raise Unavailable(f"{masked_url(_store)}: {describe_error(error)}") from error
    except SchemaError as error:
        if _store != settings.database_url:
            advice = with_flag(str(error), _store, otherwise="with the app's URL as --database-url")
        else:
            advice = with_flag(str(error), _store if flags.get("database_url") else None)
        raise SchemaError(advice) from error


def _source(flags: Mapping[str, object]) -> str:
    """Return the source of the store's URL, in the order in which `Settings.load` looks for it."""
    if flags.get("database_url") is not None:
        return "--database-url"
    return "DAYBELL_DATABASE_URL" if os.environ.get("DAYBELL_DATABASE_URL") else "daybell.toml"


def require_store(settings: Settings, command: str, *, url: str | None = None) -> None:
    """Refuse a command that needs a store where only a server is named. `url` is the app's own."""
    if is_remote(settings, url=url):
        source = "DAYBELL_API_URL" if "api_url" in Settings.given() else "--api-url"
        raise UsageError(
            f"daybell {command} works on the database itself, and only {source} is given;"
            " say where the database is, with --database-url or DAYBELL_DATABASE_URL"
        )


def is_remote(settings: Settings, *, url: str | None = None) -> bool:
    """Return True if only a server is named. `url` is the app's own, which comes before a server
    that the command line does not name.
    """
    if settings.api_url is None:
        return False
    # A worker has set both, for the processes that it starts.
    if _flags.get("api_url") is not None or settings.database_url == settings.api_url:
        return True
    if "database_url" in Settings.given():
        return False
    return url is None or url == settings.database_url


def use_server() -> None:
    """Have errors name no store: the errors of a server name the server.

    Raises UsageError if a file in this folder would decide where the key of the user is sent.
    """
    global _store
    if Settings.is_key_misdirected(_flags):
        raise UsageError(
            "only daybell.toml in this folder names the server, and DAYBELL_API_KEY is not sent to"
            " it; name it yourself, with DAYBELL_API_URL or --api-url, or keep its api_key in the"
            " same file",
            field="api_url",
        )
    _store = ""


def use_store(url: str) -> None:
    """Have errors name this store, the one that the app's code asks for, and hide its password."""
    global _mask, _store
    before, own = _mask, Settings(database_url=url).mask

    def mask(text: str) -> str:
        return own(before(text))

    _mask, _store = mask, url


def describe_error(error: DaybellError, *, limit: str = "in time") -> str:
    """Return the text of an error. A timeout has no text of its own, only its type's name."""
    is_late = isinstance(error.__cause__, TimeoutError)
    return re.sub(r"\bTimeoutError$", f"no answer {limit}", str(error)) if is_late else str(error)


def with_flag(
    advice: str, flag: str | None, *, otherwise: str = "with the same --database-url"
) -> str:
    """Return advice to run a command, for the store that a --database-url named.

    Without the flag, the command would be for another store. One with a password is not repeated;
    `otherwise` is said instead. Advice to programs is left out. A grant is made by the owner, and
    the flag has named another role.
    """
    advice = re.sub(r"(`daybell migrate) --database-url [^`]+`, or .*", r"\1`", advice)
    if flag is None:
        return advice
    is_plain = masked_url(flag) == flag
    given = f" --database-url {shlex.quote(flag)}" if is_plain else ""
    after = "" if is_plain else f" {otherwise}"
    return re.sub(
        r"(`?)(daybell (?:migrate(?! --grant)|executions list|keys create \w+ --role \w+"
        r"|queues purge \S+ --tenant \S+))\b\1",
        lambda found: f"{found[1]}{found[2]}{given}{found[1]}{after}",
        advice,
    )


def run_async(work: Awaitable[int]) -> int:
    """Run to the end on the fastest event loop there is."""
    import asyncio  # takes longer than all that `--help` needs

    async def whole() -> int:
        return await work

    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(whole())


def report_as_json(is_json: bool) -> bool:
    """Have errors of this process be reported as JSON, or not; the callback of `--json`."""
    global _is_json
    _is_json = is_json
    return is_json


def guard(program: Callable[[], object]) -> NoReturn:
    """Run a program and end the process as a command should: no traceback, no secrets, and quiet
    about a closed pipe or Ctrl-C.
    """
    report_as_json(False)  # a command in the same process may have asked for it
    try:
        program()
        code: object = DONE
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = FAILED
    except DaybellError as error:
        code = MISUSED if isinstance(error, UsageError) else FAILED
        problem = error.problem()
        several = faults_of(error) if isinstance(error, UsageError) and not _is_json else (error,)
        for one in several:
            _report(problem | {"detail": _typed(one)})
    except Exception as error:
        code = FAILED
        if isinstance(error, OSError) and close_output():
            pass  # it was the output, and that was reported
        elif fault := describe_environment_error(error):
            _report(build_problem("environment", HTTP_FAULT, fault))
        else:
            said = f"unexpected {type(error).__name__}: {error}"
            _report(build_problem("internal-error", HTTP_FAULT, said))
            print_stderr("This is a mistake in Daybell. DAYBELL_DEBUG=1 shows where it happened.")
    raise SystemExit(FAILED if close_output() else code)


def _report(problem: Mapping[str, Any]) -> None:
    """Print an error: its message, or its fields for programs as one line of JSON."""
    print_stderr(json.dumps(problem) if _is_json else f"error: {problem['detail']}")


def _typed(error: DaybellError) -> str:
    """Return the text of an error, with the option in place of the parameter of the HTTP API."""
    if not isinstance(error, AccessDenied):
        return str(error)
    said = re.sub(r"in the filter: job_id$", "with --job", str(error))
    return re.sub(r"in the filter: queue$", "with --queue", said)


def describe_environment_error(error: Exception) -> str | None:
    """Describe an error of the program's environment; None: the error is the program's own."""
    if not isinstance(error, OSError):
        return None
    try:
        os.getcwd()
    except OSError as gone:
        return f"the working folder cannot be used ({gone.strerror}); go to another one"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        # A failed write has no file name, and all of our own writes go to the output.
        return f"{error.filename or 'the output'} cannot be written: {error.strerror}"
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return f"{error.strerror}; that is a limit of this machine"
    return None


def open_streams() -> None:
    """Connect standard streams that the process was started without to the null device.

    Else a file or socket gets the number of one, and uvloop aborts when it closes that.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, so this one; processes that we start need it, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def print_stderr(message: str) -> None:
    """Report an error on stderr, if it can be written; with DAYBELL_DEBUG=1 with its place."""
    with suppress(OSError):
        _write_stderr(message)


def use_logger(logger: logging.Logger) -> None:
    """Send this process's own lines to a logger as records, as for JSON lines."""
    global spoken
    spoken = logger


def _write_stderr(message: str) -> None:
    if spoken is not None:
        text = " ".join(_mask(message).split())
        word, _, rest = text.partition(": ")
        level = {"error": logging.ERROR, "warning": logging.WARNING}.get(word)
        spoken.log(level or logging.INFO, "%s", rest if level else text)
        return
    if os.environ.get("DAYBELL_DEBUG") == "1" and message.startswith("error:"):
        sys.stderr.write(_mask(traceback.format_exc()))
    # Print one line, even if the message contains several.
    sys.stderr.write(" ".join(_mask(message).split()) + "\n")


def close_output() -> bool:
    """Flush the output. Return true if that fails, and drop the rest; in silence if only the reader
    has gone.
    """
    try:
        sys.stdout.flush()
        return False
    except OSError as error:
        # Python flushes again at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print_stderr(f"error: the output cannot be written: {error.strerror}")
        return True
