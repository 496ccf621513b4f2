"""One of the two ranks of bench_experts: steps of one mixture, shared in every way, by turns."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

import torch

from benchmarks.gpu.random_decoder import RandomDecoderWeights
from cluster.block_homes import BlockHomes
from cluster.home import kernels_folder
from cluster.models.card import DecoderConfig, MixtureConfig, RouterScore
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, RowSharing
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.model.weights.decoder_weights import AttentionWeights, DecoderWeights, LayerWeights
from engine.model.weights.mixture_weights import (
    ExpertWeights,
    MixtureWeights,
    RoutedWeights,
    SharedWeights,
)
from engine.runner.model_runner import DecoderRunner, PartRunner
from engine.runner.ranks.own_sequences import OwnSequences
from kernels.cpu.team import TEAM
from kernels.dispatch.kernel_sets import kernels_for
from kernels.experts import HeldExperts
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.segment import SharedSegment
from ranks.collectives.shared_memory import SharedMemoryCollective

Times = dict[str, list[float]]
"""Milliseconds of each step, by "way/step"."""

MIXTURE = MixtureConfig(
    num_experts=32,
    num_experts_per_token=4,
    expert_size=512,
    shared_size=512,
    dense_layers=frozenset(),
    score=RouterScore.SOFTMAX,
)
CONFIG = DecoderConfig(
    vocab_size=4096,
    hidden_size=1024,
    intermediate_size=4096,
    num_layers=4,
    num_heads=16,
    num_kv_heads=4,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    rope_scaling=None,
    max_context_tokens=1024,
    tie_word_embeddings=True,
    mixture=MIXTURE,
)
STEPS = {
    "decode, 1 sequence": (1, 1),
    "decode, 4 sequences": (4, 1),
    "decode, 16 sequences": (16, 1),
    "decode, 64 sequences": (64, 1),
    "prefill, 128 tokens": (1, 128),
    "prefill, 512 tokens": (1, 512),
}
"""Sequences and new tokens of each."""
CONTEXT, BLOCK_SIZE = 512, 16
MOST_SEQUENCES = max(num_seqs for num_seqs, _ in STEPS.values())
WAYS = {
    "gather": RowSharing.ALL,
    "all-to-all": RowSharing.SPLIT,
    "own sequences": RowSharing.OWN,
}
"""How two ranks share the mixture, as ModelSplit has it."""
WARM_UP, CALLS = 3, 12
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the parent tells a rank."""

    rank: int
    core: int
    segment_fd: int
    rounds: int

    def as_word(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))


class RandomMixtureWeights(RandomDecoderWeights):
    """A rank's part of a mixture; what all ranks have is the same at all."""

    def __init__(self, split: ModelSplit) -> None:
        super().__init__(split.config, torch.bfloat16, torch.device("cpu"))
        self.split = split

    def reopen(self) -> RandomMixtureWeights:
        """Nobody moves these."""
        return self

    def embedding(self) -> torch.Tensor:
        """Of the rank's part of the vocabulary."""
        return self._matrix(self.split.vocab_height, self.config.hidden_size)

    def layer(self, index: int) -> LayerWeights:
        """Another draw for every layer."""
        config, hidden, split = self.config, self.config.hidden_size, self.split
        query = len(split.heads) * config.head_dim
        both = query + 2 * len(split.kv_heads) * config.head_dim
        return LayerWeights(
            input_norm=self.final_norm(),
            attention=AttentionWeights(
                qkv=self._matrix(both, hidden),
                qkv_bias=None,
                o=self._matrix(hidden, query),
                o_bias=None,
                query_norm=None,
                key_norm=None,
            ),
            attention_post_norm=None,
            feed_forward_norm=self.final_norm(),
            feed_forward=self._mixture(index),
            feed_forward_post_norm=None,
        )

    def _mixture(self, layer: int) -> MixtureWeights:
        hidden, ids = self.config.hidden_size, self.split.experts
        size, shared = MIXTURE.expert_size, len(self.split.shared_columns)
        router = torch.randn(
            MIXTURE.num_experts, hidden, generator=torch.Generator().manual_seed(layer)
        )
        return MixtureWeights(
            router=(router * hidden**-0.5).to(self.dtype),
            router_bias=None,
            routed=RoutedWeights(
                held=HeldExperts(tuple(ids), MIXTURE.num_experts),
                gate_up=ExpertWeights(lambda _: self._matrix(2 * size, hidden), len(ids)),
                down=ExpertWeights(lambda _: self._matrix(hidden, size), len(ids)),
            ),
            shared=SharedWeights(
                gate_up=self._matrix(2 * shared, hidden), down=self._matrix(hidden, shared)
            ),
        )


def batch_of(num_seqs: int, query_len: int, homes: BlockHomes) -> RaggedBatch:
    """At the end of their contexts, each in blocks of its own, at one home after the other; decodes
    want a row each."""
    num_tokens, blocks = num_seqs * query_len, CONTEXT // BLOCK_SIZE
    positions = torch.arange(CONTEXT - query_len, CONTEXT).repeat(num_seqs)
    seqs = torch.arange(num_seqs)
    blocks_before = seqs // homes.num_homes * blocks
    begin = seqs % homes.num_homes * homes.blocks_each + blocks_before  # [num_seqs]
    first = begin.repeat_interleave(query_len) * BLOCK_SIZE
    tables = (begin[:, None] + torch.arange(blocks)).to(torch.int32)
    return RaggedBatch(
        token_ids=torch.arange(num_tokens) * 61 % CONFIG.vocab_size,
        positions=positions,
        slots=first + positions,
        query_starts=torch.arange(num_seqs + 1, dtype=torch.int32) * query_len,
        context_lens=torch.full((num_seqs,), CONTEXT, dtype=torch.int32),
        block_tables=tables,
        logit_rows=torch.arange(1, num_seqs + 1) * query_len - 1,
        num_decodes=num_seqs if query_len == 1 else 0,
        max_query_len=query_len,
        max_context_len=CONTEXT,
    )


def steps_of(collective: SharedMemoryCollective, rank: Rank) -> dict[str, Callable[[], object]]:
    """One step of each kind, in each way."""
    steps: dict[str, Callable[[], object]] = {}
    for name, way in WAYS.items():
        split = ModelSplit(config=CONFIG, rank=rank, row_sharing=way)
        weights = cast(DecoderWeights, RandomMixtureWeights(split))
        with torch.inference_mode():
            decoder = Decoder(
                weights, kernels_for(weights.device, kernels_folder()), collective=collective
            )
        runner, homes = runner_of(decoder, collective)
        for step, shape in STEPS.items():
            steps[f"{name}/{step}"] = functools.partial(runner.forward, batch_of(*shape, homes))
    return steps


def runner_of(
    decoder: Decoder, collective: SharedMemoryCollective
) -> tuple[PartRunner, BlockHomes]:
    """As a rank of an engine has it; and where blocks are."""
    layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
    num_blocks = MOST_SEQUENCES * CONTEXT // BLOCK_SIZE
    own = DecoderRunner(decoder, KvPool(layout, num_blocks + 1, "cpu"))
    if decoder.split.row_sharing is not RowSharing.OWN:
        return own, BlockHomes(1, num_blocks)
    homes = BlockHomes(2, num_blocks)
    sharing = OwnSequences(
        own=own,
        homes=homes,
        block_size=BLOCK_SIZE,
        experts=decoder.experts,
        collective=collective,
        logits_at=0,
    )
    return sharing, homes


def main() -> None:
    """Prints the times as JSON."""
    schedule = Schedule(**json.loads(sys.argv[1]))
    os.sched_setaffinity(0, [schedule.core])
    torch.set_num_threads(1)
    TEAM.resize(1)
    torch.manual_seed(schedule.rank)
    segment = SharedSegment.attach(schedule.segment_fd, world_size=2, generation=1)
    rank, library = Rank(schedule.rank, 2), load_collectives()
    collective = SharedMemoryCollective(segment, rank, library, deadline_s=DEADLINE_S)
    steps, times = steps_of(collective, rank), Times()
    for _ in range(schedule.rounds):
        for name in (f"{way}/{step}" for step in STEPS for way in WAYS):
            times.setdefault(name, []).extend(timed_ms(steps[name], collective))
    print(json.dumps(times))


def timed_ms(step: Callable[[], object], collective: SharedMemoryCollective) -> list[float]:
    """Of calls in a row."""
    collective.meet(DEADLINE_S)
    for _ in range(WARM_UP):
        step()
    times = []
    for _ in range(CALLS):
        started = time.perf_counter_ns()
        step()
        times.append((time.perf_counter_ns() - started) / 1e6)
    return times


if __name__ == "__main__":
    main()
