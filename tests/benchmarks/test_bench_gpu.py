"""What the GPU benchmark shows without a GPU: inputs, bytes, verdicts, and that it has not run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import bench_gpu
from benchmarks.gpu import attention, latent, norms, tune
from benchmarks.gpu.attention_inputs import AttentionShape, inputs
from benchmarks.gpu.timing import GpuFloor
from benchmarks.report import Row
from kernels.dispatch.kernel_sets import REFERENCE, triton_set
from kernels.triton.tuning import PrefillTiles

CPU = torch.device("cpu")
FLOOR = GpuFloor(name="x", copy_bytes_per_s=1e12, bf16_flops_per_s=1e15, launch_s=2e-6)
SMALL = AttentionShape(
    num_seqs=2, context_len=20, num_heads=4, num_kv_heads=2, head_dim=16, kv_dtype=torch.float32
)


def test_without_a_device_the_results_say_that_nothing_has_run_and_keep_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["bench_gpu", "--json", str(path)])
    assert bench_gpu.main() == 0
    assert "not run: no CUDA device" in capsys.readouterr().out
    assert json.loads(path.read_text())["status"].startswith("not run")
    path.write_text("measured")
    assert bench_gpu.main() == 0
    assert path.read_text() == "measured"


def test_random_bytes_are_finite_in_every_dtype_of_a_pool() -> None:
    memory = attention.random_bytes(1 << 16, CPU)
    for dtype in (torch.bfloat16, torch.float32, torch.float8_e4m3fn):
        values = memory.view(dtype).float()
        assert values.isfinite().all()
        assert values.std() > 0


def test_bytes_and_operations_are_those_of_the_visible_tokens() -> None:
    shape = AttentionShape(num_seqs=3, context_len=100, query_len=10)
    assert shape.kv_bytes == 3 * 100 * 2 * 8 * 128 * 2
    assert shape.pool_bytes == 3 * 112 * 2 * 8 * 128 * 2
    assert shape.flops == 4 * 3 * 32 * 128 * sum(range(91, 101))
    windowed = AttentionShape(num_seqs=1, context_len=100, window=30, kv_dtype=torch.int8)
    assert windowed.kv_bytes == 30 * 2 * 8 * 132


def test_inputs_are_layers_that_attention_takes() -> None:
    memory = attention.random_bytes(3 * SMALL.pool_bytes, CPU)
    layers = list(inputs(SMALL, 3, memory))
    assert len({given.kv_layer.data_ptr() for given in layers}) == 3
    for given in layers[:2]:
        ours = attention.attend(triton_set(), SMALL, given)()
        theirs = attention.attend(REFERENCE, SMALL, given)()
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)
    with pytest.raises(ValueError, match="needs .* bytes for 4 layers"):
        next(inputs(SMALL, 4, memory))


@pytest.mark.parametrize("name", norms.CALLS)
def test_every_kernel_between_matrices_runs_on_its_inputs(name: str) -> None:
    num_bytes, work = norms.CALLS[name](triton_set(), 2, "cpu", torch.float16)
    work()
    assert num_bytes >= 2 * norms.ALL_HEADS * norms.HEAD_DIM * 2


def test_latent_attention_runs_on_its_layers() -> None:
    shape = latent.LatentShape(1, 20, 16)
    memory = attention.random_bytes(2 * shape.kv_bytes * 2, CPU)
    results = []
    for kernels in (triton_set(), REFERENCE):
        torch.manual_seed(0)  # of the queries
        works = latent.works(kernels, shape, 2, memory, torch.float32)
        results.append([work() for work in works])
    ours, theirs = results
    assert len(ours) == 2
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


def test_a_figure_that_measures_launches_has_no_goal() -> None:
    short = FLOOR.bytes_row("short", [1e-5], 1e6, 0.85)
    assert short.floor == pytest.approx(1.0)
    assert short.goal is None
    long = FLOOR.bytes_row("long", [1.1e-4, 1.3e-4, 1.2e-4], 1e8, 0.8)
    assert (long.value, long.floor, long.goal) == pytest.approx((120.0, 100.0, 125.0))


def test_tuning_takes_what_loses_least_over_all_batches_and_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates = [
        PrefillTiles(rows=rows, chunk=64, num_warps=8, num_stages=3) for rows in (16, 32, 64, 128)
    ]
    taken = {16: [1.0, 9.0], 32: [2.0, 3.0], 64: [8.0, 1.0], 128: [None, 0.5]}
    shapes = tune.shapes_of(((1, 10), (1, 20)), 64, torch.bfloat16, is_prefill=True)
    monkeypatch.setattr(
        tune, "seconds", lambda shape, _m, _l, tiles: taken[tiles.rows][shapes.index(shape)]
    )
    winner, seconds = tune.best(shapes, torch.empty(0), tune.launch_prefill, candidates)
    assert winner.rows == 32
    assert seconds == [2.0, 3.0]


def test_candidates_are_many_and_distinct() -> None:
    for candidates in (list(tune.decode_candidates(2)), list(tune.prefill_candidates())):
        assert len(set(candidates)) == len(candidates) >= 36


def test_a_table_that_fails_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Measured:
        @staticmethod
        def rows(floor: GpuFloor) -> list[Row]:
            return [Row(name="row", value=1.0, unit="ms")]

    class Broken:
        @staticmethod
        def rows(floor: GpuFloor) -> list[Row]:
            raise RuntimeError("out of memory")

    tables = {"benchmarks.gpu.first": Measured, "benchmarks.gpu.second": Broken}
    monkeypatch.setattr("benchmarks.bench_gpu.importlib.import_module", tables.__getitem__)
    rows, failed = bench_gpu.measure(["second", "first"], FLOOR, tmp_path / "gpu.json")
    assert (len(rows), failed) == (1, ["second"])
    assert "out of memory" in capsys.readouterr().err
    assert "row" in (tmp_path / "gpu.json").read_text()
