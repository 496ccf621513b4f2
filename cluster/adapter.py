"""An adapter as a fleet knows it: a name that clients ask for, and what it stands for now.

The name may stand for other weights tomorrow; the digest never does. Blocks of KV, requests between
workers and what a worker has in memory go by the digest.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from cluster.errors import InvalidRequest

MAX_ADAPTERS: Final = 256
"""That a worker tells of: each of its beats has all of them."""
MAX_LORA_RANK: Final = 256
"""Of one adapter at one matrix. Settings beyond it are refused, and kernels lay memory aside by
it."""
MAX_NAME_CHARS: Final = 96
DIGEST_CHARS: Final = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_CHARS}}}")


class Adapter(msgspec.Struct, frozen=True, gc=False):
    """One version of an adapter."""

    name: str
    digest: str
    """Hex, of weights and settings."""


class OfferedAdapter(msgspec.Struct, frozen=True, gc=False):
    """As a worker tells of it: whoever asks for it by its name is served."""

    adapter: Adapter
    is_resident: bool
    """In its device's memory; else it is offered none the less, and read when somebody asks."""

    def check(self) -> None:
        """Raises InvalidRequest for what no worker of ours says."""
        check_name(self.adapter.name)
        check_digest(self.adapter.digest)


class UnreadAdapters(msgspec.Struct, frozen=True, gc=False):
    """What a worker may offer soon, and does not yet: all others of its names stand for nothing."""

    names: frozenset[str] = frozenset()
    """At most MAX_ADAPTERS of a worker."""
    may_be_any: bool = False
    """It has not seen yet what lies in its folder."""

    def __contains__(self, name: str) -> bool:
        return self.may_be_any or name in self.names


NOTHING_UNREAD: Final = UnreadAdapters()


def check_name(name: str) -> str:
    """Raises InvalidRequest for what cannot be an adapter's name: no path, and nothing long."""
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:MAX_NAME_CHARS]!r} is no name of an adapter; allowed: up to {MAX_NAME_CHARS} "
            "letters, digits, dots, dashes and underscores, the first a letter or a digit",
            param="lora_name",
        )
    return name


def check_digest(digest: str) -> str:
    """Raises InvalidRequest for what is no digest of an adapter."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidRequest(
            f"an adapter's digest is {digest[:DIGEST_CHARS]!r}; needed: {DIGEST_CHARS} hex digits",
            param="adapter",
        )
    return digest
