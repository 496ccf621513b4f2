"""What is left of a body, or a message, whose prompts are pooled, once they are taken out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from router.front.generation_request import check_salt
from router.front.text_work import Door, SplitBody


class PooledRest(msgspec.Struct, kw_only=True):
    """Checked; small, but for the documents that the answer repeats."""

    timeout_s: float | None = None
    cache_salt: str = ""
    dimensions: int | None = None
    is_base64: bool = False
    num_queries: int = 0
    """Of pairs: texts of the first side; 1 goes with every text of the second."""
    num_documents: int = 0
    """Of the second side."""
    top_n: int | None = None
    documents: list[str] | None = None
    """To be told again; None: they are not."""
    request_id: str = ""
    """That a caller over gRPC gives; over HTTP it is a header."""

    @classmethod
    def of(cls, cache_salt: str | None, timeout_s: float | None = None) -> PooledRest:
        """What all requests share. Raises InvalidRequest."""
        return cls(timeout_s=timeout_s, cache_salt=check_salt(cache_salt or ""))


class PooledReader(Protocol):
    """One endpoint's way from a body to prompts. Raises InvalidRequest and its kin."""

    door: Door

    def split(self, body: bytes) -> SplitBody:
        """Every check, and the prompts taken out: the rest is a PooledRest, as JSON. Of a large
        body this is a text worker's work."""
        ...


_REST = msgspec.json.Decoder(PooledRest)


def rest_of(split: bytes) -> PooledRest:
    """As a reader has left it."""
    return _REST.decode(split)
