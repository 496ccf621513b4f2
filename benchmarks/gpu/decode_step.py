"""Whole decode steps under CUDA graphs, by batch size: goal 1.3 times the roofline.

roofline   the larger of (weights + the batch's KV) / copy bandwidth and FLOPs / matrix rate
step       the engine's own runner: numbers to the device, graph, logits; steps back to back,
           as long as the device needs for one
with host  as the engine decodes: a step is launched on the greedy tokens of the last one, which
           are read after that; from one step's tokens on the host to the next's
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from benchmarks.gpu.random_decoder import llama_1b, llama_8b, random_decoder
from benchmarks.gpu.timing import GpuFloor, gpu_row
from benchmarks.report import Row
from cluster.models.card import DecoderConfig
from cluster.sampling import SamplingParams
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.ragged_batch import RaggedBatch
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.draft_shapes import DraftShapes
from engine.runner.graph_backend import CudaGraphs, GraphBackend
from engine.runner.model_runner import LaunchingRunner, ModelRunner
from engine.sampling.logits import SamplingRow

FACTOR = 1.3
CONTEXT = 1024
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BLOCK_SIZE = 16
REPEATS = 30
SPARE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A decoder ready to step."""

    name: str
    config: DecoderConfig
    runner: LaunchingRunner
    weight_bytes: int
    """Read by a step."""
    token_bytes: int
    """KV of one token."""
    max_num_seqs: int


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    device, table = torch.device("cuda"), []
    for name, config in (("1B", llama_1b(CONTEXT + 64)), ("8B", llama_8b(CONTEXT + 64))):
        subject = prepare(name, config, torch.bfloat16, device, CudaGraphs(device))
        for num_seqs in BATCHES:
            if num_seqs <= subject.max_num_seqs:
                table += step_rows(subject, num_seqs, floor)
        del subject
        torch.cuda.empty_cache()
    return table


def prepare(
    name: str,
    config: DecoderConfig,
    dtype: torch.dtype,
    device: torch.device,
    backend: GraphBackend,
    most: int = BATCHES[-1],
    drafts: DraftShapes | None = None,
) -> Subject:
    """As many sequences as there is memory for, up to `most`. `drafts`: steps of such shapes are
    captured too."""
    decoder = random_decoder(config, dtype, device)
    layout = KvLayout.of(config, BLOCK_SIZE, dtype)
    blocks_each = -(-config.max_context_tokens // BLOCK_SIZE)
    if device.type == "cuda":
        room = (torch.cuda.mem_get_info(device)[0] - SPARE_BYTES) // layout.block_bytes
        most = min(most, room // blocks_each)
    pool = KvPool(layout, most * blocks_each + 1, device)
    limits = GraphLimits(
        max_num_seqs=most, max_context_tokens=config.max_context_tokens, drafts=drafts
    )
    runner = CudaRunner(
        decoder, pool, limits=limits, backend=backend, progress=lambda phase, fraction: None
    )
    embedding = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    return Subject(
        name=name,
        config=config,
        runner=runner,
        weight_bytes=decoder.num_bytes - embedding * dtype.itemsize,  # only rows of it are read
        token_bytes=layout.block_bytes // BLOCK_SIZE,
        max_num_seqs=most,
    )


def decode_batch(config: DecoderConfig, num_seqs: int, context_len: int) -> RaggedBatch:
    """Sequences of one length, their blocks scattered over the pool; on the host."""
    blocks_each = -(-config.max_context_tokens // BLOCK_SIZE)
    order = torch.randperm(num_seqs * blocks_each, generator=torch.Generator().manual_seed(0))
    tables = order.view(num_seqs, blocks_each).int()
    position = context_len - 1
    block = tables[:, position // BLOCK_SIZE].long()
    return RaggedBatch(
        token_ids=torch.arange(num_seqs) % config.vocab_size,
        positions=torch.full((num_seqs,), position),
        slots=block * BLOCK_SIZE + position % BLOCK_SIZE,
        query_starts=torch.arange(num_seqs + 1, dtype=torch.int32),
        context_lens=torch.full((num_seqs,), context_len, dtype=torch.int32),
        block_tables=tables,
        logit_rows=torch.arange(num_seqs),
        num_decodes=num_seqs,
        max_query_len=1,
        max_context_len=context_len,
    )


def step_rows(subject: Subject, num_seqs: int, floor: GpuFloor) -> list[Row]:
    """The device's time, judged; the engine's, shown beside it."""
    batch = decode_batch(subject.config, num_seqs, CONTEXT)
    least = roofline_s(subject, num_seqs, floor)
    name = f"decode step, {subject.name}, {num_seqs} sequences"
    return [
        gpu_row(name, device_seconds(subject.runner, batch), least, FACTOR * least),
        gpu_row(f"{name}, with host", host_seconds(subject.runner, batch), least),
    ]


def roofline_s(subject: Subject, num_seqs: int, floor: GpuFloor) -> float:
    """See above."""
    num_bytes = subject.weight_bytes + num_seqs * CONTEXT * subject.token_bytes
    flops = num_seqs * subject.weight_bytes  # two per weight of two bytes
    return max(num_bytes / floor.copy_bytes_per_s, flops / floor.bf16_flops_per_s)


def device_seconds(runner: ModelRunner, batch: RaggedBatch) -> list[float]:
    """Between events, without waiting in between: the host is ahead of the device."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    for _ in range(3):
        runner.forward(batch)
    for event in events[:-1]:
        event.record()
        runner.forward(batch)
    events[-1].record()
    torch.cuda.synchronize()
    pairs = zip(events[:-1], events[1:], strict=True)
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]


def host_seconds(runner: LaunchingRunner, batch: RaggedBatch) -> list[float]:
    """From one step's tokens to the next's, with a step in flight meanwhile."""
    rows = [greedy_row(row) for row in range(batch.num_decodes)]
    flight, rounds = runner.launch(batch, rows, [None] * len(rows)), []
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        following = runner.launch(batch, rows, range(len(rows)))
        flight.tokens()
        flight = following
        rounds.append(time.perf_counter() - started_s)
    flight.tokens()
    return rounds[1:]


def greedy_row(row: int) -> SamplingRow:
    """Of a sequence of one token: its likeliest next one."""
    params = SamplingParams(max_tokens=1, temperature=0.0)
    return SamplingRow(logit_row=row, params=params, choice=0, token_ids=[0], num_prompt=1)
