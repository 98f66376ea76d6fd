"""Sealing a secret's value: what opens it, and what does not."""

import base64
import builtins

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from daybell.client.sealing import (
    NONCE_BYTES,
    VARIABLE,
    KeyMissing,
    Sealer,
    Unopenable,
    check_value,
    new_key,
)
from daybell.core.access import SealedSecret
from daybell.core.limits import SECRET_BYTES_MAX
from daybell.errors import UsageError

KEY = new_key()
SEALER = Sealer(KEY)


def sealed_by(sealer, tenant="acme", name="TOKEN", value="a value", version=1):
    key_id, sealed = sealer.seal(tenant, name, value, version=version)
    return SealedSecret(name=name, key_id=key_id, version=version, sealed=sealed)


texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True)


@given(tenant=texts, name=names, value=texts, version=st.integers(1, 2**31 - 1))
def test_what_was_sealed_opens_as_it_was(tenant, name, value, version):
    sealer = Sealer(KEY)
    secret = sealed_by(sealer, tenant, name, value, version)

    assert sealer.open(tenant, secret) == value
    assert secret.key_id == sealer.key_id


@given(*(st.tuples(texts, names, st.integers(1, 9)) for _ in range(2)))
def test_it_opens_nowhere_but_where_it_belongs(here, there):
    assume(here != there)
    tenant, name, version = here
    secret = sealed_by(SEALER, tenant, name, version=version)

    with pytest.raises(Unopenable, match="set it again"):
        SEALER.open(there[0], replace(secret, name=there[1], version=there[2]))


@given(at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at, bit):
    secret = sealed_by(SEALER)
    damaged = bytearray(secret.sealed)
    damaged[at % len(damaged)] ^= 1 << bit

    with pytest.raises(Unopenable):
        SEALER.open("acme", replace(secret, sealed=bytes(damaged)))


@pytest.mark.parametrize("length", [0, 1, NONCE_BYTES, NONCE_BYTES + 5])
def test_half_of_it_is_noticed(length):
    secret = sealed_by(SEALER)

    with pytest.raises(Unopenable):
        SEALER.open("acme", replace(secret, sealed=secret.sealed[:length]))


def test_an_older_version_does_not_open_after_a_newer_one():
    sealer = Sealer(KEY)
    old, new = sealed_by(sealer, version=3), sealed_by(sealer, version=4)

    assert sealer.open("acme", old) == sealer.open("acme", new) == "a value"
    with pytest.raises(Unopenable, match=r"at version 3, and version 4 was used.*restart"):
        sealer.open("acme", old)
    assert sealer.open("acme", new) == "a value"


def test_the_same_value_never_looks_the_same():
    sealed = {sealed_by(SEALER).sealed for _ in range(100)}

    assert len(sealed) == 100
    assert len({one[:NONCE_BYTES] for one in sealed}) == 100


def test_nothing_of_the_value_shows():
    sealed = sealed_by(SEALER, value="canary-canary").sealed

    assert b"canary" not in sealed
    assert b"canary" not in base64.b64decode(base64.b64encode(sealed))


def test_the_first_key_seals_and_all_open():
    old, new = new_key(), new_key()
    both = Sealer(f"{new}, {old}")
    secret = sealed_by(Sealer(old))

    assert both.open("acme", secret) == "a value"
    assert sealed_by(both).key_id == Sealer(new).key_id != secret.key_id


def test_a_key_that_is_not_here_is_named():
    mine, secret = Sealer(new_key()), sealed_by(Sealer(new_key()))

    why = f"TOKEN is sealed with key {secret.key_id}.*{mine.key_id}"
    with pytest.raises(KeyMissing, match=why):
        mine.open("acme", secret)


def test_another_key_under_the_same_name_does_not_open_it():
    mine, secret = Sealer(new_key()), sealed_by(Sealer(new_key()))

    with pytest.raises(Unopenable):
        mine.open("acme", replace(secret, key_id=mine.key_id))


def test_a_key_written_for_urls_is_the_same_key():
    key = base64.b64encode(b"\xff" * 32).decode()
    secret = sealed_by(Sealer(key))

    safe = Sealer(key.replace("/", "_").replace("+", "-"))

    assert safe.open("acme", secret) == "a value"


@pytest.mark.parametrize(
    "text",
    ["hunter2", "", "hunter2hunter2hunter2hunter2hunter2hunter2hunt", "aHVudGVyMg==", "éhunter2"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_key_is_refused_without_being_shown(text, place):
    keys = [new_key(), new_key()]
    keys.insert(place, text)

    with pytest.raises(UsageError, match=f"{VARIABLE}: key {place + 1} is not 32 bytes") as refused:
        Sealer(",".join(keys))

    assert "hunter2" not in str(refused.value)
    assert not any(key in str(refused.value) for key in keys if key)


def test_a_sealer_does_not_show_its_keys():
    key = new_key()

    assert key not in repr(Sealer(key)) and Sealer(key).key_id in repr(Sealer(key))


def test_new_keys_are_keys_and_never_the_same():
    keys = {new_key() for _ in range(100)}

    assert len(keys) == 100
    assert all(Sealer(key).key_id for key in keys)


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    imported = builtins.__import__
    secret = sealed_by(SEALER)

    def missing(name, *rest):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)

    with pytest.raises(KeyMissing, match="cryptography") as refused:
        sealed_by(SEALER)
    with pytest.raises(KeyMissing, match="cryptography"):
        SEALER.open("acme", secret)
    assert str(refused.value).endswith("run: pip install 'daybell[secrets]'")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (7, "must be text"),
        ("abc4567", "at least 8"),
        ("   abc4567  \n", "at least 8 characters, not counting blanks"),
        ("hunter2\0", "NUL"),
        ("hunter2\ud800", "surrogate"),
        ("hunter2" + "x" * SECRET_BYTES_MAX, "at most 65,536 bytes"),
        ("ü" * (SECRET_BYTES_MAX // 2) + "x", "at most 65,536 bytes"),
    ],
)
def test_what_cannot_be_a_value_is_refused_without_being_shown(value, why):
    with pytest.raises(UsageError, match=why) as refused:
        check_value(value)

    assert refused.value.field == "value"
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", ["abcd5678", "x" * SECRET_BYTES_MAX, "two\nlines", "ümlaute!"])
def test_other_texts_are_values(value):
    assert check_value(value) == value
