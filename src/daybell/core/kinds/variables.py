"""Variables of an environment that a job may not set by itself, and why.

Each of them makes a program load, or run, something other than what the job says. A worker may
allow some of them by name. Whoever may write jobs for a worker that runs commands can run anything
there; this is for what is put together out of less: templates, tools that write jobs, a variable's
name that somebody else has chosen.

HOME is not among them, although programs look there for settings: cron's jobs set it often, and
whoever wants to have it used against a job must be able to write into a folder of that machine
first. The same goes for KUBECONFIG and its like, which name the one file that a job is about.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

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
