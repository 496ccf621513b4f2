"""Reads an adapter into a bank: all of its tensors, each cut to the rank's part."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from cluster.errors import AdapterRefused, AdapterUnread
from cluster.models.adapters.files import read_adapter
from cluster.models.adapters.tensors import AdaptedModule
from engine.model.adapters.bank import AdapterBank
from engine.model.adapters.permit import Permit


def read_into(
    bank: AdapterBank,
    root: Path,
    folder: Path,
    *,
    digest: str,
    start: int,
    permit: Permit | None = None,
) -> dict[str, int]:
    """To the LoRA ranks from `start` on, which are nobody's while the `permit` is good (None: for
    ever); returns how many each module has. Raises AdapterUnread for a folder that has another
    adapter than the digest says, by now, and AdapterRefused for numbers that are not finite, and
    without a permit."""
    permit = Permit() if permit is None else permit
    files = read_adapter(root, folder, bank.config, progressed=permit.go_on)
    if files.digest != digest:
        raise AdapterUnread(
            f"the files in {folder.name} have changed since {digest} was loaded from them"
        )
    try:
        tensors = load(files.weights)
    except (SafetensorError, ValueError) as error:
        raise AdapterRefused(f"{folder.name} cannot be read as safetensors: {error}") from error
    for module, adapted in files.modules.items():
        down, up = _halves(bank, module, adapted, tensors)
        with permit.writing():
            bank.write(module, start, down, up)
    return {module: adapted.rank for module, adapted in files.modules.items()}


def _halves(
    bank: AdapterBank, module: str, adapted: AdaptedModule, tensors: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's, float32: down [lora_rank, own inputs] and up [own outputs, lora_rank]. The
    scale goes into `up` before that is rounded."""
    part = bank.own_parts[module]
    down = tensors[adapted.down_name(module)][:, part.inputs.start : part.inputs.stop].float()
    up = tensors[adapted.up_name(module)][part.outputs.start : part.outputs.stop].float()
    up = up * adapted.scale
    if not bool(down.isfinite().all() & up.isfinite().all()):
        raise AdapterRefused(f"the tensors of {module} have values that are not finite")
    return down, up
