"""What a kernel checks at its door. A failure is a bug of the caller, hence ValueError."""

from __future__ import annotations

import torch


def require(condition: bool, problem: str) -> None:
    """Raises ValueError(problem) unless `condition` holds."""
    if not condition:
        raise ValueError(problem)


def require_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """The shape is exactly this one."""
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; needed: {shape}")


def require_dtype(name: str, tensor: torch.Tensor, *allowed: torch.dtype) -> None:
    """The dtype is one of `allowed`."""
    if tensor.dtype not in allowed:
        raise ValueError(f"{name} is {tensor.dtype}; needed: {' or '.join(map(str, allowed))}")


def require_contiguous(name: str, tensor: torch.Tensor) -> None:
    """Rows follow each other without gaps."""
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}; needed: contiguous")


def require_same_device(first: torch.Tensor, *others: torch.Tensor) -> None:
    """All tensors are on one device."""
    for other in others:
        if other.device != first.device:
            raise ValueError(f"tensors are on {first.device} and {other.device}; needed: one")
