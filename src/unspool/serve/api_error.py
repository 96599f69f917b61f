"""API errors in the format of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from unspool.errors import message_line

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


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
        self.message = message_line(message)
        super().__init__(self.message)
        self.status, self.param, self.code = status, None if param is None else message_line(param), code
        self.headers = dict(headers or {})


def invalid_fields(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The error for a request that pydantic rejected, about its first wrong field.

    A field of a union type has an error for each alternative. Errors that are not about the type are the most
    useful; among equals, the one with the longest path.
    """
    field = errors[0]["loc"][:2]
    same = [it for it in errors if it["loc"][:2] == field]
    best = max(same, key=lambda it: (not it["type"].endswith(("_type", "_parsing")), len(it["loc"])))
    # Paths also contain pydantic's names of the alternatives, which are not identifiers.
    where = ".".join(
        str(it) for it in best["loc"] if it != "body" and (isinstance(it, int) or it.isidentifier())
    )
    return ApiError(400, f"{where or 'body'}: {best['msg']}"[:500], where or None)


def error_record(error: ApiError) -> dict[str, dict[str, str | None]]:
    """The JSON object of an error."""
    kind = ERROR_TYPES.get(error.status, "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def as_api_error(error: BaseException, *, started: bool) -> ApiError:
    """The error response for an exception; a ValueError before generation starts is the client's fault."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return invalid_fields(error.errors())
    if isinstance(error, HTTPException):
        return ApiError(error.status_code, str(error.detail))
    if isinstance(error, ValueError):  # after the start: the model returned NaN
        return ApiError(500, str(error), code="model_failed") if started else ApiError(400, str(error))
    if isinstance(error, TypeError) and not started:
        return ApiError(400, str(error))
    return ApiError(500, "internal error; see the log of the server", code="internal")
