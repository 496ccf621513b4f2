"""A client's body as a vLLM server gets it: the same, under the server's names."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


_NULL = msgspec.Raw(b"null")
_LIMITS = ("max_tokens", "max_completion_tokens")


def passed_body(
    body: bytes, *, model: str, salt: str, left_out: Collection[str], max_tokens: int
) -> bytes:
    """`body` was read and found good. `salt` takes the place of the client's own, which is a part
    of it: tenants do not meet in the server's cache. `left_out`: fields that nobody here knows.
    `max_tokens`: what was admitted, for who says nothing of it: the server's default is another."""
    fields = _FIELDS.decode(body)
    for name in left_out:
        fields.pop(name, None)
    if not any(fields.get(name, _NULL) != _NULL for name in _LIMITS):
        fields["max_tokens"] = msgspec.Raw(msgspec.json.encode(max_tokens))
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    fields["cache_salt"] = msgspec.Raw(msgspec.json.encode(salt))
    return msgspec.json.encode(fields)
