"""Secrets are taken out of what is written, however it writes them."""

import base64
import json
import re
import threading
from urllib.parse import quote, quote_plus, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.limits import LOG_LINE_CHARS_MAX
from daybell.core.log import MASKED_CHARS_MAX
from daybell.sdk import masking
from daybell.sdk.masking import LEVELS, MASK, Masks

TOKEN = 's3cr3t/va+lue=ü "quoted" it\'s'
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0*"), min_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


def masks_of(*values):
    masks = Masks()
    masks.add(values)
    return masks


@pytest.mark.parametrize(
    "write",
    [
        str,
        repr,
        ascii,
        quote,
        quote_plus,
        lambda value: quote(value, safe=""),
        lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
        lambda value: urlencode({"token": value}),
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: msgspec.json.encode({"token": value}).decode(),
        lambda value: str({"token": value}),
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
        lambda value: base64.b64encode(b"a" + value.encode()).decode(),
        lambda value: base64.b64encode(b"user:" + value.encode()).decode(),
        lambda value: base64.b64encode(b"us" + value.encode() + b"er").decode(),
    ],
)
@pytest.mark.parametrize("value", [TOKEN, "plain-token-0123456789", "two lines\nand their end"])
def test_a_value_is_found_however_it_is_written(write, value):
    written = f"before {write(value)} after"

    masked = masks_of(value)(written)

    assert MASK in masked and masked.startswith("before ") and masked.endswith(" after")
    assert len(masked) < len("before '' after token= {'token': }") + len(MASK) + 8


@given(value=values, before=st.text(), after=st.text())
def test_nothing_of_a_value_is_left(value, before, after):
    masked = masks_of(value)(before + value + after)

    assert value not in masked.replace(MASK, "\0")


@given(value=values, data=st.binary(max_size=10), rest=st.binary(max_size=10))
def test_base64_of_more_than_the_value_is_masked_too(value, data, rest):
    encoded = base64.b64encode(data + value.encode() + rest).decode()

    masked = masks_of(value)(encoded)

    if len(value.encode()) >= 8:
        assert MASK in masked


def test_other_texts_stay_as_they_are():
    masks = masks_of(TOKEN, "hunter2", "hunter2-and-more")

    for text in ("", "hunter", "an ordinary line", "hunter 2", "x" * 10_000):
        assert masks(text) is text


def test_without_secrets_nothing_is_looked_at():
    text = "an ordinary line"

    assert not Masks() and Masks()(text) is text and Masks().in_json(text) is text


@pytest.mark.parametrize("order", [1, -1])
def test_a_value_that_contains_another_leaves_nothing_of_itself(order):
    masks = Masks()
    for value in ["hunter2", "hunter2-and-more", "more-of-it"][::order]:
        masks.add([value])

    assert masks("hunter2-and-more") == MASK
    assert masks("hunter2-and-more-of-it") == MASK
    assert masks("hunter2 hunter2-and-more!") == f"{MASK} {MASK}!"


def test_each_longer_line_of_a_value_is_a_secret():
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\nab==\n-----END KEY-----\n"
    masks = masks_of(pem)

    assert masks("got hkiG9w0BAQEFAASC!") == f"got {MASK}!"
    assert masks(pem) == MASK
    assert masks(pem.replace("\n", "\r\n")) == MASK
    assert masks(json.dumps(pem)) == f'"{MASK}"'
    assert masks("ab==") == "ab=="  # too short: it is in other texts as well


@pytest.mark.parametrize(
    "cut",
    [
        "it was 0123456789ab",
        "'0123456789abcdefgh…' is not one of red",
        "input_value='0123456789...456789xyz', input_type=str",
        "89abcdefghijklmnopqrstuvwxyz and all that follows",
        "x" * 9_000 + "0123456789ab",
        "89abcdefghijklmnopqrstuvwxyz" + "x" * 9_000,
    ],
)
def test_where_a_text_was_cut_half_a_value_is_masked(cut):
    masks = masks_of("0123456789abcdefghijklmnopqrstuvwxyz", "some-other-0123456789xyz")

    masked = masks(cut)
    in_json = json.loads(masks.in_json(json.dumps({"a": cut, "b": [cut]}, ensure_ascii=False)))

    assert "89ab" not in masked and "0123456789" not in masked and "789xyz" not in masked
    assert MASK in masked and in_json == {"a": masked, "b": [masked]}


def test_a_beginning_that_goes_on_otherwise_stays():
    masks = masks_of("https://hooks.example.org/services/T000/B000")

    assert masks("see https://example.org/") == "see https://example.org/"


def test_a_value_with_blanks_around_it_is_found_without_them():
    assert masks_of(" hunter2\n")("hunter2") == MASK


def test_of_a_text_that_is_cut_no_long_piece_of_a_value_is_left():
    value = "".join(f"{number:05d}" for number in range(5_000))
    text = "x" * 1_000 + value

    masked = masks_of(value)(text[:MASKED_CHARS_MAX])[:-LOG_LINE_CHARS_MAX]

    assert not any(f"{number:05d}{number + 1:05d}" in masked for number in range(5_000))


@given(value=json_values, secret=values)
def test_json_stays_json(value, secret):
    text = msgspec.json.encode([value, secret, {secret: value}]).decode()
    masks = masks_of(secret)

    masked = masks.in_json(text)

    assert msgspec.json.decode(masked)[1] == MASK
    assert MASK in msgspec.json.decode(masked)[2]
    assert masks.in_json(masked) == masked


def test_numbers_that_are_a_secret_are_masked_and_others_stay():
    masks = masks_of("12345678", "2.5e10", "true")

    masked = masks.in_json('[12345678,-12345678,123456789,12,{"12345678":true,"a":"x12345678"}]')

    assert json.loads(masked) == [MASK, MASK, 123456789, 12, {MASK: True, "a": f"x{MASK}"}]


def test_escapes_hide_nothing_in_json():
    masks = masks_of(TOKEN)

    assert json.loads(masks.in_json(json.dumps({"a": repr(TOKEN)})))["a"].strip("'\"") == MASK
    assert json.loads(masks.in_json(json.dumps([TOKEN, "ü"]))) == [MASK, "ü"]
    quoted = 'it\'s "q" xyz'
    assert masks_of(quoted).in_json(json.dumps([repr(quoted)])) == json.dumps([f"'{MASK}'"])


def test_a_number_in_the_thousands_is_masked_and_changed_by_parts(monkeypatch):
    monkeypatch.setattr(masking, "VALUES_MAX", 500)
    masks = Masks()
    for number in range(500):
        masks.add([f"secret-{number:05d}"])

    assert all(masks(f"<secret-{number:05d}>") == f"<{MASK}>" for number in range(500))
    assert sum(LEVELS[:2]) < 500

    masks.add(["secret-00000"])  # opened again
    masks.add(["one-too-many"])

    assert masks("secret-00000 one-too-many secret-00499") == f"{MASK} {MASK} {MASK}"
    assert masks("secret-00001") == "secret-00001"


def test_threads_may_add_and_ask_at_once():
    masks = masks_of("hunter2")
    seen = []

    def ask():
        while not is_over.is_set():
            seen.append(masks("hunter2 and others"))

    is_over = threading.Event()
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        masks.add([f"secret-{number:05d}"])
    is_over.set()
    for thread in threads:
        thread.join()

    assert set(seen) <= {f"{MASK} and others"}
    assert masks("secret-00042") == MASK


def test_all_can_be_forgotten():
    masks = masks_of("hunter2")

    masks.forget()

    assert not masks and masks("hunter2") == "hunter2"
