"""The check of an error: its class, its code and the input that it names, not its words."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from daybell.errors import DaybellError

E = TypeVar("E", bound=DaybellError)


@contextmanager
def refuses(kind: type[E], *, field: str | None = None) -> Generator[pytest.ExceptionInfo[E]]:
    """Expect an error of exactly this class, with its code, that names this input."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    assert error.code == kind.code
    assert getattr(error, "field", None) == field, str(error)
