"""Chat messages as (role, content) pairs that a template can render."""

from __future__ import annotations

from cluster.errors import InvalidRequest
from router.api.reading.schema import ChatMessage, ContentPart, PredictedContent
from router.front.chat_rules import checked_role
from router.front.generation_request import check_prediction


def to_pairs(messages: list[ChatMessage]) -> tuple[tuple[str, str], ...]:
    """Checks roles and contents. Raises InvalidRequest naming the message at fault."""
    return tuple(_pair(message, f"messages[{i}]") for i, message in enumerate(messages))


def predicted_text(prediction: PredictedContent) -> str:
    """What the answer is expected to be; empty text says nothing. Raises InvalidRequest."""
    if prediction.type != "content":
        raise InvalidRequest(
            f"prediction has type {prediction.type[:50]!r}; only content is supported",
            param="prediction.type",
        )
    content = prediction.content
    if not isinstance(content, str):
        parts = enumerate(content)
        content = "".join(_part(part, f"prediction.content[{i}]") for i, part in parts)
    return check_prediction(content)


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
