"""What two workers must share before a KV block may travel between them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace

from cluster.errors import PairingMismatch
from cluster.granule import UNIT_TOKENS, block_size_class
from cluster.kv_shape import KvShape

PROTOCOL_VERSION = 7
"""Bumped when workers of two versions can no longer hand a request over; part of the pairing."""
RESUME_VERSION = 4
"""Since this one a worker goes on with an answer that another has begun."""
GRAMMAR_VERSION = 6
"""Since this one a worker follows grammars; one before it would not know that there is one."""
SEARCH_VERSION = 7
"""The same of beam searches."""
VLLM = "vllm"
"""As `weights`: of an engine that does not say how it holds them."""
DIGEST_CHARS = 12

_OPTIONS = {"kv_dtype": "kv", "num_planes": "model"}
"""Fields that an operator sets by another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The facts that a block's bytes depend on; digests are hex.

    `dtype` is what the model computes in; `kv_dtype` is "auto" for a KV cache in that dtype, or
    "int8" or "fp8"; `weights` the format of the matrices: another one gives other keys and values.
    """

    weights_digest: str
    tokenizer_digest: str
    dtype: str
    block_size_tokens: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    """Values of a row in the cache: of a head, or of a latent."""
    kv_dtype: str = "auto"
    num_planes: int = 2
    """2: keys and values; 1: a latent that is both."""
    weights: str = "auto"
    protocol_version: int = PROTOCOL_VERSION
    head: str = ""
    """Kind and digest of the head whose keys and values are in the blocks, in layers that are
    counted with the model's; empty: none is. Its blocks are of one size on both sides."""

    @property
    def kv_shape(self) -> KvShape:
        """What is kept of a token."""
        return KvShape(
            num_layers=self.num_layers,
            num_planes=self.num_planes,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
        )

    @property
    def key(self) -> str:
        """A short name of model and layout, equal where two workers can pair: root of the block
        hash chain. Names of blocks of unequal sizes below one root differ, as their tokens do."""
        same = self
        if not self.head:
            same = replace(self, block_size_tokens=block_size_class(self.block_size_tokens))
        named = [item.name for item in fields(same) if item.name != "head" or self.head]
        return "|".join(str(getattr(same, name)) for name in named)

    @property
    def is_ours(self) -> bool:
        """False of another engine's server, which only its adapter speaks to: whoever dials a
        worker of our own shows the fleet's join token."""
        return self.weights != VLLM

    @property
    def follows_grammars(self) -> bool:
        """False for a worker of ours that would not know of one; an engine that stands behind an
        adapter is told in its own words."""
        return self.protocol_version >= GRAMMAR_VERSION or not self.is_ours

    @property
    def searches_beams(self) -> bool:
        """False for a worker of ours that would sample instead; vLLM's are refused in words of
        their own."""
        return self.protocol_version >= SEARCH_VERSION or not self.is_ours

    @property
    def digest(self) -> str:
        """Of `key`, for people: equal where two workers can pair."""
        return _short(self.key)

    @property
    def model_digest(self) -> str:
        """Of what decides which tokens come: weights, their format, tokenizer. Workers of one model
        may be of several pairings."""
        return _short(f"{self.weights_digest}|{self.tokenizer_digest}|{self.weights}")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def check_pairing(ours: Pairing, theirs: Pairing, *, peer: str) -> None:
    """Raises PairingMismatch with both values of the first field that differs; of block sizes, when
    no transfer bridges them.

    The protocol comes first: two versions may mean different things by the other fields.
    """
    _check_protocol(ours, theirs, peer)
    if ours.head or theirs.head:
        check_same(ours, theirs, peer=peer)
        return
    sizes = ours.block_size_tokens, theirs.block_size_tokens
    if block_size_class(sizes[0]) != block_size_class(sizes[1]):
        raise PairingMismatch(
            f"{peer} cannot pair: block_size_tokens is {sizes[1]} there and {sizes[0]} here; start "
            f"both workers with the same block_size_tokens, or with multiples of {UNIT_TOKENS}"
        )
    check_same(replace(ours, block_size_tokens=theirs.block_size_tokens), theirs, peer=peer)


def check_same(ours: Pairing, theirs: Pairing, *, peer: str) -> None:
    """Raises PairingMismatch with both values of the first field that differs, whatever a transfer
    could bridge: the router's belief about a cache depends on every one."""
    _check_protocol(ours, theirs, peer)
    if ours.head != theirs.head:
        raise PairingMismatch(
            f"{peer} cannot pair: its blocks have {_head_in_words(theirs)} and ours "
            f"{_head_in_words(ours)}; start both workers with the same speculation "
            "(ranks that split the rows of a step have no head)"
        )
    for item in fields(Pairing):
        mine, other = getattr(ours, item.name), getattr(theirs, item.name)
        if mine != other:
            raise PairingMismatch(
                f"{peer} cannot pair: {item.name} is {other!r} there and {mine!r} here; "
                f"start both workers with the same {_OPTIONS.get(item.name, item.name)}"
            )


def _check_protocol(ours: Pairing, theirs: Pairing, peer: str) -> None:
    if ours.protocol_version != theirs.protocol_version:
        raise PairingMismatch(
            f"{peer} cannot pair: it speaks protocol version {theirs.protocol_version} and this "
            f"process version {ours.protocol_version}; run the same version of splitserve on both"
        )


def _head_in_words(pairing: Pairing) -> str:
    return f"the head {pairing.head}" if pairing.head else "no head"
