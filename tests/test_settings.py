"""Settings: where they come from, who wins, and that no secret gets out."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daybell.errors import UsageError
from daybell.settings import Settings, masked_url
from daybell.store.open import store_for
from daybell.store.postgres import PostgresStore
from daybell.store.sqlite import SqliteStore
from tests.refusals import refuses

SECRET = "hunter22"
KEY = "c2VjcmV0"


def load(flags=None, /, *, toml: str | None = None, folder: Path, **environ: str) -> Settings:
    if toml is not None:
        (folder / "daybell.toml").write_text(toml)
    variables = {f"DAYBELL_{name.upper()}": value for name, value in environ.items()}
    return Settings.load(flags, environ=variables, folder=folder)


def test_without_any_source_the_defaults_hold(tmp_path):
    settings = load(folder=tmp_path)

    assert settings == Settings()
    assert settings.database_url == "sqlite:///daybell.db"
    assert settings.lease == 15.0


def test_every_setting_can_come_from_the_environment(tmp_path):
    settings = load(
        folder=tmp_path,
        database_url="memory://",
        app="shop.jobs:app",
        api_url="https://daybell.example",
        api_key="dbk_1",
        lease="1m30s",
        listen_url="postgresql://db/daybell",
        secrets_key="a2V5,a2V6",
        connection_warehouse="postgresql://db/warehouse",
        connection_B2="sqlite:///b2.db",
        server_connections="60",
        server_requests="61",
        server_bodies="1000000",
        server_streams="62",
        server_key_rate="0",
        log_level="Debug",
        log_format="json",
    )

    assert settings == Settings(
        database_url="memory://",
        app="shop.jobs:app",
        api_url="https://daybell.example",
        api_key="dbk_1",
        lease=90.0,
        listen_url="postgresql://db/daybell",
        secrets_key="a2V5,a2V6",
        connections={"warehouse": "postgresql://db/warehouse", "b2": "sqlite:///b2.db"},
        server_connections=60,
        server_requests=61,
        server_bodies=1_000_000,
        server_streams=62,
        server_key_rate=0,
        log_level="debug",
        log_format="json",
    )


@pytest.mark.parametrize("value", ["-1", "1.5", "many", "2"])
def test_a_share_is_a_number_that_one_key_can_work_with(tmp_path, value):
    with refuses(UsageError, field="server_streams"):
        load(folder=tmp_path, server_streams=value)


@pytest.mark.parametrize(
    "app", ["shop", "shop.jobs", "shop:app", "shop.py", "src/my shop/jobs.py:app", "./shop.py"]
)
def test_an_app_is_named_as_on_the_command_line(app, tmp_path):
    assert load(folder=tmp_path, app=app).app == app


def test_flags_win_over_the_environment_over_the_file(tmp_path):
    toml = 'database_url = "sqlite:///file.db"\napp = "file:app"\nlease = 30\n'
    flags = {"database_url": "sqlite:///flag.db", "app": None}

    settings = load(
        flags, toml=toml, folder=tmp_path, database_url="sqlite:///env.db", app="env:app"
    )

    assert settings.database_url == "sqlite:///flag.db"
    assert settings.app == "env:app"
    assert settings.lease == 30.0


def test_a_connection_in_the_environment_wins_over_the_one_of_that_name_in_the_file(tmp_path):
    toml = '[connections]\nshop = "sqlite:///shop.db"\nmail = "sqlite:////srv/mail.db"\n'

    settings = load(toml=toml, folder=tmp_path, connection_shop="postgres://db/shop")

    assert settings.connections == {"shop": "postgres://db/shop", "mail": "sqlite:////srv/mail.db"}
    assert load(folder=tmp_path, connection_mail="").connections["mail"] == "sqlite:////srv/mail.db"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DAYBELL_CONNECTION_X": "mysql://db/x"}, "DAYBELL_CONNECTION_X: x is 'mysql://db/x', wh"),
        ({"DAYBELL_CONNECTION_X": "sqlite://x.db"}, "or sqlite:///file.db"),
        ({"DAYBELL_CONNECTION_X": "sqlite:///"}, "or sqlite:///file.db"),
        ({"DAYBELL_CONNECTION_X": f"mysql://me:{SECRET}@db/x"}, "'mysql:***@db/x'"),
        ({"DAYBELL_CONNECTION_1X": "sqlite:///x.db"}, "CONNECTION_1X: '1x' cannot name a conn"),
        (
            {"DAYBELL_CONNECTION_X": "sqlite:///x", "DAYBELL_CONNECTION_x": "sqlite:///y"},
            "DAYBELL_CONNECTION_x: x is given twice",
        ),
    ],
)
def test_a_connection_that_cannot_be_used_is_named(variables, said, tmp_path):
    with pytest.raises(UsageError) as error:
        Settings.load(environ=variables, folder=tmp_path)

    assert said in str(error.value)
    assert SECRET not in str(error.value)
    assert error.value.field == "connections"


def test_an_empty_variable_was_not_given(tmp_path):
    settings = load(toml='app = "file:app"', folder=tmp_path, app="", database_url=" ")

    assert settings == Settings(app="file:app")


def test_variables_of_others_are_left_alone(tmp_path):
    assert load(folder=tmp_path, debug="1", test_all="1") == Settings()


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('databse_url = "memory://"', "did you mean database_url?"),
        ('DAYBELL_LEASE = "15s"', "did you mean lease?"),
        ("colour = 1", "there are database_url, app"),
        ("[server]\nport = 1", "there is no setting 'server'"),
        ("lease = true", "lease: lease True is of type bool"),
        ('lease = "soon"', "lease: lease 'soon' cannot be read"),
        ('lease = "100ms"', "lease: 0.1 s is not a usable lease"),
        ("lease = 86400", "lease: 86400 s is not a usable lease"),
        ("database_url = 5", "database_url: must be text, not int"),
        ('database_url = "  "', "database_url: is empty"),
        ('app = "shop:"', "app: 'shop:' is not of the form module:app"),
        ('app = "my shop"', "app: 'my shop' is not of the form module:app"),
        ('api_url = "daybell.example"', "api_url: 'daybell.example' does not begin with https://"),
        ('listen_url = "mysql://x"', "listen_url: 'mysql://x' does not begin with postgresql://"),
        ("lease = ", "is not a TOML file"),
        ("secrets_key = 1", "secrets_key: must be text, not int"),
        ('connections = "sqlite:///x.db"', "connections: must be a table"),
        ('[connections]\nShop = "sqlite:///x.db"', "connections: 'Shop' cannot name a connection"),
        ("[connections]\nshop = 1", "connections: shop must be text, not int"),
        (
            '[connections]\nshop = "x.db"',
            "connections: shop is 'x.db', which statements cannot run",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named_with_file_and_key(toml, said, tmp_path):
    with pytest.raises(UsageError) as error:
        load(toml=toml, folder=tmp_path)

    assert str(error.value).startswith(str(tmp_path / "daybell.toml"))
    assert said in str(error.value)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "daybell.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(UsageError, match="not a TOML file"):
        load(folder=tmp_path)


def test_a_mistake_in_a_variable_or_flag_is_named(tmp_path):
    with refuses(UsageError, field="lease"):
        load(folder=tmp_path, lease="x")
    with refuses(UsageError, field="database_url"):
        load({"database_url": 5}, folder=tmp_path)
    with pytest.raises(UsageError, match="--database-url: is empty; give a value, or leave it out"):
        load({"database_url": ""}, folder=tmp_path)
    with refuses(UsageError, field="api_key"):
        load(folder=tmp_path, api_key="two\nlines")


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:hunter22@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me@db:5432/x", "postgresql://me@db:5432/x"),
        (
            "postgresql://me:hunter22@a:1,b:2/x?sslmode=on",
            "postgresql://me:***@a:1,b:2/x?sslmode=on",
        ),
        ("postgresql://me:p@hunter22@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:p/hunter22@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:p?hunter22#@db/x", "postgresql://me:***@db/x"),
        ("postgresql://db/x?user=me&password=hunter22", "postgresql://db/x?user=me&password=***"),
        ("postgresql://db/x?sslpassword=hunter22&a=b", "postgresql://db/x?sslpassword=***&a=b"),
        ("host=db password=hunter22 user=me", "host=db password=*** user=me"),
        ("sqlite:///daybell.db", "sqlite:///daybell.db"),
        ("nonsense", "nonsense"),
        ("me:hunter22@db/x", "me:***@db/x"),
        ("postgresql:me:hunter22@db", "postgresql:***@db"),
        ("postgresql:/me:hunter22@db/x", "postgresql:***@db/x"),
        ("postgresql//me:hunter22@db/x", "postgresql//me:***@db/x"),
        ("postgresql;//me:hunter22@db/x", "postgresql;//me:***@db/x"),
        ("//me:hunter22@db/x", "//me:***@db/x"),
        ("me://hunter22@db/x", "me:***@db/x"),
        ("postgresql://me:hunter22/x", "postgresql://me:***"),
        ("postgresql://me:1234567/x", "postgresql://me:***"),
        ("postgresql://me@db:hunter22/x", "postgresql://me@db:***"),
        ("postgresql://db:5432/x?password=a@hunter22", "postgresql://db:***"),
        ("postgresql://a:1,[::1]:2/x?a=b:c", "postgresql://a:1,[::1]:2/x?a=b:c"),
        ("localhost:5432/x", "localhost:5432/x"),
        ("mysql://db/x", "mysql://db/x"),
        ("sqlite:////srv/a:b/x.db", "sqlite:////srv/a:b/x.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url, masked):
    assert masked_url(url) == masked


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("postgresql://me:hunter22@db/x", {":hunter22@", "hunter22"}),
        ("postgresql://me:hunter%2022@db/x", {":hunter%2022@", "hunter%2022", "hunter 22"}),
        ("postgresql://db/x?password=hunter22&a=b", {"=hunter22&", "hunter22"}),
        ("postgresql://me:test@db/x", {":test@"}),  # a word like any other
        ("postgresql://postgres:postgres@db/postgres", {":postgres@"}),
        ("postgresql://me@db:5432/x", set()),
        ("sqlite:////srv/a:b/x.db", set()),
    ],
)
def test_passwords_that_could_be_ordinary_words_are_told_by_what_is_around_them(url, secrets):
    assert Settings(database_url=url).secrets == secrets
    assert Settings(connections={"shop": url}).secrets == secrets
    assert Settings(listen_url=url).secrets == secrets


def test_keys_are_secrets_to_jobs_each_by_itself():
    settings = Settings(secrets_key="first-key, second-key", api_key="dbk_1234")

    assert settings.secrets == {"first-key", "second-key", "dbk_1234"}


BEGINNINGS = [
    "",
    "//",
    "postgresql",
    "postgresql:",
    "postgresql:/",
    "postgresql//",
    "postgresql;//",
]
BEGINNINGS += ["postgresql://", "postgres ://", "postgre://", "mysql://", "https://", "https:/"]
BEGINNINGS += ["sqlite://", "memory://", "postgresql+asyncpg://", "PostgreSQL:///"]
ODD = st.text("a7/:?#@%&=;. ", max_size=6)


@given(
    st.sampled_from(BEGINNINGS), ODD, ODD, st.sampled_from(["@db:5432/x", "@db", "@", "@a/b.db"])
)
@example("postgresql:/", "", "", "/x")
@example("postgresql://", "", "", "/x")
@example("postgresql://", "", "", "")
@example("", "", "", "/x")
@example("//", "", "", "/x.db")
def test_no_message_holds_a_password_however_broken_its_url(beginning, before, after, end):
    url = f"{beginning}me:{before}{SECRET}{after}{end}"
    nowhere = Path("/nonexistent")

    said = [masked_url(url), repr(Settings(database_url=url)), Settings(database_url=url).mask(url)]
    for name in ("database_url", "listen_url", "api_url"):
        try:
            settings = Settings.load({name: url}, environ={}, folder=nowhere)
            store_for(settings.database_url)
        except UsageError as error:
            said.append(str(error))

    assert not [text for text in said if SECRET in text]


@pytest.mark.parametrize(
    "url", [f"{start}me:{SECRET}{end}" for start in BEGINNINGS for end in ("@db/x", "/x")]
)
@pytest.mark.parametrize("name", ["database_url", "listen_url", "api_url"])
def test_no_source_of_a_broken_url_gives_its_password_away(name, url, tmp_path):
    for source in ({"toml": f"{name} = '{url}'"}, {name: url}):
        try:
            store_for(load(folder=tmp_path, **source).database_url)
        except UsageError as error:
            assert SECRET not in str(error)


def test_settings_show_no_secret():
    settings = Settings(
        database_url=f"postgresql://me:{SECRET}@db/x",
        listen_url=f"postgresql://me:{SECRET}@db/x",
        api_key=SECRET,
        secrets_key=f"{KEY}, {SECRET}",
        connections={"shop": f"postgresql://me:{SECRET}@db/x", "mail": f"postgres://me:{KEY}@db/x"},
    )

    assert not any(secret in repr(settings) for secret in (SECRET, KEY))
    assert "connections={'shop': 'postgresql://me:***@db/x', 'mail': 'post" in repr(settings)
    assert settings.mask(f"with {KEY}!") == "with ***!"
    assert "database_url='postgresql://me:***@db/x'" in repr(settings)
    assert settings.mask(f"it said {SECRET}!") == "it said ***!"


@pytest.mark.parametrize("name", ["listen_url", "api_url"])
def test_a_refused_url_is_shown_without_its_password(name, tmp_path):
    with pytest.raises(UsageError) as error:
        load(folder=tmp_path, **{name: f"ftp://me:{SECRET}@db"})

    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("sqlite:///daybell.db", SqliteStore),
        ("sqlite:////var/lib/daybell.db", SqliteStore),
        ("SQLite:///daybell.db", SqliteStore),
        ("postgresql://me:pw@a:5432,b/x?target_session_attrs=primary", PostgresStore),
        ("postgres:///daybell?host=/run/postgresql", PostgresStore),
        ("postgresql://[::1]:5432/x", PostgresStore),
        ("postgresql://[::1]/x?sslmode=require&application_name=a%20b", PostgresStore),
        (f"postgresql://db/x?sslmode=verify-full&sslrootcert={__file__}", PostgresStore),
        ("memory://", SqliteStore),
    ],
)
def test_a_url_names_a_store(url, kind):
    assert isinstance(store_for(url), kind)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://daybell.db", "write sqlite:///daybell.db"),
        ("sqlite:///daybell.db?mode=ro", "%3F"),
        ("memory://somewhere", "write memory://"),
        ("jobs.db", "write sqlite:///jobs.db"),
        ("", "is not a database URL"),
        ("host=db dbname=x", "postgresql://"),
        ("postgresql+asyncpg://db/x", "did you mean postgresql://?"),
        ("postgre://db/x", "did you mean postgres"),
        ("mysql://db/x", "use sqlite:///file.db"),
        ("postgresql://me:1/hunter22@db/x", "%2F"),
        ("postgresql://me:hunter22/x@db/x", "%2F"),
        ("postgresql://me:hunter22#x@db/x", "%23"),
        ("postgresql://me:hunter22@db:port/x", "cannot be read"),
        ("postgresql://me:hunter22@pw@db:1/x", "%40"),
        ("postgresql://me:hunter22@db:99999/x", "99999 is not a port; it is from 1 to 65535"),
        ("postgresql://me:hunter22@[::1]:0/x", "0 is not a port"),
        ("postgresql://me:hunter22@db/x?sslmode=bogus", "sslmode=bogus is not one of disable,"),
        ("postgresql://me:1?sslmode=hunter22@db/x", "sslmode=*** is not one of disable,"),
        ("postgresql://me:hunter22@db/x?target_session_attrs=rw", "=rw is not one of any, primary"),
        ("postgresql://me:hunter22@db/x?sslmode", "not of the form name=value"),
        ("postgresql://db/x?password=hunter22&sslmode=on", "sslmode=on is not one of"),
        ("postgresql://db/x?sslmode=verify-full&sslrootcert=/gone.crt", "no file /gone.crt"),
    ],
)
def test_a_url_that_names_none_is_refused_with_a_way_out(url, said):
    with pytest.raises(UsageError) as error:
        store_for(url)

    assert said in str(error.value)
    assert SECRET not in str(error.value)


def test_a_clock_is_for_stores_without_a_server():
    with refuses(UsageError, field="clock"):
        store_for("postgresql://db/x", clock=lambda: 0.0)


async def test_a_store_goes_by_the_clock_it_is_given(tmp_path):
    for url in ("memory://", f"sqlite:///{tmp_path}/odd%20name.db"):
        store = store_for(url, clock=lambda: 1_000.0)
        await store.migrate()
        await store.open()

        assert (await store.health()).now == 1_000.0
        await store.close()
    assert (tmp_path / "odd name.db").exists()


def test_it_is_known_which_settings_are_given_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "daybell.toml").write_text('lease = "15s"\n')
    monkeypatch.setenv("DAYBELL_APP", "shop:app")
    monkeypatch.setenv("DAYBELL_API_URL", "")

    given = Settings.given({"database_url": "sqlite:///daybell.db", "listen_url": None})

    assert given >= {"lease", "app", "database_url"}
    assert not given & {"api_url", "listen_url"}


@pytest.mark.parametrize(
    ("file", "environ", "flags", "is_misdirected"),
    [
        ("api_url", {"DAYBELL_API_KEY": "dbk_x"}, {}, True),
        ("api_url", {"DAYBELL_API_KEY": "dbk_x"}, {"api_url": None}, True),
        ("api_url", {"DAYBELL_API_KEY": "dbk_x"}, {"api_url": "https://mine.example"}, False),
        ("api_url", {"DAYBELL_API_KEY": "dbk_x", "DAYBELL_API_URL": "https://a.b"}, {}, False),
        ("api_url", {}, {}, False),
        ("lease", {"DAYBELL_API_KEY": "dbk_x"}, {}, False),
    ],
)
def test_a_file_in_the_folder_does_not_decide_where_the_key_is_sent(
    file, environ, flags, is_misdirected, tmp_path
):
    line = {"api_url": 'api_url = "https://evil.example"', "lease": 'lease = "20s"'}[file]
    (tmp_path / "daybell.toml").write_text(line)

    found = Settings.is_key_misdirected(flags, environ=environ, folder=tmp_path)

    assert found is is_misdirected
