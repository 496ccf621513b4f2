"""What holds for the messages of a chat on every door."""

from __future__ import annotations

from cluster.errors import InvalidRequest

MAX_MESSAGES = 4096
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


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
