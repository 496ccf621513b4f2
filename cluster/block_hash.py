"""Names of KV blocks: a 128-bit hash chained over a sequence's tokens.

    root  = H(pairing key, tenant salt, digest of the adapter)
    name0 = H_root(tokens of block 0)
    name1 = H_name0(tokens of block 1) ...

A name stands for a block *and everything before it*. Blake2b (RFC 7693), keyed with the parent's
name, so that nobody can craft two prompts with one name; 0.8 us a block of 16 tokens in CPython.
Router and engine use this one file.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

NAME_BYTES = 16
TOKEN_BYTES = 4
_ROOTS_KEPT = 1024
"""A request asks for its root three times, and a tenant for the same one each time."""


def pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Tokens as 4-byte little-endian words: what names and the router's index are made from.

    Raises OverflowError for an id outside 0 .. 2**32 - 1.
    """
    return array("I", token_ids).tobytes()


def unpack_tokens(packed: bytes) -> list[int]:
    """As they were packed."""
    return array("I", packed).tolist()


@lru_cache(_ROOTS_KEPT)
def cache_root(pairing_key: str, salt: str = "", adapter: str = "") -> bytes:
    """The name before the first block; the salt keeps tenants apart. `adapter`: the digest of the
    one that computes the blocks, whatever its name; empty: the model alone."""
    material = f"{len(pairing_key)}:{pairing_key}:{salt}"
    if adapter:  # what stands before it begins with a digit: no salt can say the same
        material = f"adapter {adapter}:{material}"
    return blake2b(material.encode(), digest_size=NAME_BYTES).digest()


def chain_names(packed_tokens: bytes, *, parent: bytes, block_size_tokens: int) -> list[bytes]:
    """The names of all *full* blocks of a packed run that follows `parent`."""
    stride = block_size_tokens * TOKEN_BYTES
    names = []
    for start in range(0, len(packed_tokens) - stride + 1, stride):
        block = packed_tokens[start : start + stride]
        parent = blake2b(block, key=parent, digest_size=NAME_BYTES).digest()
        names.append(parent)
    return names
