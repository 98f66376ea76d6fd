"""What a server says went wrong, as the error that the same call on the database would raise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from uuid import UUID

from daybell import errors
from daybell.errors import AccessDenied, DaybellError, SchemaError, Unavailable, UsageError, shown

URN: Final = "urn:daybell:problem:"
# What a gateway in front of a server answers while that is away.
AWAY: Final = frozenset({502, 503, 504})


def of_answer(
    status: int, problem: object, *, place: str, has_key: bool, retry_after: str | None = None
) -> DaybellError:
    """The error that an answer tells of. `place` is the server's address as people may see it."""
    said: Mapping[str, Any] = (
        cast("dict[str, Any]", problem) if isinstance(problem, dict) else dict[str, Any]()
    )
    detail = said.get("detail")
    if not isinstance(detail, str) or not isinstance(said.get("type"), str):
        return _of_a_stranger(status, place)
    kind = _KINDS.get(str(said["type"]).removeprefix(URN))
    if status == 401:
        return AccessDenied(_key_advice(place, has_key=has_key))
    if kind is SchemaError or status in AWAY:
        return Unavailable(f"{place}: {detail}")
    if kind is None:
        kind = _by_status(status)
    return _made(kind, detail, said, retry_after)


def _of_a_stranger(status: int, place: str) -> DaybellError:
    """What is not a problem of ours was not answered by a Daybell server."""
    if status in AWAY:
        return Unavailable(f"{place} answers {status}: the server behind it is away; try again")
    if 300 <= status < 400:
        return UsageError(
            f"{place} answers {status}, another address; give that one, redirects are not followed:"
            " a key goes only where it was meant to",
            field="api_url",
        )
    return UsageError(
        f"{place} answers {status}, but not as Daybell does; is DAYBELL_API_URL the address of a"
        " `daybell server`?",
        field="api_url",
    )


def _key_advice(place: str, *, has_key: bool) -> str:
    if not has_key:
        return (
            f"{place} takes a key: set DAYBELL_API_KEY; without one yet, make it beside the"
            " database: daybell keys create NAME --role ROLE --database-url …"
        )
    return (
        f"{place} does not know this key, or it was revoked or has expired; set DAYBELL_API_KEY to"
        " another, which `daybell keys create` makes"
    )


def _by_status(status: int) -> type[DaybellError]:
    """For kinds that a newer server may have."""
    if status == 408:
        return Unavailable
    if status in (403, 421):
        return AccessDenied
    if status == 404:
        return errors.NotFound
    if status in (409, 412, 429):
        return errors.Conflict
    return UsageError if 400 <= status < 500 else DaybellError


def _made(
    kind: type[DaybellError], detail: str, said: Mapping[str, Any], retry_after: str | None
) -> DaybellError:
    if issubclass(kind, UsageError):
        return kind(detail, field=_field(said.get("errors")))
    if issubclass(kind, errors.ExecutionInTheWay):
        return kind(detail, execution=_identity(said.get("execution_id")))
    if issubclass(kind, errors.QuotaExceeded):
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 60.0
        return kind(detail, quota=str(said.get("quota", "")), retry_after=seconds)
    return kind(detail)


def _field(found: object) -> str | None:
    """The input that is wrong; the first, if there are several."""
    first = next(iter(cast("list[Any]", found)), None) if isinstance(found, list) else None
    field = cast("dict[str, Any]", first).get("field") if isinstance(first, dict) else None
    return field if isinstance(field, str) and field else None


def _identity(said: object) -> UUID | None:
    try:
        return UUID(str(said)) if said is not None else None
    except ValueError:
        return None


def _all_of(kind: type[DaybellError]) -> Iterator[type[DaybellError]]:
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one
            yield from _all_of(one)


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


_KINDS: Final[Mapping[str, type[DaybellError]]] = {
    **{_kebab(one.__name__): one for one in _all_of(DaybellError)},
    # The API's own, which are kinds of ours.
    "invalid": UsageError,
    "unsupported": UsageError,
    "precondition-failed": errors.VersionConflict,
}


def not_json(place: str, said: str) -> UsageError:
    """An answer that should be JSON and is not."""
    return UsageError(
        f"{place} answers {shown(said)}, which is no JSON; is DAYBELL_API_URL the address of a"
        " `daybell server`?",
        field="api_url",
    )


def not_understood(place: str) -> UsageError:
    """An answer in JSON that says something else than was asked for."""
    return UsageError(
        f"{place} gives an answer that this version does not understand; is it a `daybell server`,"
        " and of a version that is not far from this one?",
        field="api_url",
    )
