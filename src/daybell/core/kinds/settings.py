"""Settings of jobs without code: commands, HTTP requests, SQL statements, messages.

The annotations of a settings class are the one description of its fields: the JSON schema, the
flags of the command line and their help follow from them.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, NamedTuple, cast, get_type_hints
from urllib.parse import urlsplit

import msgspec

from daybell.core import payload
from daybell.core.limits import (
    COMMAND_CHARS_MAX,
    COMMAND_GRACE_SECONDS_MAX,
    ENV_MAX,
    HEADERS_MAX,
    NOTIFY_CHARS_MAX,
    NOTIFY_PLACES_MAX,
    REDIRECTS_MAX,
    SQL_CHARS_MAX,
    SQL_ROWS_DEFAULT,
    SQL_ROWS_MAX,
    URL_CHARS_MAX,
)
from daybell.core.references import check_text, read_fields
from daybell.core.units import Seconds, parse_duration
from daybell.errors import UsageError, shown


class KindField(NamedTuple):
    """The description of one field of a kind's settings."""

    meaning: str
    schema: Mapping[str, Any]
    flag: str = ""  # of the command line; empty: the kind's own flag has it
    metavar: str = "TEXT"
    many: bool = False  # the flag may be repeated


def fields_of(kind: type[msgspec.Struct]) -> dict[str, KindField]:
    """Return the descriptions of the fields of a settings class, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: one for name, more in found.items() for one in more if isinstance(one, KindField)}


TEXT: Final = {"type": "string"}
# A text, or an object that stands for one. In a node of a workflow, NODE_WORDS take its place.
WORDS: Final = {"$ref": "#/components/schemas/Words"}
_CODES: Final = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}
_BY_NAME: Final = {"type": "object", "additionalProperties": WORDS}

# Fields of a command that are also valid beside it.
BESIDE: Final = ("shell", "env")
SHELL: Final = ("/bin/sh", "-c")
JSON: Final = "json"
OUTPUTS: Final = ("text", JSON)
GRACE_SECONDS: Final = 5.0

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a command."""

    run: Annotated[
        str | tuple[Any, ...],
        KindField(
            "A line, which is split into words as a shell would and run without one; or the words.",
            {"anyOf": [{**TEXT, "minLength": 1, "maxLength": COMMAND_CHARS_MAX},
                       {"type": "array", "items": WORDS}]},
        ),
    ]  # fmt: skip
    shell: Annotated[bool, KindField("Run the line by `sh -c`.", {"type": "boolean"}, "shell")] = (
        False
    )
    directory: Annotated[
        str | None,
        KindField("The folder it runs in; an absolute path.", TEXT, "directory", "PATH"),
    ] = None
    env: Annotated[
        dict[str, Any],
        KindField("Variables of its environment.", _BY_NAME, "env", "NAME=VALUE", many=True),
    ] = msgspec.field(default_factory=dict[str, Any])
    stdin: Annotated[Any, KindField("The text that it reads as its input.", WORDS, "stdin")] = None
    success_codes: Annotated[
        tuple[int, ...],
        KindField("Exit codes that mean success.", _CODES, "success-code", "N", many=True),
    ] = (0,)
    retry_codes: Annotated[
        tuple[int, ...] | None,
        KindField(
            "Exit codes that are retried; by default all others.",
            _CODES, "retry-code", "N", many=True,
        ),
    ] = None  # fmt: skip
    grace: Annotated[
        Seconds,
        KindField(
            "The time from SIGTERM to SIGKILL.",
            {"type": ["number", "string"]}, "grace", "DURATION",
        ),
    ] = GRACE_SECONDS  # fmt: skip
    output: Annotated[
        str,
        KindField(
            "`json`: it prints JSON, and its result has that as data.",
            {"enum": list(OUTPUTS)}, "output", "WORD",
        ),
    ] = "text"  # fmt: skip

    @classmethod
    def parse(cls, value: Any) -> CommandSettings:
        """Parse a line, a list of words, or an object with `run` and other fields."""
        if not isinstance(value, Mapping):
            value = {"run": value}
        given = read_fields(cast("Mapping[str, Any]", value), cls, "command")
        return cls(**{**given, **_read(given)})

    @property
    def argv(self) -> list[Any]:
        """The words of the command; some may be references to secrets."""
        if self.shell:
            return [*SHELL, self.run]
        return shlex.split(self.run) if isinstance(self.run, str) else list(self.run)


def command_of(value: Any, fields: Mapping[str, Any]) -> Any:
    """Merge a command with the fields beside it."""
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
    """Parse the variables of a job's environment."""
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


# Environment variables that a job may set only if its worker allows them.
#
# Each of them makes programs load or run other code. An author of commands can run any program
# anyway; the rule is for jobs composed of other input: templates, generated jobs, names of
# variables chosen by third parties.
#
# HOME is allowed: cron jobs often set it, and an attack needs write access to a folder on the
# worker's machine. The same holds for KUBECONFIG and similar variables, which name the file that a
# job is about.

# Patterns of names in capitals, with the effect. Case does not matter, as some programs ignore it.
REFUSED: Final[dict[tuple[str, ...], str]] = {
    ("PATH", "FPATH", "CDPATH"): "decides which programs are found",
    ("LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH"): (
        "makes every program load other code or tables"
    ),
    ("BASH_ENV", "ENV", "ZDOTDIR", "BASH_FUNC_*", "SHELLOPTS", "BASHOPTS"): (
        "makes a shell run other code before its script, or changes its mode"
    ),
    ("IFS", "PS4", "PROMPT_COMMAND", "SHELL"): "changes how a shell reads its script",
    ("PYTHON*",): "makes Python load other modules, or start differently",
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

# Members of these families that only change the form or the place of output.
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
    """Return the effect of a refused variable; None if it is allowed."""
    capitals = name.upper()
    if name in HARMLESS:
        return None
    for patterns, reason in REFUSED.items():
        if any(fnmatchcase(capitals, pattern) for pattern in patterns):
            return reason
    return None


# HTTP jobs: their settings, and the address ranges that are not public.

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# They belong to the connection or describe the actual body.
OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
     "proxy-authorization", "proxy-connection", "keep-alive", "expect"}
)  # fmt: skip
# The capability of a worker to send requests to private addresses.
PRIVATE: Final = "http:private"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_EXPECTED: Final = re.compile(r"[1-5]xx")


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a request."""

    url: Annotated[Any, KindField("The address.", WORDS)]
    method: Annotated[
        str,
        KindField(
            "By default GET, or POST with a body.", {"enum": list(METHODS)}, "method", "WORD"
        ),
    ] = "GET"
    headers: Annotated[
        dict[str, Any],
        KindField("Headers by name.", _BY_NAME, "header", "'NAME: VALUE'", many=True),
    ] = msgspec.field(default_factory=dict[str, Any])
    body: Annotated[
        Any, KindField("Text is sent as it is, any other value as JSON.", {}, "body")
    ] = None
    expect: Annotated[
        tuple[int | str, ...],
        KindField(
            'Statuses that mean success: 204, "2xx", or a list of them.',
            {"anyOf": [{"type": ["integer", "string"]},
                       {"type": "array", "items": {"type": ["integer", "string"]}}]},
            "expect", "STATUS", many=True,
        ),
    ] = ("2xx",)  # fmt: skip
    redirects: Annotated[
        int,
        KindField(
            "The number of redirects that are followed.",
            {"anyOf": [{"type": "boolean"},
                       {"type": "integer", "minimum": 0, "maximum": REDIRECTS_MAX}]},
            "redirects", "N",
        ),
    ] = 0  # fmt: skip
    sign: Annotated[
        Any,
        KindField("The secret that signs it as Standard Webhooks.", WORDS, "sign", "@secret:NAME"),
    ] = None

    @classmethod
    def parse(cls, value: Any) -> HttpSettings:
        """Parse a URL, or an object with `url` and other fields."""
        given = read_fields({"url": value} if isinstance(value, str) else value, cls, "http")
        if "url" not in given:
            raise UsageError("http has no url; say where to send the request", field="http.url")
        has_body = "body" in given
        return cls(
            url=_read_url(given["url"]),
            method=_read_method(given.get("method", "POST" if has_body else "GET")),
            headers=_read_headers(given.get("headers")),
            body=_read_body(given.get("body")),
            expect=_read_expected(given.get("expect", ("2xx",))),
            redirects=_read_redirects(given.get("redirects", 0)),
            sign=_read_key(given.get("sign")),
        )

    def expects(self, status: int) -> bool:
        """Return True if a status means success."""
        return status in self.expect or f"{status // 100}xx" in self.expect


def check_url(url: str) -> str:
    """Return a valid URL, without looking up its host."""

    def refuse(why: str) -> UsageError:
        return UsageError(
            f"url {why}", field="http.url"
        )  # without the URL, which may have a secret

    if len(url) > URL_CHARS_MAX:
        raise refuse(f"has {len(url):,} characters; the limit is {URL_CHARS_MAX:,}")
    if not url.isprintable() or " " in url or "\\" in url:
        raise refuse(
            "has a space, a backslash or a character that cannot be printed in it; what is put into"
            " it is not quoted: give it as addresses have it, a space as %20"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refuse(f"cannot be read: {str(error).lower()}") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise refuse("must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise refuse("names no host" if not parts.hostname else "has port 0")
    if "@" in parts.netloc:
        raise refuse("has a login in it; send it as a header, from a secret")
    return url


def _read_url(value: Any) -> Any:
    check_text(value, "url", field="http.url")
    return check_url(value) if isinstance(value, str) else value


def _read_method(value: Any) -> str:
    method = value.upper() if isinstance(value, str) else ""
    if method not in METHODS:
        raise UsageError(
            f"method={shown(value)} is not one of {', '.join(METHODS)}", field="http.method"
        )
    return method


def _read_headers(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"headers={shown(value)} must be given by name, as an object", field="http.headers"
        )
    headers = dict(cast("Mapping[str, Any]", value))
    if len(headers) > HEADERS_MAX:
        raise UsageError(
            f"there are {len(headers):,} headers; the limit is {HEADERS_MAX}", field="http.headers"
        )
    for name, one in headers.items():
        where = f"http.headers.{name}"
        if _TOKEN.fullmatch(name) is None:
            raise UsageError(f"{shown(name)} cannot name a header", field="http.headers")
        if name.lower() in OWN_HEADERS:
            raise UsageError(f"header {name} cannot be set: it is the connection's", field=where)
        check_text(one, f"header {name}", field=where)
        if isinstance(one, str):
            check_header_value(name, one)
    return headers


def check_header_value(name: str, value: str) -> str:
    """Return a valid value of a header."""
    if any(character in value for character in "\r\n\0") or not value.isascii():
        raise UsageError(f"header {name} must be one line of ASCII", field=f"http.headers.{name}")
    return value


def _read_body(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        payload.encode(value, what="http.body")
    return value


def _read_key(value: Any) -> Any:
    if value is not None:
        check_text(value, "sign", field="http.sign")
        if isinstance(value, str):
            hint = 'sign is the key itself; make it a secret, and write {"secret": "NAME"}'
            raise UsageError(hint, field="http.sign")
    return value


def _read_expected(value: Any) -> tuple[int | str, ...]:
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
    for one in listed:
        is_code = isinstance(one, int) and not isinstance(one, bool) and 100 <= one <= 599
        if not is_code and not (isinstance(one, str) and _EXPECTED.fullmatch(one)):
            raise UsageError(
                f'expect={shown(one)} must be statuses such as 204 or "2xx", or a list of them',
                field="http.expect",
            )
    if not listed:
        raise UsageError("expect is empty, so it could never succeed", field="http.expect")
    return tuple(listed)


def _read_redirects(value: Any) -> int:
    if value is True:
        return REDIRECTS_MAX
    if value is False:
        return 0
    if not isinstance(value, int) or not 0 <= value <= REDIRECTS_MAX:
        raise UsageError(
            f"redirects={shown(value)} must be a number from 0 to {REDIRECTS_MAX}, or true or"
            " false",
            field="http.redirects",
        )
    return value


# Addresses that are not on the public internet.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")  # the only allocated range
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
# IANA's registries of special addresses. `is_global` of the standard library differs between
# versions.
_NOT_PUBLIC: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this machine"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's own network"),
        ("127.0.0.0/8", "this machine"),
        ("168.63.129.16/32", "a cloud's metadata"),  # Azure's; it looks like any other
        ("169.254.0.0/16", "the local link, with a cloud's metadata"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "protocols, with a cloud's metadata"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "former relays"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "measurements"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "groups"),
        ("255.255.255.255/32", "broadcast on the local link"),
        ("240.0.0.0/4", "later use"),
        ("::/128", "this machine"),
        ("::1/128", "this machine"),
        ("64:ff9b:1::/48", "a private network"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "the local link"),
        ("ff00::/8", "groups"),
        ("2001::/23", "protocols and tunnels"),  # Teredo among them
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
    )
)


def why_not_public(address: str) -> str | None:
    """Return the purpose of an address that is not public: `127.0.0.0/8, this machine`."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "no address"
    return _why_not_public(parsed)


def _why_not_public(address: Address) -> str | None:
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return "the local link"
        for network in (_MAPPED, _NAT64, _6TO4):
            if address in network:
                return _why_not_public(_inside(address, network))
    for network, what in _NOT_PUBLIC:
        if address.version == network.version and address in network:
            return f"{network}, {what}"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return "an address that is not allocated"
    return None


def _inside(address: ipaddress.IPv6Address, network: ipaddress.IPv6Network) -> Address:
    """Return the IPv4 address after the prefix, to which packets are forwarded."""
    below = 128 - network.prefixlen - 32
    return ipaddress.IPv4Address((int(address) >> below) & 0xFFFF_FFFF)


def why_private(url: str) -> str | None:
    """Return the reason why the host of a URL is not public, without a lookup: for an address, or
    the name of this machine. Workers look up other names.
    """
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return f"{host} is this machine"
    try:
        why = _why_not_public(ipaddress.ip_address(host))
    except ValueError:
        return None
    return None if why is None else f"{host} is in {why}"


# SQL jobs: a statement in a database of the workers' configuration.

# SQLite's application_id of Daybell's own files ("dayb"), in which no statement runs.
STORE_FILE_ID: Final = 0x64617962
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SqlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a statement."""

    connection: Annotated[
        str,
        KindField("Its name in the workers' configuration.", TEXT, "connection", "NAME"),
    ]
    statement: Annotated[str, KindField("The SQL; parameters are `:name`.", TEXT)]
    parameters: Annotated[
        dict[str, Any],
        KindField(
            "Values of the parameters, by name.",
            {"type": "object"}, "parameter", "NAME=VALUE", many=True,
        ),
    ] = msgspec.field(default_factory=dict[str, Any])  # fmt: skip
    rows: Annotated[
        int,
        KindField(
            "The number of rows that are kept as the result, at most.",
            {"type": "integer", "minimum": 0, "maximum": SQL_ROWS_MAX}, "rows", "N",
        ),
    ] = SQL_ROWS_DEFAULT  # fmt: skip

    @classmethod
    def parse(cls, value: Any) -> SqlSettings:
        """Parse an object with `connection`, `statement` and other fields."""
        given = read_fields(value, cls, "sql")
        for name in ("connection", "statement"):
            if name not in given:
                raise UsageError(f"sql has no {name}", field=f"sql.{name}")
        rows = given.get("rows", SQL_ROWS_DEFAULT)
        if not isinstance(rows, int) or isinstance(rows, bool) or not 0 <= rows <= SQL_ROWS_MAX:
            raise UsageError(
                f"rows={shown(rows)} must be a whole number from 0 to {SQL_ROWS_MAX:,}",
                field="sql.rows",
            )
        return cls(
            connection=check_connection_name(given["connection"]),
            statement=_read_statement(given["statement"]),
            parameters=_read_parameters(given.get("parameters")),
            rows=rows,
        )


def check_connection_name(value: object) -> str:
    """Return a valid name of a connection."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise UsageError(
            f"{shown(value)} cannot name a connection; a name has small letters, digits and _, and"
            " begins with a letter",
            field="sql.connection",
        )
    return value


def _read_statement(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise UsageError(f"statement={shown(value)} must be SQL", field="sql.statement")
    if len(value) > SQL_CHARS_MAX:
        raise UsageError(
            f"statement has {len(value):,} characters; the limit is {SQL_CHARS_MAX:,}",
            field="sql.statement",
        )
    return value


def _read_parameters(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"parameters={shown(value)} must be given by name, as an object",
            field="sql.parameters",
        )
    parameters = dict(cast("Mapping[str, Any]", value))
    for name in parameters:
        if _PARAMETER.fullmatch(name) is None:
            raise UsageError(f"{shown(name)} cannot name a parameter", field="sql.parameters")
    payload.encode(parameters, what="sql.parameters")
    return parameters


# Notification jobs: a message to one or more addresses.

FORMATS: Final = ("text", "markdown", "html")


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a message."""

    to: Annotated[
        tuple[Any, ...],
        KindField(
            "Addresses as apprise writes them: `mailto://…`, `slack://…`, `json://…`. They hold"
            " passwords: keep them as secrets.",
            {"anyOf": [WORDS, {"type": "array", "items": WORDS}]},
        ),
    ]
    title: Annotated[Any, KindField("The headline.", WORDS, "title")] = ""
    body: Annotated[Any, KindField("The text.", WORDS, "body")] = ""
    format: Annotated[
        str, KindField("The format of the body.", {"enum": list(FORMATS)}, "format", "WORD")
    ] = "text"

    @classmethod
    def parse(cls, value: Any) -> NotifySettings:
        """Parse an object with `to`, `title` and `body`."""
        given = read_fields(value, cls, "notify")
        title = _read_words(given.get("title", ""), "title")
        body = _read_words(given.get("body", ""), "body")
        if title == "" and body == "":
            raise UsageError("notify says nothing; give it a title or a body", field="notify.body")
        form = given.get("format", "text")
        if form not in FORMATS:
            raise UsageError(
                f"format={shown(form)} is not one of {', '.join(FORMATS)}", field="notify.format"
            )
        return cls(to=read_addresses(given.get("to")), title=title, body=body, format=form)


def read_addresses(value: Any, what: str = "notify.to") -> tuple[Any, ...]:
    """Return the addresses of a message."""
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
    if value is None or not listed:
        raise UsageError(f"{what} names no address", field=what)
    if len(listed) > NOTIFY_PLACES_MAX:
        raise UsageError(
            f"{what} has {len(listed):,} addresses; the limit is {NOTIFY_PLACES_MAX}",
            field=what,
        )
    for one in listed:
        check_text(one, "to", field=what)
        if isinstance(one, str) and "://" not in one:
            raise UsageError(
                f"{shown(one)} has no scheme; write mailto://…, slack://…, json://…",
                field=what,
            )
    return tuple(listed)


def _read_words(value: Any, what: str) -> Any:
    check_text(value, what, field=f"notify.{what}")
    if isinstance(value, str) and len(value) > NOTIFY_CHARS_MAX:
        raise UsageError(
            f"{what} has {len(value):,} characters; the limit is {NOTIFY_CHARS_MAX:,}",
            field=f"notify.{what}",
        )
    return value
