"""Errors as OpenAI's clients expect them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from unspool.errors import message_line

KINDS = {
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
    """What a client is told: a status, a sentence, and the field that it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # It may quote a file or a request, and clients print it.
        self.message = message_line(message)
        super().__init__(self.message)
        self.status, self.param, self.code = status, None if param is None else message_line(param), code
        self.headers = dict(headers or {})


def invalid_fields(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """A request whose fields are wrong, told by the first of these.

    A field that may be given in several ways fails in each of them: the way that it was meant in is the one
    where more than its type is wrong, or else the one that was followed furthest.
    """
    field = errors[0]["loc"][:2]
    same = [it for it in errors if it["loc"][:2] == field]
    best = max(same, key=lambda it: (not it["type"].endswith(("_type", "_parsing")), len(it["loc"])))
    # Between the names and the places in lists stand pydantic's own names of these ways.
    where = ".".join(
        str(it) for it in best["loc"] if it != "body" and (isinstance(it, int) or it.isidentifier())
    )
    return ApiError(400, f"{where or 'body'}: {best['msg']}"[:500], where or None)


def error_record(error: ApiError) -> dict[str, dict[str, str | None]]:
    """As JSON is made of it."""
    kind = KINDS.get(error.status, "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def error_body(error: ApiError) -> bytes:
    """As bytes."""
    return json.dumps(error_record(error)).encode()


def told(error: BaseException, *, begun: bool) -> ApiError:
    """What a client is told of an error that came of its request: its own fault until work has begun."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ValueError):  # once work has begun: the model said what is no number
        return ApiError(500, str(error), code="model_failed") if begun else ApiError(400, str(error))
    if isinstance(error, TypeError) and not begun:
        return ApiError(400, str(error))
    return ApiError(500, "something went wrong here; the server's log says what", code="internal")
