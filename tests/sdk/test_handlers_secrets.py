"""Tasks get secrets where their arguments refer to them, and nobody else sees any."""

import json
import logging
import os
import sqlite3
from functools import partial

import pytest

from daybell import App, ExecutionFailed
from daybell.cli.roles.logs import Lines
from daybell.client.sealing import Sealer, new_key
from daybell.core.access import NewSecret
from daybell.core.masking import MASK, WITHHELD
from daybell.core.references import SECRET_MARK, literal
from daybell.engine.lease import make_pacemaker
from daybell.errors import InvalidArguments, Unavailable
from daybell.runners.processes import PoolOptions
from daybell.sdk import handlers, worker
from daybell.sdk.capture import capture_output, masks
from tests.sdk import secret_app
from tests.sdk.waiting import WAIT, eventually

VALUE = 'canary-5f1d/+ "ü" 0123456789'
TOKEN = {"secret": "TOKEN"}
LONG = "0123456789abcdef" * 10


@pytest.fixture(autouse=True)
def forgetful():
    """What one test opens is no secret to the next."""
    yield
    masks.forget()


@pytest.fixture
def key(monkeypatch, file_url):
    key = new_key()
    monkeypatch.setenv("DAYBELL_SECRETS_KEY", key)
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    return key


@pytest.fixture
async def idle(key):
    """The app of that file with a store of its own, and a secret."""
    app = secret_app.app
    app.handlers.pool_options = PoolOptions(children=1)
    async with app:
        await app.client().set_secret("TOKEN", VALUE)
        yield app


@pytest.fixture
async def app(idle):
    """The same with a worker."""
    async with idle.worker():
        yield idle


async def all_of(app: App, handle) -> str:
    """All that is kept of an execution."""
    client = await app.open()
    detail = await client.execution(handle.id)
    parts = await client.store.catalog.read_log("default", handle.id)
    return repr(detail) + "".join(part.text for part in parts)


@pytest.mark.parametrize("task", ["on_the_loop", "in_a_thread", "in_a_process"])
async def test_a_task_uses_a_secret_and_nothing_of_it_is_kept_or_shown(idle, task, capfd):
    app, task = idle, idle.tasks[task]

    async with app.worker():  # in here: each phase of a test has streams of its own
        good = await task.enqueue(TOKEN)
        bad = await task.options(retries=0).enqueue(TOKEN, is_failing=True)
        result = await good.result(timeout=WAIT)
        with pytest.raises(ExecutionFailed, match=r"RuntimeError: \*\*\* was refused"):
            await bad.result(timeout=WAIT)

    assert result["length"] == len(VALUE)
    assert result["token"] == MASK and result[MASK] == [MASK, f"Bearer {MASK}"]
    kept = await all_of(app, good) + await all_of(app, bad)
    shown = "".join(capfd.readouterr())
    assert "canary" not in kept and "canary" not in shown
    assert f"printed {MASK} {{'token': '{MASK}'}}" in kept
    assert f"logged {MASK}" in kept and "halfway with ***" in kept
    assert f"printed {MASK} " in shown  # it still goes where it went before
    client = app.client()
    assert (await client.execution(good.id)).args == {"token": TOKEN}


@pytest.mark.parametrize("task", ["echo", "echo_in_a_process"])
async def test_secrets_are_put_in_however_deep(app, task):
    await app.client().set_secret("OTHER", "an-other-one")
    value = {
        "list": [TOKEN, "plain", {"join": ["Bearer ", TOKEN, {"secret": "OTHER"}]}],
        "plain": {"secret": "TOKEN", "more": 1},
        "number": 5,
    }

    result = await (await app.tasks[task].enqueue(value)).result(timeout=WAIT)

    assert result["lengths"] == {
        "list": [len(VALUE), 5, len("Bearer ") + len(VALUE) + len("an-other-one")],
        "plain": {"secret": 5, "more": 1},
        "number": 1,
    }
    assert result["value"]["list"] == [MASK, "plain", f"Bearer {MASK}{MASK}"]


@pytest.mark.parametrize("task", ["echo", "echo_in_a_process"])
async def test_data_that_looks_like_a_secret_is_data(app, task):
    looks = literal({"rows": [TOKEN, {"join": ["Bearer ", TOKEN]}]})

    result = await (await app.tasks[task].enqueue(looks)).result(timeout=WAIT)

    assert result["value"] == {"rows": [TOKEN, {"join": ["Bearer ", TOKEN]}]}


async def test_the_arguments_as_a_whole_are_no_reference(app: App):
    @app.task
    async def whole(secret: str) -> int:
        return len(secret)

    try:
        assert await (await whole.enqueue(secret="TOKEN")).result(timeout=WAIT) == 5
    finally:
        del app.tasks["whole"]


@pytest.mark.parametrize("task", ["paint", "paint_in_a_process"])
async def test_what_does_not_fit_is_refused_without_being_shown(app, task):
    # It would be cut in a message, and masks find what is there as a whole.
    await app.client().set_secret("COLOUR", LONG)

    handle = await app.tasks[task].options(retries=5).enqueue({"secret": "COLOUR"})
    with pytest.raises(ExecutionFailed, match="argument 'colour' cannot be used"):
        await handle.result(timeout=WAIT)

    assert LONG[:12] not in await all_of(app, handle)


async def test_a_call_is_checked_but_for_what_only_the_worker_sees(app):
    task = app.tasks["on_the_loop"]

    with pytest.raises(InvalidArguments, match="is_failing"):
        await task.enqueue(TOKEN, is_failing="perhaps")
    with pytest.raises(InvalidArguments, match="token"):
        await task.enqueue({"secrets": "TOKEN"})


async def test_a_secret_that_is_not_set_fails_for_good_and_says_what_to_do(app):
    handle = await app.tasks["echo"].options(retries=5).enqueue([{"secret": "MISSING"}])

    with pytest.raises(
        ExecutionFailed, match="no secret named MISSING in tenant default"
    ) as failed:
        await handle.result(timeout=WAIT)

    assert "SecretNotFound" in str(failed.value) and "secrets set MISSING" in str(failed.value)
    detail = await app.client().execution(handle.id)
    assert len(detail.attempts) == 1


@pytest.mark.parametrize("name", ["", "no name", "x" * 1000, "ü"])
async def test_what_cannot_name_a_secret_is_not_there(app, name):
    handle = await app.tasks["echo"].enqueue([{"secret": name}])

    with pytest.raises(ExecutionFailed, match="SecretNotFound"):
        await handle.result(timeout=WAIT)


async def test_a_key_that_this_worker_does_not_have_is_a_failure_like_others(app):
    elsewhere = Sealer(new_key())
    key_id, sealed = elsewhere.seal("default", "FOREIGN", "some value", version=1)
    await app.client().store.admin.set_secret(
        "default", NewSecret(name="FOREIGN", key_id=key_id, sealed=sealed)
    )
    options = app.tasks["echo"].options(retries=1)  # the second try may be another worker's

    handle = await options.enqueue([{"secret": "FOREIGN"}])
    detail = await eventually(lambda: app.client().execution(handle.id), lambda it: it.attempts)

    assert f"sealed with key {key_id}" in str(detail.attempts[0].error)
    assert "SecretsKeyMissing" in str(detail.attempts[0].error)
    assert detail.status in ("retrying", "queued", "running")


async def test_a_value_that_was_moved_here_from_another_name_fails_for_good(app):
    store = app.client().store
    (token,) = (await store.admin.fetch_secrets("default", ["TOKEN"])).values()
    moved = NewSecret(name="MOVED", key_id=token.key_id, sealed=token.sealed)
    await store.admin.set_secret("default", moved)

    handle = await app.tasks["echo"].options(retries=5).enqueue([{"secret": "MOVED"}])

    with pytest.raises(ExecutionFailed, match=r"SecretUnopenable.*set it again"):
        await handle.result(timeout=WAIT)


@pytest.mark.parametrize("put_back", ["the value", "the whole row"])
async def test_an_older_value_that_is_put_back_fails_for_good(app, file_url, put_back):
    """By somebody who can write the database, and does not have the key."""
    sql = sqlite3.connect(file_url.removeprefix("sqlite:///"), timeout=WAIT)
    echo = app.tasks["echo"].options(retries=5)
    (old,) = sql.execute("SELECT sealed FROM secret").fetchone()
    await app.client().set_secret("TOKEN", LONG)
    app.handlers.secrets.forget()
    assert (await (await echo.enqueue([TOKEN])).result(timeout=WAIT))["lengths"] == [len(LONG)]

    sql.execute("DROP TRIGGER IF EXISTS secret_version_rises")  # the file is theirs
    sql.execute("UPDATE secret SET sealed = ?", (old,))
    if put_back == "the whole row":
        sql.execute("UPDATE secret SET version = 1")
    sql.commit()
    sql.close()
    app.handlers.secrets.forget()
    handle = await echo.enqueue([TOKEN])

    with pytest.raises(ExecutionFailed, match=r"(?i)SecretUnopenable.*set it again"):
        await handle.result(timeout=WAIT)


async def test_a_worker_without_a_key_says_so(app, monkeypatch):
    client = app.client()
    monkeypatch.setattr(client, "secrets_key", None)
    monkeypatch.setattr(client, "_sealer", None)

    key_id = (await client.store.admin.fetch_secrets("default", ["TOKEN"]))["TOKEN"].key_id

    handle = await app.tasks["echo"].options(retries=0).enqueue([TOKEN])

    why = f"secret TOKEN.*sealed with key {key_id}; give it the key.*DAYBELL_SECRETS_KEY"
    with pytest.raises(ExecutionFailed, match=why):
        await handle.result(timeout=WAIT)


class Fetches:
    """A store's way to secrets, counted; it may be away."""

    def __init__(self, store, monkeypatch):
        self.asked = []
        self.is_away = False
        self._fetch = store.admin.fetch_secrets
        monkeypatch.setattr(store.admin, "fetch_secrets", self)

    async def __call__(self, tenant, names):
        self.asked.append(sorted(names))
        if self.is_away:
            raise Unavailable("the store is away")
        return await self._fetch(tenant, names)


async def test_a_store_that_is_away_is_a_failure_like_others(app, monkeypatch):
    fetches = Fetches(app.client().store, monkeypatch)
    fetches.is_away = True

    handle = await app.tasks["echo"].options(retries=0).enqueue([TOKEN])

    with pytest.raises(ExecutionFailed, match="TOKEN cannot be fetched: the store is away"):
        await handle.result(timeout=WAIT)


async def test_many_at_once_ask_the_store_once_and_for_all_they_need(app, monkeypatch):
    await app.client().set_secret("OTHER", "an-other-one")
    fetches = Fetches(app.client().store, monkeypatch)
    echo = app.tasks["echo"]

    handles = await echo.enqueue_many([{"value": [TOKEN, {"secret": "OTHER"}]}] * 20)
    for handle in handles:
        await handle.result(timeout=WAIT)
    await (await echo.enqueue({"secret-free": 1})).result(timeout=WAIT)

    assert fetches.asked == [["OTHER", "TOKEN"]]


async def test_a_changed_secret_is_used_within_seconds(app, monkeypatch):
    echo, client = app.tasks["echo"], app.client()
    before = await (await echo.enqueue(TOKEN)).result(timeout=WAIT)
    await client.set_secret("TOKEN", "a longer value " * 10)

    monkeypatch.setattr(handlers, "KEPT_SECONDS", 0.0)
    after = await (await echo.enqueue(TOKEN)).result(timeout=WAIT)

    assert (before["lengths"], after["lengths"]) == (len(VALUE), 150)


def test_values_are_kept_for_less_than_is_promised():
    assert 0 < handlers.KEPT_SECONDS < 5


async def test_other_tenants_secrets_are_not_there(app):
    other = app.client().for_tenant("acme")
    await app.client().ensure_tenant("acme")
    await other.set_secret("THEIRS", "their value")

    handle = await app.tasks["echo"].enqueue([{"secret": "THEIRS"}])

    with pytest.raises(ExecutionFailed, match="no secret named THEIRS in tenant default"):
        await handle.result(timeout=WAIT)


SETTINGS = {
    "DAYBELL_CONNECTION_SHOP": "postgresql://me:hunter22@db/x",
    "DAYBELL_API_KEY": "dbk_0123456789abcdef",
}


@pytest.mark.parametrize("name", ["DAYBELL_SECRETS_KEY", *SETTINGS])
async def test_a_setting_of_the_worker_is_withheld_with_its_line(idle, monkeypatch, caplog, name):
    for variable, value in SETTINGS.items():
        monkeypatch.setenv(variable, value)

    async with idle.worker():  # no secret was opened yet
        handle = await idle.tasks["read_setting"].enqueue(name)
        result = await handle.result(timeout=WAIT)

    assert result == [WITHHELD, "rest"]
    parts = await idle.client().store.catalog.read_log("default", handle.id)
    said = [line.message for part in parts for line in part.lines if line.level == "stdout"]
    assert said == ["first", WITHHELD, "last"]
    (report,) = [text for text in caplog.messages if "wrote a setting of this worker" in text]
    assert str(handle.id) in report and os.environ[name] not in report


async def test_what_a_caller_sends_stays_whether_it_is_a_setting_or_not(idle, key, monkeypatch):
    monkeypatch.setenv("DAYBELL_CONNECTION_SHOP", SETTINGS["DAYBELL_CONNECTION_SHOP"])
    # A URL with a secret, of which the store that is open knows nothing.
    keep_lease = partial(make_pacemaker, idle.url)
    monkeypatch.setattr(
        worker, "make_pacemaker", lambda _url, *one, **more: keep_lease(*one, **more)
    )
    monkeypatch.setattr(idle, "_url", f"{idle.url}?key=of-the-app")

    async with idle.worker():
        guesses = [key, "hunter22", "of-the-app", "hunter23", key[:8], "of-the-ap"]
        handle = await idle.tasks["echo"].enqueue(guesses)
        result = await handle.result(timeout=WAIT)

    assert result["value"] == guesses


@pytest.mark.parametrize("guess", [VALUE, "wrong"])
async def test_an_event_comes_back_as_it_was_sent(app, guess):
    handle = await app.tasks["wait_for_guess"].enqueue(TOKEN)
    await eventually(handle.status, lambda status: status == "waiting")

    await app.publish("guessed", {"guess": guess})

    assert await handle.result(timeout=WAIT) == {"guess": guess}


@pytest.mark.parametrize("task", ["meet_on_the_loop", "meet_in_a_thread"])
async def test_executions_that_run_at_once_mask_their_own_secrets_only(idle, task):
    app = idle
    secret_app.met.clear()
    secret_app.are_here.clear()
    tokens = {"A": "secret-of-the-first", "B": "secret-of-the-other"}
    for name, value in tokens.items():
        await app.client().set_secret(name, value)

    async with app.worker():
        calls = [{"name": name, "token": {"secret": name}} for name in tokens]
        handles = await app.tasks[task].enqueue_many(calls)
        results = [await handle.result(timeout=WAIT) for handle in handles]

    assert results == [tokens | {"A": MASK}, tokens | {"B": MASK}]
    for handle, result in zip(handles, results, strict=True):
        parts = await app.client().store.catalog.read_log("default", handle.id)
        said = [line.message for part in parts for line in part.lines]
        assert said == [f"{name} {value}" for name, value in result.items()]


def test_records_are_masked_for_whichever_handlers_there_are(caplog):
    before = logging.getLogRecordFactory()
    with capture_output(keeps_logs=False):
        masks.add([VALUE])
        log = logging.getLogger("shop")
        log.warning("got %s", VALUE)
        log.warning("got %d", VALUE)  # cannot be formatted
        try:
            raise ValueError(VALUE)
        except ValueError:
            log.exception("it failed")
        log.warning("%s is fine", "this")

    assert logging.getLogRecordFactory() is before
    assert caplog.records[0].getMessage() == f"got {MASK}"
    assert caplog.records[3].args == ("this",)
    assert "canary" not in caplog.text and "it failed" in caplog.text


def test_lines_of_our_own_are_masked_whoever_made_the_record():
    masks.add([VALUE])
    record = logging.LogRecord("shop", logging.INFO, "", 0, "got %s", (VALUE,), None, sinfo=VALUE)

    assert Lines().format(record) == f"got {MASK}\n{MASK}"


def test_without_logs_streams_are_masked_all_the_same(capsys):
    with capture_output(keeps_logs=False):
        masks.add([VALUE])
        print(VALUE, "and others")  # noqa: T201

    assert capsys.readouterr().out == f"{MASK} and others\n"


def test_what_to_look_for_is_in_every_text_with_a_reference():
    assert SECRET_MARK in json.dumps({"a": [TOKEN]}, separators=(",", ":"))
