"""Sealing a secret's value: what opens it, and what does not."""

import base64
import builtins

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daybell.client.sealing import (
    INSTALL,
    NONCE_BYTES,
    VARIABLE,
    KeyMissing,
    Sealer,
    Unopenable,
    check_value,
    new_key,
)
from daybell.core.limits import SECRET_BYTES_MAX
from daybell.errors import UsageError

SEALER = Sealer(new_key())

texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True)


@given(tenant=texts, name=names, value=texts)
def test_what_was_sealed_opens_as_it_was(tenant, name, value):
    key_id, sealed = SEALER.seal(tenant, name, value)

    assert SEALER.open(tenant, name, key_id, sealed) == value
    assert key_id == SEALER.key_id


@given(here=st.tuples(texts, names), there=st.tuples(texts, names))
def test_it_opens_nowhere_but_where_it_belongs(here, there):
    assume(here != there)
    tenant, name = here
    key_id, sealed = SEALER.seal(tenant, name, "a value")

    with pytest.raises(Unopenable, match="set it again"):
        SEALER.open(there[0], there[1], key_id, sealed)


@given(at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at, bit):
    key_id, sealed = SEALER.seal("acme", "TOKEN", "a value")
    damaged = bytearray(sealed)
    damaged[at % len(damaged)] ^= 1 << bit

    with pytest.raises(Unopenable):
        SEALER.open("acme", "TOKEN", key_id, bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, NONCE_BYTES, NONCE_BYTES + 5])
def test_half_of_it_is_noticed(length):
    key_id, sealed = SEALER.seal("acme", "TOKEN", "a value")

    with pytest.raises(Unopenable):
        SEALER.open("acme", "TOKEN", key_id, sealed[:length])


def test_the_same_value_never_looks_the_same():
    sealed = {SEALER.seal("acme", "TOKEN", "a value")[1] for _ in range(100)}

    assert len(sealed) == 100
    assert len({one[:NONCE_BYTES] for one in sealed}) == 100


def test_nothing_of_the_value_shows():
    _, sealed = SEALER.seal("acme", "TOKEN", "canary-canary")

    assert b"canary" not in sealed
    assert b"canary" not in base64.b64decode(base64.b64encode(sealed))


def test_the_first_key_seals_and_all_open():
    old, new = new_key(), new_key()
    before, both = Sealer(old), Sealer(f"{new}, {old}")
    key_id, sealed = before.seal("acme", "TOKEN", "a value")

    assert both.open("acme", "TOKEN", key_id, sealed) == "a value"
    assert both.seal("acme", "TOKEN", "a value")[0] == Sealer(new).key_id != key_id


def test_a_key_that_is_not_here_is_named():
    mine, theirs = Sealer(new_key()), Sealer(new_key())
    key_id, sealed = theirs.seal("acme", "TOKEN", "a value")

    with pytest.raises(KeyMissing, match=f"TOKEN is sealed with key {key_id}.*{mine.key_id}"):
        mine.open("acme", "TOKEN", key_id, sealed)


def test_another_key_under_the_same_name_does_not_open_it():
    mine, theirs = Sealer(new_key()), Sealer(new_key())
    _, sealed = theirs.seal("acme", "TOKEN", "a value")

    with pytest.raises(Unopenable):
        mine.open("acme", "TOKEN", mine.key_id, sealed)


def test_a_key_written_for_urls_is_the_same_key():
    key = base64.b64encode(b"\xff" * 32).decode()
    key_id, sealed = Sealer(key).seal("acme", "TOKEN", "a value")

    safe = Sealer(key.replace("/", "_").replace("+", "-"))

    assert safe.open("acme", "TOKEN", key_id, sealed) == "a value"


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

    def missing(name, *rest):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)

    with pytest.raises(KeyMissing, match="cryptography") as refused:
        SEALER.seal("acme", "TOKEN", "a value")
    with pytest.raises(KeyMissing, match="cryptography"):
        SEALER.open("acme", "TOKEN", SEALER.key_id, b"x" * 40)
    assert INSTALL in str(refused.value)


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
