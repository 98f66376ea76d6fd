"""What is kept of an exception: enough for a person to act on and for a retry rule to match.

An exception is the least trustworthy object in a worker, so nothing here lets one do harm: not
by raising when it is shown, not by its size, not by characters that a store cannot hold.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from types import CodeType, TracebackType
from typing import Final

import msgspec

from daybell.core.instant import Seconds
from daybell.core.limits import (
    ERROR_MESSAGE_BYTES_MAX,
    ERROR_NAMES_MAX,
    ERROR_TRACEBACK_BYTES_MAX,
    NAME_CHARS_MAX,
)
from daybell.errors import PayloadError

Mask = Callable[[str], str]

_FRAMES_MAX: Final = 100  # of one exception; a runaway recursion repeats itself anyway
_PLAIN_FRAMES_MAX: Final = 30
_PLAIN_CAUSES_MAX: Final = 5
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_FRAME_TEXTS_MAX: Final = 1_000  # that are kept
_frame_texts: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
# Exceptions of which the library shows more: suggestions, source, other exceptions.
_ELABORATE: Final = (SyntaxError, NameError, AttributeError, ImportError, BaseExceptionGroup)
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO: Final = f"{_PACKAGE}demo.py"  # a user's app that comes with the package


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed. Its texts are cut and cleaned however it is made.

    `names` are the dotted names of the exception's class and its ancestors, nearest first. A
    failure that was no exception (a timeout, an exit code) has its type as its only name.
    """

    type: str
    message: str = ""
    traceback: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Cut and clean the texts."""
        setattr_ = msgspec.structs.force_setattr
        setattr_(self, "type", _clean(self.type, NAME_CHARS_MAX))
        setattr_(self, "message", _clean(self.message, ERROR_MESSAGE_BYTES_MAX))
        setattr_(self, "traceback", _clean(self.traceback, ERROR_TRACEBACK_BYTES_MAX))
        setattr_(self, "names", _clean_names(self.names) or (self.type,))

    @classmethod
    def from_exception(cls, error: BaseException, *, mask: Mask = str) -> Failure:
        """Describe `error`, whatever it does when it is asked. Source lines are read from disk."""
        account = Account.of(error)
        return cls(
            type=account.type,
            message=account.message.kept(ERROR_MESSAGE_BYTES_MAX, mask),
            traceback=account.traceback.kept(ERROR_TRACEBACK_BYTES_MAX, mask),
            names=account.names,
        )

    def to_json(self) -> str:
        """Return JSON text that any store can hold."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """Read what to_json wrote; fields that a later version added are ignored."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise PayloadError(f"a stored failure cannot be read: {error}") from error

    @classmethod
    def of_kept(cls, text: str) -> Failure:
        """A kept error. One that another program wrote in its own way is taken as it is."""
        try:
            return cls.from_json(text)
        except PayloadError:
            return cls(type=text)


class Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """A text that may be cut for good only when masks have seen it: they find what is there as a
    whole. Of one without end, both ends, each with as much to spare as is kept in all.
    """

    head: str
    tail: str = ""
    length: int | None = None  # of the whole; None: head is all of it

    @classmethod
    def of(cls, text: str, bytes_max: int) -> Excerpt:
        room = 2 * bytes_max
        if len(text) <= 2 * room:
            return cls(_storable(text).decode())
        head, tail = _storable(text[:room]).decode(), _storable(text[-room:]).decode()
        return cls(head, tail, len(text))

    def kept(self, bytes_max: int, mask: Mask) -> str:
        """The text in at most so many bytes of UTF-8, without what a mask takes out."""
        if self.length is None:
            return _clean(mask(self.head), bytes_max)
        # Either may have half a secret at the cut, which the mask may have moved.
        head, tail = mask(self.head)[:-bytes_max], mask(self.tail)[bytes_max:]
        return _without_middle(head, tail, self.length, bytes_max)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An exception as one process tells another of it."""

    type: str
    message: Excerpt
    traceback: Excerpt = Excerpt("")
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Account:
        if isinstance(error, Described):
            return error.account
        mro = type(error).__mro__[:-1]
        names = _clean_names([dotted_name(ancestor) for ancestor in mro[:ERROR_NAMES_MAX]])
        return cls(
            type=names[0].removeprefix("builtins."),
            message=Excerpt.of(_message(error), ERROR_MESSAGE_BYTES_MAX),
            traceback=Excerpt.of(_traceback(error), ERROR_TRACEBACK_BYTES_MAX),
            names=names,
        )


class Described(Exception):
    """Stands for an exception of another process, where it was described already; or for what
    went wrong without one. `retry_after` is how long not to try again, if somebody has said so.
    """

    def __init__(self, account: Account, *, retry_after: Seconds | None = None) -> None:
        super().__init__(account)
        self.account = account
        self.retry_after = retry_after

    @classmethod
    def as_text(cls, type: str, message: str, *, retry_after: Seconds | None = None) -> Described:
        """What went wrong, in words: an exit code, an answer's status."""
        excerpt = Excerpt.of(message, ERROR_MESSAGE_BYTES_MAX)
        return cls(Account(type=type, message=excerpt, names=(type,)), retry_after=retry_after)

    @property
    def type(self) -> str:
        """The name of the exception's class."""
        return self.account.type

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names of the exception's class and its ancestors, nearest first."""
        return self.account.names

    @property
    def message(self) -> str:
        """The exception's message; of a very long one, its beginning."""
        return self.account.message.head

    def __str__(self) -> str:
        """What shows in a traceback that this is the cause of. Nobody has masked it yet."""
        account = self.account
        told = account.traceback if account.traceback.head else account.message
        text = told.head if told.length is None else f"{told.head}\n…\n{told.tail}"
        return text if account.traceback.head else f"{account.type}: {text}"


def dotted_name(of: type) -> str:
    """Return the name that retry rules use for a class: `builtins.ValueError`, `httpx.ReadError`.

    It is where the class says that it was defined, which may not be where it is imported from.
    """
    module, name = getattr(of, "__module__", None), getattr(of, "__qualname__", None)
    return f"{module}.{name}" if isinstance(module, str) else str(name)


def _clean_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_clean(name, NAME_CHARS_MAX) for name in names[:ERROR_NAMES_MAX])


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # a __str__ that raises SystemExit must not stop the worker
        return f"<its __str__ raised {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        own = _own(error.__traceback__)
        if (text := _plain_traceback(error, own)) is not None:
            return text
        return "".join(traceback.format_exception(type(error), error, own, limit=-_FRAMES_MAX))
    except BaseException as broken:  # as above
        return f"<formatting the traceback raised {type(broken).__name__}>"


def _plain_traceback(
    error: BaseException, trace: TracebackType | None, causes: int = 0
) -> str | None:
    """Format as the standard library does, at a fraction of its price: a job that fails does so at
    the same lines again and again. None: there is more to show than lines and messages.
    """
    kind = type(error)
    name, module = kind.__qualname__, kind.__module__
    if isinstance(error, _ELABORATE) or hasattr(error, "__notes__"):
        return None
    parts: list[str] = []
    while trace is not None:
        part = _frame_text(trace)
        # The library shows what repeats itself only three times, and says how often.
        if len(parts) == _PLAIN_FRAMES_MAX or parts[-3:].count(part) == 3:
            return None
        parts.append(part)
        trace = trace.tb_next
    if parts:
        parts.insert(0, "Traceback (most recent call last):\n")
    try:
        message = str(error)
    except BaseException:  # which the library has words for
        return None
    name = name if module in ("__main__", "builtins") else f"{module}.{name}"
    parts.append(f"{name}: {message}\n" if message else f"{name}\n")
    if error.__cause__ is not None:
        cause, link = error.__cause__, _CAUSE
    elif error.__context__ is not None and not error.__suppress_context__:
        cause, link = error.__context__, _CONTEXT
    else:
        return "".join(parts)
    if causes == _PLAIN_CAUSES_MAX:  # there may be no end of them
        return None
    before = _plain_traceback(cause, cause.__traceback__, causes + 1)
    return None if before is None else "".join([before, link, *parts])


def _frame_text(trace: TracebackType) -> str:
    """The lines that a traceback has of one frame, which are the same for the same place of the
    same code.
    """
    code = trace.tb_frame.f_code
    key = id(code), trace.tb_lasti
    known = _frame_texts.get(key)
    if known is not None:
        return known[1]
    text = "".join(traceback.extract_tb(trace, limit=1).format())
    if len(_frame_texts) >= _FRAME_TEXTS_MAX:
        _frame_texts.clear()
    _frame_texts[key] = code, text  # the code is kept, and so its id is not given to another
    return text


def _own(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins with the user's code; all of it if none is in it."""
    part = trace
    while part is not None:
        file = part.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file == _DEMO:
            return part
        part = part.tb_next
    return trace


def _clean(text: str, bytes_max: int) -> str:
    """Return `text` in at most `bytes_max` bytes of UTF-8, escaped where it is not storable.

    Too long a text loses its middle: it begins with what happened and ends with where.
    """
    if len(text) <= bytes_max:
        kept = _storable(text)
        if len(kept) <= bytes_max:
            return kept.decode()
    return _without_middle(text, text, len(text), bytes_max)


def _without_middle(head: str, tail: str, length: int, bytes_max: int) -> str:
    """The beginning of `head` and the end of `tail`, of a text that was so long."""
    # A character is one byte at least, so bytes_max of them at either end are enough to cut from.
    mark = f"\n… cut: {length:,} characters in all …\n".encode()
    half = max(0, (bytes_max - len(mark)) // 2)
    start, end = _storable(head[:bytes_max])[:half], _storable(tail[-bytes_max:])[-half:]
    return (start + mark + end).decode(errors="ignore")


def _storable(text: str) -> bytes:
    # PostgreSQL has no NUL in text, and UTF-8 has no lone surrogates.
    return text.replace("\0", "\\x00").encode(errors="backslashreplace")
