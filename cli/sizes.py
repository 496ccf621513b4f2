"""Sizes for people."""

from __future__ import annotations


def size_in_words(num_bytes: float) -> str:
    """Such as "128 KiB" or "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            break
        num_bytes /= 1024
    return (
        f"{num_bytes:.0f} {unit}" if unit == "B" or num_bytes >= 10 else f"{num_bytes:.1f} {unit}"
    )
