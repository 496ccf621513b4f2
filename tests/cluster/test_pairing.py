"""What two workers must have in common, and what a transfer bridges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.errors import PairingMismatch
from cluster.pairing import PROTOCOL_VERSION, Pairing, check_pairing, check_same

PAIRING = Pairing(
    weights_digest="aa",
    tokenizer_digest="bb",
    dtype="bfloat16",
    block_size_tokens=16,
    num_layers=2,
    num_kv_heads=3,
    head_dim=64,
)


def sized(block_size_tokens: int) -> Pairing:
    return replace(PAIRING, block_size_tokens=block_size_tokens)


@pytest.mark.parametrize("size", [8, 16, 24, 64, 1024])
def test_block_sizes_that_a_transfer_bridges_pair_under_one_name(size: int) -> None:
    check_pairing(PAIRING, sized(size), peer="p")
    assert sized(size).key == PAIRING.key


def test_other_block_sizes_pair_with_their_equals_alone() -> None:
    check_pairing(sized(12), sized(12), peer="p")
    for ours, theirs in ((12, 16), (16, 12), (12, 20), (16, 0)):
        with pytest.raises(PairingMismatch, match=f"is {theirs} there and {ours} here"):
            check_pairing(sized(ours), sized(theirs), peer="p")
        assert sized(ours).key != sized(theirs).key


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [("num_kv_heads", 1, "num_kv_heads"), ("kv_dtype", "int8", "kv"), ("num_planes", 1, "model")],
)
def test_whatever_else_differs_is_refused_with_both_values(
    name: str, value: object, option: str
) -> None:
    other = replace(sized(64), **{name: value})
    with pytest.raises(PairingMismatch, match=f"p cannot pair: {name} is .* the same {option}"):
        check_pairing(PAIRING, other, peer="p")
    assert other.key != PAIRING.key


def test_the_protocol_comes_first() -> None:
    other = replace(sized(12), protocol_version=PROTOCOL_VERSION + 1)
    with pytest.raises(PairingMismatch, match="protocol version"):
        check_pairing(PAIRING, other, peer="p")


def test_who_answers_must_be_the_same_in_block_size_too() -> None:
    check_same(PAIRING, PAIRING, peer="d")
    with pytest.raises(PairingMismatch, match="block_size_tokens is 64 there and 16 here"):
        check_same(PAIRING, sized(64), peer="d")


HEAD = replace(PAIRING, head="eagle3:aa:1", num_layers=4)


def test_workers_of_one_head_pair_and_their_blocks_have_names_of_their_own() -> None:
    check_pairing(HEAD, HEAD, peer="p")
    assert HEAD.key != replace(PAIRING, num_layers=4).key
    assert "head" not in PAIRING.key and PAIRING.key.endswith(f"|{PROTOCOL_VERSION}")


@pytest.mark.parametrize("head", ["", "eagle3:bb:1", "own-layer:1"])
def test_another_head_or_none_is_refused_with_both(head: str) -> None:
    other = replace(HEAD, head=head)
    there = f"the head {head}" if head else "no head"
    words = f"its blocks have {there} and ours the head eagle3:aa:1; start both .* speculation"
    with pytest.raises(PairingMismatch, match=words):
        check_pairing(HEAD, other, peer="p")
    with pytest.raises(PairingMismatch, match="and ours"):
        check_pairing(other, HEAD, peer="p")
    assert other.key != HEAD.key


def test_blocks_with_a_head_are_of_one_size() -> None:
    """The state of a block's last token lies over all of its rows."""
    other = replace(HEAD, block_size_tokens=32)
    with pytest.raises(PairingMismatch, match="block_size_tokens is 32 there and 16 here"):
        check_pairing(HEAD, other, peer="p")
    assert other.key != HEAD.key
