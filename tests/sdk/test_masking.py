"""Secrets are taken out of what is written, however it writes them."""

import base64
import html
import json
import random
import re
import string
import threading
import time
from urllib.parse import quote, quote_plus, urlencode

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.limits import LOG_LINE_CHARS_MAX
from daybell.core.log import MASKED_CHARS_MAX
from daybell.sdk import masking
from daybell.sdk.finder import Finder
from daybell.sdk.forms import PIECE_CHARS, forms_of
from daybell.sdk.masking import MASK, Masks

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
        lambda value: json.dumps(json.dumps(value)),
        lambda value: json.dumps(json.dumps(value, ensure_ascii=False)),
        lambda value: json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False),
        lambda value: str({"token": value}),
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
        lambda value: base64.b64encode(b"a" + value.encode()).decode(),
        lambda value: base64.b64encode(b"user:" + value.encode()).decode(),
        lambda value: base64.b64encode(b"us" + value.encode() + b"er").decode(),
        html.escape,
        lambda value: html.escape(value, quote=False),
        lambda value: html.escape(value).replace("&#x27;", "&#39;"),
        lambda value: html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        lambda value: httpx.URL(f"http://{value}/").host if value.isalnum() else value,
        lambda value: str(httpx.URL(f"http://{value}/")) if value.isalnum() else value,
    ],
)
@pytest.mark.parametrize(
    "value",
    [TOKEN, "plain-token-0123456789", "two lines\nand their end", "<A&B> it's 0123", "AbCdÜ123XYZ"],
)
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
        "it was 0123456789abcdefgh …",
        "it was 0123456789abcdefgh  ... and more",
        "… 89abcdefghijklmnopqrstuvwxyz",
        "it was 0123456789abcdefgh\n",
    ],
)
def test_where_a_text_was_cut_half_a_value_is_masked(cut):
    masks = masks_of("0123456789abcdefghijklmnopqrstuvwxyz", "some-other-0123456789xyz")

    masked = masks(cut)
    in_json = json.loads(masks.in_json(json.dumps({"a": cut, "b": [cut]}, ensure_ascii=False)))

    assert "89ab" not in masked and "0123456789" not in masked and "789xyz" not in masked
    assert MASK in masked and in_json == {"a": masked, "b": [masked]}


def test_half_a_value_is_masked_although_a_shorter_one_is_there_as_a_whole():
    assert masks_of("01234567", "0123456789abcdef")("0123456789ab") == MASK


@pytest.mark.parametrize("length", [500, 1_000, 5_000])
def test_of_a_long_value_nothing_is_left_wherever_it_was_cut(length):
    value = "".join(random.Random(length).choices(string.ascii_letters, k=length))
    masks = masks_of(value)

    assert masks(f"<{value}>") == f"<{MASK}>"
    for cut in (10, 300, length - 400, length - 10):
        assert masks(f"it was {value[:cut]} …") == f"it was {MASK} …"
        assert masks(f"it was … {value[cut:]}!") == f"it was … {MASK}!"


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


def test_what_is_kept_for_good_is_never_dropped(monkeypatch):
    monkeypatch.setattr(masking, "VALUES_MAX", 20)
    masks = Masks()
    masks.add_own(["hunter2", "abc"])
    for number in range(100):
        masks.add([f"secret-{number:05d}"])

    assert masks("hunter2 secret-00099 abc") == f"{MASK} {MASK} abc"
    assert masks("secret-00001") == "secret-00001"


PEM = "\n".join(
    ["-----BEGIN PRIVATE KEY-----"]
    + [base64.b64encode(random.Random(number).randbytes(48)).decode() for number in range(26)]
    + ["-----END PRIVATE KEY-----", ""]
)
MANY = [f"https://hooks.example.org/{number:08d}" for number in range(1_000)]
NESTED = ["a" * length for length in range(8, 500)]


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([PEM], "-"),
        ([PEM], "-----BEGIN PRIVATE KEY-----\n"),
        ([PEM], "…" + PEM[-40:-1]),
        (["a" * 60_000], "a"),
        (["a" * 3_000 + "b" + "a" * 3_000], "a"),
        ([f"secret-{number:05d}" for number in range(1_000)], "secret-0"),
        (MANY, "https://hooks.example.org/"),
        (MANY, "https://hooks.example.org/x..."),
        (NESTED, "aaaaaaaab"),
        (["hunter2"], " "),
        (["hunter2"], "…"),
        (["hunter2"], "."),
    ],
)
def test_whoever_makes_a_text_for_it_cannot_make_it_take_long(values, unit):
    masks = masks_of(*values)
    text = unit * (8_000 // len(unit))

    for ask in (masks, lambda text: masks.in_json(json.dumps(text, ensure_ascii=False))):
        once, four_times = seconds_of(ask, text), seconds_of(ask, 4 * text)
        assert four_times < 8 * once + 0.05  # it would be 16 times, were all compared with all


def test_all_that_is_compared_is_short():
    assert max(len(form) for form in forms_of("a" * 60_000 + "\n" + PEM)) == PIECE_CHARS


def test_with_few_values_ordinary_texts_are_not_searched(monkeypatch):
    masks = masks_of("f0Kc1LrV7yHBxD2eQ9sTzWnApMgUjE4o", "a-password-0123", "dbk_0123456789abcdef")
    monkeypatch.delattr(Finder, "find")
    line, result = "an ordinary line of a task", '{"an ordinary result":12345678,"b":"of a task"}'

    assert masks(line * 100) == line * 100 and masks(f"{line} ...") == f"{line} ..."
    assert masks.in_json(result) == result


def seconds_of(function, text):
    """How long it computes, whatever else the machine does."""
    took: list[float] = []
    for _ in range(2):
        before = time.thread_time()
        function(text)
        took.append(time.thread_time() - before)
    return min(took)
