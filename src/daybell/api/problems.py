"""Errors as application/problem+json (RFC 9457), and messages for invalid values."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from daybell import errors
from daybell.api.caller import KeyNeeded
from daybell.api.encoding import encode
from daybell.errors import DaybellError, UsageError

# What is wrong with a value, in our own words: what a checker finds has a kind, and each kind a
# sentence that goes on from the field's name.

_WHOLE: Final = "must be a whole number"
_NUMBER: Final = "must be a number"
_LOGICAL: Final = "must be true or false"
_OBJECT: Final = "must be an object"

# Of what type it has to be.
TYPES: Final[Mapping[str, str]] = {
    "bool_parsing": _LOGICAL,
    "bool_type": _LOGICAL,
    "dict_type": _OBJECT,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "list_type": "must be a list",
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "string_type": "must be text",
}
# What it has to be beyond that; the names in braces are what the checker tells with the kind.
RULES: Final[Mapping[str, str]] = {
    "enum": "must be {expected}",
    "finite_number": "must be a number that is not infinite",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have {max_length} characters or fewer",
    "string_too_short": "must have {min_length} or more characters",
    "too_long": "must have {max_length} entries or fewer",
    "too_short": "must have {min_length} or more entries",
}
_MUST_BE: Final = "must be "


def describe_finding(found: Mapping[str, Any]) -> str:
    """A finding of pydantic's as we say it."""
    kind = found["type"]
    if kind in TYPES:
        return TYPES[kind]
    said = found.get("ctx", {})
    if said.get("field_type") == "Value":  # what has a rule of its own beside its length is text
        kind = f"string_{kind}"
    if kind in RULES:
        return RULES[kind].format_map(said)
    return str(found["msg"])


def join_findings(found: Iterable[str]) -> str:
    """One sentence of what each type of a choice said.

    If one of them had the right type, it is its word that counts.
    """
    told = list(dict.fromkeys(found))
    types = set(TYPES.values())
    finer = [one for one in told if one not in types]
    first, *more = finer or told
    return first + "".join(f", or {one.removeprefix(_MUST_BE)}" for one in more)


logger = logging.getLogger("daybell.api")

MEDIA_TYPE: Final = "application/problem+json"
URN: Final = "urn:daybell:problem:"
ERRORS_MAX: Final = 100  # listed in one answer
FIELD_CHARS_MAX: Final = 200  # of a field's name, which anybody may have made up
AWAY_SECONDS: Final = 2  # after which it is worth asking again when the store is away


class Invalid(UsageError):
    """Several things are wrong at once."""

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        self.found = list(found)[:ERRORS_MAX]
        field, message = self.found[0]
        more = len(self.found) - 1
        tail = f"; and {more} more, see errors" if more else ""
        super().__init__(f"{field}: {message}{tail}" if field else f"{message}{tail}", field=field)


class Unsupported(UsageError):
    """The body is not JSON by its own account."""


class PreconditionFailed(errors.VersionConflict):
    """It is not at the version that the caller has seen, and If-Match asked for that one."""


class TooManyRequests(DaybellError):
    """Not now."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


# The first class that fits decides.
STATUSES: Final[tuple[tuple[type[DaybellError], HTTPStatus], ...]] = (
    (errors.PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (Unsupported, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (UsageError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.QuotaExceeded, HTTPStatus.TOO_MANY_REQUESTS),
    (PreconditionFailed, HTTPStatus.PRECONDITION_FAILED),
    (errors.Conflict, HTTPStatus.CONFLICT),
    (errors.NotFound, HTTPStatus.NOT_FOUND),
    (KeyNeeded, HTTPStatus.UNAUTHORIZED),
    (errors.AccessDenied, HTTPStatus.FORBIDDEN),
    (TooManyRequests, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.SchemaError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)


def problem(
    status: int,
    kind: str,
    detail: str,
    *,
    found: Iterable[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """An answer that says what went wrong. `kind` is stable, for programs; `detail` for people."""
    listed = [{"field": field[:FIELD_CHARS_MAX], "message": message} for field, message in found]
    content = {
        "type": URN + kind,
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        **({"errors": listed} if listed else {}),
        **more,
    }
    return Response(
        encode(content),
        status_code=status,
        headers=None if headers is None else dict(headers),
        media_type=MEDIA_TYPE,
    )


def answer_error(error: DaybellError) -> Response:
    """The answer to a request that one of our own errors ended."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if status is None:
        return answer_unexpected(error)
    found: list[tuple[str, str]] = []
    if isinstance(error, Invalid):
        found = error.found
    elif isinstance(error, UsageError) and error.field is not None:
        found = [(error.field, str(error))]
    return problem(
        status,
        kind_of(error),
        _error_detail(error),
        found=found,
        headers=_headers(error),
        **_extra_fields(error),
    )


def kind_of(error: DaybellError) -> str:
    """The stable name of an error: JobNotFound is job-not-found."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def answer_unexpected(error: BaseException) -> Response:
    """The answer to a mistake of ours. What it was is for the log, not for the caller."""
    logger.error("a request failed", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "something went wrong here, and is in the server's log; the request may be sent again",
    )


def install(app: FastAPI) -> None:
    """Have the application answer every error with a problem."""
    app.add_exception_handler(DaybellError, _handle_error)
    app.add_exception_handler(RequestValidationError, _handle_parameters)
    app.add_exception_handler(HTTPException, _handle_status)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle_unexpected)


async def _handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DaybellError)
    return answer_error(error)


async def _handle_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [(str(one["loc"][-1]), describe_finding(one)) for one in error.errors()]
    return answer_error(Invalid(found))


async def _handle_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = {
        HTTPStatus.NOT_FOUND: "there is nothing at this path; /docs lists what there is, and"
        " /openapi.json does so for programs",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not for this path",
    }.get(status, str(error.detail))
    kind = status.phrase.lower().replace(" ", "-")
    headers = dict(error.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED and (methods := _methods_of(request)):
        headers["Allow"] = ", ".join(methods)
    return problem(status, kind, detail, headers=headers)


def _methods_of(request: Request) -> list[str]:
    """All that can be done at a path: each route knows only of its own method."""
    found: set[str] = set()
    for path, methods in request.app.state.methods.items():
        if compile_path(path)[0].fullmatch(request.url.path):
            found |= methods | ({"HEAD"} if "GET" in methods else set())
    return sorted(found)


async def _handle_disconnect(request: Request, error: Exception) -> Response:
    """Answer a client that has left before its body was complete: no mistake of ours."""
    logger.debug("a client left in the middle of its request")
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _handle_unexpected(request: Request, error: Exception) -> Response:
    return answer_unexpected(error)


def _error_detail(error: DaybellError) -> str:
    if isinstance(error, errors.Unavailable | errors.SchemaError):
        # Where the store is, and what it says of itself, is not for everybody.
        logger.warning("a request was refused: %s", error)
        return "the store cannot be used now; nothing is wrong with the request, send it again"
    return str(error)


def _headers(error: DaybellError) -> dict[str, str]:
    if isinstance(error, errors.QuotaExceeded | TooManyRequests):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if isinstance(error, errors.Unavailable | errors.SchemaError):
        return {"Retry-After": str(AWAY_SECONDS)}
    if isinstance(error, KeyNeeded):
        return {"WWW-Authenticate": 'Bearer realm="daybell"'}
    return {}


def _extra_fields(error: DaybellError) -> dict[str, Any]:
    if isinstance(error, errors.ExecutionInTheWay) and error.execution is not None:
        return {"execution_id": str(error.execution)}
    if isinstance(error, errors.QuotaExceeded):
        return {"quota": error.quota}
    return {}
