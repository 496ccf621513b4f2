"""Reads an adapter into a bank: all of its tensors, each cut to the rank's part."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from cluster.errors import AdapterRefused
from cluster.models.adapters.files import read_adapter
from cluster.models.adapters.tensors import AdaptedModule
from engine.model.adapters.bank import AdapterBank


def read_into(
    bank: AdapterBank, root: Path, folder: Path, *, digest: str, start: int
) -> dict[str, int]:
    """To the ranks from `start` on, which are nobody's; returns how many each module has. Raises
    AdapterRefused for a folder that has another adapter than the digest says, by now."""
    files = read_adapter(root, folder, bank.config)
    if files.digest != digest:
        raise AdapterRefused(
            f"the files in {folder.name} have changed since {digest} was loaded from them"
        )
    try:
        tensors = load(files.weights)
    except (SafetensorError, ValueError) as error:
        raise AdapterRefused(f"{folder.name} cannot be read as safetensors: {error}") from error
    for module, adapted in files.modules.items():
        _write(bank, module, adapted, tensors, start)
    return {module: adapted.rank for module, adapted in files.modules.items()}


def _write(
    bank: AdapterBank,
    module: str,
    adapted: AdaptedModule,
    tensors: dict[str, torch.Tensor],
    start: int,
) -> None:
    """The scale goes into `up`, in float32, before that is rounded."""
    part = bank.parts_of_rank[module]
    down = tensors[adapted.down_name(module)][:, part.inputs.start : part.inputs.stop]
    up = tensors[adapted.up_name(module)][part.outputs.start : part.outputs.stop]
    bank.write(module, start, down.float(), up.float() * adapted.scale)
