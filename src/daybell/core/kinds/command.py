"""Command jobs: their settings, and the environment variables that they must not set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec

from daybell.core.limits import COMMAND_CHARS_MAX, COMMAND_GRACE_SECONDS_MAX, ENV_MAX
from daybell.core.references import check_text, read_fields
from daybell.core.units import Seconds, parse_duration
from daybell.errors import UsageError, shown

# What may be said beside a command, as well as in it.
BESIDE: Final = ("shell", "env")
SHELL: Final = ("/bin/sh", "-c")
JSON: Final = "json"
OUTPUTS: Final = ("text", JSON)
GRACE_SECONDS: Final = 5.0

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, and how."""

    run: str | tuple[Any, ...]  # a line, or the words of one; words may stand for secrets
    shell: bool = False  # by `sh -c`
    directory: str | None = None  # None: the worker's own
    env: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    stdin: Any = None  # a text
    success_codes: tuple[int, ...] = (0,)
    retry_codes: tuple[int, ...] | None = None  # None: all others
    grace: Seconds = GRACE_SECONDS  # between SIGTERM and SIGKILL
    output: str = "text"  # or "json": what it prints is read, and kept as data

    @classmethod
    def parse(cls, value: Any) -> CommandSettings:
        """Read a line, a list of words, or an object with `run` and the rest."""
        if not isinstance(value, Mapping):
            value = {"run": value}
        given = read_fields(cast("Mapping[str, Any]", value), cls, "command")
        settings = cls(**{**given, **_read(given)})
        return settings

    @property
    def argv(self) -> list[Any]:
        """The words that are run; some may stand for secrets."""
        if self.shell:
            return [*SHELL, self.run]
        return shlex.split(self.run) if isinstance(self.run, str) else list(self.run)


def command_of(value: Any, fields: Mapping[str, Any]) -> Any:
    """A command with what is said beside it."""
    beside = {name: fields[name] for name in BESIDE if fields.get(name) is not None}
    if not beside:
        return value
    if not isinstance(value, Mapping):
        return {"run": value, **beside}
    own = cast("Mapping[str, Any]", value)
    for name, one in beside.items():
        if own.get(name) is not None and own[name] != one:
            raise UsageError(
                f"{name} is {shown(own[name])} in the command and {shown(one)} beside it; say it"
                " once",
                field=name,
            )
    return {**own, **beside}


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    shell = given.get("shell", False)
    if not isinstance(shell, bool):
        raise UsageError(f"shell={shown(shell)} must be true or false", field="shell")
    read: dict[str, Any] = {"shell": shell, "run": _read_run(given.get("run"), shell=shell)}
    if given.get("directory") is not None:
        read["directory"] = _read_directory(given["directory"])
    read["env"] = read_env(given.get("env"))
    if given.get("stdin") is not None:
        read["stdin"] = check_text(given["stdin"], "stdin", field="command.stdin")
    read["success_codes"] = _read_codes(given.get("success_codes", (0,)), "success_codes")
    if not read["success_codes"]:
        raise UsageError("success_codes is empty, so it could never succeed", field="command")
    if given.get("retry_codes") is not None:
        read["retry_codes"] = _read_codes(given["retry_codes"], "retry_codes")
        both = set(read["retry_codes"]) & set(read["success_codes"])
        if both:
            raise UsageError(
                f"exit code {min(both)} cannot mean both success and a retry", field="command"
            )
    grace = parse_duration(given.get("grace", GRACE_SECONDS), what="grace")
    if grace > COMMAND_GRACE_SECONDS_MAX:
        raise UsageError(
            f"a grace of {grace:g} s is too long; the limit is {COMMAND_GRACE_SECONDS_MAX:g} s",
            field="command",
        )
    return {**read, "grace": grace, "output": _read_output(given.get("output", "text"))}


def _read_output(value: Any) -> str:
    if value not in OUTPUTS:
        raise UsageError(
            f"output={shown(value)} must be text, or json for a command that prints JSON",
            field="command.output",
        )
    return value


def _read_run(run: Any, *, shell: bool) -> str | tuple[Any, ...]:
    if isinstance(run, str):
        check_text(run, "command")
        if len(run) > COMMAND_CHARS_MAX:
            raise UsageError(
                f"command has {len(run):,} characters; the limit is {COMMAND_CHARS_MAX:,}",
                field="command",
            )
        if not run.strip():
            raise UsageError("command is empty; say what to run", field="command")
        if not shell:
            _check_words(run)
        return run
    if not isinstance(run, list | tuple):
        raise UsageError(f"command={shown(run)} must be text, or a list of words", field="command")
    if shell:
        raise UsageError("with shell: true the command is one text, not a list", field="command")
    said = cast("list[Any]", run)
    words = tuple(check_text(word, "a word of the command", field="command") for word in said)
    if not words or words[0] == "":
        raise UsageError("command is empty; say what to run", field="command")
    if sum(len(word) for word in words if isinstance(word, str)) > COMMAND_CHARS_MAX:
        raise UsageError(
            f"command has too many characters; the limit is {COMMAND_CHARS_MAX:,}", field="command"
        )
    return words


def _check_words(line: str) -> None:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(
            f"command {shown(line)} cannot be split into words: {str(error).lower()}",
            field="command",
        ) from None
    if not words or not words[0]:
        raise UsageError("command is empty; say what to run", field="command")


def _read_directory(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value or not value.startswith("/"):
        raise UsageError(
            f"directory={shown(value)} must be a path that begins with /", field="command.directory"
        )
    return value


def read_env(value: Any) -> dict[str, Any]:
    """Return the variables of a job's environment."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"env={shown(value)} must be given by name, as an object", field="env")
    env = dict(cast("Mapping[str, Any]", value))
    if len(env) > ENV_MAX:
        raise UsageError(f"env has {len(env):,} names; the limit is {ENV_MAX}", field="env")
    for name, one in env.items():
        if _ENV_NAME.fullmatch(name) is None:
            raise UsageError(
                f"{shown(name)} cannot name a variable; a name has letters, digits and _, and"
                " begins with no digit",
                field="env",
            )
        check_text(one, f"env.{name}", field=f"env.{name}")
    return env


def _read_codes(value: Any, what: str) -> tuple[int, ...]:
    codes = [value] if isinstance(value, int) else value
    if not isinstance(codes, list | tuple) or not all(
        isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= 255
        for code in cast("list[Any]", codes)
    ):
        raise UsageError(
            f"{what}={shown(value)} must be exit codes: a list of numbers from 0 to 255",
            field=f"command.{what}",
        )
    return tuple(sorted(set(cast("list[int]", codes))))


# Variables of an environment that a job may not set by itself, and why.
#
# Each of them makes a program load, or run, something other than what the job says. A worker may
# allow some of them by name. Whoever may write jobs for a worker that runs commands can run
# anything there; this is for what is put together out of less: templates, tools that write jobs,
# a variable's name that somebody else has chosen.
#
# HOME is not among them, although programs look there for settings: cron's jobs set it often, and
# whoever wants to have it used against a job must be able to write into a folder of that machine
# first. The same goes for KUBECONFIG and its like, which name the one file that a job is about.

# Patterns of names in capitals, and what such a variable does. Names are looked at whatever their
# case: some programs read them so.
REFUSED: Final[dict[tuple[str, ...], str]] = {
    ("PATH", "FPATH", "CDPATH"): "decides which programs are found",
    ("LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH"): (
        "makes every program load code or tables of somebody's choice"
    ),
    ("BASH_ENV", "ENV", "ZDOTDIR", "BASH_FUNC_*", "SHELLOPTS", "BASHOPTS"): (
        "makes a shell run something before its script, or run it otherwise"
    ),
    ("IFS", "PS4", "PROMPT_COMMAND", "SHELL"): "changes what a shell makes of its script",
    ("PYTHON*",): "makes Python load modules, or start, otherwise",
    ("PERL5*", "PERLLIB"): "makes Perl load or run something",
    ("RUBYOPT", "RUBYLIB", "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE"): (
        "makes Ruby load or run something"
    ),
    ("NODE_OPTIONS", "NODE_PATH"): "makes Node.js load or run something",
    ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"): (
        "makes Java load or run something"
    ),
    ("DOTNET_STARTUP_HOOKS", "DOTNET_ADDITIONAL_DEPS", "DOTNET_ROOT*", "CORECLR_*", "COR_*"): (
        "makes .NET load or run something"
    ),
    ("PHPRC", "PHP_INI_SCAN_DIR", "LUA_INIT*", "LUA_PATH*", "LUA_CPATH*", "TCLLIBPATH"): (
        "makes an interpreter load or run something"
    ),
    ("R_PROFILE*", "R_ENVIRON*", "ERL_*", "VIMINIT", "EXINIT"): (
        "makes an interpreter load or run something"
    ),
    ("GIT_*", "SSH_ASKPASS", "SUDO_ASKPASS", "LESSOPEN", "LESSCLOSE"): (
        "names a program that another one runs"
    ),
    ("RUSTC*", "CARGO_BUILD_*", "CARGO_TARGET_*", "MAKEFLAGS", "GNUMAKEFLAGS", "TAR_OPTIONS"): (
        "names a program that another one runs"
    ),
    ("EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER"): "names a program that another one runs",
    ("NPM_CONFIG_*", "PSQLRC", "PGSYSCONFDIR", "CURL_HOME", "WGETRC", "XDG_CONFIG_*"): (
        "makes a program read other settings, which may name programs to run"
    ),
    ("SSLKEYLOGFILE",): "makes programs write down the keys of their connections",
    ("HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_*"): (
        "changes which machine a name stands for"
    ),
    ("OPENSSL_*",): "makes OpenSSL load code, or trust otherwise",
    ("DAYBELL_*",): "is Daybell's own",
}

# Of these families, what only changes how something is said, or where it is put. It is set often,
# and for good.
HARMLESS: Final = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONIOENCODING",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "GIT_AUTHOR_DATE",
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_NAME",
        "GIT_COMMITTER_DATE",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_TERMINAL_PROMPT",
        "CARGO_BUILD_JOBS",
        "CARGO_TARGET_DIR",
    }
)


def why_refused(name: str) -> str | None:
    """What a variable of this name could do; None: nothing that it may not."""
    capitals = name.upper()
    if name in HARMLESS:
        return None
    for patterns, reason in REFUSED.items():
        if any(fnmatchcase(capitals, pattern) for pattern in patterns):
            return reason
    return None
