"""Whether a GPU has room for the rows of drafts: asked before anything is recorded.

Steps with drafts are recorded with a kernel of their own, whose tiles hold the rows of several
heads. Where not even one token's fit, there are no drafts, and the engine says why.
"""

from __future__ import annotations

import torch

from cluster.models.model_split import ModelSplit
from kernels.triton.gpu import Gpu, gpu_of
from kernels.triton.tuning import HeadsShape, verify_tiles


def why_no_room(
    split: ModelSplit, dtype: torch.dtype, pool_dtype: torch.dtype, device: torch.device
) -> str | None:
    """In words; None: there is, or the device's kernels take any. `dtype`: of activations."""
    return (
        None if device.type == "cpu" else why_no_room_on(gpu_of(device), split, dtype, pool_dtype)
    )


def why_no_room_on(
    gpu: Gpu, split: ModelSplit, dtype: torch.dtype, pool_dtype: torch.dtype
) -> str | None:
    """See why_no_room. Latents are verified by the kernel of their prompts."""
    if split.config.latent is not None:
        return None
    group = len(split.heads) // len(split.kv_heads)
    heads = HeadsShape(
        head_dim=split.config.head_dim,
        group=group,
        num_kv_heads=len(split.kv_heads),
        query_bytes=dtype.itemsize,
        value_bytes=pool_dtype.itemsize,
    )
    if verify_tiles(heads, 1, gpu) is not None:
        return None
    return (
        f"{group} heads of {heads.head_dim} {str(dtype).removeprefix('torch.')} values that share "
        f"keys do not fit in the {gpu.shared_bytes >> 10} KiB that this GPU gives a program"
    )
