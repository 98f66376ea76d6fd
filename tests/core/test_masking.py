"""Secrets are masked in the output of the execution that opened them, however it writes them; text
that the execution was given stays.
"""

import base64
import html
import json
import random
import re
import string
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus, urlencode

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.execution import MASKED_CHARS_MAX
from daybell.core.masking import (
    CUT_CHARS,
    GIVEN_CHARS_LARGE,
    MASK,
    NO_MASKS,
    WITHHELD,
    ExecutionMask,
    Masks,
)

TOKEN = 's3cr3t/va+lue=ü "quoted" it\'s'
chars = st.characters(exclude_categories=["Cs"], exclude_characters="\0*")
values = st.text(chars, min_size=8).filter(lambda value: len(value.strip()) >= 8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


def masks_of(*values):
    return Masks.of(frozenset(values))


def a_mask(*opened, args="{}", settings=(), report: Callable[[], object] = list):
    """What masks the output of an execution with these arguments."""
    mask = ExecutionMask(masks_of(*settings), args, report)
    mask.open(opened)
    return mask


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


@pytest.mark.parametrize("order", [1, -1])
def test_a_value_that_contains_another_leaves_nothing_of_itself(order):
    masks = masks_of(*["hunter2", "hunter2-and-more", "more-of-it"][::order])

    assert masks("hunter2-and-more") == MASK
    assert masks("hunter2-and-more-of-it") == MASK
    assert masks("hunter2 hunter2-and-more!") == f"{MASK} {MASK}!"


def test_each_longer_line_of_a_value_is_a_secret():
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\nab==\n-----END KEY-----\n"
    masks = masks_of(pem)

    assert masks("got hkiG9w0BAQEFAASC!") == f"got {MASK}!"
    assert masks(pem).strip() == MASK
    assert masks(pem.replace("\n", "\r\n")).strip() == MASK
    assert masks(json.dumps(pem)) == f'"{MASK}\\n"'
    assert masks("ab==") == "ab=="  # too short: it is in other texts as well


def test_a_value_with_blanks_around_it_is_found_without_them():
    assert masks_of(" hunter2\n")("hunter2") == MASK


def test_of_a_text_that_is_cut_no_long_piece_of_a_value_is_left():
    value = "".join(f"{number:05d}" for number in range(5_000))
    text = "x" * 1_000 + value

    masked = masks_of(value)(text[:MASKED_CHARS_MAX])[:-CUT_CHARS]

    assert not any(f"{number:05d}{number + 1:05d}" in masked for number in range(5_000))


@given(value=json_values, secret=values)
def test_json_stays_json(value, secret):
    text = msgspec.json.encode([value, secret, {secret: value}]).decode()
    masks = a_mask(secret)

    masked = masks.in_json(text)

    assert msgspec.json.decode(masked)[1].strip() == MASK
    assert MASK in map(str.strip, msgspec.json.decode(masked)[2])
    assert masks.in_json(masked) == masked


def test_numbers_that_are_a_secret_are_masked_and_others_stay():
    masks = a_mask("12345678", "2.5e10", "true")

    masked = masks.in_json('[12345678,-12345678,123456789,12,{"12345678":true,"a":"x12345678"}]')

    assert json.loads(masked) == [MASK, MASK, 123456789, 12, {MASK: True, "a": f"x{MASK}"}]


def test_escapes_hide_nothing_in_json():
    masks = a_mask(TOKEN)

    assert json.loads(masks.in_json(json.dumps({"a": repr(TOKEN)})))["a"].strip("'\"") == MASK
    assert json.loads(masks.in_json(json.dumps([TOKEN, "ü"]))) == [MASK, "ü"]
    quoted = 'it\'s "q" xyz'
    assert a_mask(quoted).in_json(json.dumps([repr(quoted)])) == json.dumps([f"'{MASK}'"])


@pytest.mark.parametrize("size", [36, 1_000])
def test_a_value_is_compared_as_a_whole(size):
    value = "".join(random.Random(size).choices(string.ascii_letters, k=size))
    masks = masks_of(value)

    for part in (value[:8], value[-8:], value[:32], value[3:-1][:200], value[: size // 4]):
        for text in (part, f"it was {part}", f"{part} …", f"… {part}"):
            assert masks(text) is text
    assert masks(f"<{value}>") == f"<{MASK}>"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        pytest.param("{0}", "{0}", id="as it is"),
        pytest.param("a {0} b", "a {0} b", id="in a longer text"),
        pytest.param("{0}", "{upper}", id="in another case"),
        pytest.param("{base64}", "{0}", id="from base64"),
        pytest.param("{0}", "{base64}", id="to base64"),
        pytest.param("{quoted}", "{0}", id="from a URL"),
    ],
)
@pytest.mark.parametrize("value", [TOKEN, "hunter2-and-more", "!§$%&/()=?", "12345678"])
@pytest.mark.parametrize("is_setting", [False, True])
def test_what_was_given_stays_whether_it_is_a_secret_or_not(value, sent, said, is_setting):
    ways = {
        "upper": value.upper(),
        "base64": base64.b64encode(value.encode()).decode(),
        "quoted": quote(value),
    }
    args = msgspec.json.encode({"guess": [sent.format(value, **ways)]}).decode()
    mask = a_mask(args=args, settings=[value]) if is_setting else a_mask(value, args=args)
    text = said.format(value, **ways)

    assert mask(text) == text
    assert json.loads(mask.in_json(json.dumps([text]))) == [text]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"first": "hunter", "last": "twenty-two"}, "huntertwenty-two"),
        ({"first": "hunter", "last": "twenty-two"}, "hunter twenty-two"),
        ({"number": 1234567890}, "1234567890"),
        ({"huntertwenty-two": 1}, "huntertwenty-two"),
        ({"lines": 'hunter\n"twenty-two"'}, 'hunter\n"twenty-two"'),
        ({"word": "Schlüssel-𝐀-2024"}, "Schlüssel-𝐀-2024"),
        ({"few letters": "a\tb\tc\td\te1"}, "a\tb\tc\td\te1"),
    ],
)
def test_what_a_task_joins_of_its_arguments_was_given(args, said):
    for text in (msgspec.json.encode(args).decode(), json.dumps(args)):
        assert a_mask(said, args=text)(said) == said
        assert a_mask(settings=[said], args=text)(said) == said


@given(parts=st.lists(st.text("ab1-", min_size=8, max_size=12), max_size=4), text=st.text("ab1-"))
def test_many_values_are_searched_for_as_few_are(parts, text):
    """With many values, the text that was given is read once for all of them."""
    args = json.dumps({"a": text, "b": "".join(parts[:2])})
    filler = [f"line-of-a-long-value-{number:06}" for number in range(2)]

    few = a_mask(*parts, *filler, args=args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daybell.core.masking.SEARCHED_CHARS_MAX", 0)
        many = a_mask(*parts, *filler, args=args)

    assert few.secrets.forms == many.secrets.forms


def test_what_was_given_later_stays_and_the_rest_is_masked():
    mask = a_mask("hunter2-and-more", "correct horse", settings=["of-the-worker"])

    mask.give('{"data": "hunter2-and-more of-the-worker"}')

    assert mask("hunter2-and-more of-the-worker") == "hunter2-and-more of-the-worker"
    assert mask("hunter2-and-more, correct horse") == f"hunter2-and-more, {MASK}"


def test_a_setting_is_withheld_with_its_line_and_that_is_reported_once():
    reports = []
    mask = a_mask("correct horse", settings=["of-the-worker"], report=lambda: reports.append(1))

    assert mask("a correct horse\nPASSWORD=of-the-worker\nb") == f"a {MASK}\n{WITHHELD}\nb"
    assert reports == [1]
    assert json.loads(mask.in_json('{"a":["x of-the-worker","b"]}')) == {"a": [WITHHELD, "b"]}
    assert mask("nothing of it") == "nothing of it" and len(reports) == 1


@pytest.mark.parametrize("size", [0, GIVEN_CHARS_LARGE])
def test_a_setting_that_was_given_is_looked_for_no_more(size):
    """So a right guess takes no longer than a wrong one, however often it is said."""
    args = json.dumps({"guess": "of-the-worker", "more": "x" * size})
    mask = a_mask(settings=["of-the-worker"], args=args)

    if not size:
        assert mask("of-the-worker") == "of-the-worker"
    assert not mask._settings  # pyright: ignore[reportPrivateUsage]


def test_without_secrets_nothing_is_looked_at():
    text = '"an ordinary line with \\n"'

    assert not NO_MASKS and NO_MASKS(text) is text and a_mask().in_json(text) is text


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
    masks = a_mask(*values)
    text = unit * (8_000 // len(unit))

    for ask in (masks, lambda text: masks.in_json(json.dumps(text, ensure_ascii=False))):
        once, four_times = seconds_of(ask, text), seconds_of(ask, 4 * text)
        assert four_times < 8 * once + 0.05  # it would be 16 times, were all compared with all


def seconds_of(function, text):
    """How long it computes, whatever else the machine does."""
    took: list[float] = []
    for _ in range(2):
        before = time.thread_time()
        function(text)
        took.append(time.thread_time() - before)
    return min(took)
