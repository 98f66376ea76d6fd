"""What may be a name and what may be a key."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core import limits
from daybell.core.limits import check_key, check_labels, check_name
from daybell.errors import InvalidName, UsageError, shown
from tests.refusals import refuses

RULE = (
    "a name has letters, digits, spaces and any of _ . : @ + -, "
    "begins with a letter, a digit or _, and does not end with a space"
)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "daily-report",
        "shop.mail:send_email",
        "_private",
        "7zip",
        "Backup der Datenbank",
        "größe",
        "日報",
        "हिन्दी",
        "worker@host-1+2",
        "x" * 200,
    ],
    ids=shown,
)
def test_a_name_that_people_would_use_is_accepted(name):
    assert check_name(name, what="job") == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", f"job name is empty; {RULE}"),
        (None, "job name must be text, not NoneType"),
        (b"a", "job name must be text, not bytes"),
        ("a/b", f"job name 'a/b' contains '/'; {RULE}"),
        ("a,b", f"job name 'a,b' contains ','; {RULE}"),
        ("a\0", rf"job name 'a\x00' contains '\x00'; {RULE}"),
        ("a\n", rf"job name 'a\n' contains '\n'; {RULE}"),
        ("\ud800", rf"job name '\ud800' contains '\ud800'; {RULE}"),
        ("\ufeffa", rf"job name '\ufeffa' contains '\ufeff'; {RULE}"),
        ("a\u202eb", rf"job name 'a\u202eb' contains '\u202e'; {RULE}"),
        ("a\u200bb", rf"job name 'a\u200bb' contains '\u200b'; {RULE}"),
        ("😀", f"job name '😀' contains '😀'; {RULE}"),
        (" a", f"job name ' a' begins with ' '; {RULE}"),
        ("a ", f"job name 'a ' ends with a space; {RULE}"),
        ("ä ", f"job name 'ä ' ends with a space; {RULE}"),
        ("-rf", f"job name '-rf' begins with '-'; {RULE}"),
        ("..", f"job name '..' begins with '.'; {RULE}"),
        ("\u0301a", f"job name '\u0301a' begins with '\u0301'; {RULE}"),
        ("e\u0301", "job name 'e\u0301' is not in composed form (NFC); write 'é'"),
        ("x" * 201, f"job name '{'x' * 59}… has 201 characters; the limit is 200"),
    ],
    ids=shown,
)
def test_a_bad_name_is_refused_with_the_reason(name, message):
    with pytest.raises(InvalidName) as refusal:
        check_name(name, what="job")

    assert str(refusal.value) == message
    assert refusal.value.field == "job"


def test_a_queue_name_is_shorter_than_other_names():
    check_name("q" * 100, what="queue")

    with refuses(InvalidName, field="queue"):
        check_name("q" * 101, what="queue")


def test_a_hundred_thousand_combining_marks_are_refused_at_once():
    with refuses(InvalidName, field="job"):
        check_name("e" + "\u0301" * 100_000, what="job")


@given(st.text(max_size=250))
def test_an_accepted_name_can_be_stored_printed_and_put_into_a_flag(name):
    try:
        check_name(name, what="job")
    except InvalidName as refusal:
        str(refusal).encode()
        return

    assert name == name.strip()
    assert name.isprintable()
    assert not set(name) & set("/,=\\'\"<>&?#%")
    assert not name.startswith("-")
    assert unicodedata.normalize("NFC", name) == name


@pytest.mark.parametrize(
    "key", ["a", " ", "a/b,c", "\n", "\u202e", "😀", "k" * 500, "é" * 250], ids=shown
)
def test_a_key_may_be_any_text(key):
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "unique key is empty; leave it out to have none"),
        (7, "unique key must be text, not int"),
        ("a\0", r"unique key 'a\x00' contains a NUL character"),
        (
            "a\ud800",
            r"unique key 'a\ud800' contains half a surrogate pair, which is not a character",
        ),
        (
            "é" * 251,
            f"unique key '{'é' * 59}… has 502 bytes; the limit is 500. Use a digest of it",
        ),
    ],
    ids=shown,
)
def test_a_bad_key_is_refused_with_the_reason(key, message):
    with pytest.raises(InvalidName) as refusal:
        check_key(key)

    assert str(refusal.value) == message


def test_every_limit_is_positive():
    numbers = {name: value for name, value in vars(limits).items() if name.isupper()}
    public = {name: value for name, value in numbers.items() if not name.startswith("_")}

    assert len(public) > 20
    assert all(value > 0 for value in public.values() if isinstance(value, int | float))


def test_as_many_labels_as_the_limit_says_are_accepted():
    labels = {f"{number:0100}": "x" * 100 for number in range(32)}

    assert check_labels(labels) == labels


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({str(number): "" for number in range(33)}, "33 labels are too many; the limit is 32"),
        ({"x" * 101: ""}, "a label's name .* has 101 characters; the limit is 100"),
        ({"zone": "x" * 101}, "the value of label 'zone' .* has 101 characters"),
    ],
)
def test_labels_beyond_a_limit_are_refused(labels, message):
    with pytest.raises(UsageError, match=message):
        check_labels(labels)
