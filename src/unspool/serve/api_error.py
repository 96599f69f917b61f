"""API errors in the format of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from unspool.errors import message_line

ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
MAX_MESSAGE = 400
"""Length of a message. A message quotes at most 200 characters of a request."""
FIELD_ERRORS: dict[str, str] = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "has too many digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "none_required": "is not supported",
    "literal_error": "must be one of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "string_unicode": "contains a lone surrogate, which is half a character",
    "json_invalid": "is not valid JSON: {error}",
}
"""pydantic's type of an error → what it says here; the fields in braces are those of its context."""


class ApiError(Exception):
    """An error response: HTTP status, message, and the field that is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # The message may quote a file or a request, and clients print it.
        self.message = message_line(message, MAX_MESSAGE)
        super().__init__(self.message)
        self.status, self.param, self.code = status, None if param is None else message_line(param, 200), code
        self.headers = dict(headers or {})


def invalid_fields(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The error for a request that pydantic rejected, about its first wrong field.

    A field of a union type has an error for each alternative. Errors that are not about the type are the most
    useful; among equals, the one with the longest path.
    """
    field = errors[0]["loc"][:2]
    same = [error for error in errors if error["loc"][:2] == field]
    best = max(same, key=lambda error: (not error["type"].endswith(("_type", "_parsing")), len(error["loc"])))
    # Paths also contain pydantic's names of the alternatives, which are not identifiers.
    path = [part for part in best["loc"] if part != "body" and (isinstance(part, int) or part.isidentifier())]
    if best["type"] == "json_invalid":  # the path is a position
        path = []
    where = ".".join(str(part)[:60] for part in path)[:200]
    words = FIELD_ERRORS.get(best["type"], "is not valid").format_map(best.get("ctx", {}))
    if best.get("ctx", {}).get("min_length") == 1:
        words = "must not be empty"
    if not path and words == "must be an object":  # also a JSON body that is sent as a form
        words = "must be a JSON object, with the header content-type: application/json"
    return ApiError(400, f"{where or 'the body'} {words}"[:MAX_MESSAGE], where or None)


def error_record(error: ApiError) -> dict[str, dict[str, str | None]]:
    kind = ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def as_api_error(error: BaseException, *, started: bool) -> ApiError:
    """The error response for an exception; a ValueError before generation starts is the client's fault."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError | ValidationError):
        return invalid_fields(error.errors())
    if isinstance(error, HTTPException):
        return ApiError(error.status_code, str(error.detail))
    if isinstance(error, ValueError):  # after the start: the model returned NaN
        return ApiError(500, str(error), code="model_failed") if started else ApiError(400, str(error))
    if isinstance(error, TypeError) and not started:
        return ApiError(400, str(error))
    return ApiError(500, "internal error; see the log of the server", code="internal")
