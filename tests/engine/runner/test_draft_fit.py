"""Whether a GPU has room for rows of drafts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cluster.models.model_split import ModelSplit
from engine.runner.draft_fit import why_no_room, why_no_room_on
from kernels.triton.gpu import HOPPER, Gpu
from tests.engine.model.tiny_llama import decoder_config, tiny_config
from tests.kernels.gpus import ADA, AMPERE, BLACKWELL


def split(head_dim: int, num_heads: int, num_kv_heads: int) -> ModelSplit:
    shape = {"head_dim": head_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return ModelSplit(config=replace(decoder_config(tiny_config()), **shape))


@pytest.mark.parametrize("gpu", [AMPERE, ADA, HOPPER, BLACKWELL])
@pytest.mark.parametrize(("head_dim", "group"), [(256, 4), (128, 4), (128, 8), (64, 8)])
def test_published_shapes_have_room_on_every_gpu(gpu: Gpu, head_dim: int, group: int) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        for pool_dtype in (dtype, torch.int8):
            assert why_no_room_on(gpu, split(head_dim, group, 1), dtype, pool_dtype) is None


def test_where_there_is_none_the_words_say_of_what() -> None:
    wide = split(256, 64, 1)
    why = why_no_room_on(ADA, wide, torch.float32, torch.float32)
    assert why is not None
    assert "64 heads of 256 float32 values" in why
    assert "99 KiB" in why
    assert why_no_room_on(HOPPER, wide, torch.float32, torch.float32) is None
    assert why_no_room(wide, torch.float32, torch.float32, torch.device("cpu")) is None
