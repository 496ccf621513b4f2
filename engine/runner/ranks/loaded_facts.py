"""What a rank can say of itself once it has loaded its part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from cluster.launcher.protocol import VISIBLE_DEVICES
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
        device=name_of(device, os.environ),
        generation=launch.generation,
        kv_heads=tuple(part.decoder.split.pool_heads),
        weight_bytes=part.decoder.num_bytes,
        kv_bytes=part.pool.num_bytes,
        peak_bytes=peak_bytes(device),
        loaded_as=form_of(part, device),
    )


def form_of(part: LoadedPart, device: torch.device) -> str:
    """See RankFacts.loaded_as. Of a mixture with what computes: each rank routes its rows itself,
    and where two choices are all but equal, other instructions choose another expert, which then
    nobody computes, or two do."""
    split = part.decoder.split
    form = f"{part.weights}, columns by {split.column_unit}"
    if split.config.mixture is None:
        return form
    return f"{form}, routed by {part.decoder.kernel_set} kernels on {kind_of(device)}"


def kind_of(device: torch.device) -> str:
    """All that compute alike have the same."""
    if device.type == "cpu":
        return f"a CPU with {torch.backends.cpu.get_cpu_capability()}"
    major, minor = torch.cuda.get_device_capability(device)
    return f"{torch.cuda.get_device_name(device)} (compute capability {major}.{minor})"


def name_of(device: torch.device, environ: Mapping[str, str]) -> str:
    """See RankFacts.device: every rank sees its own GPU alone, and as the first one."""
    if device.type != "cuda":
        return str(device)
    visible, index = environ.get(VISIBLE_DEVICES, "").split(","), device.index or 0
    name = visible[index].strip() if index < len(visible) else ""
    return f"cuda:{name or index}"


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
