"""A model that counts, and heads that guess right where they have all that was handed over.

The model says of each token the next one: its layers add hardly anything, and its LM head has the
embedding of each token in the row of the next. So no answer repeats anything, and prompt lookup has
nothing to say.

The head (EAGLE-3, keys and values as the model's) knows its last token by attending to itself. Its
other attention looks for the states behind two tokens of the prompt: EARLY's is read with the
prompt, LATE's, the last of the prompt, with the first token of the answer. Where it does not find
both, it guesses WRONG.

    states | ... behind EARLY ......... | behind LATE |
    tokens | ....... next one ......... | first of the answer | ...
             keys and values of blocks    made of the last hidden state
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch

from tests.engine.model.tiny_eagle import Tensors, eagle_config, random_tensors, saved_heads
from tests.engine.model.tiny_llama import random_model, tiny_config

EARLY, LATE, WRONG = 10, 11, 0
VOCAB, WIDTH, HEAD_DIM, KV_HEADS, LAYERS = 2000, 192, 32, 3, 16
_CODE = 31
"""Values by which the head knows a token, 1 or -1: its row's logit is their number, and that of
another one at most 20 or so."""
_EARLY, _LATE, _ONE = 188, 189, 190
"""Places in states: of the marks, and of what all tokens have."""
_FOUND_EARLY, _FOUND_LATE, _ALWAYS = 180, 181, 182
"""Places in what the head's layer says."""
_MARK = 8.0
_FAINT = 0.1
"""Of what was found, so that the head's own states, which it reads behind guesses, are of the same
length."""
_OWN_NORM = ((_CODE + 1) / WIDTH) ** 0.5
"""Of such a state; it has the code of the token before the guess, which is taken away."""
_LOGIT = 60.0
"""Of WRONG for each state that is not found: more than a code has."""
_CLOCKLESS = 15
"""Of a key's values, the one that its place in the text hardly turns."""


def saved_counting_model(folder: Path) -> Path:
    """With a tokenizer of a word for each token."""
    config = tiny_config(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    model = random_model(config)
    for layer in model.model.layers:
        for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
            matrix.weight.data *= 3e-3
    embedding = embeddings()
    model.model.norm.weight.data.fill_(1.0)
    model.model.embed_tokens.weight.data = embedding
    model.lm_head.weight.data = embedding.roll(1, 0)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    return folder


def embeddings() -> torch.Tensor:
    """float32 [VOCAB, WIDTH]."""
    generator = torch.Generator().manual_seed(5)
    found = torch.randn(VOCAB, WIDTH, generator=generator)
    found[:, :_CODE] = found[:, :_CODE].sign()
    found[:, _ONE] = 1.0
    found[:, [_EARLY, _LATE]] = 0.0
    found[EARLY, _EARLY] = found[LATE, _LATE] = _MARK
    return found


def saved_counting_head(folder: Path, *, logit: float = _LOGIT) -> Path:
    """Another `logit` makes another head, which guesses the same."""
    config = eagle_config(
        tiny_config(vocab_size=VOCAB, hidden_size=WIDTH),
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=2048,
    )
    return saved_heads(_head_tensors(config, logit), config, folder)


def _head_tensors(config: dict[str, Any], logit: float) -> Tensors:
    tensors = {
        name: torch.ones_like(tensor) if "norm" in name else torch.zeros_like(tensor)
        for name, tensor in random_tensors(config).items()
    }
    for place in (_EARLY, _LATE, _ONE):
        tensors["fc.weight"][place, place] = 1.0
    _look_at_itself(tensors)
    _look_for(tensors, 1, _EARLY, _FOUND_EARLY)
    _look_for(tensors, 2, _LATE, _FOUND_LATE)
    says = tensors["lm_head.weight"]
    says[:, :_CODE] = embeddings()[:, :_CODE].roll(1, 0)
    says[WRONG] = 0.0
    says[WRONG, _ALWAYS] = 2 * logit / _FAINT
    says[WRONG, [_FOUND_EARLY, _FOUND_LATE]] = -logit / _FAINT
    return tensors


def _look_at_itself(tensors: Tensors) -> None:
    """The first KV head: a token's code, and what all have."""
    query, key, value, out = _attention(tensors)
    for place in range(_CODE):
        query[place, place] = key[place, place] = 4.0
        value[place, place] = out[place, place] = 1.0
        value[place, WIDTH + place] = -_OWN_NORM
    value[_CODE, _ONE] = 1.0
    out[_ALWAYS, _CODE] = _FAINT


def _look_for(tensors: Tensors, kv_head: int, mark: int, found: int) -> None:
    """The state with that mark, wherever it is: _FAINT at place `found`, 0 where there is none."""
    query, key, value, out = _attention(tensors)
    start = kv_head * HEAD_DIM
    first = start * (WIDTH // HEAD_DIM // KV_HEADS)  # of the query heads that read it
    query[first + _CLOCKLESS, _ONE] = key[start + _CLOCKLESS, WIDTH + mark] = 4.0
    value[start, WIDTH + mark] = WIDTH**-0.5  # of a state with norm 1
    out[found, first] = _FAINT


def _attention(tensors: Tensors) -> list[torch.Tensor]:
    return [tensors[f"midlayer.self_attn.{name}_proj.weight"] for name in "qkvo"]


def counting_prompt(number: int, num_tokens: int) -> list[int]:
    """Both marks and nothing twice; its answer is counted_on() from LATE."""
    chance = random.Random(number)
    tokens = chance.sample(range(VOCAB // 2, VOCAB), num_tokens)
    tokens[5], tokens[-1] = EARLY, LATE
    return tokens


def counted_on(num_tokens: int) -> list[int]:
    """What it says behind such a prompt."""
    return list(range(LATE + 1, LATE + 1 + num_tokens))


def _tokenizer() -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {f"w{i}": i for i in range(VOCAB)},
            "unk_token": "w0",
        },
    }
