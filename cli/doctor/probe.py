"""Looks at heavy libraries from a process of its own: `python -m cli.doctor.probe NAME`.

A library that crashes or hangs takes this process with it and not the doctor. Prints one JSON
object as the last line of stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from cluster.errors import ConfigError
from cluster.home import kernels_folder
from cluster.options import without_options
from cluster.process.own_python import module_argv, module_environ

TIMEOUT_S = 120.0


class ProbeFailed(Exception):
    """The probing process ended badly; the message is its last word."""


def probe(name: str) -> dict[str, Any]:
    """Runs a probe elsewhere. Raises ProbeFailed."""
    try:
        done = subprocess.run(
            module_argv("cli.doctor.probe", name),
            env=without_options(os.environ) | module_environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as cause:
        raise ProbeFailed(f"no answer within {TIMEOUT_S:g} s") from cause
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    if done.returncode != 0 or not lines:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise ProbeFailed(errors[-1] if errors else f"ended with {done.returncode}")
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


def torch_facts() -> dict[str, Any]:
    """Version, the CUDA that it is built for, device and threads."""
    import torch

    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
    }


def cpu_kernel_facts() -> dict[str, Any]:
    """The native library, built if it is not there yet, and the level of instructions that it is
    for; "reason" says why it cannot be had."""
    from kernels.cpu.native_library import load_library
    from kernels.cpu.native_sources import NativeUnavailable

    try:
        library = load_library(kernels_folder())
    except NativeUnavailable as reason:
        return {"reason": str(reason), "level": ""}
    return {"reason": "", "level": library.level.name}


def nixl_facts() -> dict[str, Any]:
    """Plugins of the NIXL that is installed."""
    from kvtransfer.nixl_library import nixl_bindings, ucx_environment

    bindings = nixl_bindings()
    with ucx_environment():
        agent = bindings.nixlAgent("doctor", bindings.nixlAgentConfig(False))
        plugins = agent.getAvailPlugins()
    return {"plugins": sorted(plugins), "library": bindings.__name__.partition(".")[0]}


def transfer_facts() -> dict[str, Any]:
    """A real transfer between two processes."""
    from kvtransfer.selftest import run_selftest

    report = run_selftest(megabytes=16)
    return {
        "transport": report.transport,
        "num_bytes": report.num_bytes,
        "handshake_ms": report.handshake_ms,
        "gb_per_s": report.gb_per_s,
    }


def collective_facts() -> dict[str, Any]:
    """A real sum over two ranks."""
    from ranks.selftest import run_selftest

    report = run_selftest()
    return {
        "kind": report.kind.value,
        "why_slow": report.why_slow,
        "median_us": report.median_us,
    }


def ray_facts() -> dict[str, Any]:
    """The cluster at $RAY_ADDRESS, or a Ray of our own; "reason" says why there is none."""
    from cluster.launcher.ray.probe import probe_ray

    try:
        return probe_ray()
    except ConfigError as refusal:
        return {"reason": refusal.message}


PROBES = {
    "torch": torch_facts,
    "cpu-kernels": cpu_kernel_facts,
    "nixl": nixl_facts,
    "transfer": transfer_facts,
    "collectives": collective_facts,
    "ray": ray_facts,
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]]()))
