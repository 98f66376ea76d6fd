"""Commands: what is started, with what, and what their ends lead to. All of them are real."""

import json
import os
import sys
from uuid import UUID

import pytest

from daybell.core import payload
from daybell.core.limits import (
    COMMAND_JSON_CHARS_MAX,
    COMMAND_OUTPUT_CHARS_MAX,
    LOG_CHARS_MAX,
)
from daybell.runners import command_processes as commands_module
from daybell.runners.command import VARIABLE_BYTES_MAX, CommandOptions
from daybell.runners.command_processes import HALF_CHARS, Stream
from tests.engine.virtual import until
from tests.runners.running_commands import SECONDS, Job, some_commands

# Prints its words, and nothing is made of them on the way.
SHOW = [sys.executable, "-I", "-S", "-c", "import sys; print(ascii(sys.argv[1:]))"]
HOSTILE = [
    "; id",
    "&& id",
    "| id",
    "& id",
    "$(id)",
    "`id`",
    "a\nid",
    "-rf",
    "--help",
    "*",
    "/etc/*",
    "[a-z]",
    "{a,b}",
    "~",
    "~root",
    "$HOME",
    "${HOME}",
    "%PATH%",
    "> /tmp/out",
    "< /etc/passwd",
    "2>&1",
    "'",
    '"',
    "\\",
    "\\n",
    "!!",
    "#",
    "",
    " ",
    "\t",
    "\x1b[31m",
    "é😀",
    "$((1+1))",
    "<(id)",
]


@pytest.fixture
async def commands():
    async with some_commands() as commands:
        yield commands


async def test_no_word_of_a_command_means_anything_but_itself(commands):
    shown = await Job(commands, [*SHOW, *HOSTILE]).output()

    assert shown == f"{HOSTILE!a}"


async def test_a_line_is_split_as_a_shell_would_and_run_without_one(commands):
    result = await Job(commands, "echo 'two words' $HOME \\; `id` *").result()

    assert result == {"exit_code": 0, "output": "two words $HOME ; `id` *"}


async def test_a_shell_is_there_for_whoever_asks(commands):
    assert await Job(commands, "echo a | tr a b; echo $0", shell=True).output() == "b\n/bin/sh"


async def test_standard_input_is_empty_or_the_text_that_was_given(commands):
    text = "one\ntwo ä" * 50_000  # far more than a pipe holds

    assert await Job(commands, "wc -c").output() == "0"
    assert await Job(commands, "wc -c", stdin=text).output() == f"{len(text.encode())}"
    assert await Job(commands, "true", stdin=text).result() == {"exit_code": 0, "output": ""}
    assert await Job(commands, "tail -c 3", stdin="a\nb\n").output() == "\nb"


async def test_secrets_are_put_into_words_variables_input_and_arguments(commands):
    job = Job(
        commands,
        ["/bin/sh", "-c", 'echo "$1" "$secret" "$DAYBELL_ARGS"; cat', "-", {"secret": "A"}],
        env={"secret": {"join": ["b=", {"secret": "B"}]}},
        stdin={"secret": "C"},
        secrets={"A": "aaaa", "B": "bbbb", "C": "cccc", "D": "dddd"},
        claimed={"args": '{"token": {"secret": "D"}}'},
    )

    assert await job.output() == 'aaaa b=bbbb {"token":"dddd"}\ncccc'


async def test_a_variable_may_be_called_secret(commands):
    assert await Job(commands, "echo $secret", shell=True, env={"secret": "X"}).output() == "X"


async def test_a_command_is_in_its_working_directory_and_in_a_session_of_its_own(
    commands, tmp_path
):
    script = "import os; print(os.getcwd(), os.getsid(0) == os.getpgid(0) == os.getpid())"
    job = Job(commands, [sys.executable, "-I", "-S", "-c", script], directory=str(tmp_path))

    assert await job.output() == f"{tmp_path} True"


async def test_a_command_has_no_files_but_its_streams_and_default_signals(commands):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    script = "import os; print(os.listdir('/proc/self/fd'), open('/proc/self/status').read())"
    try:
        shown = await Job(commands, [sys.executable, "-I", "-S", "-c", script]).output()
        ignored = await Job(commands, "grep SigIgn /proc/self/status").output()
    finally:
        os.close(read)
        os.close(write)

    assert shown.startswith("['0', '1', '2', '3'] ")  # 3: the folder that it lists
    # SIGPIPE (13) and SIGXFSZ (25), which Python ignores: `yes | head` would never end.
    assert int(ignored.split()[1], 16) & (1 << 12 | 1 << 24) == 0
    assert "SigBlk:\t0000000000000000" in shown


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        (["no-such-program"], {}, "'no-such-program' cannot be started: this worker finds no such"),
        (["/no/such/program"], {}, "'/no/such/program' cannot be started: this worker has no such"),
        (["/etc/passwd"], {}, "'/etc/passwd' cannot be started: this worker may not execute it"),
        (["/etc"], {}, "'/etc' cannot be started: this worker may not execute it"),
        (["/etc/passwd/x"], {}, "'/etc/passwd/x' cannot be started: this worker has no such file"),
        (["true"], {"directory": "/no/where"}, "cannot enter its working directory '/no/where'"),
        (["true"], {"directory": "/etc/passwd"}, "its working directory '/etc/passwd': Not a dir"),
        (["true", {"secret": "NUL"}], {}, "'true' cannot be started: embedded null byte"),
        (["true", {"secret": "LONG"}], {}, "its words and variables are too long"),
        (["true"], {"env": {"A": {"secret": "LONG"}}}, "A is too long for a variable"),
    ],
)
async def test_what_can_never_be_started_says_why_and_is_not_tried_again(
    commands, command, settings, said
):
    secrets = {"NUL": "a\0b", "LONG": "x" * (VARIABLE_BYTES_MAX + 1)}
    job = Job(commands, command, secrets=secrets, **settings)

    failure = await job.failure()

    assert failure.type == "CommandFailed"
    assert said in failure.message
    assert len(failure.message) < 500
    assert job.run.is_hopeless


async def test_a_script_that_names_nobody_to_run_it_says_so(commands, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)

    failure = await Job(commands, [str(script)]).failure()

    assert "a script's first line names what runs it (#!)" in failure.message


async def test_arguments_that_are_too_long_for_a_variable_say_so(commands):
    job = Job(commands, "true", claimed={"args": payload.encode({"a": "x" * 200_000})})

    failure = await job.failure()

    assert "the arguments are too long for a variable" in failure.message
    assert job.run.is_hopeless


async def test_what_may_be_better_next_time_is_tried_again(commands, monkeypatch):
    def refused(*_):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(commands_module.CommandProcess, "start", refused)
    job = Job(commands, "true")

    failure = await job.failure()

    assert "'true' could not be started: no more processes are allowed" in failure.message
    assert not job.run.is_hopeless


@pytest.mark.parametrize(
    ("code", "settings", "outcome"),
    [
        (0, {}, "success"),
        (3, {}, "retried"),
        (3, {"success_codes": [0, 3]}, "success"),
        (0, {"success_codes": [3]}, "retried"),
        (75, {"retry_codes": [75]}, "retried"),
        (1, {"retry_codes": [75]}, "hopeless"),
        (1, {"retry_codes": []}, "hopeless"),
        ("kill -KILL $$", {}, "retried"),
        ("kill -KILL $$", {"retry_codes": [75]}, "retried"),
    ],
)
async def test_exit_codes_mean_what_the_job_says(commands, code, settings, outcome):
    line = f"exit {code}" if isinstance(code, int) else code
    job = Job(commands, line, shell=True, **settings)

    if outcome == "success":
        assert await job.result() == {"exit_code": code, "output": ""}
    else:
        how = f"ended with exit code {code}" if isinstance(code, int) else "was killed by SIGKILL"
        assert (await job.failure()).message == f"the command {how}"
    assert job.run.is_hopeless == (outcome == "hopeless")


async def test_a_failure_says_what_the_command_said_last(commands):
    many = await Job(commands, "seq 1000 >&2; echo; echo out; exit 1", shell=True).failure()
    only_out = await Job(commands, "echo so; exit 1", shell=True).failure()
    long = await Job(
        commands, "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", shell=True
    ).failure()

    assert many.message == "the command ended with exit code 1:\n996\n997\n998\n999\n1000"
    assert only_out.message == "the command ended with exit code 1:\nso"
    assert long.message == "the command ended with exit code 1:\n…" + "x" * 1_999


async def test_output_goes_line_by_line_into_the_log_while_the_command_runs(commands, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = Job(
        commands,
        f"echo one; echo oh >&2; printf 'tw\\303'; read x < {gate}; printf '\\244\\377'",
        shell=True,
    )

    await until(lambda: len(job.log) == 2, within=SECONDS)
    assert sorted(job.log) == [("stderr", "oh"), ("stdout", "one")]
    gate.write_text("\n")

    assert await job.output() == "one\ntwä�"
    assert '"twä�"' in (job.run.take_log() or "")


@pytest.mark.parametrize("between", ["\n", ","], ids=["lines", "one line"])
async def test_a_result_keeps_the_end_of_a_long_output(commands, between):
    result = await Job(commands, ["seq", "-s", between, "100000"]).result()

    output = result["output"]
    assert len(output) == COMMAND_OUTPUT_CHARS_MAX - 1, "the rest is the end of its last line"
    assert output[0] == "…" and output.endswith(f"99999{between}100000")
    assert result["truncated"] is True


async def test_a_result_that_is_whole_does_not_say_that_it_was_cut(commands):
    result = await Job(commands, f"head -c {COMMAND_OUTPUT_CHARS_MAX} /dev/zero").result()

    assert result == {"exit_code": 0, "output": "\0" * COMMAND_OUTPUT_CHARS_MAX}


@pytest.mark.parametrize("length", [0, 100, COMMAND_OUTPUT_CHARS_MAX])
async def test_no_half_of_a_secret_is_in_what_was_cut(commands, length):
    """Masks may leave so little of the rest that the half would not be cut off by its length."""
    secret = "0123456789" * 400
    said = 10 * secret + length * "x"

    job = Job(commands, "cat", stdin=said, mask=lambda text: text.replace(secret, "***"))

    assert set((await job.result())["output"]) <= set("…x*")


async def test_the_end_of_a_stream_that_comes_in_small_parts_takes_no_more_room():
    heard: list[str] = []
    stream = Stream("stdout", lambda _, text: heard.append(text), chars_max=100)
    writer = os.dup(stream.writer)
    stream.start()
    for part in range(50):
        os.write(writer, b"".join(b"%06d\n" % (100 * part + each) for each in range(100)))
        await until(lambda count=part: "".join(heard).count("\n") >= 100 * (count + 1))
    os.close(writer)
    await stream.ended

    assert stream.said.is_cut
    assert len(stream.said.text) == 100 + HALF_CHARS
    assert stream.said.text.endswith("004998\n004999\n")


ENVIRON = [sys.executable, "-I", "-S", "-c", "import os, json; print(json.dumps(dict(os.environ)))"]


async def test_a_command_gets_little_of_the_workers_environment(commands, monkeypatch):
    for name in ("DAYBELL_DATABASE_URL", "DAYBELL_SECRETS_KEY", "AWS_SECRET_ACCESS_KEY", "MINE"):
        monkeypatch.setenv(name, "not for everybody")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TZ", "UTC")
    id = UUID("0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3")
    claimed = {
        "id": id,
        "attempt": 3,
        "scheduled_for": 0.0,
        "args": '{"a":[1,"ä"]}',
        "tenant": "acme",
    }
    options = CommandOptions(pass_env=("MINE",))

    env = json.loads(await Job(commands, ENVIRON, claimed=claimed, options=options).output())

    usual = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"}
    own = {name: value for name, value in env.items() if name not in usual}
    own = {name: value for name, value in own.items() if not name.startswith("LC_")}
    assert own.pop("DAYBELL_PROGRESS")
    assert own == {
        "DAYBELL_EXECUTION_ID": str(id),
        "DAYBELL_ATTEMPT": "3",
        "DAYBELL_JOB": "backup",
        "DAYBELL_TENANT": "acme",
        "DAYBELL_SCHEDULED_FOR": "1970-01-01T00:00:00Z",
        "DAYBELL_ARGS": '{"a":[1,"ä"]}',
        "MINE": "not for everybody",
    }
    assert (env["PATH"], env["TZ"], env["LC_TIME"]) == (os.environ["PATH"], "UTC", "C")


DANGEROUS = """
PATH Path LD_PRELOAD ld_preload LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES GLIBC_TUNABLES
GCONV_PATH PYTHONPATH PYTHONSTARTUP PYTHONHOME PERL5LIB PERL5OPT RUBYOPT RUBYLIB NODE_OPTIONS
JAVA_TOOL_OPTIONS _JAVA_OPTIONS BASH_ENV ENV SHELLOPTS BASHOPTS IFS PS4 PROMPT_COMMAND BASH_FUNC_ls
HOSTALIASES LOCALDOMAIN RES_OPTIONS GIT_SSH_COMMAND GIT_EXTERNAL_DIFF EDITOR PAGER OPENSSL_CONF
RUSTC_WRAPPER TAR_OPTIONS npm_config_script_shell PSQLRC XDG_CONFIG_HOME SSLKEYLOGFILE
DAYBELL_DATABASE_URL DAYBELL_EXECUTION_ID DAYBELL_ATTEMPT
"""


@pytest.mark.parametrize("name", DANGEROUS.split())
async def test_a_dangerous_variable_is_refused_and_nothing_is_started(commands, name, tmp_path):
    job = Job(commands, ["touch", str(tmp_path / "trace")], env={name: "x"})

    failure = await job.failure()

    assert failure.type == "VariableRefused"
    assert f"a job may not set {name}: it " in failure.message
    assert f"--allow-env {name}" in failure.message
    assert job.run.is_hopeless
    assert not list(tmp_path.iterdir())


async def test_a_worker_may_allow_a_variable_by_its_name(commands):
    options = CommandOptions(allow_env=frozenset({"PATH", "DAYBELL_ATTEMPT"}))
    env = {"PATH": "/nowhere", "DAYBELL_ATTEMPT": "99"}

    job = Job(commands, ["/bin/sh", "-c", "echo $PATH $DAYBELL_ATTEMPT"], env=env, options=options)

    assert await job.output() == "/nowhere 1"  # what Daybell says itself, it says
    other = await Job(commands, "true", env={"LD_PRELOAD": "x"}, options=options).failure()
    assert other.type == "VariableRefused"


@pytest.mark.parametrize(
    "name", ["HOME", "TZ", "LANG", "TMPDIR", "API_URL", "GITHUB_TOKEN", "PATHS", "PYTHONUNBUFFERED"]
)
async def test_other_variables_are_the_jobs_to_set(commands, name):
    assert await Job(commands, f"echo ${name}", shell=True, env={name: "/x"}).output() == "/x"


async def test_output_without_end_is_capped_and_holds_nobody_up(commands):
    job = Job(commands, "yes | head -c 30000000", shell=True)

    assert (await job.result())["exit_code"] == 0

    log = job.run.log
    assert log is not None and log.size < LOG_CHARS_MAX + 100
    assert len(log.lines) + log.left_out == 15_000_000


@pytest.mark.parametrize("said", ["a\n", "a\n\n", "a\r\n", "a"])
async def test_how_its_last_line_ended_is_no_part_of_the_output(commands, said):
    assert await Job(commands, "cat", stdin=said).output() == "a"
    assert await Job(commands, "cat", stdin=f"\n {said} ").output() == f"\n {said} "


async def test_what_is_printed_as_json_is_data(commands):
    told = {"files": ["a", "b"], "rows": 2, "long": "x" * (4 * COMMAND_OUTPUT_CHARS_MAX)}

    result = await Job(commands, "cat", stdin=json.dumps(told) + "\n", output="json").result()

    assert result == {"exit_code": 0, "output": told}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no disk\n", "is not JSON that can be read: JSON is malformed"),
        ("", "it printed nothing"),
        ('{"a": 1', "it ends too early"),
        ("1\n2\n", "trailing characters"),
    ],
)
async def test_what_should_be_json_and_is_not_fails_the_attempt(commands, said, told):
    job = Job(commands, "cat", stdin=said, output="json")
    failure = await job.failure()

    assert failure.type == "CommandFailed"
    assert told in failure.message
    assert failure.message.startswith("the command should print JSON (output: json)")
    assert not job.run.is_hopeless


async def test_more_json_than_is_read_is_final(commands):
    text = json.dumps("x" * COMMAND_JSON_CHARS_MAX)
    job = Job(commands, "cat", stdin=text, output="json")

    assert "65,536 characters" in (await job.failure()).message
    assert job.run.is_hopeless
    fits = json.dumps("x" * (COMMAND_JSON_CHARS_MAX - 2))
    assert (await Job(commands, "cat", stdin=fits, output="json").result())["exit_code"] == 0


async def test_a_failed_command_need_not_print_json(commands):
    job = Job(commands, "echo no; exit 3", shell=True, output="json")

    assert "exit code 3" in (await job.failure()).message
