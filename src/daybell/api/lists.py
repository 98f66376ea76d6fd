"""What lists take in their addresses."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from daybell.api.schema import Bound, Id, by, plain
from daybell.core.limits import PAGE_ITEMS_MAX

Limit = Annotated[int, Query(ge=1, le=PAGE_ITEMS_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="The next_cursor of the page before.")
]
TextFilter = Annotated[Annotated[str, by(plain), Field(max_length=500)] | None, Query()]
IdFilter = Annotated[Id | None, Query()]
StatusFilter = Annotated[
    list[str] | None, Query(max_length=20, description="A state, or pending; may be repeated.")
]
BoundFilter = Annotated[Bound | None, Query()]
