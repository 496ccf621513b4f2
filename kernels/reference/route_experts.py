"""Which experts a row goes to, and with what weights.

Sources: Mixtral (Jiang et al., 2024), DeepSeek-V2 (2024, 2.2.2: groups that limit a row's devices),
DeepSeek-V3 (2024, 2.1.2: sigmoid scores, a bias that counts for the choice only).
"""

from __future__ import annotations

import torch

from kernels.experts import GroupRank, RoutingRule, ScoreFunction, check_routing

SMALLEST_SUM = 1e-20
"""Added before weights are normalized: sigmoids may all be zero."""


def route_experts(
    logits: torch.Tensor, bias: torch.Tensor | None, rule: RoutingRule
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits float32 [num_rows, num_experts], bias float32 [num_experts]
    -> ids int64 [num_rows, num_chosen], weights float32 [num_rows, num_chosen], best first.

    The bias is added to the scores for the choice; weights are the scores without it.
    """
    check_routing(logits, bias, rule)
    softmax = rule.score is ScoreFunction.SOFTMAX
    return routed(logits.softmax(dim=-1) if softmax else logits.sigmoid(), bias, rule)


def routed(
    scores: torch.Tensor, bias: torch.Tensor | None, rule: RoutingRule
) -> tuple[torch.Tensor, torch.Tensor]:
    """By scores, float32 [num_rows, num_experts]: see `route_experts`."""
    ranked = scores if bias is None else scores + bias
    if rule.num_chosen_groups < rule.num_groups:
        ranked = _in_best_groups(ranked, rule)
    ids = ranked.topk(rule.num_chosen, dim=-1).indices
    weights = scores.gather(1, ids)
    if rule.normalizes_weights:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + SMALLEST_SUM)
    return ids, weights * rule.scaling_factor


def _in_best_groups(ranked: torch.Tensor, rule: RoutingRule) -> torch.Tensor:
    """Scores outside the chosen groups become -infinity."""
    shape = (ranked.shape[0], rule.num_groups, ranked.shape[1] // rule.num_groups)
    groups = ranked.view(shape)  # [num_rows, num_groups, members]
    counted = 1 if rule.group_rank is GroupRank.BEST else 2
    ranks = groups.topk(counted, dim=-1).values.sum(dim=-1)  # [num_rows, num_groups]
    kept = torch.zeros_like(ranks, dtype=torch.bool)
    kept.scatter_(1, ranks.topk(rule.num_chosen_groups, dim=-1).indices, True)
    return groups.masked_fill(~kept[..., None], float("-inf")).flatten(1)
