"""Which implementation runs: one table per device, chosen once when a model is loaded.

In the table is what a decoder's step is made of. What belongs to no model (block_copy,
block_digest, sample, likeliest) looks at its tensors' device: kvtransfer has no table to ask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from kernels.cpu.adapter_records import NativeAdapters
from kernels.cpu.alike_rows import has_alike_rows
from kernels.cpu.experts import pack_sorted
from kernels.cpu.grouped_linear import pack_native_linear
from kernels.cpu.head_linear import pack_heads
from kernels.cpu.latent_attention import latent_attention as torch_latent_attention
from kernels.cpu.native_kernels import NativeKernels
from kernels.cpu.native_latent import NativeLatent
from kernels.cpu.native_library import open_library, prepare_library
from kernels.cpu.native_sources import NativeLibrary
from kernels.cpu.route_experts import NativeRouting
from kernels.cpu.step_program import play_natively
from kernels.cpu.torch_attention import paged_attention as torch_attention
from kernels.reference.gated_mul import gated_mul
from kernels.reference.linear import TorchLinear
from kernels.reference.paged_attention import paged_attention
from kernels.reference.rms_norm import add_rms_norm, rms_norm
from kernels.reference.rope_write_kv import rope_write_kv
from kernels.tape.kernel_set import KernelSet

REFERENCE = KernelSet(
    name="reference",
    pack_linear=TorchLinear,
    rms_norm=rms_norm,
    add_rms_norm=add_rms_norm,
    rope_write_kv=rope_write_kv,
    paged_attention=paged_attention,
    gated_mul=gated_mul,
)


TORCH_CPU = replace(
    REFERENCE,
    name="torch",
    paged_attention=torch_attention,
    pack_experts=functools.partial(pack_sorted, TorchLinear, gated_mul),
    latent_attention=torch_latent_attention,
)


def prepare_kernels(device: torch.device, folder: Path, report: Callable[[float], None]) -> None:
    """Does what the first `kernels_for` of a machine would wait for: on a CPU it compiles, which a
    slow machine takes minutes for; `report` is told the fraction done."""
    if device.type == "cpu":
        prepare_library(folder, report)


def kernels_for(device: torch.device, folder: Path) -> KernelSet:
    """The fastest set that runs on this device. The first call on a machine may compile, and keeps
    the outcome in `folder`."""
    library = open_library(folder) if device.type == "cpu" else None
    if library is not None:
        return native_set(library)
    return triton_set() if device.type == "cuda" else TORCH_CPU


def native_set(library: NativeLibrary) -> KernelSet:
    """The native kernels, by the name of the level that they were compiled for."""
    kernels, latent = NativeKernels(library), NativeLatent(library)
    pack_linear = functools.partial(pack_native_linear, library)
    return KernelSet(
        name=library.level.name,
        pack_linear=pack_linear,
        rms_norm=kernels.rms_norm,
        add_rms_norm=kernels.add_rms_norm,
        rope_write_kv=kernels.rope_write_kv,
        paged_attention=kernels.paged_attention,
        gated_mul=kernels.gated_mul,
        head_norm=kernels.head_norm,
        pack_experts=functools.partial(pack_sorted, pack_linear, kernels.gated_mul),
        route_experts=NativeRouting(library).route_experts,
        pack_heads=functools.partial(pack_heads, library),
        write_latent=latent.write_latent,
        latent_attention=latent.latent_attention,
        add_adapters=NativeAdapters(library).add_adapters,
        play_natively=functools.partial(play_natively, library),
        has_alike_rows=has_alike_rows,
    )


def triton_set() -> KernelSet:
    """The Triton kernels, with cuBLAS behind products with plain weights."""
    from kernels.triton import (
        add_adapters,
        experts,
        gated_mul,
        head_norm,
        latent_attention,
        pack_linear,
        paged_attention,
        rms_norm,
        rope_write_kv,
        route_experts,
        write_latent,
    )

    return KernelSet(
        name="triton",
        pack_linear=pack_linear.pack_linear,
        rms_norm=rms_norm.rms_norm,
        add_rms_norm=rms_norm.add_rms_norm,
        rope_write_kv=rope_write_kv.rope_write_kv,
        paged_attention=paged_attention.paged_attention,
        gated_mul=gated_mul.gated_mul,
        head_norm=head_norm.head_norm,
        pack_experts=experts.TritonExperts,
        route_experts=route_experts.route_experts,
        write_latent=write_latent.write_latent,
        latent_attention=latent_attention.latent_attention,
        add_adapters=add_adapters.add_adapters,
    )
