"""What an API server says no with: an HTTP status, a reason in one word, and a sentence."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """Changes nothing. `str()` is the sentence that kubectl prints after the reason."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def status(self) -> dict[str, Any]:
        """The `Status` object that goes over the wire."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def _of(resource: str, name: str) -> dict[str, str]:
    kind, _, group = resource.partition(".")
    return {"name": name, "group": group, "kind": kind}


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def unprocessable(message: str) -> Refusal:
    return Refusal(422, "Invalid", message)


def not_found(resource: str, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{resource} "{name}" not found', **_of(resource, name))


def already_exists(resource: str, name: str) -> Refusal:
    message = f'{resource} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, **_of(resource, name))


def conflict(resource: str, name: str, cause: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {cause}'
    return Refusal(409, "Conflict", message, **_of(resource, name))


def stale(resource: str, name: str) -> Refusal:
    """Somebody else has written since the version that the caller read."""
    cause = "the object has been modified; please apply your changes to the latest version"
    return conflict(resource, name, f"{cause} and try again")


def expired(version: int, oldest: int) -> Refusal:
    """What happened since is no longer known: list, and watch from there."""
    return Refusal(410, "Expired", f"too old resource version: {version} ({oldest})")
