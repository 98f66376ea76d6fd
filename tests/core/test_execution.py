"""Executions: priorities, and the record of an exception."""

import re
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daybell as package
from daybell.core import limits
from daybell.core.execution import (
    Account,
    DescribedError,
    Excerpt,
    ExecutionCopies,
    Failure,
    NewExecution,
    Priority,
    columns_of,
    distinct_in,
    dotted_name,
)
from daybell.core.ids import mint, mint_many
from daybell.core.units import parse_duration
from daybell.errors import InvalidPriority, PayloadError, shown


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        ("critical", Priority.CRITICAL),
        ("High", Priority.HIGH),
        ("NORMAL", Priority.NORMAL),
        ("medium", Priority.NORMAL),
        (" low ", Priority.LOW),
        (0, Priority.CRITICAL),
        (3, Priority.LOW),
        (Priority.HIGH, Priority.HIGH),
    ],
)
def test_a_priority_is_read_by_name_or_number(value, priority):
    assert Priority.parse(value) is priority


@pytest.mark.parametrize(
    ("value", "shown"),
    [("urgent", "'urgent'"), ("", "''"), (4, "4"), (-1, "-1"), (True, "True"), (1.0, "1.0")],
)
def test_what_is_no_priority_is_refused_with_what_there_is(value, shown):
    with pytest.raises(InvalidPriority) as refusal:
        Priority.parse(value)

    expected = f"{shown} is not a priority; use critical, high, normal (or medium) or low"
    assert str(refusal.value) == expected


def test_more_important_sorts_first():
    assert sorted(Priority) == [Priority(number) for number in range(4)]
    assert [priority.label for priority in Priority] == ["critical", "high", "normal", "low"]


# What is kept of an exception, whatever it does.


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Quitter(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_exception_is_kept_with_its_type_message_place_and_ancestry():
    failure = Failure.from_exception(raised(ConnectionResetError("gone")))

    assert failure.type == "ConnectionResetError"
    assert failure.message == "gone"
    assert "in raised" in failure.traceback
    assert failure.traceback.endswith("ConnectionResetError: gone\n")
    assert failure.names == (
        "builtins.ConnectionResetError",
        "builtins.ConnectionError",
        "builtins.OSError",
        "builtins.Exception",
        "builtins.BaseException",
    )


def test_the_cause_is_kept_too():
    error = ValueError("bad")
    error.__cause__ = KeyError("root")

    assert "KeyError: 'root'" in Failure.from_exception(error).traceback


def through(file: str, call: Callable[[], object]) -> BaseException:
    """What a call raises if a file of our own package makes it."""
    names: dict[str, Any] = {}
    path = Path(package.__file__).parent / file
    exec(compile("def ours(call): call()", str(path), "exec"), names)
    with pytest.raises(Exception) as caught:
        names["ours"](call)
    error, trace = caught.value, caught.tb
    return error.with_traceback(trace.tb_next)  # without this function, which is nobody's


def test_a_traceback_begins_with_the_users_code():
    def task() -> float:
        return parse_duration("nonsense", what="wait")

    lines = Failure.from_exception(through("engine/execute.py", task)).traceback.splitlines()

    assert lines[0] == "Traceback (most recent call last):"
    assert ", in task" in lines[1]
    assert "units.py" in "".join(lines[2:])  # the user called it, so that stays


def test_a_traceback_of_nothing_but_our_code_is_kept_whole():
    failure = Failure.from_exception(through("engine/execute.py", {}.popitem))

    assert ", in ours" in failure.traceback
    assert "KeyError" in failure.traceback


def test_the_demos_code_is_a_users():
    names: dict[str, Any] = {}
    demo = Path(package.__file__).parent / "demo.py"
    exec(compile("def charge(): raise ValueError", str(demo), "exec"), names)

    failure = Failure.from_exception(through("engine/execute.py", names["charge"]))

    assert ", in charge" in failure.traceback.splitlines()[1]


def test_a_class_is_named_by_where_it_was_defined():
    assert dotted_name(Broken) == f"{__name__}.Broken"
    assert Failure.from_exception(Broken()).type == f"{__name__}.Broken"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Broken(), "<its __str__ raised RuntimeError>"),
        (Quitter(), "<its __str__ raised SystemExit>"),
    ],
)
def test_an_exception_that_cannot_be_shown_is_kept_all_the_same(error, message):
    failure = Failure.from_exception(raised(error))

    assert failure.message == message
    assert "in raised" in failure.traceback


def test_characters_that_a_store_cannot_hold_are_escaped():
    failure = Failure.from_exception(raised(ValueError("a\0b\ud800c")))

    assert failure.message == r"a\x00b\ud800c"
    assert "\0" not in failure.traceback
    failure.traceback.encode()


@pytest.mark.parametrize("character", ["x", "é", "😀", "\0", "\ud800"], ids=shown)
def test_a_giant_message_keeps_its_two_ends(character):
    failure = Failure.from_exception(raised(ValueError(f"begin{character * 10**6}end")))

    assert failure.message.startswith("begin")
    assert failure.message.endswith("end")
    assert "… cut: 1,000,008 characters in all …" in failure.message
    assert len(failure.message.encode()) <= limits.ERROR_MESSAGE_BYTES_MAX
    assert "in raised" in failure.traceback
    assert len(failure.traceback.encode()) <= limits.ERROR_TRACEBACK_BYTES_MAX


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_message_of_exactly_the_limit_is_kept_whole(character):
    message = character * (limits.ERROR_MESSAGE_BYTES_MAX // len(character.encode()))

    assert Failure(type="x", message=message).message == message


def test_endless_recursion_leaves_a_short_traceback():
    def endless(n: int) -> int:
        return endless(n + 1) + 1

    with pytest.raises(RecursionError) as caught:
        endless(0)

    failure = Failure.from_exception(caught.value)
    assert failure.type == "RecursionError"
    assert len(failure.traceback.encode()) <= limits.ERROR_TRACEBACK_BYTES_MAX


def test_a_failure_that_was_no_exception_is_named_by_its_type():
    assert Failure(type="exit_code", message="2").names == ("exit_code",)


@given(
    st.builds(
        Failure,
        type=st.text(min_size=1),
        message=st.text(max_size=20_000),
        traceback=st.text(),
        names=st.lists(st.text()).map(tuple),
    )
)
def test_a_stored_failure_comes_back_the_same(failure):
    text = failure.to_json()

    assert Failure.from_json(text) == failure
    assert "\\u0000" not in text


def test_fields_of_a_later_version_are_ignored():
    assert Failure.from_json('{"type": "x", "colour": "red"}') == Failure(type="x")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"type": 3}', "\ud800"], ids=shown)
def test_what_is_no_failure_is_refused(text):
    with pytest.raises(PayloadError, match="a stored failure cannot be read"):
        Failure.from_json(text)


def test_no_more_of_a_long_ancestry_is_kept_than_the_limit():
    bases: tuple[type, ...] = (Exception,)
    for number in range(100):
        bases = (type(f"E{number}", bases, {}),)

    failure = Failure.from_exception(bases[0]())

    assert len(failure.names) == limits.ERROR_NAMES_MAX
    assert failure.names[0].endswith(".E99")


def test_the_names_of_classes_that_are_alike_or_cannot_be_hashed_are_their_own():
    class Unhashable(type):
        def __hash__(cls) -> int:
            raise TypeError("not hashable")

    def raised_class(name):
        return Unhashable(name, (ValueError,), {"__module__": "shop"})

    # More classes than are remembered, most of them gone when the next is made.
    for number in range(2_500):
        failure = Failure.from_exception(raised_class(f"Error{number}")())
        assert failure.names[:2] == (f"shop.Error{number}", "builtins.ValueError")


def test_a_name_that_cannot_be_stored_is_cleaned_wherever_it_stands():
    odd = type("Odd", (ValueError,), {"__module__": "sh\udcffop"})

    names = Failure.from_exception(odd()).names

    assert names[:2] == ("sh\\udcffop.Odd", "builtins.ValueError")
    assert Failure(type="x", names=("good", "b\0d")).names == ("good", "b\\x00d")


def test_what_was_described_elsewhere_stays_as_it_was():
    names = ("ProcessDied", "builtins.OSError")
    account = Account(type="ProcessDied", message=Excerpt("gone"), names=names)

    failure = Failure.from_exception(DescribedError(account))

    assert failure == Failure(type="ProcessDied", message="gone", names=names)


def test_what_was_described_elsewhere_shows_as_a_cause():
    traceback = Excerpt("Traceback: where it was")
    told = Account(type="ValueError", message=Excerpt("no"), traceback=traceback)
    late = TimeoutError("too late")
    late.__cause__ = DescribedError(told)

    assert "Traceback: where it was" in Failure.from_exception(late).traceback


SECRET = "hunter2-hunter2"


def hidden(text: str) -> str:
    """A mask that also shortens, and so moves what is behind."""
    return re.sub("k{100,}", "…", text.replace(SECRET, "***"))


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("size", [0, 100, 4_000, 100_000])
def test_a_mask_sees_a_secret_before_it_is_cut_in_two(size, is_told):
    # Secrets at all places where an end of the text may be cut, then or later.
    filler = "k" * 1_009
    text = f"{(SECRET + filler) * (size // 1_000 + 1)}{SECRET}" + "." * size + SECRET * 3
    error = raised(ValueError(text))

    if is_told:
        error = DescribedError(
            msgspec.json.decode(msgspec.json.encode(Account.of(error)), type=Account)
        )
    failure = Failure.from_exception(error, mask=hidden)

    assert "hunter" not in failure.message
    assert "hunter" not in failure.traceback
    assert failure.traceback.endswith("***\n")


def test_of_an_error_without_end_both_ends_are_kept_and_its_length():
    failure = Failure.from_exception(ValueError("a" * 1_000_000 + "z" * 1_000_000), mask=hidden)

    assert failure.message.startswith("a" * 4_000) and failure.message.endswith("z" * 4_000)
    assert "cut: 2,000,000 characters in all" in failure.message
    assert len(failure.message.encode()) <= limits.ERROR_MESSAGE_BYTES_MAX


def test_what_is_told_of_an_error_has_a_limit_and_can_be_sent():
    error = type("Bad", (Exception,), {"__module__": "\ud800"})("\0\ud800" * 5_000_000)

    told = msgspec.json.encode(Account.of(error))

    assert len(told) < 1_000_000
    assert Failure.from_exception(DescribedError(msgspec.json.decode(told, type=Account))).message


@pytest.mark.parametrize("bytes_max", [100, limits.ERROR_MESSAGE_BYTES_MAX])
def test_no_half_of_a_secret_comes_into_view_where_a_text_without_end_is_cut(bytes_max):
    for offset in range(len(SECRET) + 1):
        end = "k" * (2 * bytes_max - offset)
        text = f"{end}{SECRET}{'.' * 5 * bytes_max}{SECRET}{end}"

        kept = Excerpt.of(text, bytes_max).cut(bytes_max, hidden)

        assert not re.search("hun|er2", kept)


def chain(length: int) -> None:
    try:
        if length:
            chain(length - 1)
        raise ValueError(f"link {length}")
    except ValueError as error:
        raise (KeyError if length % 2 else LookupError)("next") from (error if length % 3 else None)


def noted() -> None:
    error = ValueError("with a note")
    error.add_note("look here")
    raise error


def cyclic() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def misspelt() -> None:
    length = 1
    raise NameError(f"{lenght + length}")  # type: ignore  # noqa: F821


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise OSError(2, "gone")


def in_turns(depth: int) -> None:
    in_turns(depth - 1) if depth % 2 else depth and in_turns(depth - 1)
    raise Broken


@pytest.mark.parametrize(
    "fail",
    [
        noted, cyclic, misspelt, grouped,
        *(partial(deep, depth) for depth in (0, 1, 2, 3, 4, 50, 300)),
        *(partial(in_turns, depth) for depth in (1, 7, 40)),
        *(partial(chain, length) for length in (0, 1, 2, 3, 9)),
        partial(int, "x"), partial(compile, "1 +", "there", "exec"),
        lambda: (_ for _ in ()).throw(Quitter()), partial(getattr, "", "lowr"),
        lambda: __import__("nothing"),
    ],
)  # fmt: skip
def test_a_traceback_is_that_of_the_standard_library(fail: Callable[[], Any]):
    for _ in range(2):  # the second time from what is known of the places
        try:
            fail()
        except BaseException as error:
            expected = "".join(traceback.format_exception(error, limit=-100))
            assert Failure.from_exception(error).traceback == expected
        else:
            raise AssertionError("it does not fail")


def some_copies() -> ExecutionCopies:
    pattern = NewExecution(id=mint(), job="a", queue="fast", retries=3)
    return ExecutionCopies(pattern, mint_many(3), ['{"n":1}', '{"n":2}', '{"n":3}'])


def test_copies_are_executions_with_ids_and_arguments_of_their_own() -> None:
    copies = some_copies()
    made = list(copies)
    assert [one.args for one in made] == ['{"n":1}', '{"n":2}', '{"n":3}']
    assert [one.id for one in made] == copies.ids
    assert {(one.job, one.queue, one.retries) for one in made} == {("a", "fast", 3)}
    assert (len(copies), copies[-1], list(copies[1:])) == (3, made[2], made[1:])


def test_columns_of_executions_are_those_of_the_list() -> None:
    copies = some_copies()
    assert columns_of(copies) == columns_of(list(copies))


def test_distinct_in_copies_has_all_that_is_common_to_them() -> None:
    copies = some_copies()
    assert {one.job for one in distinct_in(copies)} == {"a"}
    assert list(distinct_in(copies[:0])) == []
    assert list(distinct_in(list(copies))) == list(copies)
