"""Memory is divided before anything is loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cluster.errors import ConfigError, OutOfBlocks
from cluster.kv_shape import KvShape
from cluster.models.footprint import weight_bytes, workspace_bytes
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, RowSharing
from engine.contract.weight_format import WeightFormat
from engine.memory.budget import plan_memory, shared_bytes
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout, KvPool
from engine.memory.memory_request import MemoryRequest
from engine.runner.portion import Portion
from tests.cluster.models.configs import DEEPSEEK_V3, SMOLLM2
from tests.engine.model.tiny_llama import decoder_config, random_model, tiny_config

GIB = 1 << 30
SMALL = KvShape(num_layers=2, num_planes=2, num_kv_heads=3, head_dim=8)


def request(dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> MemoryRequest:
    return MemoryRequest(
        split=ModelSplit(config=SMOLLM2),
        layout=KvLayout.of(SMOLLM2, 16, dtype),
        device=torch.device(device),
        max_context_tokens=8192,
        max_batch_tokens=512,
    )


def test_a_cpu_pool_is_a_gibibyte_where_memory_is_plenty() -> None:
    budget = plan_memory(request(), 64 * GIB)
    block_bytes = 30 * 2 * 3 * 16 * 64 * 2
    assert budget.num_blocks == GIB // block_bytes
    assert budget.kv_bytes == budget.num_blocks * block_bytes


def test_a_cpu_pool_is_a_quarter_of_scarce_memory() -> None:
    budget = plan_memory(request(), 2 * GIB)
    assert GIB // 2 - 400_000 < budget.kv_bytes <= GIB // 2


def test_a_cpu_pool_grows_to_hold_one_sequence() -> None:
    budget = plan_memory(request(), 600 << 20)
    assert budget.num_blocks == 8192 // 16


def test_a_gpu_pool_takes_what_is_left() -> None:
    budget = plan_memory(request(device="cuda"), 80 * GIB)
    parts = budget.weight_bytes + budget.kv_bytes + budget.workspace_bytes + budget.headroom_bytes
    block_bytes = budget.kv_bytes // budget.num_blocks
    assert 80 * GIB - block_bytes < parts <= 80 * GIB


def test_two_engines_of_one_gpu_plan_with_half_of_it_each() -> None:
    half = replace(request(device="cuda"), memory_share=0.5)
    assert plan_memory(half, 80 * GIB) == plan_memory(request(device="cuda"), 40 * GIB)


def test_the_share_holds_for_a_cpu_and_is_named_when_it_is_too_small() -> None:
    share = replace(request(), memory_share=0.25)
    assert plan_memory(share, 8 * GIB).kv_bytes == plan_memory(request(), 2 * GIB).kv_bytes
    with pytest.raises(ConfigError, match=r"25% of the memory \(--memory-share\)"):
        plan_memory(share, 1 * GIB)


def test_an_explicit_pool_wins() -> None:
    wanted = replace(request(), kv_memory_bytes=3 * GIB)
    assert plan_memory(wanted, 64 * GIB).kv_bytes > 3 * GIB - 400_000


def test_the_error_names_the_largest_context_that_fits() -> None:
    with pytest.raises(ConfigError, match="8192 tokens .* or use --kv int8") as failure:
        plan_memory(request(), 420 << 20)
    assert failure.value.param == "max_context_tokens"
    fitting = int(failure.value.message.split("that does is ")[1].split(",")[0])
    assert plan_memory(replace(request(), max_context_tokens=fitting), 420 << 20).num_blocks > 0


def test_a_quantized_pool_holds_more_tokens_beside_the_same_weights() -> None:
    plain, available = replace(request(), kv_memory_bytes=200 << 20), 1 * GIB
    quantized = replace(plain, layout=KvLayout.of(SMOLLM2, 16, torch.int8), dtype=torch.bfloat16)
    ours, theirs = plan_memory(quantized, available), plan_memory(plain, available)
    assert ours.weight_bytes == theirs.weight_bytes
    assert ours.num_blocks / theirs.num_blocks == pytest.approx(128 / 68, rel=0.01)


def test_a_block_that_cannot_be_verified_is_refused() -> None:
    with pytest.raises(ConfigError, match="204 bytes per head.*multiple of 8") as failure:
        KvLayout.of(SMOLLM2, 3, torch.float8_e4m3fn)
    assert failure.value.param == "block_size_tokens"


def test_the_error_names_the_smaller_dtype() -> None:
    with pytest.raises(ConfigError, match="bfloat16"):
        plan_memory(request(torch.float32), 700 << 20)


def test_the_error_names_the_mildest_formats_that_fit() -> None:
    with pytest.raises(ConfigError, match="or use --weights int8 --kv int8$"):
        plan_memory(request(), 320 << 20)
    with pytest.raises(ConfigError, match="or use --weights int4 --kv int8 for [0-9]+ tokens$"):
        plan_memory(request(), 180 << 20)


def test_what_the_error_recommends_does_fit() -> None:
    layout = KvLayout.of(SMOLLM2, 16, torch.int8)
    smaller = replace(request(), layout=layout, dtype=torch.bfloat16, weights=WeightFormat("int8"))
    assert plan_memory(smaller, 320 << 20).num_blocks * 16 >= 8192


def test_what_the_error_recommends_fits_beside_a_heads_layers_too() -> None:
    """As many as the model's own, which a group's first rank may have."""

    def deeper(one: MemoryRequest) -> MemoryRequest:
        return replace(one, layout=one.layout.deeper(one.layout.shape.num_layers))

    with pytest.raises(ConfigError, match="or use --weights int8 --kv int8$"):
        plan_memory(deeper(request()), 420 << 20)
    layout = KvLayout.of(SMOLLM2, 16, torch.int8)
    smaller = replace(request(), layout=layout, dtype=torch.bfloat16, weights=WeightFormat("int8"))
    assert plan_memory(deeper(smaller), 420 << 20).num_blocks * 16 >= 8192


def test_the_error_names_how_many_devices_would_hold_it() -> None:
    large = replace(SMOLLM2, num_layers=300, num_heads=8, num_kv_heads=8)
    wanted = replace(
        request(device="cuda"),
        split=ModelSplit(config=large),
        layout=KvLayout.of(large, 16, torch.bfloat16),
    )
    with pytest.raises(ConfigError, match="split it over 8 such devices$"):
        plan_memory(wanted, 1500 << 20)


def test_a_rank_plans_with_its_part_of_the_weights_and_blocks_of_its_own_heads() -> None:
    split = ModelSplit(config=SMOLLM2, rank=Rank(0, 2))  # one KV head of three
    layout = KvLayout.of_part(split, 16, torch.bfloat16)
    whole = plan_memory(request(), 64 * GIB)
    own = plan_memory(replace(request(), split=split, layout=layout), 64 * GIB)
    assert own.num_blocks == GIB // (30 * 2 * 1 * 16 * 64 * 2)
    assert 0.45 * whole.weight_bytes < own.weight_bytes < 0.5 * whole.weight_bytes


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="no KV block fits beside 256 MiB of weights"):
        plan_memory(request(), 200 << 20)


def test_an_explicit_pool_larger_than_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="lower --kv-memory-bytes"):
        plan_memory(replace(request(), kv_memory_bytes=4 * GIB), 2 * GIB)


def test_an_explicit_pool_without_one_block_is_refused() -> None:
    with pytest.raises(OutOfBlocks, match="one block of 16 tokens takes 368640"):
        plan_memory(replace(request(), kv_memory_bytes=1000), 2 * GIB)


def test_weights_are_counted_to_the_byte() -> None:
    for changes in ({}, {"tie_word_embeddings": False}):
        model = random_model(tiny_config(**changes))
        counted = sum(parameter.nbytes for parameter in model.parameters())
        config = decoder_config(model.config)
        assert weight_bytes(ModelSplit(config=config), dtype="float32", weights="full") == counted


def test_a_pool_is_page_aligned_contiguous_and_zero() -> None:
    layout = KvLayout(shape=SMALL, block_size=4, dtype=torch.bfloat16)
    pool = KvPool(layout, 5, "cpu")
    assert pool.tensor.shape == (5, 2, 2, 3, 4, 8)
    assert pool.tensor.is_contiguous()
    assert pool.address % 4096 == 0
    assert pool.num_bytes == pool.tensor.nbytes == 5 * pool.block_bytes
    assert not pool.tensor.any()


@pytest.mark.parametrize("kv", ["auto", "int8", "fp8"])
@pytest.mark.parametrize("num_planes", [1, 2])
def test_a_pool_takes_the_bytes_that_models_and_routers_count(kv: str, num_planes: int) -> None:
    shape = replace(SMALL, num_planes=num_planes)
    dtype = QUANTIZED_DTYPES.get(kv, torch.bfloat16)
    pool = KvPool(KvLayout(shape=shape, block_size=16, dtype=dtype), 5, "cpu")
    assert pool.tensor.nbytes == 5 * 16 * shape.token_bytes(dtype="bfloat16", kv=kv)
    assert pool.num_bytes == pool.tensor.nbytes


def test_a_layer_of_a_pool_is_a_view() -> None:
    layout = KvLayout(shape=SMALL, block_size=4, dtype=torch.float32)
    pool = KvPool(layout, 5, "cpu")
    pool.layer(1)[3, 0, 2] = 7.0
    assert pool.tensor[3, 1, 0, 2].eq(7.0).all()
    assert pool.tensor.eq(7.0).sum() == 4 * 8


def test_a_pool_without_blocks_is_refused() -> None:
    layout = KvLayout(shape=SMALL, block_size=4, dtype=torch.float32)
    with pytest.raises(ConfigError, match="0 blocks"):
        KvPool(layout, 0, "cpu")


def test_engines_that_start_one_after_the_other_get_their_shares_of_one_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = [80 * GIB]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 80 * GIB))
    first = shared_bytes(torch.device("cuda"), 0.5)
    free[0] -= first
    assert first == shared_bytes(torch.device("cuda"), 0.5) == 40 * GIB


def test_ranks_that_plan_together_have_equal_parts_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.memory.budget.free_memory_bytes", lambda: 30 * GIB)
    monkeypatch.setattr("engine.memory.budget.whole_memory_bytes", lambda: 100 * GIB)
    assert plan_memory(request()).available_bytes == 30 * GIB
    assert plan_memory(replace(request(), num_sharing=2)).available_bytes == 15 * GIB
    quarter = replace(request(), num_sharing=2, memory_share=0.25)
    assert plan_memory(quarter).available_bytes == int(12.5 * GIB)
    late = replace(request(), num_sharing=2, free_bytes=28 * GIB)  # before the other took its part
    assert plan_memory(late).available_bytes == 14 * GIB
    one, cuda = Portion(num_beside=2), torch.device("cuda")
    assert (one.num_sharing(torch.device("cpu")), one.num_sharing(cuda)) == (2, 1)


def test_an_engine_that_starts_again_on_a_cpu_beside_another_fits_where_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = [16 * GIB]
    monkeypatch.setattr("engine.memory.budget.free_memory_bytes", lambda: free[0])
    monkeypatch.setattr("engine.memory.budget.whole_memory_bytes", lambda: 16 * GIB)
    first = shared_bytes(torch.device("cpu"), 0.5)
    free[0] -= 7 * GIB
    assert first == shared_bytes(torch.device("cpu"), 0.5) == 8 * GIB
    free[0] = 3 * GIB  # others have it: no plan is made with what is not there
    assert shared_bytes(torch.device("cpu"), 0.5) == 3 * GIB


def test_a_pool_leaves_room_for_a_layer_of_experts_that_is_made_anew() -> None:
    split = ModelSplit(config=DEEPSEEK_V3, rank=Rank(0, 32))
    layout = KvLayout.of_part(split, 16, torch.bfloat16)
    still = replace(request(device="cuda"), split=split, layout=layout)
    kept = plan_memory(still, 120 * GIB)
    less = plan_memory(replace(still, num_moves=16), 120 * GIB)
    of_one_expert = 3 * 7168 * 2048 * 2
    assert less.exchange_bytes == (256 // 32 + 16) * of_one_expert
    block_bytes = kept.kv_bytes // kept.num_blocks
    assert abs(kept.kv_bytes - less.kv_bytes - less.exchange_bytes) < block_bytes


def test_a_model_without_experts_needs_nothing_for_their_exchange() -> None:
    assert plan_memory(replace(request(), num_moves=16), 64 * GIB).exchange_bytes == 0


def workspace_of(max_batch_tokens: int) -> int:
    split = ModelSplit(config=DEEPSEEK_V3, rank=Rank(0, 8), row_sharing=RowSharing.OWN)
    return workspace_bytes(split, dtype="bfloat16", max_batch_tokens=max_batch_tokens)


def test_ranks_with_sequences_of_their_own_have_the_attention_of_these_alone() -> None:
    """And rows of all for their experts: once, and never those that one rank alone would have."""
    whole = ModelSplit(config=DEEPSEEK_V3)
    alone = workspace_bytes(whole, dtype="bfloat16", max_batch_tokens=65536)
    found = workspace_of(65536)
    arriving = 65536 * (7168 + 3 * 8 * 2048) * 2
    assert alone > 24 * GIB
    assert arriving < found < 9 * GIB
    assert workspace_of(1) > 0
