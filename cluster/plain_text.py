"""Text from strangers, made harmless for a terminal: a client's path, a model's answer."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Control characters shown as `\\x1b`; lines and tabs stay. A terminal obeys the others: they
    move the cursor, retitle the window, or hide what is printed next."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
