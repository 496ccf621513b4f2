"""Everything that a step may need is compiled before the first request.

Triton compiles a kernel for each of its variants when one is first launched: up to three seconds in
somebody's step. Which variants there are depends on numbers of tokens and sequences, on what is
sampled, and on whether rows have adapters or masks, or prompts are pooled; each is run here once.
Keys and values go to a block that nobody reads. How many rows the others send to a rank's experts
depends on what they choose: each rank runs its own for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch

from cluster.sampling import SamplingParams
from engine.model.decoder import Decoder
from engine.model.load_phases import PhaseProgress
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import LaunchingRunner, ModelRunner
from engine.sampling.device_draw import draw_on_device
from engine.sampling.logits import SamplingRow
from kernels.dispatch.mask_logits import mask_logits
from kernels.token_mask import TokenMask, num_words
from kernels.triton.expert_tiles import pair_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpLimits:
    """What steps may hold, of each home."""

    max_num_seqs: int
    max_batch_tokens: int
    max_context_tokens: int
    block_size: int
    scratch_blocks: tuple[int, ...]
    """Blocks that no sequence owns, one of each home: all ranks run every shape."""
    compiles: bool
    """Kernels are compiled when they are first launched, as on a GPU."""
    max_drawn_rows: int = 0
    """Of a step with drafts, tokens that are drawn; 0: there are none."""
    has_adapters: bool = False
    """Rows may have one."""
    is_pooled: bool = False
    """Prompts may be, beside those that are answered with text."""

    def beside(self, max_context_tokens: int) -> WarmUpLimits:
        """Of a model beside the one that is served, which reads so much of a text: none of what the
        last three are about is its."""
        return replace(
            self,
            max_context_tokens=max_context_tokens,
            max_drawn_rows=0,
            has_adapters=False,
            is_pooled=False,
        )


def warm_up(runner: ModelRunner, limits: WarmUpLimits, progress: PhaseProgress) -> None:
    """Once, when the pool is there and before requests are. Takes as long as the compiler does;
    one prompt of a block, to touch the memory, where nothing is compiled."""
    steps = list(_steps(limits)) if limits.compiles else [_Step(0, limits.block_size)]
    for done, step in enumerate(steps):
        progress("warm up", done / len(steps))
        runner.forward(step.batch(limits))
    if limits.compiles:
        _sample(runner, limits)
    progress("warm up", 1.0)


def warm_up_experts(decoder: Decoder, max_batch_tokens: int) -> None:
    """Where kernels are compiled and ranks exchange rows, by every rank alone, before `warm_up`:
    experts with every number of pairs that needs a kernel of its own. `max_batch_tokens` are of
    all ranks, and may all choose the experts of one."""
    mixture = decoder.config.mixture
    if mixture is None or not decoder.split.row_sharing.exchanges_rows:
        return
    num_held = len(decoder.split.experts)
    most = max_batch_tokens * min(num_held, mixture.num_experts_per_token)
    counts = pair_counts(num_held, most)
    x = torch.zeros(counts[-1], decoder.config.hidden_size, dtype=decoder.dtype)
    x = x.to(decoder.device)
    with torch.inference_mode():
        for count in counts:
            decoder.experts.compute_alone(x[:count])


def longest_prompts(limits: WarmUpLimits) -> list[RaggedBatch]:
    """The largest step of one prompt, in a scratch block, of every kind that has a workspace of its
    own; on the host."""
    longest = min(limits.max_batch_tokens, limits.max_context_tokens)
    return [step.batch(limits) for step in [_Step(0, longest), *_kinds_of(0, longest, limits)]]


@dataclass(frozen=True, slots=True)
class _Step:
    """One that is run."""

    num_decodes: int
    num_tokens: int
    """Of a prompt; 0: there is none."""
    has_adapters: bool = False
    is_pooled: bool = False

    def batch(self, limits: WarmUpLimits) -> RaggedBatch:
        """On the host. All rows have the first adapter's slot, whatever is there: what a kernel
        finds in its tables is not compiled into it."""
        batch = replace(_batch(self.num_decodes, self.num_tokens, limits), is_pooled=self.is_pooled)
        if not self.has_adapters:
            return batch
        return replace(batch, adapters=torch.ones(len(batch.token_ids), dtype=torch.int32))


def _steps(limits: WarmUpLimits) -> Iterator[_Step]:
    """Of every shape; then of the other kinds those with decodes or a prompt alone: their kernels
    are the same where both are together."""
    shapes = list(_shapes(limits))
    yield from (_Step(*shape) for shape in shapes)
    for num_decodes, num_tokens in shapes:
        if not (num_decodes and num_tokens):
            yield from _kinds_of(num_decodes, num_tokens, limits)


def _kinds_of(num_decodes: int, num_tokens: int, limits: WarmUpLimits) -> Iterator[_Step]:
    """Beside the plain one. Only prompts are pooled."""
    adapting = (False, True) if limits.has_adapters else (False,)
    pooling = (False, True) if limits.is_pooled and not num_decodes else (False,)
    for has_adapters, is_pooled in product(adapting, pooling):
        if has_adapters or is_pooled:
            yield _Step(num_decodes, num_tokens, has_adapters, is_pooled)


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
    """Decodes of a first token, and a prompt, in each of the scratch blocks."""
    scratch = torch.tensor(limits.scratch_blocks, dtype=torch.int32)
    num_prompts = len(scratch) if num_tokens else 0
    blocks = torch.cat((scratch.repeat(num_decodes), scratch[:num_prompts]))  # [num_seqs]
    lengths = torch.tensor([1] * (len(blocks) - num_prompts) + [num_tokens] * num_prompts)
    ends, context = lengths.cumsum(0), max(1, num_tokens)
    positions = torch.cat([torch.arange(length) for length in lengths.tolist()])
    return RaggedBatch(
        token_ids=torch.zeros_like(positions),
        positions=positions,
        slots=blocks.long().repeat_interleave(lengths) * limits.block_size
        + positions % limits.block_size,
        query_starts=torch.cat((torch.zeros(1), ends)).to(torch.int32),
        context_lens=lengths.to(torch.int32),
        block_tables=blocks[:, None].repeat(1, -(-context // limits.block_size)),
        logit_rows=ends - 1,
        num_decodes=len(blocks) - num_prompts,
        max_query_len=context,
        max_context_len=context,
    )


def _sample(runner: ModelRunner, limits: WarmUpLimits) -> None:
    """Every way to sample, for one row and for many: by launches where the runner has them. A mask
    as answers in a grammar have one."""
    ways = (
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, temperature=1.0, seed=0),
        SamplingParams(max_tokens=1, temperature=1.0, seed=0, top_k=1, top_p=0.5),
    )
    for params, count in product(ways, _powers_of_2(limits.max_num_seqs)):
        rows = _rows(params, count * len(limits.scratch_blocks))
        if isinstance(runner, LaunchingRunner):
            runner.launch(_batch(count, 0, limits), rows, [None] * count)
        else:
            draw_on_device(runner.forward(_batch(count, 0, limits)), rows)
    logits = runner.forward(_batch(1, 0, limits))[:1]
    if limits.max_drawn_rows > limits.max_num_seqs:
        _sample_many(logits, limits, ways)
    none_may_come = torch.zeros(num_words(logits.shape[1]), dtype=torch.int32)
    mask_logits(logits, [0], [TokenMask(none_may_come)])


def _sample_many(
    logits: torch.Tensor, limits: WarmUpLimits, ways: Sequence[SamplingParams]
) -> None:
    """As many rows as drafts have, and no decodes. `logits` is float32 [1, vocab_size]."""
    counts = [n for n in _powers_of_2(limits.max_drawn_rows) if n > limits.max_num_seqs]
    for params, count in product(ways, counts):
        draw_on_device(logits.repeat(count, 1), _rows(params, count))


def _rows(params: SamplingParams, count: int) -> list[SamplingRow]:
    return [
        SamplingRow(logit_row=row, params=params, choice=0, token_ids=[0], num_prompt=1)
        for row in range(count)
    ]
