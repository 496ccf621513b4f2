"""The id of a request: ours inside, the client's own in the answer.

Two clients may send the same id, so a client's id alone never names anything in the fleet.
"""

from __future__ import annotations

import re

import msgspec

from cluster.identity import UniqueHex, new_request_id, unique_hex

_ALLOWED = re.compile(r"[A-Za-z0-9._:-]{1,128}")
BODY_PREFIXES = ("chatcmpl", "cmpl", "embd", "score", "rerank")
"""Before the internal id, in the `id` of an answer."""
_SUFFIX_CHARS = 12
_ADDED = re.compile(rf"(-[0-9a-f]{{{_SUFFIX_CHARS}}})?(-[0-9]{{1,4}})?")
"""What may follow a client's id inside: our suffix, and the number of one prompt of several."""


class RequestIds(msgspec.Struct, frozen=True):
    """`internal` is unique; `echoed` is what X-Request-Id says."""

    internal: str
    echoed: str


def request_ids(asked: str | None, draw: UniqueHex = unique_hex) -> RequestIds:
    """A client's id is kept when it is short and plain, and replaced otherwise."""
    if asked is None or not _ALLOWED.fullmatch(asked):
        made = new_request_id(draw)
        return RequestIds(made, made)
    return RequestIds(f"{asked}-{draw()[:_SUFFIX_CHARS]}", asked)


def is_known_as(internal: str, echoed: str) -> bool:
    """True when a request with this internal id may have answered with that X-Request-Id, or with
    that `id` in its body."""
    names = {echoed, *(echoed.removeprefix(f"{prefix}-") for prefix in BODY_PREFIXES)}
    return any(
        internal.startswith(name) and bool(_ADDED.fullmatch(internal, len(name))) for name in names
    )
