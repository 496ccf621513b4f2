"""The tensors of a mixture of experts: their names and shapes, and by what ranks share them."""

from __future__ import annotations

from cluster.models.card import DecoderConfig, MixtureConfig
from cluster.models.stored_tensor import Share, StoredTensor

ROUTER, ROUTER_BIAS = "mlp.gate.weight", "mlp.gate.e_score_correction_bias"
SHARED = "mlp.shared_experts."


def expert_prefix(index: int) -> str:
    """Of the names of one routed expert, without the layer's prefix."""
    return f"mlp.experts.{index}."


def mixture_tensors(config: DecoderConfig, mixture: MixtureConfig) -> dict[str, StoredTensor]:
    """Those of a mixture's layer, without the layer's prefix."""
    hidden, size = config.hidden_size, mixture.expert_size
    tensors = {ROUTER: StoredTensor(shape=(mixture.num_experts, hidden))}
    if mixture.has_score_bias:
        tensors[ROUTER_BIAS] = StoredTensor(shape=(mixture.num_experts,))
    for index in range(mixture.num_experts):
        tensors |= _gated(expert_prefix(index), hidden, size, Share.EXPERT, index)
    if mixture.shared_size:
        tensors |= _gated(SHARED, hidden, mixture.shared_size, Share.SHARED)
    return tensors


def _gated(
    prefix: str, hidden: int, size: int, share: Share, expert: int | None = None
) -> dict[str, StoredTensor]:
    inner = StoredTensor(shape=(size, hidden), share=share, expert=expert)
    summed = StoredTensor(shape=(hidden, size), share=share, expert=expert, is_summed=True)
    return {
        f"{prefix}gate_proj.weight": inner,
        f"{prefix}up_proj.weight": inner,
        f"{prefix}down_proj.weight": summed,
    }
