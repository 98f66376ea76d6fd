"""What the OpenAPI document says of each operation: what it takes, and all that it may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, cast

from fastapi import Header
from pydantic import BaseModel

from daybell.api.examples import EXAMPLES
from daybell.api.problems import MEDIA_TYPE, URN
from daybell.core.limits import REQUEST_KEY_CHARS_MAX

# FastAPI leaves out what is null, also in examples. There, this stands for it on the way.
_NULL: Final = "\0null"
PROBLEM_REF: Final = {"$ref": "#/components/schemas/Problem"}

# What may go wrong with any request, and with any that has a body.
ALWAYS: Final = (400, 401, 403, 404, 408, 421, 422, 429, 431, 500, 503)
WITH_BODY: Final = (413, 415)

EXPLAINED: Final[Mapping[int, tuple[str, str]]] = {
    400: ("bad-request", "The request itself is malformed, or has a key in its address."),
    401: ("key-needed", "There is no key, or none that is valid."),
    403: ("access-denied", "The key does not open this, or the request comes from elsewhere."),
    404: ("not-found", "There is no such thing, or not for this tenant."),
    408: ("request-timeout", "The request was not sent, or not answered, in time."),
    409: ("conflict", "It cannot be done as things are now; the detail says why."),
    412: ("precondition-failed", "It is not at the version that If-Match names."),
    413: ("payload-too-large", "There is more of it than one request may have."),
    415: ("unsupported", "The body is not said to be JSON."),
    421: ("wrong-host", "The server does not go by the name in the Host header."),
    422: ("invalid", "Something in the request makes no sense; errors says what, by field."),
    429: ("quota-exceeded", "More than the tenant, or this address, may ask for now."),
    431: ("request-header-fields-too-large", "The head of the request is too long."),
    500: ("internal-error", "A mistake of the server's, which is in its log."),
    503: ("unavailable", "The store cannot be used now. Send it again after Retry-After."),
}
RETRY_AFTER: Final = {
    "Retry-After": {"description": "After how many seconds.", "schema": {"type": "string"}}
}
ETAG: Final = {"ETag": {"description": "Its version, in quotes.", "schema": {"type": "string"}}}
LOCATION: Final = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
REPLAYED: Final = {
    "Idempotency-Replayed": {
        "description": "true: this is the answer to an earlier request with the same key.",
        "schema": {"type": "string"},
    }
}

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Made by the sender. The same request with the same key is done once, and"
        " answered as it was the first time, for a day.",
        min_length=1,
        max_length=REQUEST_KEY_CHARS_MAX,
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The version that the change is meant for, as the ETag has it.",
        max_length=100,
    ),
]

bodies: set[type[BaseModel]] = set()  # of all operations, for the document's components


def operation(
    id: str,
    *,
    answers: type[BaseModel],
    status: int = 200,
    says: str = "Done.",
    body: type[BaseModel] | None = None,
    is_optional: bool = False,
    examples: Mapping[str, Any] | None = None,
    errors: tuple[int, ...] = (),
    headers: Mapping[str, Any] | None = None,
    also: Mapping[int, str] | None = None,
    parameters: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The arguments of a route's decorator. `examples` are bodies; `also` are other good answers,
    which look the same; `parameters` are those that the framework has no type for.
    """
    content = {"application/json": {"example": protect_nulls(EXAMPLES[answers.__name__])}}
    good: dict[str, Any] = {"model": answers, "description": says, "content": content}
    if headers:
        good["headers"] = dict(headers)
    others = {code: {**good, "description": about} for code, about in (also or {}).items()}
    found = sorted({*ALWAYS, *errors, *(WITH_BODY if body else ())})
    return {
        "operation_id": id,
        "status_code": status,
        "response_model": None,
        "responses": {status: good, **others, **{code: refusal(code) for code in found}},
        "openapi_extra": {
            **({} if body is None else {"requestBody": taken(body, is_optional, examples)}),
            **({"parameters": list(parameters)} if parameters else {}),
        },
    }


def taken(
    body: type[BaseModel], is_optional: bool, examples: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the document says of a body."""
    bodies.add(body)
    content: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}
    if examples:
        content["examples"] = {
            name: {"value": protect_nulls(value)} for name, value in examples.items()
        }
    return {"required": not is_optional, "content": {"application/json": content}}


def protect_nulls(example: Any) -> Any:
    """An example with a mark in place of each null, which `restore_nulls` puts back."""
    return _replaced(example, None, _NULL)


def restore_nulls(made: Any) -> Any:
    """A document with nulls where they were protected."""
    return _replaced(made, _NULL, None)


def _replaced(value: Any, old: str | None, new: str | None) -> Any:
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return {name: _replaced(one, old, new) for name, one in given.items()}
    if isinstance(value, list):
        return [_replaced(one, old, new) for one in cast("list[Any]", value)]
    return new if value == old else value


def refusal(code: int) -> dict[str, Any]:
    """What the document says of an error."""
    kind, description = EXPLAINED[code]
    example: dict[str, Any] = {
        "type": URN + kind,
        "title": kind.replace("-", " ").capitalize(),
        "status": code,
        "detail": description,
    }
    if code == HTTPStatus.UNPROCESSABLE_ENTITY:
        example["errors"] = [{"field": "timeout", "message": "'soon' is not a duration"}]
    answer: dict[str, Any] = {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": PROBLEM_REF, "example": example}},
    }
    if code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        answer["headers"] = RETRY_AFTER
    return answer
