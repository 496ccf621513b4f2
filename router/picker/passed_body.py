"""A client's body as a vLLM server gets it: the same, under the server's names; and which of its
headers the server does not get."""

from __future__ import annotations

import msgspec

from router.api.reading.unknown_fields import without_unknown

_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


_NULL = msgspec.Raw(b"null")
_LIMITS = ("max_tokens", "max_completion_tokens")
_OURS_ALONE = ("priority", "request_id", "mm_processor_kwargs")
"""Without effect at the HTTP door: a client chooses none in a server that tenants share."""
HEADERS_OF_OPERATORS = (
    "x-vllm-priority",
    "x-data-parallel-rank",
    "x-session-id",
    "endpoint-load-metrics-format",
)
"""Of vLLM's: who goes first, where, by whose name in its cache's events, and whether the answer
tells the server's load. Not a client's to say, nor to hear."""


def passed_body(
    body: bytes,
    *,
    model: str,
    salt: str,
    schema: type[msgspec.Struct] | None,
    max_tokens: int,
) -> bytes:
    """`body` was read and found good. `salt` takes the place of the client's own, which is a part
    of it: tenants do not meet in the server's cache. `schema`: where the body has fields that it
    does not know, which stay here, whatever their number and place; None: it has none.
    `max_tokens`: what was admitted: no answer is longer, be it that the client says nothing of it,
    where the server's default is another, or that an operator has it shortened."""
    if schema is not None:
        body, _ = without_unknown(body, schema)
    fields = _FIELDS.decode(body)
    for name in _OURS_ALONE:
        fields.pop(name, None)
    named = [name for name in _LIMITS if fields.get(name, _NULL) != _NULL]
    for name in named or _LIMITS[:1]:
        asked = msgspec.json.decode(fields[name]) if named else max_tokens
        fields[name] = msgspec.Raw(msgspec.json.encode(min(int(asked), max_tokens)))
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    fields["cache_salt"] = msgspec.Raw(msgspec.json.encode(salt))
    return msgspec.json.encode(fields)
