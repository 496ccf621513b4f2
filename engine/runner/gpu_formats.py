"""Which formats a device has kernels for: asked before a weight is read."""

from __future__ import annotations

import torch
from msgspec import structs

from cluster.errors import ConfigError
from engine.contract.spec import DraftSpec, EngineSpec
from engine.contract.weight_format import WeightFormat, no_fp8_on_cpu
from kernels.triton.gpu import Gpu, gpu_of


def weights_on(device: torch.device, spec: EngineSpec) -> WeightFormat:
    """In which form this device holds the spec's matrices. Raises ConfigError for 8-bit floats
    that were asked for and that it cannot convert; a checkpoint's own are dequantized then."""
    if device.type == "cpu":
        return weights_on_cpu(spec)
    return weights_on_gpu(gpu_of(device), spec.weights, spec)


def draft_weights_on(device: torch.device, spec: EngineSpec, draft: DraftSpec) -> WeightFormat:
    """See weights_on: of a draft model beside the spec's. On a CPU as they are asked for."""
    if device.type == "cpu":
        return draft.weights
    return weights_on_gpu(gpu_of(device), draft.weights, structs.replace(spec, card=draft.card))


def weights_on_cpu(spec: EngineSpec) -> WeightFormat:
    """See weights_on. The spec may have been made for a device that was not known yet."""
    if spec.weights is WeightFormat.FP8:
        raise no_fp8_on_cpu()
    return _without_floats(spec.weights, spec)


def weights_on_gpu(gpu: Gpu, form: WeightFormat, spec: EngineSpec) -> WeightFormat:
    """See weights_on. Raises ConfigError for a GPU that is too old, too."""
    if not gpu.is_supported:
        raise ConfigError(
            f"this GPU has compute capability {_words(gpu)}; the kernels need 8.0 or later: "
            "choose --device cpu, or another machine",
            param="device",
        )
    if gpu.has_fp8:
        return form
    of = f"which GPUs take from compute capability 8.9 on; this one has {_words(gpu)}"
    if spec.kv == "fp8":
        raise ConfigError(f"kv is fp8, {of}; choose --kv int8: the same size", param="kv")
    if form is WeightFormat.FP8:
        raise ConfigError(f"weights is fp8, {of}; choose --weights int8", param="weights")
    return _without_floats(form, spec)


def _without_floats(form: WeightFormat, spec: EngineSpec) -> WeightFormat:
    quantization = spec.card.quantization
    is_float = quantization is not None and quantization.is_float
    return WeightFormat.FULL if form is WeightFormat.STORED and is_float else form


def _words(gpu: Gpu) -> str:
    major, minor = gpu.capability
    return f"{major}.{minor}"
