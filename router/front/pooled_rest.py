"""What is left of a body, or a message, whose prompts are pooled, once they are taken out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from router.front.generation_request import check_salt
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody


class PooledRest(msgspec.Struct, kw_only=True):
    """Checked; small, but for the documents that the answer repeats."""

    timeout_s: float | None = None
    cache_salt: str = ""
    adapter: str = ""
    """Its name; empty: the model alone."""
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
    def of(
        cls,
        model: ServedModel,
        asked: str | None,
        cache_salt: str | None,
        timeout_s: float | None = None,
    ) -> PooledRest:
        """What all requests share; `asked`: for a model by that name. Raises InvalidRequest."""
        salt, adapter = check_salt(cache_salt or ""), model.adapter_name_in(asked)
        return cls(timeout_s=timeout_s, cache_salt=salt, adapter=adapter)

    def name_of(self, model: ServedModel) -> str:
        """As the client asks for what answers it."""
        return self.adapter or model.name


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
