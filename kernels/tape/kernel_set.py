"""The kernels of one device as a table: what layers pack their matrices with, and what a player
calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.adapters import AddAdaptersKernel
from kernels.experts import PackExperts, RouteExpertsKernel
from kernels.gated_mul import GatedMulKernel
from kernels.latent import LatentAttentionKernel, PackHeads, WriteLatentKernel
from kernels.linear import Linear
from kernels.paged_queries import PagedQueries
from kernels.reference.add_adapters import add_adapters
from kernels.reference.experts import ReferenceExperts
from kernels.reference.head_linear import TorchHeadLinear
from kernels.reference.head_norm import head_norm
from kernels.reference.latent_attention import latent_attention
from kernels.reference.route_experts import route_experts
from kernels.reference.write_latent import write_latent
from kernels.tape.recording import Player, Recording
from kernels.weights import Weight


class PackLinear(Protocol):
    """Takes a weight [out, in] and a bias [out]; the caller drops its own references."""

    def __call__(self, weight: Weight, bias: torch.Tensor | None = None) -> Linear: ...


class PagedAttentionKernel(Protocol):
    """Query, a layer of the pool, the ragged batch, the scale of scores; with a window, a token
    sees itself and the window - 1 tokens before it."""

    def __call__(
        self,
        query: torch.Tensor,
        kv_layer: torch.Tensor,
        queries: PagedQueries,
        scale: float,
        window: int | None = None,
    ) -> torch.Tensor: ...


RopeWriteKvKernel = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor
]

HeadNormKernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """The operations of a decoder layer; `kernels/reference/` says what each does."""

    name: str
    pack_linear: PackLinear
    rms_norm: Callable[[torch.Tensor, torch.Tensor, float, torch.dtype], torch.Tensor]
    add_rms_norm: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
    rope_write_kv: RopeWriteKvKernel
    paged_attention: PagedAttentionKernel
    gated_mul: GatedMulKernel
    head_norm: HeadNormKernel = head_norm
    pack_experts: PackExperts = ReferenceExperts
    route_experts: RouteExpertsKernel = route_experts
    pack_heads: PackHeads = TorchHeadLinear
    write_latent: WriteLatentKernel = write_latent
    latent_attention: LatentAttentionKernel = latent_attention
    add_adapters: AddAdaptersKernel = add_adapters
    play_natively: Callable[[Recording], Player] | None = None
    """Raises NoNativeForm. None: the set has no programs, a forward goes kernel by kernel."""
    has_alike_rows: Callable[[Recording], bool] | None = None
    """See Player, kernel by kernel. None: rows of no recording are alike."""
