"""Which model a body asks for, where its answer needs nothing else of it.

A reader knows no tenant: whether there is such a model, and whether the key is for it, is asked
once the body is found good. So a body with another fault is told the same of every name.
"""

from __future__ import annotations

import msgspec


class AskedModel(msgspec.Struct):
    """What is left of a body whose text was taken out. Of a rest that has more it is a part."""

    model: str | None = None


_DECODER = msgspec.json.Decoder(AskedModel)


def rest_with(model: str | None) -> bytes:
    """As `SplitBody.rest`."""
    return msgspec.json.encode(AskedModel(model))


def model_in(rest: bytes) -> str | None:
    """The inverse; also of a rest that has other fields."""
    return _DECODER.decode(rest).model
