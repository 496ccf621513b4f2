"""Random adapters as PEFT saves them, as ranks are told of them, and what they add to a
checkpoint's matrices."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from cluster.models.adapters.files import read_adapter
from cluster.models.adapters.targets import adapter_targets
from cluster.models.card import DecoderConfig
from engine.model.adapters.words import StageAdapter

EVERYWHERE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def random_tensors(
    config: DecoderConfig, *, rank: int, seed: int, targets: Sequence[str] = EVERYWHERE
) -> dict[str, torch.Tensor]:
    """By the names of the file. As large as the matrices that they change."""
    made = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for module, stored in adapter_targets(config).items():
        if module.rpartition(".")[2] in targets:
            outputs, inputs = stored.shape
            down = torch.randn(rank, inputs, generator=made) / math.sqrt(inputs)
            up = torch.randn(outputs, rank, generator=made) / math.sqrt(rank)
            tensors[f"base_model.model.{module}.lora_A.weight"] = down
            tensors[f"base_model.model.{module}.lora_B.weight"] = up
    return tensors


def save_adapter(
    folder: Path,
    config: DecoderConfig,
    *,
    rank: int = 8,
    alpha: float = 8.0,
    seed: int = 0,
    targets: Sequence[str] = EVERYWHERE,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> Path:
    """A folder with both files."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = random_tensors(config, rank=rank, seed=seed, targets=targets)
    save_file(
        {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    told = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": list(targets),
        "bias": "none",
        "task_type": "CAUSAL_LM",
        **settings,
    }
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return folder


def word_of(folder: Path, config: DecoderConfig, *, slot: int, start: int) -> StageAdapter:
    """That ranks are to read it, as it is now."""
    files = read_adapter(folder.parent, folder, config)
    return StageAdapter(
        root=str(folder.parent),
        folder=str(folder),
        digest=files.digest,
        slot=slot,
        start=start,
        lora_rank=files.lora_rank,
    )


def merge(
    state: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], scale: float
) -> dict[str, torch.Tensor]:
    """The base's tensors with scale * up @ down added, in float64, rounded once."""
    merged = dict(state)
    for name, down in tensors.items():
        if name.endswith(".lora_A.weight"):
            up = tensors[name.replace("lora_A", "lora_B")]
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            base = state[f"{module}.weight"]
            added = scale * up.double() @ down.double()
            merged[f"{module}.weight"] = (base.double() + added).to(base.dtype)
    return merged
