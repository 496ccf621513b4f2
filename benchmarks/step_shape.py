"""A step of the decoder as arithmetic sees it: what it must read and multiply at least."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.cpu_floor import CpuFloor
from cluster.models.card import DecoderConfig
from cluster.models.footprint import parameters
from engine.memory.kv_pool import KvLayout


@dataclass(frozen=True, slots=True)
class StepShape:
    """`num_seqs` sequences, alike: each `query_len` new tokens of `context_len` in all."""

    num_seqs: int
    query_len: int
    context_len: int

    def floor_ms(self, config: DecoderConfig, dtype: torch.dtype, floor: CpuFloor) -> float:
        """The slower of reading weights and KV once, and multiplying."""
        flops, read = self.flops(config, dtype), self.read_bytes(config, dtype)
        return max(floor.read_ms(read), floor.compute_ms(flops))

    def read_bytes(self, config: DecoderConfig, dtype: torch.dtype) -> int:
        """Every layer and the head, and each sequence's KV."""
        kv = KvLayout.of(config, self.context_len, dtype).block_bytes * self.num_seqs
        return (_layer_params(config) + _head_params(config)) * dtype.itemsize + kv

    def flops(self, config: DecoderConfig, dtype: torch.dtype) -> float:
        """A multiply-add is two; the head is wanted for one row of a sequence."""
        num_tokens = self.num_seqs * self.query_len
        seen = self.context_len - (self.query_len - 1) / 2
        attention = 4.0 * num_tokens * seen * config.num_heads * config.head_dim * config.num_layers
        layers = 2.0 * num_tokens * _layer_params(config)
        return layers + 2.0 * self.num_seqs * _head_params(config) + attention


def _head_params(config: DecoderConfig) -> int:
    return config.vocab_size * config.hidden_size


def _layer_params(config: DecoderConfig) -> int:
    counted = parameters(config)
    return counted.matrices + counted.vectors
