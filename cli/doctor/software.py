"""Checks of what is installed."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from cli.doctor.finding import Check, Finding, broken, fine, poor
from cli.doctor.probe import ProbeFailed, probe
from cluster.extras import how_to_install
from cluster.supervisor.devices import THIS_HOST, NvidiaHost, visible_gpus, why_unusable

_WORKER = how_to_install("worker")
_RAY_HINT = f"{how_to_install('ray')}; or do without --launcher and --rank-launcher ray"
RAY_FROM, RAY_BELOW = (2, 60), (2, 62)
"""As the extra `ray` asks for: cluster/launcher/ray uses what Ray does not promise to keep."""
_TRANSFER_HINT = "see the message; --prefill 0 is a deployment that needs no transfer"


def software_checks() -> list[Check]:
    """Python, torch, triton, NIXL, a real transfer, a real sum over ranks, and Ray."""
    return [
        Check("python", _python),
        Check("torch", _torch),
        Check("triton", _triton),
        Check("kernels", _kernels),
        Check("cpu-kernels", _cpu_kernels),
        Check("nixl", _nixl),
        Check("transfer", _transfer),
        Check("collectives", _collectives),
        Check("ray", _ray),
    ]


def _python() -> Finding:
    text = f"python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if (3, 11) <= sys.version_info[:2] <= (3, 14):
        return fine(text)
    return poor(text, "3.11 to 3.14 are supported; 3.11 and 3.12 are tested")


def _torch(host: NvidiaHost = THIS_HOST) -> Finding:
    try:
        facts = probe("torch")
    except ProbeFailed as cause:
        return broken(f"torch cannot be used: {cause}", _WORKER)
    text = f"torch {facts['version']}, {facts['device']}, {facts['threads']} threads"
    if facts["device"] == "cpu" and visible_gpus(os.environ, host):
        found = why_unusable(facts["cuda"], host)
        return broken(
            f"{text}; an NVIDIA GPU is here that cannot be used: {found.cause}",
            f"{found.remedy}, or serve without it: --device cpu",
        )
    return fine(text)


def _triton() -> Finding:
    version = _version_of("triton")
    if version is None:
        return poor("triton is not installed", f"a GPU needs it: {_WORKER}")
    return fine(f"triton {version}")


def _kernels() -> Finding:
    """Hugging Face ships a package of the same name."""
    spec = importlib.util.find_spec("kernels")
    ours = Path(__file__).parents[2] / "kernels"
    found = Path(spec.origin).parent if spec is not None and spec.origin else None
    foreign = _version_of("kernels")
    if foreign is not None or found != ours:
        return broken(
            f"the package `kernels` is not ours alone: {found}, Hugging Face's {foreign}",
            "pip uninstall kernels, or give splitserve an environment of its own",
        )
    return fine("the package `kernels` is ours")


def _cpu_kernels() -> Finding:
    try:
        facts = probe("cpu-kernels")
    except ProbeFailed as cause:
        facts = {"reason": str(cause)}
    if reason := facts["reason"]:
        return poor(
            f"CPU kernels run on torch: {reason}",
            "on a CPU they are several times slower so: install g++ if it is missing",
        )
    return fine(f"CPU kernels are native, for {facts['level']}")


def _nixl() -> Finding:
    try:
        facts = probe("nixl")
    except ProbeFailed as cause:
        return broken(f"NIXL cannot be used: {cause}", _WORKER)
    version = _version_of(facts["library"].replace("_", "-"))
    text = f"{facts['library']} {version}, plugins {', '.join(facts['plugins'])}"
    if "UCX" not in facts["plugins"]:
        return broken(text, "the UCX plugin is missing: install NIXL's wheel again")
    return fine(text)


def _transfer() -> Finding:
    try:
        facts = probe("transfer")
    except ProbeFailed as cause:
        return broken(f"KV blocks cannot be transferred: {cause}", _TRANSFER_HINT)
    text = (
        f"{facts['num_bytes'] / 2**20:.0f} MiB between two processes over {facts['transport']}: "
        f"{facts['gb_per_s']:.1f} GB/s verified, handshake {facts['handshake_ms']:.0f} ms"
    )
    return fine(text)


def _collectives() -> Finding:
    """A machine where ranks cannot meet serves all the same, on one device each."""
    try:
        facts = probe("collectives")
    except ProbeFailed as cause:
        text = f"ranks of one model cannot sum what they have: {cause}"
        return poor(text, "see the message; --tensor-parallel-size 1 needs no ranks")
    text = f"two ranks sum a row of 576 in {facts['median_us']:.1f} us over {facts['kind']}"
    if facts["why_slow"]:
        hint = "ranks are many times slower so than in shared memory"
        return poor(f"{text}: {facts['why_slow']}", hint)
    return fine(text)


def _ray() -> Finding:
    """A machine without one serves all the same."""
    if _version_of("ray") is None:
        return fine("Ray is not installed: ranks and workers are processes of one machine")
    try:
        facts = probe("ray")
    except ProbeFailed as cause:
        facts = {"reason": str(cause)}
    if reason := facts.get("reason"):
        return poor(f"Ray cannot be used: {reason}", _RAY_HINT)
    text = (
        f"ray {facts['version']}, {facts['whose']} at {facts['address']}: connected in "
        f"{facts['connect_s']:.1f} s, {facts['num_nodes']} node(s) with {facts['free']} free, "
        f"two actors placed and answering in {facts['place_s']:.1f} s"
    )
    version = tuple(map(int, facts["version"].split(".")[:2]))
    if not RAY_FROM <= version < RAY_BELOW:
        return poor(text, f"tested with 2.60; {_RAY_HINT}")
    return fine(text)


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
