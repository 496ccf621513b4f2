"""Chat messages as (role, content) pairs that a template can render."""

from __future__ import annotations

from cluster.errors import InvalidRequest
from router.api.schema import ChatMessage, ContentPart

MAX_MESSAGES = 4096
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def to_pairs(messages: list[ChatMessage]) -> tuple[tuple[str, str], ...]:
    """Checks roles and contents. Raises InvalidRequest naming the message at fault."""
    return tuple(_pair(message, f"messages[{i}]") for i, message in enumerate(messages))


def check_num_messages(count: int) -> None:
    """Raises InvalidRequest for none and for too many; called before any message is looked at."""
    if not count:
        raise InvalidRequest("messages is empty; it needs at least one message", param="messages")
    if count > MAX_MESSAGES:
        raise InvalidRequest(
            f"messages has {count} entries; allowed: {MAX_MESSAGES}", param="messages"
        )


def checked_role(role: str, where: str) -> str:
    """The template's word for a role. Raises InvalidRequest for one that nobody plays here."""
    known = _ROLES.get(role)
    if known is None:
        allowed = ", ".join(sorted(_ROLES))
        raise InvalidRequest(f"{where} is {role[:50]!r}; allowed: {allowed}", param=where)
    return known


def _pair(message: ChatMessage, where: str) -> tuple[str, str]:
    return checked_role(message.role, f"{where}.role"), _text(message, f"{where}.content")


def _text(message: ChatMessage, where: str) -> str:
    if message.content is None:
        raise InvalidRequest(f"{where} is missing; it needs text", param=where)
    if isinstance(message.content, str):
        return message.content
    return "\n".join(_part(part, f"{where}[{i}]") for i, part in enumerate(message.content))


def _part(part: ContentPart, where: str) -> str:
    if part.type != "text":
        raise InvalidRequest(
            f"{where} has type {part.type[:50]!r}; only text parts are supported", param=where
        )
    if part.text is None:
        raise InvalidRequest(f"{where}.text is missing", param=f"{where}.text")
    return part.text
