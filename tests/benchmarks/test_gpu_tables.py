"""Inputs of the GPU benchmark that a CPU can make, and the floors beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.gpu import adapters, decode_step, draft_step, low_bit, mixture, sampling
from benchmarks.gpu.random_decoder import llama_1b, llama_8b
from benchmarks.gpu.timing import GpuFloor
from kernels.reference.add_adapters import add_adapters as reference_add
from kernels.reference.experts import ReferenceExperts
from kernels.triton.sample import sample
from kernels.weights import Fp8Weight
from tests.engine.runner.rerun_graphs import RerunGraphs

CPU = torch.device("cpu")
FLOOR = GpuFloor(name="x", copy_bytes_per_s=3e12, bf16_flops_per_s=8e14, launch_s=2e-6)


def test_experts_are_packed_from_weights_that_are_made_when_asked_for() -> None:
    shape = mixture.Shape(name="tiny", num_experts=4, num_chosen=2, hidden=32, size=64)
    torch.manual_seed(0)
    layer = mixture.layer_of(shape, "plain", CPU)
    torch.manual_seed(0)
    gate_up = list(mixture.RandomWeights(4, 128, 32, "plain", CPU))
    down = list(mixture.RandomWeights(4, 32, 64, "plain", CPU))
    given = mixture.routed(shape, 3, 1, CPU)
    torch.testing.assert_close(
        layer(*given), ReferenceExperts(gate_up, down)(*given), rtol=1e-2, atol=1e-2
    )
    packed = mixture.layer_of(shape, "int4", CPU)
    assert packed.num_bytes < layer.num_bytes / 2


def test_blocks_of_a_benchmarked_weight_reach_the_largest_float() -> None:
    weight = low_bit.fp8_blocks(torch.randn(256, 384))
    assert isinstance(weight, Fp8Weight)
    assert weight.scales.shape == (2, 3)
    assert float(weight.values.float().abs().max()) == 448.0


def test_every_kind_of_request_is_sampled() -> None:
    logits = torch.randn(2, 500)
    for draws in sampling.draws_of_kinds(2, CPU).values():
        _, ids = sample(logits, draws)
        assert all(0 <= token_id < 500 for token_id in ids.tolist())


def test_all_tokens_of_a_benchmarked_mask_are_banned() -> None:
    logits = torch.randn(2, 500)
    num_bytes, work = sampling.masked(logits)
    work()
    assert num_bytes == 2 * (500 + 16) * 4
    assert logits.isneginf().all()


def test_adapters_are_added_to_the_rows_of_their_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "HIDDEN", 32)
    monkeypatch.setattr(adapters, "WIDTHS", (32, 16))
    site = adapters.site_of(2, CPU, torch.float32)
    assert site.starts.tolist() == [0, 0, adapters.LORA_RANK]
    x, slots = torch.randn(4, 32), torch.tensor([1, 2, 0, 2], dtype=torch.int32)
    ours, expected = torch.zeros(4, 48), torch.zeros(4, 48)
    adapters.add_adapters(x, ours, slots, site, 1)
    reference_add(x, expected, slots, site, 1)
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-3)
    num_bytes, work = adapters.work_of(2, 9, CPU, torch.float16)
    work()
    assert num_bytes > adapters.site_of(2, CPU, torch.float16).num_bytes


TINY = replace(
    llama_1b(64),
    vocab_size=50,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
)


def test_steps_with_drafts_are_replayed_as_the_benchmark_steps_them() -> None:
    backend = RerunGraphs()
    shapes = replace(draft_step.SHAPES, max_num_seqs=3, max_context_tokens=64)
    subject = decode_step.prepare("tiny", TINY, torch.float32, CPU, backend, most=3, drafts=shapes)
    for each in draft_step.ROWS_EACH:
        logits = subject.runner.forward(draft_step.draft_batch(TINY, 3, each, 40))
        assert logits.shape == (3 * each, 50)
        assert logits.isfinite().all()
    assert backend.num_replayed == len(draft_step.ROWS_EACH)
    one, four = (draft_step.least_s(subject, 1, each, FLOOR) for each in (1, 4))
    assert one == four == decode_step.roofline_s(subject, 1, FLOOR)  # memory bounds both


def test_a_decoder_of_random_weights_steps_as_the_benchmark_steps_it() -> None:
    config = TINY
    backend = RerunGraphs()
    subject = decode_step.prepare("tiny", config, torch.float32, CPU, backend, most=3)
    batch = decode_step.decode_batch(config, 3, 40)
    logits = subject.runner.forward(batch)
    assert logits.shape == (3, 50)
    assert logits.isfinite().all()
    assert backend.num_replayed == 1
    assert len(decode_step.host_seconds(subject.runner, batch)) == decode_step.REPEATS - 1
    per_token = 2 * 2 * 2 * 16 * 4
    assert subject.token_bytes == per_token


def test_the_roofline_of_one_sequence_is_the_weights() -> None:
    config = llama_8b(1088)
    per_layer = 4096 * (6144 + 4096 + 3 * 14336)
    weights = 2 * (32 * per_layer + 128_256 * 4096)
    subject = decode_step.Subject(
        name="8B",
        config=config,
        runner=_NoRunner(),
        weight_bytes=weights,
        token_bytes=32 * 2 * 8 * 128 * 2,
        max_num_seqs=256,
    )
    one = decode_step.roofline_s(subject, 1, FLOOR)
    assert one == pytest.approx(weights / 3e12, rel=0.01)
    assert decode_step.roofline_s(subject, 256, FLOOR) == pytest.approx(
        (weights + 256 * 1024 * 131072) / 3e12
    )


class _NoRunner:
    """For figures that need no step."""

    def copy_blocks(self, pairs: object) -> None:
        raise AssertionError("nothing is run here")

    def forward(self, batch: object) -> torch.Tensor:
        raise AssertionError("nothing is run here")
