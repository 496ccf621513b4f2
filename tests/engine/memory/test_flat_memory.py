"""A steady engine holds no more memory after ten thousand steps than after a thousand."""

from __future__ import annotations

import gc
import itertools
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cluster.engine_options import EngineOptions
from engine.contract.commands import Submit
from engine.contract.messages import Loaded
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.runner.model_runner import DecoderRunner, Replica
from engine.step.engine import Engine
from kernels.cpu.team import TEAM
from tests.engine.model.tiny_llama import BLOCK_SIZE, random_model, saved_card, tiny_config
from tests.engine.step.engine_scenario import request

pytestmark = pytest.mark.timeout(600)
"""Of steps of a tenth of a millisecond: of several on a CPU that no native kernels are made for."""

NUM_SEQS = 2
WARM_UP_STEPS, STEPS, TRACED_STEPS = 1_000, 10_000, 2_000

RESIDENT_BYTES = 1024 * 1024
"""Of 10,000 steps: 100 bytes each, less than a tensor. The C library's heap may move by pages."""
PYTHON_BYTES = 16 * 1024
"""Of 2,000 steps: 8 bytes each, less than an object. Requests differ a little in size."""


def tiny_engine(folder: Path) -> Engine:
    """Two sequences at a time in a pool that their prefix cache fills."""
    card = saved_card(random_model(tiny_config(vocab_size=4096)), folder)
    decoder = Decoder.load(card, torch.bfloat16, "cpu")
    pool = KvPool(KvLayout.of(card.config, BLOCK_SIZE, torch.bfloat16), 96, "cpu")
    replica = Replica(
        runner=DecoderRunner(decoder, pool),
        loaded=Loaded(weights=WeightFormat.FULL),
        kv=pool.tensor,
        vocab_size=card.config.vocab_size,
        eos_token_ids=(),
        max_context_tokens=128,
        num_homes=1,
    )
    options = EngineOptions(
        block_size_tokens=BLOCK_SIZE, max_batch_tokens=64, max_num_seqs=NUM_SEQS
    )
    return Engine(replica, options)


def run(engine: Engine, num_steps: int, names: Iterator[int]) -> int:
    """Steps with a request in the place of each that ended; returns the tokens that came."""
    num_tokens = 0
    for _ in range(num_steps):
        while len(engine.table) < NUM_SEQS:
            name = next(names)
            prompt = [name % 4000, 5, name % 7, 9]
            body = request(f"r{name}", prompt, max_tokens=100, temperature=0.0)
            engine.apply(Submit(body))
        num_tokens += len(engine.step().tokens)
    return num_tokens


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """On one thread: a team gains nothing where a step takes 0.1 ms."""
    monkeypatch.setattr(TEAM, "num_threads", 1)
    return tiny_engine(tmp_path)


def test_ten_thousand_steps_leave_no_memory_behind(engine: Engine) -> None:
    names = itertools.count()
    run(engine, WARM_UP_STEPS, names)
    gc.collect()
    before = resident_bytes()
    assert run(engine, STEPS, names) > 0.9 * NUM_SEQS * STEPS
    gc.collect()
    assert resident_bytes() - before < RESIDENT_BYTES


def test_two_thousand_steps_leave_no_python_object_behind(engine: Engine) -> None:
    names = itertools.count()
    tracemalloc.start()
    try:
        run(engine, WARM_UP_STEPS, names)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        run(engine, TRACED_STEPS, names)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < PYTHON_BYTES
    finally:
        tracemalloc.stop()
