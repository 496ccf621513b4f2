"""What a server and its engine say to each other about adapters.

LoadAdapter    -> AdapterNews: requests may ask for it, or why not; again when it is in the
                  device's memory, or not any more
UnloadAdapter  -> no new request gets it; gone with the last that has it
"""

from __future__ import annotations

import msgspec


class LoadAdapter(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An adapter whose files were looked at."""

    digest: str
    root: str
    """Under which its files have to lie."""
    folder: str
    lora_rank: int
    """The largest of its matrices."""


class UnloadAdapter(msgspec.Struct, frozen=True, tag=True):
    """No router sends requests for it any more."""

    digest: str


class AdapterNews(msgspec.Struct, frozen=True):
    """What has become of one."""

    digest: str
    is_resident: bool
    failure: str = ""
    """Why it cannot be had; empty: it can."""
    may_pass: bool = False
    """Of a failure: its files could not be read, and another time perhaps can."""
    num_bytes: int = 0
    """That it takes of the memory of the engine's first rank, where it is resident."""
