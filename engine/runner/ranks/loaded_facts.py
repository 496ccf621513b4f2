"""What a rank can say of itself once it has loaded its part."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from cluster.rank_facts import RankFacts
from engine.runner.replica import LoadedPart
from ranks.launch import RankLaunch

_STATUS = Path("/proc/self/status")
_PEAK = "VmHWM:"


def loaded_facts(part: LoadedPart, launch: RankLaunch) -> RankFacts:
    """Of this process, which is that rank."""
    device = part.pool.tensor.device
    return RankFacts(
        rank=launch.rank,
        pid=os.getpid(),
        node=launch.node,
        device=str(device),
        generation=launch.generation,
        kv_heads=tuple(part.decoder.split.pool_heads),
        weight_bytes=part.decoder.num_bytes,
        kv_bytes=part.pool.num_bytes,
        peak_bytes=peak_bytes(device),
        loaded_as=f"{part.weights}, columns by {part.decoder.split.column_unit}",
    )


def peak_bytes(device: torch.device) -> int:
    """Of memory of this process, or of its device, until now; 0 where nobody knows. Not what the
    system says of the process's resources: that begins with its parent's peak."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(_PEAK)), 0)
