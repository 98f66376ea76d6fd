"""`daybell migrate` and `daybell doctor`, on stores in good and in bad order."""

import ctypes
import json
import os
import re
import socket
import sqlite3
import stat
import subprocess
import sys

import asyncpg
import pytest

from daybell import Client, SchemaError
from daybell.cli.doctor.report import check_file, check_store, check_tls
from daybell.client.sealing import new_key
from daybell.settings import Settings
from tests.builders import steps
from tests.cli.terminal import Running, daybell, environment
from tests.stores import POSTGRES

SECRET = "hunter22"
NOBODY_LISTENS = f"postgresql://me:{SECRET}@127.0.0.1:1/daybell"

FUTURE = "INSERT INTO {table} VALUES (9999, 'future', 'abc', {breaking}{rest})"


@pytest.fixture
async def database(servers):
    """An empty PostgreSQL database."""
    async with servers.database(POSTGRES["postgres"]) as url:
        yield url


def checks_of(ended):
    return {check["name"]: check for check in json.loads(ended.out)["checks"]}


def test_migrate_makes_each_step_once(tmp_path):
    first = daybell("migrate", folder=tmp_path)
    again = daybell("migrate", folder=tmp_path)

    made = "".join(f"made {step}\n" for step in steps("sqlite"))
    assert first == (0, f"{made}sqlite:///daybell.db is up to date\n", "")
    assert again == (0, "sqlite:///daybell.db is up to date\n", "")
    assert stat.S_IMODE((tmp_path / "daybell.db").stat().st_mode) == 0o600


def test_migrate_check_only_tells(tmp_path):
    before = daybell("migrate", "--check", folder=tmp_path)
    is_untouched = not list(tmp_path.iterdir())
    daybell("migrate", folder=tmp_path)
    after = daybell("migrate", "--check", folder=tmp_path)

    assert before.code == 1
    assert before.out.startswith("pending 0001_initial\n")
    assert is_untouched
    assert after == (0, "sqlite:///daybell.db is up to date\n", "")


@pytest.mark.parametrize("command", [["migrate", "--check"], ["doctor"], ["jobs", "list"]])
def test_advice_repeats_the_store_that_a_flag_named(command, tmp_path):
    by_flag = daybell("--database-url", "sqlite:///my jobs.db", *command, folder=tmp_path)
    by_variable = daybell(*command, folder=tmp_path, DAYBELL_DATABASE_URL="sqlite:///my jobs.db")

    assert by_flag.code == by_variable.code == 1
    assert "daybell migrate --database-url 'sqlite:///my jobs.db'" in by_flag.out + by_flag.err
    assert "daybell migrate --database-url" not in by_variable.out + by_variable.err


@pytest.mark.postgres
@pytest.mark.parametrize("command", [["migrate", "--check"], ["doctor"], ["jobs", "list"]])
async def test_advice_does_not_repeat_a_password(command, database, tmp_path):
    url = database.replace("@", f":{SECRET}@", 1)

    ended = daybell(*command, "--database-url", url, folder=tmp_path)

    said = (ended.out + ended.err).replace("`", "")
    assert ended.code == 1
    assert "daybell migrate with the same --database-url" in said
    assert SECRET not in said


def test_grant_is_for_postgresql(tmp_path):
    ended = daybell("migrate", "--grant", "app", folder=tmp_path)

    assert (ended.code, ended.out) == (2, "")
    assert "--grant is for PostgreSQL" in ended.err


def test_check_and_grant_do_not_go_together(tmp_path):
    assert daybell("migrate", "--check", "--grant", "app", folder=tmp_path).code == 2


def test_doctor_finds_nothing_wrong_with_a_new_store(tmp_path):
    daybell("migrate", folder=tmp_path)

    ended = daybell("doctor", folder=tmp_path)
    as_json = daybell("doctor", "--json", folder=tmp_path)

    assert (ended.code, ended.err) == (0, "")
    assert all(line.startswith("ok ") for line in ended.out.splitlines())
    assert not any(line.endswith(" ") for line in ended.out.splitlines())
    assert json.loads(as_json.out)["is_ok"] is True
    assert {"store", "clock", "schema", "durability", "lease"} <= set(checks_of(as_json))


def test_doctor_says_what_to_do_about_a_missing_database(tmp_path):
    ended = daybell("doctor", folder=tmp_path)

    assert (ended.code, ended.err) == (1, "")
    (line,) = [line for line in ended.out.splitlines() if line.startswith("problem")]
    assert line.startswith("problem  store")
    assert f"there is no database at {tmp_path}/daybell.db yet; run `daybell migrate`" in line
    assert not list(tmp_path.iterdir())


async def test_a_program_is_told_how_to_make_its_database(tmp_path):
    url = f"sqlite:///{tmp_path}/new folder/nope.db".replace(" ", "%20")
    (tmp_path / "new folder").mkdir()

    with pytest.raises(SchemaError) as no:
        async with Client(url):
            pass

    assert type(no.value) is SchemaError  # one that a program can name
    (command,) = re.findall("`(.*)`", str(no.value))
    assert str(no.value).endswith(", or open it with migrate=True")
    assert daybell(*command.split()[1:], folder=tmp_path).code == 0
    async with Client(url):
        pass


def test_the_setting_that_names_no_store_is_named(tmp_path):
    (tmp_path / "daybell.toml").write_text('database_url = "nofile"')

    file = daybell("jobs", "list", folder=tmp_path)
    variable = daybell("jobs", "list", folder=tmp_path, DAYBELL_DATABASE_URL="novariable")
    flag = daybell("jobs", "list", "--database-url", "noflag", folder=tmp_path)

    for said, where in [(file, "daybell.toml"), (variable, "DAYBELL_DATABASE_URL"),
                        (flag, "--database-url")]:  # fmt: skip
        assert said.code == 2
        assert re.match(rf"error: {where}: 'no\w+' is not a database URL; use sqlite://", said.err)


def test_doctor_measures_the_lease(tmp_path):
    daybell("migrate", folder=tmp_path)

    short = daybell("doctor", "--json", folder=tmp_path, DAYBELL_LEASE="2s")
    long = daybell("doctor", "--json", folder=tmp_path, DAYBELL_LEASE="30m")

    assert (short.code, long.code) == (1, 1)
    assert "raise DAYBELL_LEASE" in checks_of(short)["lease"]["advice"]
    assert "lower DAYBELL_LEASE" in checks_of(long)["lease"]["advice"]


def test_doctor_notices_a_file_that_others_can_read(tmp_path):
    daybell("migrate", folder=tmp_path)
    (tmp_path / "daybell.db").chmod(0o644)

    ended = daybell("doctor", folder=tmp_path)

    assert ended.code == 1
    assert "chmod 600" in ended.out


def obey_modes():
    """Take from root, in a process about to start, the power to ignore a file's mode."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError("root stays root here; run the tests as somebody else")


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize(("name", "mode"), [(".", 0o500), ("daybell.db", 0o400)])
def test_doctor_notices_a_store_that_cannot_be_written(name, mode, in_use, tmp_path):
    daybell("migrate", folder=tmp_path)
    database = sqlite3.connect(tmp_path / "daybell.db")
    if in_use:
        database.execute("SELECT count(*) FROM migration").fetchone()  # -wal and -shm are there
    barred = (tmp_path / name).resolve()
    barred.chmod(mode)

    done = subprocess.run(
        [sys.executable, "-m", "daybell", "doctor", "--json"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300,
        preexec_fn=obey_modes,
    )  # fmt: skip
    tmp_path.chmod(0o700)
    database.close()

    assert (done.returncode, done.stderr) == (1, "")
    (found,) = [check for check in json.loads(done.stdout)["checks"] if not check["is_ok"]]
    assert f"{barred.name} may not be written by this user" in found["found"]
    assert "chmod u+rwX" in found["found"] + found["advice"]


@pytest.mark.parametrize("command", ["migrate", "doctor"])
def test_a_file_that_is_no_database_is_left_alone(command, tmp_path):
    file = tmp_path / "daybell.db"
    file.write_text("Dear diary, " * 1000)

    ended = daybell(command, folder=tmp_path)

    assert ended.code in (1, 2)
    assert "is not a SQLite database" in ended.err + ended.out
    assert "Traceback" not in ended.err
    assert file.read_text().startswith("Dear diary")


@pytest.mark.parametrize("command", ["migrate", "doctor"])
def test_a_missing_folder_is_named(command, tmp_path):
    ended = daybell(command, "--database-url", "sqlite:///gone/x.db", folder=tmp_path)

    assert ended.code in (1, 2)
    assert "gone does not exist" in ended.err + ended.out
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", ["migrate", "doctor"])
@pytest.mark.parametrize("breaking", [0, 1])
def test_a_newer_schema_is_refused_if_it_breaks_this_program(command, breaking, tmp_path):
    daybell("migrate", folder=tmp_path)
    database = sqlite3.connect(tmp_path / "daybell.db")
    columns = len(database.execute("SELECT * FROM migration").fetchone())
    rest = ", 0" * (columns - 4)
    database.execute(FUTURE.format(table="migration", breaking=breaking, rest=rest))
    database.commit()
    database.close()

    ended = daybell(command, folder=tmp_path)

    assert ended.code == breaking
    said = ended.err + ended.out
    assert ("newer than this program" in said and "pgrade daybell" in said) is bool(breaking)


@pytest.mark.parametrize("command", [["migrate"], ["migrate", "--check"]])
def test_a_server_that_is_not_there_is_one_line_without_the_password(command, tmp_path):
    ended = daybell(*command, "--database-url", NOBODY_LISTENS, folder=tmp_path)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: postgresql://me:***@127.0.0.1:1/daybell: PostgreSQL cannot")
    assert ended.err.count("\n") == 1
    assert SECRET not in ended.err


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_doctor_reports_a_server_that_is_not_there(flags, tmp_path):
    ended = daybell("doctor", *flags, folder=tmp_path, DAYBELL_DATABASE_URL=NOBODY_LISTENS)

    assert (ended.code, ended.err) == (1, "")
    assert "postgresql://me:***@127.0.0.1:1/daybell" in ended.out
    assert "check that PostgreSQL runs there" in ended.out
    assert SECRET not in ended.out


async def test_doctor_reports_a_server_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:  # it takes calls and says nothing
        url = f"postgresql://me:{SECRET}@127.0.0.1:{server.getsockname()[1]}/x"

        (check,) = await check_store(Settings(database_url=url, lease=1.0))

    assert check.is_ok is False
    assert check.found.endswith("no answer within 0.6 s")
    assert "firewall" in check.advice


@pytest.mark.parametrize(
    ("url", "variables", "name"),
    [
        ("mysql://me:hunter22@db/x", {}, "store"),
        ("", {}, "store"),
        ("memory://", {"DAYBELL_LEASE": "soon"}, "settings"),
    ],
)
def test_doctor_speaks_json_of_settings_that_cannot_be_used(url, variables, name, tmp_path):
    ended = daybell("--database-url", url, "doctor", "--json", folder=tmp_path, **variables)

    (check,) = json.loads(ended.out)["checks"]
    assert ended.code == 2
    assert json.loads(ended.err)["detail"] == check["found"]
    assert (check["name"], check["is_ok"], bool(check["advice"])) == (name, False, True)
    assert SECRET not in ended.out


@pytest.mark.parametrize("url", ["mysql://me:hunter22@db/x", "postgresql://me:1/hunter22@db/x"])
def test_a_url_that_cannot_be_used_is_shown_without_its_password(url, tmp_path):
    for command in ("migrate", "doctor"):
        ended = daybell(command, "--database-url", url, folder=tmp_path, DAYBELL_DEBUG="1")

        assert ended.code == 2
        assert SECRET not in ended.err + ended.out


@pytest.mark.postgres
async def test_postgresql_is_migrated_granted_and_healthy(database, tmp_path):
    connection = await asyncpg.connect(database)
    await connection.execute("DROP ROLE IF EXISTS daybell_cli; CREATE ROLE daybell_cli LOGIN")
    try:
        before = daybell("migrate", "--check", "--database-url", database, folder=tmp_path)
        made = daybell(
            "migrate", "--grant", "daybell_cli", "--database-url", database, folder=tmp_path
        )
        after = daybell("doctor", "--json", "--database-url", database, folder=tmp_path)
        as_role = database.replace("postgres@", "daybell_cli@", 1)
        role = daybell("migrate", "--database-url", as_role, folder=tmp_path)
    finally:
        await connection.execute("DROP OWNED BY daybell_cli; DROP ROLE daybell_cli")
        await connection.close()

    assert (before.code, made.code, role.code) == (1, 0, 0), (before, made, role)
    assert "daybell_cli may run Daybell there" in made.out
    assert role.out.endswith("is up to date\n")
    checks = checks_of(after)
    assert "PostgreSQL" in checks["store"]["found"]
    # The servers of the tests trade durability for speed, and are told so.
    assert [name for name, check in checks.items() if not check["is_ok"]] == ["durability"]


@pytest.mark.postgres
async def test_doctor_names_a_right_that_a_role_lacks(database, tmp_path):
    role = "daybell_lacking"
    connection = await asyncpg.connect(database)
    await connection.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")
    try:
        daybell("migrate", "--grant", role, "--database-url", database, folder=tmp_path)
        await connection.execute(f"REVOKE INSERT ON daybell.log FROM {role}")
        as_role = database.replace("postgres@", f"{role}@", 1)
        ended = daybell("doctor", "--json", "--database-url", as_role, folder=tmp_path)
        listed = daybell("jobs", "list", "--database-url", as_role, folder=tmp_path)
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await connection.close()

    assert ended.code == 1
    schema = checks_of(ended)["schema"]
    assert schema["found"] == f"role {role} may not write daybell.log"
    assert schema["advice"] == f"run `daybell migrate --grant {role}` as the owner"
    assert listed.err.endswith(f"run `daybell migrate --grant {role}` as the owner\n")


@pytest.mark.postgres
async def test_a_role_that_does_not_exist_is_named(database, tmp_path):
    ended = daybell(
        "migrate", "--grant", "nobody_here", "--database-url", database, folder=tmp_path
    )

    check = daybell("migrate", "--check", "--database-url", database, folder=tmp_path)

    assert (ended.code, ended.out) == (1, "")
    assert "has no role 'nobody_here'" in ended.err
    assert "CREATE ROLE nobody_here LOGIN" in ended.err
    assert check.out.startswith("pending ")


@pytest.mark.postgres
@pytest.mark.parametrize("command", ["migrate", "doctor"])
async def test_a_database_or_user_that_does_not_exist_is_named(command, database, tmp_path):
    server = database.rpartition("/")[0]
    elsewhere = server.replace("postgres@", f"nobody:{SECRET}@", 1)

    no_database = daybell(command, "--database-url", f"{server}/gone", folder=tmp_path)
    no_user = daybell(command, "--database-url", f"{elsewhere}/postgres", folder=tmp_path)

    for ended, name in ((no_database, "gone"), (no_user, "nobody")):
        assert ended.code == 1
        assert name in ended.err + ended.out
        assert "Traceback" not in ended.err
        assert SECRET not in ended.err + ended.out


@pytest.mark.parametrize(
    ("content", "mode", "is_ok"),
    [
        ('secrets_key = "k"', 0o600, [True]),
        ('secrets_key = "k"', 0o640, [False]),
        ('secrets_key = "k"', 0o604, [False]),
        ('lease = "20s"', 0o644, []),
        ("not toml", 0o644, []),
    ],
)
def test_doctor_warns_of_a_key_in_a_file_that_others_can_read(content, mode, is_ok, tmp_path):
    file = tmp_path / "daybell.toml"
    file.write_text(content)
    file.chmod(mode)

    found = check_file(file)

    assert [one.is_ok for one in found] == is_ok
    assert check_file(tmp_path / "none.toml") == []
    assert all(f"chmod 600 {file}" in one.advice for one in found)


def test_doctor_reports_the_file_of_this_folder(tmp_path):
    (tmp_path / "daybell.toml").write_text(f'secrets_key = "{new_key()}"')
    (tmp_path / "daybell.toml").chmod(0o644)
    daybell("migrate", folder=tmp_path)

    said = daybell("doctor", folder=tmp_path)

    assert said.code == 1
    assert "chmod 600 daybell.toml" in said.out


def test_doctor_reports_whether_servers_of_the_network_are_reached_with_tls(monkeypatch):
    monkeypatch.delenv("PGSSLMODE", raising=False)
    settings = Settings(
        database_url="postgresql://db.example/x",
        listen_url="postgresql://db.example/x?sslmode=disable",
        connections={
            "shop": "postgresql://db.example/x?sslmode=prefer",
            "here": "postgresql://localhost/x",
            "file": "sqlite:///x.db",
        },
    )

    plain, listening, shop = check_tls(settings)

    assert plain.is_ok
    assert "database_url has no sslmode: a server that refuses TLS is not used" in plain.found
    assert "listen_url has sslmode=disable: the password and all data travel" in listening.found
    assert not shop.is_ok
    assert "connections.shop has sslmode=prefer" in shop.found
    assert "write sslmode=require" in shop.advice


def test_a_scheduler_makes_a_file_that_is_not_there(tmp_path):
    with Running("scheduler", folder=tmp_path) as running:
        running.wait_for("looking after")

    assert daybell("doctor", folder=tmp_path).code == 0
