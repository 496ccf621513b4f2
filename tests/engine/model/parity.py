"""A decoder beside transformers: prompts of ragged lengths in chunks, then greedy decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch

# Float32 sums in another order: a few units in the last place of logits of size ten.
CLOSE = {"rtol": 2e-4, "atol": 3e-4}
DECODE_STEPS = 32


@dataclass
class Stream:
    """A prompt, what came after it, and the logits of every token that was fed."""

    tokens: list[int]
    blocks: list[int]
    length: int
    num_fed: int = 0
    logits: list[torch.Tensor] = field(default_factory=list)


def random_prompts(lengths: Sequence[int], vocab_size: int) -> list[list[int]]:
    """The same ones each time."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, vocab_size, (n,), generator=generator).tolist() for n in lengths]


@torch.inference_mode()
def reference(model: Any, prompts: list[list[int]]) -> list[tuple[list[int], torch.Tensor]]:
    """Of each prompt alone: its tokens after greedy decoding, and the logits of all but the last,
    float32 [num_tokens - 1, vocab]."""
    answers = []
    for prompt in prompts:
        tokens = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=DECODE_STEPS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        answers.append((tokens[0].tolist(), model(tokens[:, :-1]).logits[0].float()))
    return answers


def generate(
    decoder: Decoder, prompts: list[list[int]], chunk_tokens: int
) -> list[tuple[list[int], torch.Tensor]]:
    """As `reference`, by the decoder: prompts side by side in chunks, each decoding when it is
    through, in blocks that are scattered over the pool."""
    per_stream = -(-(max(map(len, prompts)) + DECODE_STEPS) // BLOCK_SIZE)
    layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
    pool = KvPool(layout, per_stream * len(prompts), "cpu")
    order = torch.randperm(pool.num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
    streams = [
        Stream(list(prompt), [order.pop() for _ in range(per_stream)], len(prompt) + DECODE_STEPS)
        for prompt in prompts
    ]
    while unfinished := [stream for stream in streams if len(stream.tokens) < stream.length]:
        _step(decoder, pool, unfinished, chunk_tokens)
    return [(stream.tokens, torch.cat(stream.logits)) for stream in streams]


def _step(decoder: Decoder, pool: KvPool, streams: list[Stream], chunk_tokens: int) -> None:
    chunks = [(s.tokens[s.num_fed : s.num_fed + chunk_tokens], s) for s in streams]
    chunks.sort(key=lambda chunk: len(chunk[0]) > 1)  # decodes first
    batch = ragged_batch([(new, s.num_fed, s.blocks) for new, s in chunks])
    rows = decoder.forward(batch, pool).split([len(new) for new, _ in chunks])
    for (new, stream), logits in zip(chunks, rows, strict=True):
        stream.num_fed += len(new)
        stream.logits.append(logits)
        if stream.num_fed == len(stream.tokens):
            stream.tokens.append(int(logits[-1].argmax()))


def assert_same(
    ours: list[tuple[list[int], torch.Tensor]], theirs: list[tuple[list[int], torch.Tensor]]
) -> None:
    """The same greedy tokens, and close logits for each token that was fed."""
    for (tokens, logits), (expected_tokens, expected) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(logits, expected, **CLOSE)
        assert tokens == expected_tokens
