"""What people read at a terminal: strangers' text made harmless, sizes in words."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Text from strangers (a client's path, a model's answer), made harmless for a terminal.

    Control characters are shown as `\\x1b`; lines and tabs stay. A terminal obeys the
    others: they move the cursor, retitle the window, or hide what is printed next.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def size_in_words(num_bytes: float) -> str:
    """Such as "128 KiB" or "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            break
        num_bytes /= 1024
    return (
        f"{num_bytes:.0f} {unit}" if unit == "B" or num_bytes >= 10 else f"{num_bytes:.1f} {unit}"
    )
