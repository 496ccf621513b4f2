from __future__ import annotations

import random

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from cluster.models.card import ModelCard
from cluster.models.text import detokenizer
from cluster.models.text.detokenizer import MAX_HELD_TOKENS
from cluster.models.text.tokenizer import CheckpointTokenizer, load_tokenizer


@pytest.fixture(scope="module")
def smol(smollm2: ModelCard) -> CheckpointTokenizer:
    return load_tokenizer(smollm2)


def _streamed(
    tokenizer: CheckpointTokenizer, ids: list[int], tail: list[int] | None = None
) -> list[str]:
    stream = tokenizer.new_stream(tail or [])
    return [*(stream.step(token_id) for token_id in ids), stream.finish()]


def _sentencepiece() -> CheckpointTokenizer:
    """Words start with U+2581, bytes are <0xNN>, the first space of a text is stripped."""
    words = ["<unk>", "</s>", "▁a", "▁b", "c", "▁"] + [f"<0x{b:02X}>" for b in range(256)]
    backend = Backend(models.BPE({w: i for i, w in enumerate(words)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    return CheckpointTokenizer(backend, (1,))


def test_the_pieces_are_the_text_of_all_tokens(smol: CheckpointTokenizer) -> None:
    for text in ("Hello, world!", "日本語 😀👩‍👩‍👧 é", "a\n\n1  2\t", "<|im_end|>after", ""):
        ids = smol.encode(text)
        assert "".join(_streamed(smol, ids)) == smol.decode(ids)


def test_half_a_character_is_held_back_until_the_rest_comes(smol: CheckpointTokenizer) -> None:
    ids = smol.encode("日本 😀")
    pieces = _streamed(smol, ids)
    assert "" in pieces[:-1]
    assert all("\ufffd" not in piece for piece in pieces)


def test_random_tokens_come_out_as_when_decoded_at_once(smol: CheckpointTokenizer) -> None:
    dice = random.Random(5)
    for _ in range(200):
        ids = dice.choices(range(smol.vocab_size), k=40)
        assert "".join(_streamed(smol, ids)) == smol.decode(ids)


def test_finish_gives_what_never_became_a_character(smol: CheckpointTokenizer) -> None:
    ids = smol.encode("😀")[:-1]
    assert _streamed(smol, ids) == [""] * len(ids) + ["\ufffd"]


def test_bytes_that_are_no_text_are_not_held_for_ever(smol: CheckpointTokenizer) -> None:
    byte = smol.encode("😀")[0]
    pieces = _streamed(smol, [byte] * 50)
    held = max(len(run) for run in "".join("." if p else "h" for p in pieces[:-1]).split("."))
    assert held < MAX_HELD_TOKENS
    assert set("".join(pieces)) == {"\ufffd"}


def test_text_goes_on_after_bytes_that_are_no_text(smol: CheckpointTokenizer) -> None:
    byte, hello = smol.encode("😀")[0], smol.encode(" hello there")
    assert "".join(_streamed(smol, [byte] * 20 + hello)).endswith(" hello there")


def test_special_and_unknown_tokens_have_no_text(smol: CheckpointTokenizer) -> None:
    assert _streamed(smol, [1, 2, 49151 + 5, 2**40, -1]) == [""] * 6


def test_the_prompts_tail_gives_context_and_is_not_repeated() -> None:
    tokenizer = _sentencepiece()
    assert "".join(_streamed(tokenizer, [2, 3])) == "a b"
    assert "".join(_streamed(tokenizer, [2, 3], tail=[2])) == " a b"


def test_a_tail_that_ends_inside_a_character_is_not_repeated(smol: CheckpointTokenizer) -> None:
    tail = smol.encode("hello 😀")[:-1]
    assert "".join(_streamed(smol, smol.encode(" world"), tail=tail)) == " world"


def test_where_tokens_are_bytes_what_is_before_them_is_not_decoded(
    smol: CheckpointTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail, decoded = smol.encode("hello"), list[int]()
    monkeypatch.setattr(smol, "decode", lambda ids, **_: decoded.extend(ids) or "")
    smol.new_stream(tail)
    assert not decoded


def test_sentencepiece_random_tokens_come_out_as_when_decoded_at_once() -> None:
    tokenizer, dice = _sentencepiece(), random.Random(9)
    for _ in range(200):
        units = dice.choices([[2], [3], [4], [5], [1], [6 + 0x41], [6 + 0xC3, 6 + 0xA9]], k=12)
        ids = [token_id for unit in units for token_id in unit]
        assert "".join(_streamed(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_decoder_that_changes_earlier_text_does_not_end_the_stream() -> None:
    """tokenizers' own stream raises "Invalid prefix encountered" here."""
    words = {"a": 0, "b": 1, "c": 2, "d": 3}
    backend = Backend(models.WordLevel(words, unk_token="a"))
    backend.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "X")])
    stream = decoders.DecodeStream(skip_special_tokens=True)
    assert stream.step(backend, 0) == "a"
    assert stream.step(backend, 1) is None
    with pytest.raises(Exception, match="Invalid prefix"):
        stream.step(backend, 2)
    pieces = _streamed(CheckpointTokenizer(backend, ()), [0, 1, 2, 3])
    assert "".join(pieces) == "abcd"


def test_what_is_remembered_of_tokens_changes_no_text(smol: CheckpointTokenizer) -> None:
    """Each token again and again, between halves of characters, hidden ones and invalid bytes."""
    dice = random.Random(6)
    alphabet = [
        *smol.encode("日本 😀 é"),
        *smol.encode(" the cat sat"),
        *sorted(smol.special_ids)[:2],
    ]
    alphabet += smol.encode("\ufffd") + [dice.randrange(smol.vocab_size) for _ in range(8)]
    for _ in range(300):
        ids = dice.choices(alphabet, k=40)
        assert "".join(_streamed(smol, ids)) == smol.decode(ids)
        shown = smol.new_stream(shows_special=True)
        pieces = [*(shown.step(token_id) for token_id in ids), shown.finish()]
        assert "".join(pieces) == smol.decode(ids, skip_special=False)
    assert smol.whole_texts
    assert not smol.special_ids & smol.whole_texts.keys()


def test_of_words_that_depend_on_what_is_before_nothing_is_remembered() -> None:
    tokenizer = _sentencepiece()
    _streamed(tokenizer, [2, 3, 4] * 5)
    assert tokenizer.whole_texts == {}


def test_no_more_is_remembered_than_is_allowed(
    smollm2: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detokenizer, "MAX_WHOLE_TEXTS", 5)
    tokenizer = load_tokenizer(smollm2)
    ids = tokenizer.encode("one two three four five six seven eight nine ten")
    assert "".join(_streamed(tokenizer, ids)) == tokenizer.decode(ids)
    assert len(tokenizer.whole_texts) == 5
