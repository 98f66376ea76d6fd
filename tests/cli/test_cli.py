"""Exit codes, messages and manners of the command line, whatever the command."""

import errno
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from typer.main import get_command
from typer.models import OptionInfo

import daybell as package
from daybell.cli import COMMANDS, app, read_settings, runtime
from daybell.cli.options import MISUSE, skip_adapters
from daybell.cli.runtime import guard
from daybell.errors import Conflict, Unavailable, UsageError
from daybell.settings import Settings
from tests.cli.terminal import daybell, environment

ROOT = Path(package.__file__).parent.parent.parent
# Slow to import. Lists of a store in a file need none of them.
UNNEEDED = {
    "annotated_types", "apprise", "asyncpg", "cryptography", "fastapi", "holidays", "httpcore",
    "httptools", "httpx", "pydantic", "pydantic_core", "starlette", "uvicorn", "watchfiles", "yaml",
}  # fmt: skip
HELP_SECONDS_MOST = 0.4  # of CPU, beyond what Python itself takes; a busy core needs twice as much


def end_of(error):
    """What guard does with a program that raises."""

    def program():
        raise error

    with pytest.raises(SystemExit) as end:
        guard(program)
    return end.value.code


def test_with_json_an_error_is_the_object_of_the_api(tmp_path):
    assert daybell("migrate", folder=tmp_path).code == 0
    plain = daybell("jobs", "show", "nosuch", folder=tmp_path)
    ended = daybell("jobs", "show", "nosuch", "--json", folder=tmp_path)
    misused = daybell("executions", "list", "--status", "soon", "--json", folder=tmp_path)

    problem = json.loads(ended.err)
    assert (ended.code, ended.out) == (1, "")
    assert plain.err == f"error: {problem['detail']}\n"
    assert (problem["code"], problem["status"]) == ("unknown-job", 404)
    assert problem["type"] == "urn:daybell:problem:unknown-job"
    assert misused.code == 2
    assert json.loads(misused.err)["errors"][0]["field"] == "status"


def cpu_seconds(*command: str) -> float:
    """The CPU that a process takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *command], env=environment(), stdout=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_is_quick():
    # One of a few: the machine is busy elsewhere.
    assert any(
        cpu_seconds("-m", "daybell", "--help") - cpu_seconds("-c", "pass") < HELP_SECONDS_MOST
        for _ in range(5)
    )


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from daybell.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert "typer" in loaded
    assert not loaded & {"asyncio", "asyncpg", "msgspec", "rich", "sqlite3", "uvloop"}


@pytest.mark.parametrize(
    "words",
    [
        "executions list",
        "executions list --limit 5 --queue a --arg size=3 --arg city=Köln --status dead --json",
        "jobs list",
        "queues pause mail",
        "dead-letters list",
    ],
)
def test_a_command_on_sqlite_imports_nothing_that_it_does_not_need(words, tmp_path):
    daybell("migrate", folder=tmp_path)
    code = "import sys; from daybell.cli import main\ntry: main()\nfinally: print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "sqlite3" in loaded
    assert not loaded & UNNEEDED


@pytest.mark.parametrize(
    ("words", "most", "status"),
    [
        ("--help", 180, 0),
        ("jobs create --help", 250, 0),
        ("executions list", 452, 0),
        ("--api-url http://127.0.0.1:9 executions list", 500, 1),  # where no server listens
    ],
)
def test_a_command_imports_few_modules(words, most, status, tmp_path):
    """A module takes about a millisecond. More may be right; see `python -X importtime` first."""
    daybell("migrate", folder=tmp_path)
    code = "import sys; from daybell.cli import main\ntry: main()\nfinally: print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    loaded = done.stdout.splitlines()[-1].split()
    assert done.returncode == status, done.stderr
    assert ("httpx" in loaded) == ("--api-url" in words)
    assert len(loaded) <= most
    assert {"click", "pygments"} & set(loaded) == set()


@pytest.mark.parametrize(("words", "built"), [("executions list", 1), ("migrate", 1), ("jobs", 5)])
def test_only_the_commands_that_were_typed_are_built(words, built, tmp_path):
    code = (
        "import gc; from daybell.cli import Stub, main\n"
        "from typer.core import TyperCommand\n"
        "try: main()\n"
        "finally:\n"
        "    made = [one for one in gc.get_objects() if isinstance(one, TyperCommand)]\n"
        "    print(sum(not isinstance(one, Stub) for one in made))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip

    found = int(done.stdout.split()[-1])
    assert found == built if built == 1 else built < found < 30  # a group lists all of its own


def whole() -> Any:
    """The root with all commands in place of their stubs."""
    root: Any = get_command(app)
    root.commands = {name: root.load(name) for name in COMMANDS}
    return root


def below(command: Any, path: str = "daybell") -> Iterator[tuple[str, Any]]:
    """All commands that can be typed after this one."""
    for name, inner in getattr(command, "commands", {}).items():
        yield f"{path} {name}", inner
        yield from below(inner, f"{path} {name}")


def params_below(command, context):
    """Every parameter of a command and of those below it, as a command that runs gets them."""
    yield from command.get_params(context)
    for inner in getattr(command, "commands", {}).values():
        yield from params_below(inner, typer.Context(inner))


def outcome(process, context, value):
    """What becomes of a value: another one, or an error."""
    try:
        return process(context, value)
    except MISUSE as error:
        return type(error), error.message


@pytest.mark.parametrize(
    "value",
    [None, "", "7", "007", "0", "-1", "1_000", " 5", "x", "9" * 30, "٣", "two\nlines", "\udcff", 5,
     True, (), ("a", "b"), ("3", "0"), ["x", "\udcff"]],
)  # fmt: skip
def test_plain_words_mean_what_they_mean_to_typer(value):
    command = whole()
    skip_adapters(command)
    context = typer.Context(command)
    found = 0

    for param in params_below(command, context):
        is_many = param.multiple or param.nargs == -1
        fits = value is None or is_many == isinstance(value, list | tuple)
        is_flag = getattr(param, "is_flag", False)  # has no words
        if param.callback is None and fits and not is_flag:
            usual = partial(type(param).process_value, param)
            assert outcome(param.process_value, context, value) == outcome(usual, context, value)
            found += 1
    assert found > 10


def test_the_version_is_shown(tmp_path):
    assert daybell("--version", folder=tmp_path) == (0, f"daybell {package.__version__}\n", "")


def test_both_help_options_work(tmp_path):
    long, short = daybell("--help", folder=tmp_path), daybell("-h", folder=tmp_path)

    assert long == short
    assert long.out.startswith("Usage: daybell [OPTIONS] COMMAND")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nonsense", "no such command 'nonsense'; see daybell --help"),
        ("jobs lst", "no such command 'lst'. Did you mean 'list'? See daybell jobs --help"),
        ("migrate --nope", "no such option: --nope; see daybell migrate --help"),
        ("jobs trigger", "missing argument 'NAME'; see daybell jobs trigger --help"),
        ("--database-url", "option '--database-url' requires an argument; see daybell --help"),
        ("dead-letters retry", "say what to retry: ids, or filters such as --job NAME and --error"
         " TEXT, or --all; see daybell dead-letters retry --help"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_one_line_and_exit_2(words, said, tmp_path):
    assert daybell(*words.split(), folder=tmp_path) == (2, "", f"error: {said}\n")


@pytest.mark.parametrize("words", [[], ["jobs"]])
def test_a_group_without_a_command_shows_its_help(words, tmp_path):
    ended = daybell(*words, folder=tmp_path)

    assert ended.code == 2
    assert ended.err.startswith("Usage: daybell")
    assert "Commands:" in ended.err


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("executions list --status s", ["scheduled", "succeeded", "skipped"]),
        ("executions cancel --status pe", ["pending"]),
        ("jobs trigger greet --priority ", ["critical", "high", "normal", "low"]),
    ],
)
def test_words_that_an_option_takes_are_completed(words, completed, tmp_path):
    typed = f"daybell {words}"
    ended = daybell(folder=tmp_path, _DAYBELL_COMPLETE="complete_bash", COMP_WORDS=typed,
                    COMP_CWORD=str(len(typed.split(" ")) - 1))  # fmt: skip

    assert (ended.code, ended.out.split()) == (0, completed)


def test_the_list_of_commands_is_not_cut_off(tmp_path):
    for words in ([], ["jobs"], ["executions"], ["dead-letters"], ["workers"], ["queues"]):
        assert "..." not in daybell(*words, "--help", folder=tmp_path).out.replace("ARGS]...", "")


def test_completion_is_there(tmp_path):
    ended = daybell("mig", folder=tmp_path, _DAYBELL_COMPLETE="complete_bash",
                    COMP_WORDS="daybell mig", COMP_CWORD="1")  # fmt: skip

    assert (ended.code, ended.out.strip()) == (0, "migrate")


def test_a_mistake_in_the_file_is_one_line_and_exit_2(tmp_path):
    (tmp_path / "daybell.toml").write_text('databse_url = "memory://"')

    ended = daybell("migrate", folder=tmp_path)

    assert ended.code == 2
    assert ended.err == (
        "error: daybell.toml: there is no setting 'databse_url'; did you mean database_url?\n"
    )


def test_an_option_after_the_command_wins_over_one_before_it(tmp_path):
    first, last = "sqlite:///first.db", "sqlite:///last.db"
    ended = daybell("--database-url", first, "migrate", "--database-url", last, folder=tmp_path)

    assert ended.code == 0
    assert [file.name for file in tmp_path.glob("*.db")] == ["last.db"]


@pytest.mark.parametrize("command", [["migrate"], ["jobs", "list"], ["bench"], ["dev", "--demo"]])
def test_an_empty_store_is_not_taken_for_none(command, tmp_path):
    before = daybell("--database-url", "", *command, folder=tmp_path)
    after = daybell("--database-url", "memory://", *command, "--database-url", "", folder=tmp_path)

    said = "error: --database-url: is empty; give a value, or leave it out\n"
    assert before == after == (2, "", said)
    assert not list(tmp_path.iterdir())


def test_the_environment_and_the_file_name_the_store(tmp_path):
    (tmp_path / "daybell.toml").write_text('database_url = "sqlite:///file.db"')

    daybell("migrate", folder=tmp_path)
    daybell("migrate", folder=tmp_path, DAYBELL_DATABASE_URL="sqlite:///variable.db")

    assert {file.name for file in tmp_path.glob("*.db")} == {"file.db", "variable.db"}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no such thing"), 2, "error: no such thing\n"),
        (Unavailable("away"), 1, "error: away\n"),
        (Conflict("two\n  lines"), 1, "error: two lines\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
        (SystemExit(3), 3, ""),
        (
            OSError(errno.EMFILE, "Too many open files"),
            1,
            "error: Too many open files; that is a limit of this machine\n",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error, code, said, capsys):
    assert end_of(error) == code

    assert capsys.readouterr().err == said


def test_an_unexpected_error_says_how_to_see_more(capsys, monkeypatch):
    monkeypatch.delenv("DAYBELL_DEBUG", raising=False)

    assert end_of(ZeroDivisionError("by zero")) == 1

    said = capsys.readouterr().err
    assert said.startswith("error: unexpected ZeroDivisionError: by zero\n")
    assert "DAYBELL_DEBUG=1" in said
    assert "Traceback" not in said


def test_the_password_of_the_store_in_use_is_hidden(capsys, monkeypatch):
    monkeypatch.setattr(runtime, "_mask", Settings(api_key="from-settings").mask)
    monkeypatch.setattr(runtime, "_store", "")

    runtime.use_store("postgresql://me:hunter22@db/jobs")
    end_of(Conflict("hunter22 and from-settings"))

    assert capsys.readouterr().err == "error: *** and ***\n"


def test_debugging_shows_the_traceback(capsys, monkeypatch):
    monkeypatch.setenv("DAYBELL_DEBUG", "1")

    end_of(ZeroDivisionError("by zero"))

    assert capsys.readouterr().err.startswith("Traceback")


def test_a_closed_pipe_is_no_news(tmp_path):
    daybell("migrate", folder=tmp_path)
    read_end, write_end = os.pipe()
    os.close(read_end)

    done = subprocess.run(
        [sys.executable, "-m", "daybell", "doctor"],
        cwd=tmp_path, env=environment(), stdout=write_end, stderr=subprocess.PIPE, timeout=300,
    )  # fmt: skip
    os.close(write_end)

    assert (done.returncode, done.stderr) == (1, b"")


def shell(command, *, folder):
    done = subprocess.run(
        ["sh", "-c", command.replace("daybell", f"{sys.executable} -m daybell")],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["--version", "migrate"])
def test_a_closed_standard_stream_harms_nothing(command, closed, tmp_path):
    code, _, err = shell(f"daybell {command} {closed}", folder=tmp_path)

    assert (code, err) == (0, "")
    assert (tmp_path / "daybell.db").exists() is (command == "migrate")


@pytest.mark.parametrize("command", ["--version", "--help", "migrate"])
def test_output_that_finds_no_room_is_one_line(command, tmp_path):
    code, _, err = shell(f"daybell {command} >/dev/full", folder=tmp_path)

    assert (code, err) == (1, "error: the output cannot be written: No space left on device\n")


def test_a_complaint_that_finds_no_room_is_dropped(tmp_path):
    code, out, _ = shell("daybell migrate --database-url x 2>/dev/full", folder=tmp_path)

    assert (code, out) == (2, "")


@pytest.mark.parametrize("command", ["migrate", "doctor", "jobs list"])
def test_a_deleted_working_folder_is_one_line(command, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()

    code, out, err = shell(f"rmdir ../gone; daybell {command}", folder=gone)

    assert (code, out) == (1, "")
    assert err.startswith("error: the working folder cannot be used (No such file or directory)")
    assert err.count("\n") == 1


def test_ctrl_c_ends_a_running_command_quietly(tmp_path):
    # A command that waits for ever, as the real ones should not.
    code = (
        "import asyncio, sys\n"
        "from daybell.cli.runtime import guard, run_command\n"
        "async def wait(settings):\n"
        "    print('waiting', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "guard(lambda: run_command(wait, {}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, b"")


def test_every_command_has_a_short_help():
    commands = list(below(whole()))

    assert len(commands) > 50
    for path, command in commands:
        line = (command.help or "").splitlines()[0]
        assert 0 < len(line) <= 60, path


def test_the_list_of_commands_has_the_help_of_each():
    found = {
        name: command.get_short_help_str(limit=100) for name, command in whole().commands.items()
    }

    assert found == {name: entry.help for name, entry in COMMANDS.items()}


def test_groups_list_their_commands_and_import_nothing_heavy():
    groups = [name for name, entry in COMMANDS.items() if entry.name.endswith("app")]
    code = (
        "import sys; from daybell.cli import app\n"
        f"for group in {groups!r}:\n"
        "    try: app([group, '--help'])\n"
        "    except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert len(groups) > 5
    assert all(re.search(rf"Usage: .* {group} ", done.stdout) for group in groups)
    assert not set(done.stdout.split()) & {"asyncio", "asyncpg", "msgspec", "rich", "sqlite3"}


def test_completion_is_installed(tmp_path):
    # Typer looks for a shell among the ancestors of the command; `exit` keeps bash alive.
    ended = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m daybell --install-completion; exit $?"],
        cwd=tmp_path, env=environment(HOME=str(tmp_path)), capture_output=True, text=True,
    )  # fmt: skip

    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert "daybell" in (tmp_path / ".bashrc").read_text()


@pytest.fixture
def clone(tmp_path):
    """A folder in which `make install` has been run; its daybell tells which store it was given."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "requirements/run.txt", "requirements/dev.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("bin/uv", ".run", ".dev"):
        (tmp_path / ".venv" / name).touch()
    (tmp_path / ".venv/bin/activate").write_text(f'VIRTUAL_ENV="{tmp_path}/.venv"\n')
    for name, does in (
        ("daybell", 'echo "$* ${DAYBELL_DATABASE_URL-unset}"'),
        ("python", "true"),  # builds the dashboard
    ):
        fake = tmp_path / ".venv/bin" / name
        fake.write_text(f"#!/bin/sh\n{does}\n")
        fake.chmod(0o755)
    return tmp_path


def make(*words, folder, **variables):
    done = subprocess.run(
        ["make", *words],
        cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_make_notices_that_the_clone_was_moved(clone, tmp_path_factory):
    here = make("-n", "install", folder=clone)
    moved = clone.rename(tmp_path_factory.mktemp("elsewhere") / "clone")

    there = make("-n", "install", folder=moved)

    assert "Nothing to be done" in here
    assert "creating .venv" in there
    assert "installing what Daybell needs for development" in there


def test_make_run_leaves_the_store_of_the_environment_alone(clone):
    said = make("-s", "run", folder=clone, DAYBELL_DATABASE_URL="postgresql://production/jobs")

    assert said == "dev --demo unset\n"


def functions() -> Iterator[tuple[str, Any]]:
    """The function of each command, and where it is."""
    yield "daybell", read_settings
    for name, entry in COMMANDS.items():
        found = getattr(import_module(f"daybell.cli.commands.{entry.module}"), entry.name)
        if isinstance(found, typer.Typer):
            for one in found.registered_commands:
                yield f"daybell {name} {one.name}", one.callback
        else:
            yield f"daybell {name}", found


def options() -> Iterator[tuple[str, str, OptionInfo]]:
    """All options: where each is, its parameter and its declaration."""
    for path, function in functions():
        for name, hint in get_type_hints(function, include_extras=True).items():
            for about in getattr(hint, "__metadata__", ()):
                if isinstance(about, OptionInfo):
                    yield path, name, about


def test_every_option_has_a_name_that_typer_does_not_make_up():
    # Inside Annotated, Typer keeps the first name as the default.
    found = {
        (where, name): [about.default, *(about.param_decls or ())]
        for where, name, about in options()
    }

    assert len(found) > 300
    unnamed = {
        key
        for key, names in found.items()
        if not all(isinstance(one, str) and re.fullmatch(r"--?[a-z][a-z/-]*", one) for one in names)
    }
    assert unnamed == set()
