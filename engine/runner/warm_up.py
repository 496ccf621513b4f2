"""Everything that a step may need is compiled before the first request.

Triton compiles a kernel for each of its variants when one is first launched: up to three seconds in
somebody's step. Which variants there are depends on numbers of tokens and sequences, and on what is
sampled; each is run here once. Keys and values go to a block that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from cluster.sampling import SamplingParams
from engine.model.load_phases import PhaseProgress
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import LaunchingRunner, ModelRunner
from engine.sampling.device_draw import draw_on_device
from engine.sampling.logits import SamplingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpLimits:
    """What steps may hold."""

    max_num_seqs: int
    max_batch_tokens: int
    max_context_tokens: int
    block_size: int
    scratch_block: int
    """A block that no sequence owns."""
    compiles: bool
    """Kernels are compiled when they are first launched, as on a GPU."""


def warm_up(runner: ModelRunner, limits: WarmUpLimits, progress: PhaseProgress) -> None:
    """Once, when the pool is there and before requests are. Takes as long as the compiler does;
    one prompt of a block, to touch the memory, where nothing is compiled."""
    shapes = list(_shapes(limits)) if limits.compiles else [(0, limits.block_size)]
    for done, (num_decodes, num_tokens) in enumerate(shapes):
        progress("warm up", done / len(shapes))
        runner.forward(_batch(num_decodes, num_tokens, limits))
    if limits.compiles:
        _sample(runner, limits)
    progress("warm up", 1.0)


def longest_prompt(limits: WarmUpLimits) -> RaggedBatch:
    """The largest step of one prompt, in the scratch block; on the host."""
    return _batch(0, min(limits.max_batch_tokens, limits.max_context_tokens), limits)


def _shapes(limits: WarmUpLimits) -> Iterator[tuple[int, int]]:
    """(decodes, tokens of a prompt): each power of two of either, and their limits."""
    longest = min(limits.max_batch_tokens, limits.max_context_tokens)
    lengths = [0, *_powers_of_2(longest)]
    counts = [0, *_powers_of_2(limits.max_num_seqs)]
    for num_decodes, num_tokens in product(counts, lengths):
        few = num_decodes <= 1 or num_tokens <= 2  # the rest is made of the same kernels
        if few and num_decodes + num_tokens:
            yield num_decodes, num_tokens


def _powers_of_2(limit: int) -> list[int]:
    return [*(1 << i for i in range(limit.bit_length()) if 1 << i < limit), limit]


def _batch(num_decodes: int, num_tokens: int, limits: WarmUpLimits) -> RaggedBatch:
    """Decodes of a first token, and a prompt, all in the scratch block."""
    num_seqs, total = num_decodes + (num_tokens > 0), num_decodes + num_tokens
    positions = torch.tensor([*[0] * num_decodes, *range(num_tokens)])
    context = max(1, num_tokens)
    ends = [*range(1, num_decodes + 1), total][:num_seqs]
    return RaggedBatch(
        token_ids=torch.zeros(total, dtype=torch.int64),
        positions=positions,
        slots=limits.scratch_block * limits.block_size + positions % limits.block_size,
        query_starts=torch.tensor([0, *ends], dtype=torch.int32),
        context_lens=torch.tensor([*[1] * num_decodes, num_tokens][:num_seqs], dtype=torch.int32),
        block_tables=torch.full(
            (num_seqs, -(-context // limits.block_size)), limits.scratch_block, dtype=torch.int32
        ),
        logit_rows=torch.tensor(ends) - 1,
        num_decodes=num_decodes,
        max_query_len=context,
        max_context_len=context,
    )


def _sample(runner: ModelRunner, limits: WarmUpLimits) -> None:
    """Every way to sample, for one row and for many: by launches where the runner has them."""
    ways = (
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, temperature=1.0, seed=0),
        SamplingParams(max_tokens=1, temperature=1.0, seed=0, top_k=1, top_p=0.5),
    )
    for params, count in product(ways, _powers_of_2(limits.max_num_seqs)):
        rows = [
            SamplingRow(logit_row=row, params=params, choice=0, token_ids=[0], num_prompt=1)
            for row in range(count)
        ]
        if isinstance(runner, LaunchingRunner):
            runner.launch(_batch(count, 0, limits), rows, [None] * count)
        else:
            draw_on_device(runner.forward(_batch(count, 0, limits)), rows)
