"""Whole steps with drafts under CUDA graphs, by batch and rows of each sequence, beside the step of
decodes in the same run: what verifying costs before anything is won by it.

roofline   the larger of (weights + the batch's KV, read once) / copy bandwidth and FLOPs of all
           rows / matrix rate; goal 1.3 times that
step       the engine's own runner: numbers to the device, graph, logits; steps back to back
"""

from __future__ import annotations

import torch

from benchmarks.gpu.decode_step import (
    BLOCK_SIZE,
    CONTEXT,
    FACTOR,
    Subject,
    decode_batch,
    device_seconds,
    prepare,
)
from benchmarks.gpu.random_decoder import llama_8b
from benchmarks.gpu.timing import GpuFloor, gpu_row
from benchmarks.report import Row
from cluster.models.card import DecoderConfig
from engine.model.ragged_batch import RaggedBatch
from engine.runner.draft_shapes import DraftShapes
from engine.runner.graph_backend import CudaGraphs

BATCHES = (1, 4, 16, 32)
ROWS_EACH = (2, 4, 8)
SHAPES = DraftShapes(
    max_num_seqs=BATCHES[-1], max_batch_tokens=512, max_context_tokens=CONTEXT + 64
)


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    device, config = torch.device("cuda"), llama_8b(CONTEXT + 64)
    backend = CudaGraphs(device)
    subject = prepare(
        "8B", config, torch.bfloat16, device, backend, most=BATCHES[-1], drafts=SHAPES
    )
    table = []
    for num_seqs in BATCHES:
        if num_seqs > subject.max_num_seqs:
            continue
        plain = device_seconds(subject.runner, decode_batch(config, num_seqs, CONTEXT))
        table.append(
            gpu_row(f"{num_seqs} sequences, decode", plain, least_s(subject, num_seqs, 1, floor))
        )
        for each in ROWS_EACH:
            if SHAPES.holding(num_seqs, each) is not None:
                table.append(_row(subject, num_seqs, each, floor))
    return table


def _row(subject: Subject, num_seqs: int, each: int, floor: GpuFloor) -> Row:
    least = least_s(subject, num_seqs, each, floor)
    seconds = device_seconds(subject.runner, draft_batch(subject.config, num_seqs, each, CONTEXT))
    return gpu_row(f"{num_seqs} sequences, {each} rows of each", seconds, least, FACTOR * least)


def least_s(subject: Subject, num_seqs: int, each: int, floor: GpuFloor) -> float:
    """See above."""
    num_bytes = subject.weight_bytes + num_seqs * CONTEXT * subject.token_bytes
    flops = num_seqs * each * subject.weight_bytes  # two per weight of two bytes
    return max(num_bytes / floor.copy_bytes_per_s, flops / floor.bf16_flops_per_s)


def draft_batch(config: DecoderConfig, num_seqs: int, each: int, context_len: int) -> RaggedBatch:
    """Sequences of one length with drafts of one length; on the host."""
    tables = decode_batch(config, num_seqs, context_len).block_tables
    positions = torch.arange(context_len - each, context_len)  # [each]
    blocks = tables[:, positions // BLOCK_SIZE].long()  # [num_seqs, each]
    num_tokens = num_seqs * each
    return RaggedBatch(
        token_ids=torch.arange(num_tokens) % config.vocab_size,
        positions=positions.repeat(num_seqs),
        slots=(blocks * BLOCK_SIZE + positions % BLOCK_SIZE).flatten(),
        query_starts=torch.arange(num_seqs + 1, dtype=torch.int32) * each,
        context_lens=torch.full((num_seqs,), context_len, dtype=torch.int32),
        block_tables=tables,
        logit_rows=torch.arange(num_tokens),
        num_decodes=0,
        max_query_len=each,
        max_context_len=context_len,
    )
