"""SentencePiece pieces with scores become the same cuts as SentencePiece's own algorithm makes."""

import random
from itertools import pairwise

import pytest

from cluster.errors import BadCheckpoint
from cluster.models.fields import Fields
from cluster.models.gguf.sentencepiece import sentencepiece_backend

LETTERS = ["▁", "a", "b", "c"]
BYTES = [f"<0x{value:02X}>" for value in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]


def vocabulary(seed):
    """Random pieces over a tiny alphabet, every one the union of two others; scores all differ."""
    dice = random.Random(seed)
    pieces = list(LETTERS)
    while len(pieces) < 40:
        union = dice.choice(pieces) + dice.choice(pieces)
        if union not in pieces and len(union) < 8:
            pieces.append(union)
    scores = {piece: -float(rank) for rank, piece in enumerate(pieces)}
    return pieces, scores


def fields_of(pieces, scores, **more):
    tokens = SPECIAL + BYTES + pieces
    return Fields(
        {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [scores.get(token, 0.0) for token in tokens],
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
            **more,
        },
        "tiny.gguf",
    )


def naive_cut(text, scores):
    """SentencePiece's rule, word for word: join the best-scoring neighbours, leftmost first."""
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        unions = [(scores.get(a + b), i) for i, (a, b) in enumerate(pairwise(parts))]
        known = [(-score, i) for score, i in unions if score is not None]
        if not known:
            return parts
        _, i = min(known)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.mark.parametrize("seed", range(12))
def test_cuts_are_those_of_the_algorithm_and_text_comes_back(seed):
    pieces, scores = vocabulary(seed)
    backend = sentencepiece_backend(fields_of(pieces, scores))
    dice = random.Random(seed + 100)
    for _ in range(50):
        text = "".join(dice.choices("abc ", k=dice.randint(1, 24)))
        encoded = backend.encode(text, add_special_tokens=False)
        assert encoded.tokens == naive_cut(text, scores)
        assert backend.decode(encoded.ids) == text


def test_a_character_without_a_piece_becomes_its_bytes():
    backend = sentencepiece_backend(fields_of(*vocabulary(0)))
    encoded = backend.encode("é", add_special_tokens=False)
    assert encoded.tokens[-2:] == ["<0xC3>", "<0xA9>"]
    assert backend.decode(encoded.ids) == "é"


def test_a_control_token_is_special_and_leaves_no_text():
    backend = sentencepiece_backend(fields_of(*vocabulary(0)))
    encoded = backend.encode("a</s>", add_special_tokens=False)
    assert encoded.ids[-1] == 2
    assert backend.decode(encoded.ids) == "a"


def test_missing_scores_are_a_bad_checkpoint():
    fields = fields_of(*vocabulary(0), **{"tokenizer.ggml.scores": [0.0]})
    with pytest.raises(BadCheckpoint, match="1 scores"):
        sentencepiece_backend(fields)
