"""A client's body as a vLLM server gets it: the same, under the server's names."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def passed_body(body: bytes, *, model: str, salt: str, left_out: Collection[str]) -> bytes:
    """`body` was read and found good. `salt` takes the place of the client's own, which is a part
    of it: tenants do not meet in the server's cache. `left_out`: fields that nobody here knows."""
    fields = _FIELDS.decode(body)
    for name in left_out:
        fields.pop(name, None)
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    fields["cache_salt"] = msgspec.Raw(msgspec.json.encode(salt))
    return msgspec.json.encode(fields)
