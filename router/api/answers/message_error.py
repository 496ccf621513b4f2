"""Errors of /v1/messages, in Anthropic's shape."""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.errors import SplitserveError, status_of

_NO_THREAD = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""The client's tool runner then sends all messages anew, and no thread any more."""
_MESSAGE_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


def message_error_body(error: SplitserveError, request_id: str) -> bytes:
    """In Anthropic's shape; its clients know the type."""
    kind = _MESSAGE_TYPES.get(status_of(error).http, "api_error")
    told: dict[str, Any] = {"type": kind, "message": error.message}
    if error.param == "thread":
        told["details"] = _NO_THREAD
    return msgspec.json.encode({"type": "error", "error": told, "request_id": request_id})
