"""Secrets on the command line."""

import json

import pytest

from daybell import Client
from daybell.client.sealing import Sealer, new_key
from daybell.core.limits import SECRET_BYTES_MAX
from tests.cli.terminal import Typing, daybell

VALUE = "canary-5f1d-0123456789"


@pytest.fixture
def key():
    return new_key()


@pytest.fixture
def command(tmp_path, client, key):
    """Types a command in the folder of that store."""

    def command(*words, stdin="", **more):
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        variables = {"DAYBELL_SECRETS_KEY": key, **more}
        return daybell("secrets", *words, folder=tmp_path, stdin=given, **variables)

    return command


async def value_of(client, key, name="TOKEN", tenant="default"):
    (kept,) = (await client.store.admin.fetch_secrets(tenant, [name])).values()
    return Sealer(key).open(tenant, kept)


async def test_a_secret_is_set_listed_and_deleted_without_being_shown(command, client, key):
    made = command("set", "TOKEN", stdin=f"{VALUE}\n")
    again = command("set", "TOKEN", "--json", stdin=VALUE + "2")
    listed, as_json = command("list"), command("list", "--json")
    value = await value_of(client, key)
    kept = command("delete", "TOKEN")
    gone = command("delete", "TOKEN", "--yes")

    assert made == (0, "secret TOKEN is at version 1\n", "")
    assert json.loads(again.out)["version"] == 2
    assert value == VALUE + "2"
    assert "TOKEN" in listed.out and Sealer(key).key_id in listed.out
    assert json.loads(as_json.out)["items"] == [json.loads(again.out)]
    assert kept.code == 2 and "--yes" in kept.err
    assert gone == (0, "secret TOKEN is deleted\n", "")
    assert command("delete", "TOKEN", "--yes").code == 1
    assert command("list").out.startswith("no secrets; daybell secrets set NAME")
    for ended in (made, again, listed, as_json, gone):
        assert "canary" not in ended.out + ended.err
    entries = (await client.audit()).items
    assert [one.action for one in entries] == ["secret.delete", "secret.set", "secret.set"]
    assert entries[1].before["version"] == 1
    assert "canary" not in repr(entries) and entries[0].actor.startswith("cli ")


@pytest.mark.parametrize(
    ("stdin", "value"),
    [
        (VALUE, VALUE),
        (f"{VALUE}\r\n", VALUE),
        (f"{VALUE}\n\n", f"{VALUE}\n"),
        (f" two\nlines {VALUE}\n", f" two\nlines {VALUE}"),
        ("x" * SECRET_BYTES_MAX + "\n", "x" * SECRET_BYTES_MAX),
    ],
)
async def test_one_line_break_at_the_end_is_left_out(command, client, key, stdin, value):
    assert command("set", "TOKEN", stdin=stdin).code == 0

    assert await value_of(client, key) == value


@pytest.mark.parametrize(
    ("words", "stdin", "complaint"),
    [
        (("TOKEN", VALUE), "", "not given as an argument"),
        ((f"TOKEN={VALUE}",), "", "not given as an argument"),
        (("TOKEN",), "", "standard input is empty"),
        (("TOKEN",), "abc4567\n", "at least 8 characters"),
        (("TOKEN",), f"{VALUE}\0", "NUL"),
        (("TOKEN",), b"\xff\xfe" + VALUE.encode(), "not UTF-8"),
        (("TOKEN",), VALUE + "ü" * SECRET_BYTES_MAX, "at most 65,536 bytes"),
        (("TOKEN",), VALUE + "x" * 70_000, "at most 65,536 bytes; this one has more"),
        (("no name",), VALUE, "'no name' cannot name a secret"),
    ],
)
async def test_what_is_refused_is_not_repeated(command, client, words, stdin, complaint):
    ended = command("set", *words, stdin=stdin)

    assert ended.code == 2 and complaint in ended.err
    assert "canary" not in ended.out + ended.err
    assert not await client.secrets()


async def test_without_a_key_it_says_how_to_make_one(command):
    ended = command("set", "TOKEN", stdin=VALUE, DAYBELL_SECRETS_KEY="")

    assert ended.code == 2 and "export DAYBELL_SECRETS_KEY=$(daybell secrets key)" in ended.err


async def test_a_wrong_key_is_not_shown(command):
    ended = command("set", "TOKEN", stdin=VALUE, DAYBELL_SECRETS_KEY="hunter2hunter2")

    assert ended.code == 2 and "DAYBELL_SECRETS_KEY: the key is not 32 bytes" in ended.err
    assert "hunter2" not in ended.err


async def test_tenants_have_secrets_of_their_own(command, client, key):
    await client.add_tenant("acme")

    assert command("set", "TOKEN", "--tenant", "acme", stdin=VALUE).code == 0

    assert command("list").out.startswith("no secrets")
    assert await value_of(client, key, tenant="acme") == VALUE


def test_a_new_key_is_all_that_is_printed(tmp_path):
    made, other = (daybell("secrets", "key", folder=tmp_path) for _ in range(2))

    assert Sealer(made.out.strip()).key_id != Sealer(other.out.strip()).key_id
    assert made.out.strip() not in made.err
    assert "DAYBELL_SECRETS_KEY=old,new everywhere, then new,old, then" in made.err


async def test_a_person_is_asked_twice_and_sees_nothing_of_it(tmp_path, client, key):
    typing = Typing("secrets", "set", "TOKEN", folder=tmp_path, DAYBELL_SECRETS_KEY=key)
    typing.type(f"{VALUE}\n", after="Value of TOKEN: ")
    typing.type(f"{VALUE}\n", after="Once more: ")

    assert typing.end() == 0
    assert "version 1" in typing.shown and "canary" not in typing.shown
    assert await value_of(client, key) == VALUE


async def test_two_that_differ_are_not_kept(tmp_path, client, key):
    typing = Typing("secrets", "set", "TOKEN", folder=tmp_path, DAYBELL_SECRETS_KEY=key)
    typing.type(f"{VALUE}\n", after="Value of TOKEN: ")
    typing.type(f"{VALUE}x\n", after="Once more: ")

    assert typing.end() == 2
    assert "not the same" in typing.shown and "canary" not in typing.shown
    assert not await client.secrets()


async def test_rotate_seals_the_secrets_of_all_tenants_with_the_first_key(command, client, key):
    new, lost = new_key(), new_key()
    command("set", "TOKEN", stdin=VALUE)
    await client.add_tenant("acme")
    command("set", "THEIRS", "--tenant", "acme", stdin=VALUE + "2")
    command("set", "LOST", stdin=VALUE, DAYBELL_SECRETS_KEY=lost)
    (before,) = (await client.store.admin.fetch_secrets("default", ["TOKEN"])).values()

    first = command("rotate", "--json", DAYBELL_SECRETS_KEY=f"{new},{key}")
    again = command("rotate", DAYBELL_SECRETS_KEY=f"{new},{key},{lost}")
    last = command("rotate", DAYBELL_SECRETS_KEY=new)

    assert first.code == 1
    told = json.loads(first.out)
    assert (told["key_id"], told["sealed"]) == (Sealer(new).key_id, 2)
    (failed,) = told["failed"]
    assert (failed["tenant"], failed["name"]) == ("default", "LOST")
    assert Sealer(lost).key_id in failed["error"]
    assert again == (0, f"1 sealed with key {Sealer(new).key_id}, 0 failed\n", "")
    assert last == (0, f"0 sealed with key {Sealer(new).key_id}, 0 failed\n", "")
    assert await value_of(client, new) == await value_of(client, new, "LOST") == VALUE
    assert await value_of(client, new, "THEIRS", "acme") == VALUE + "2"
    (after,) = (await client.store.admin.fetch_secrets("default", ["TOKEN"])).values()
    assert after.version == before.version + 1
    entries = (await client.audit(action="secret.rotate")).items
    assert sorted(one.target for one in entries) == ["LOST", "TOKEN"]
    assert "canary" not in "".join((first.out, first.err, again.out, repr(entries)))


async def test_rotate_keeps_a_value_that_is_set_meanwhile(client, key, monkeypatch):
    new = new_key()
    old = Client(client.store, secrets_key=key)
    await old.set_secret("TOKEN", VALUE)
    rotating = Client(client.store, secrets_key=f"{new},{key}")
    fetch, store = client.store.admin.fetch_secrets, client.store

    async def overtaken(tenant, names):
        found = await fetch(tenant, names)
        monkeypatch.setattr(store.admin, "fetch_secrets", fetch)
        await old.set_secret("TOKEN", VALUE + "2")
        return found

    monkeypatch.setattr(store.admin, "fetch_secrets", overtaken)
    made = await rotating.reseal_secret("TOKEN", author="ana")

    assert made is not None
    assert (made.version, made.key_id) == (3, Sealer(new).key_id)
    assert await value_of(client, new) == VALUE + "2"


async def test_rotate_needs_the_database(command):
    ended = command("rotate", DAYBELL_API_URL="http://127.0.0.1:1", DAYBELL_API_KEY="dbk_x")

    assert (ended.code, ended.out) == (2, "")
    assert "DAYBELL_DATABASE_URL" in ended.err


async def test_the_doctor_looks_at_the_keys_that_seal(command, client, key, tmp_path):
    def doctor(key):
        ended = daybell("doctor", "--json", folder=tmp_path, DAYBELL_SECRETS_KEY=key)
        checks = json.loads(ended.out)["checks"]
        return ended.code, [one for one in checks if one["name"] in ("sealing", "settings")]

    command("set", "TOKEN", stdin=VALUE)
    assert doctor("")[1] == []  # no job uses it
    await client.create("sync", command={"run": ["true"], "stdin": {"secret": "TOKEN"}})

    _, (fine,) = doctor(key)
    _, (none,) = doctor("")
    code, (other,) = doctor(new_key())
    misuse, (unusable,) = doctor("hunter2")

    assert fine["is_ok"] and not none["is_ok"] and not other["is_ok"]
    assert "DAYBELL_SECRETS_KEY is not set here" in none["found"] and "TOKEN" in none["found"]
    assert code == 1 and f"sealed with key {Sealer(key).key_id}" in other["found"]
    assert misuse == 2 and "is not 32 bytes" in unusable["found"]
