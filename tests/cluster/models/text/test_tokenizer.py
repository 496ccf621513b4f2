from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from cluster.errors import BadCheckpoint, ContextTooLong, InvalidRequest
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.text.tokenizer import CheckpointTokenizer, load_tokenizer
from tests.cluster.models.conftest import TINY_MERGES, TINY_TOKENS

CORPUS = [
    "",
    " ",
    "\n\n\n",
    "Hello, world! It's we'll I'd THEY'RE 's",
    "Ünïcödé, naïve façade, Straße, ﬁ ligature, e\u0301 vs é",
    "日本語のテキスト。中文文本，한국어 텍스트. العربية עברית हिन्दी ไทย",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ☃️",
    "def f(x):\n\tif x:\n\t\treturn x  # tab\n    return {'a': [1, 2.5e-3]}\n",
    "0 1 12 123 1234567890 3.14159 1,000,000 2024-01-01T00:00:00Z 0xDEADBEEF",
    "a    b\t\t\tc \n \n  d   \r\n e\u00a0f\u2003g\u200bh\u3000i   ",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "text<|im_end|>more <|endoftext|><repo_name> <|im_ <|im_start",
    "null \x00 bell \x07 del \x7f bom \ufeff private \ue000 last \U0010ffff",
    "https://example.com/a?b=c&d=%20#e me@example.org $100 50% #tag @you",
    "A" * 500 + " " + "ab" * 300,
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "\u0600١٢٣ ½ ² Ⅷ ① 一二三",
]


def _random_texts(count: int) -> list[str]:
    dice = random.Random(7)
    pieces = ["a", "Z", "é", "字", "😀", " ", "  ", "\n", "\t", "1", "42", "٣", "'s", "<|im_end|>"]
    pieces += ["\u0301", ".", "_", "://", "\r\n", "\x00", "\u200d", "the ", " of"]
    return ["".join(dice.choices(pieces, k=dice.randint(1, 40))) for _ in range(count)]


@pytest.fixture(scope="module")
def ours(smollm2: ModelCard) -> CheckpointTokenizer:
    return load_tokenizer(smollm2)


@pytest.fixture(scope="module")
def theirs(transformers_tokenizer: Any) -> Any:
    return transformers_tokenizer


def test_it_encodes_as_transformers_with_numerals_cut_apart(
    ours: CheckpointTokenizer, theirs: Any
) -> None:
    """transformers ignores the file's pre-tokenizer "smollm"; with its first stage they agree."""
    stages = json.loads(theirs.backend_tokenizer.to_str())
    digits = {"type": "Digits", "individual_digits": True}
    cut = {"type": "Sequence", "pretokenizers": [digits, stages["pre_tokenizer"]]}
    reference = Backend.from_str(json.dumps({**stages, "pre_tokenizer": cut}))
    for text in CORPUS + _random_texts(2000):
        assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids, text
        assert ours.encode(text, True) == reference.encode(text).ids, text


def test_without_white_space_before_numerals_transformers_gives_the_same(
    ours: CheckpointTokenizer, theirs: Any
) -> None:
    compared = [t for t in CORPUS + _random_texts(2000) if not re.search(r"\s[\d½²Ⅷ①]", t)]
    assert len(compared) > 900
    for text in compared:
        assert ours.encode(text, True) == theirs.encode(text), text


def test_white_space_before_a_numeral_stays_whole_as_in_training(
    ours: CheckpointTokenizer, theirs: Any
) -> None:
    assert [ours.token_text(i) for i in ours.encode("a\n\n1  2")] == ["a", "\n\n", "1", "  ", "2"]
    assert theirs.tokenize("a\n\n1") == ["a", "Ċ", "Ċ", "1"]  # once they agree, compare directly


def test_it_decodes_as_transformers(ours: CheckpointTokenizer, theirs: Any) -> None:
    dice = random.Random(3)
    for _ in range(300):
        ids = dice.choices(range(ours.vocab_size), k=dice.randint(0, 30))
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids)


def test_text_survives_the_way_there_and_back(ours: CheckpointTokenizer) -> None:
    for text in CORPUS + _random_texts(200):
        assert ours.decode(ours.encode(text), skip_special=False) == text


def test_token_bytes_put_together_are_the_text(ours: CheckpointTokenizer) -> None:
    for text in CORPUS:
        assert b"".join(map(ours.token_bytes, ours.encode(text))) == text.encode()
    assert ours.token_text(2) == "<|im_end|>"
    assert ours.token_bytes(10**9) == ours.token_bytes(-1) == b""


def test_facts_are_at_hand(ours: CheckpointTokenizer) -> None:
    assert (ours.vocab_size, ours.eos_token_ids, ours.bos_token_id) == (49152, (2,), 1)
    assert {0, 1, 2} <= ours.special_ids
    assert ours.decode([1, *ours.encode("hi"), 2, 10**9]) == "hi"


def test_a_lone_surrogate_is_an_invalid_request_with_its_position(
    ours: CheckpointTokenizer,
) -> None:
    with pytest.raises(InvalidRequest, match=r"U\+D83D at character 3"):
        ours.encode("abc\ud83d")


def test_a_text_over_the_limit_is_refused_before_it_is_encoded(ours: CheckpointTokenizer) -> None:
    with pytest.raises(ContextTooLong, match=r"5,000,000 characters; at most 100"):
        ours.encode("x" * 5_000_000, max_chars=100)
    assert ours.encode("x" * 100, max_chars=100)


def test_a_folder_encodes_as_transformers_whatever_truncation_it_states(tiny_folder: Any) -> None:
    from transformers import AutoTokenizer

    tiny_folder.files["tokenizer.json"]["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    tiny_folder.config["model_type"] = "llama"
    folder = tiny_folder.write()
    tokenizer = load_tokenizer(ModelStore(folder / "home").show(str(folder)))
    theirs = AutoTokenizer.from_pretrained(folder, tokenizer_class="PreTrainedTokenizerFast")
    assert tokenizer.encode("hello hello") == theirs.encode("hello hello") == [260, 261]
    assert tokenizer.eos_token_ids == (0,)


@pytest.mark.parametrize("pre", ["llama-bpe", "gpt-2", "default"])
def test_other_byte_level_ggufs_encode_as_transformers(
    tiny_gguf: Any, tmp_path: Path, pre: str
) -> None:
    from transformers import AutoTokenizer

    tiny_gguf.metadata |= {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": True}
    tiny_gguf.metadata["tokenizer.ggml.bos_token_id"] = 0
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    ours = load_tokenizer(ModelStore(tmp_path / "home").show(str(path)))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in CORPUS + _random_texts(300):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text
    assert ours.encode("hello", True) == [0, 260]


def test_qwen_ggufs_encode_as_transformers(tiny_gguf: Any, tmp_path: Path) -> None:
    from transformers import Qwen2Tokenizer

    tiny_gguf.metadata["tokenizer.ggml.pre"] = "qwen2"
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    ours = load_tokenizer(ModelStore(tmp_path / "home").show(str(path)))
    vocabulary = {token: index for index, token in enumerate(TINY_TOKENS)}
    merges = [tuple(merge.split()) for merge in TINY_MERGES]
    theirs = Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    composed, decomposed = "\u00e9", "e\u0301"
    for text in [*CORPUS, *_random_texts(300), "x 1234 y", f"hello {decomposed}"]:
        assert ours.encode(text) == theirs.encode(text), text
    assert ours.encode(decomposed) == ours.encode(composed)


def test_a_broken_tokenizer_file_is_a_bad_checkpoint(tiny_folder: Any, tmp_path: Path) -> None:
    tiny_folder.files["tokenizer.json"] = {"model": "nonsense"}
    folder = tiny_folder.write()
    card = ModelStore(tmp_path / "home").show(str(folder))
    with pytest.raises(BadCheckpoint, match=r"tokenizer\.json is not a tokenizer"):
        load_tokenizer(card)


def test_merges_that_do_not_fit_the_vocabulary_are_a_bad_checkpoint(
    tiny_gguf: Any, tmp_path: Path
) -> None:
    for merges in (["q zz"], ["alone"]):
        tiny_gguf.metadata["tokenizer.ggml.merges"] = merges
        card = ModelStore(tmp_path / "home").show(str(tiny_gguf.write(tmp_path / "tiny.gguf")))
        with pytest.raises(BadCheckpoint, match=r"tokenizer cannot be built|not a pair"):
            load_tokenizer(card)


def test_encoding_without_the_interpreter_lock_gives_the_ids_of_encode(smollm2: ModelCard) -> None:
    tokenizer = load_tokenizer(smollm2)
    texts = ["", "Hello  world", "<|im_start|>user\n", "naïve 語 😀\u200d", "x" * 5000, "\t\n\r "]
    for text in texts:
        for add_special in (False, True):
            expected = tokenizer.backend.encode(text, add_special_tokens=add_special).ids
            assert tokenizer.encode(text, add_special=add_special) == expected
